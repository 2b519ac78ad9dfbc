"""Hopper and Walker2d: run forward while height, angle (and for Hopper the whole state) stay within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from afedpg.compiled import jit
from afedpg.sampling.native.tasks import task
from afedpg.sampling.native.tasks.task import Action, Array, NativeTask, World, clip, control_cost, write

FORWARD, CONTROL, HEALTHY, ALWAYS_HEALTHY_REWARD, TERMINATE, SKIPPED = range(6)
LOW_Z, HIGH_Z, LOW_ANGLE, HIGH_ANGLE, BOUNDED_STATE, LOW_STATE, HIGH_STATE = range(6, 13)


@task.measure
def observe(world: World, settings: Array, observation: Array) -> None:
    start = write(world.qpos[int(settings[SKIPPED]) :], observation, 0)
    for i in range(world.qvel.size):
        observation[start + i] = clip(world.qvel[i], -10.0, 10.0)


@jit
def within(values: Array, low: float, high: float) -> bool:
    """Strictly, and NaN is not."""
    inside = True
    for value in values:
        inside &= low < value < high
    return inside


@jit
def is_healthy(world: World, settings: Array) -> bool:
    z, angle = world.qpos[1], world.qpos[2]
    if not (settings[LOW_Z] < z < settings[HIGH_Z] and settings[LOW_ANGLE] < angle < settings[HIGH_ANGLE]):
        return False
    if settings[BOUNDED_STATE] == 0:
        return True
    low, high = settings[LOW_STATE], settings[HIGH_STATE]
    return within(world.qpos[2:], low, high) and within(world.qvel, low, high)


@task.reward
def reward(world: World, settings: Array, before: Array, after: Array, action: Action) -> float:
    velocity = (after[0] - before[0]) / world.dt
    rewarded = settings[ALWAYS_HEALTHY_REWARD] != 0 or is_healthy(world, settings)
    healthy_reward = settings[HEALTHY] if rewarded else 0.0
    return float(settings[FORWARD] * velocity + healthy_reward - control_cost(settings[CONTROL], action))


@task.terminated
def terminated(world: World, settings: Array) -> bool:
    return settings[TERMINATE] != 0 and not is_healthy(world, settings)


def _settings(env: Any, version: int) -> Sequence[float]:
    state_range = getattr(env, "_healthy_state_range", None)
    return (
        *task.upright_settings(env, version, 1),
        *env._healthy_angle_range,
        *((0, 0, 0) if state_range is None else (1, *state_range)),
    )


HOPPER_V4 = NativeTask(
    observe=observe,
    track=task.track_root,
    reward=reward,
    terminated=terminated,
    reset=task.uniform_reset,
    settings=lambda env: _settings(env, 4),
    model_file="hopper.xml",
)
HOPPER_V5 = replace(HOPPER_V4, settings=lambda env: _settings(env, 5))
WALKER_V4 = replace(HOPPER_V4, model_file="walker2d.xml")
WALKER_V5 = replace(HOPPER_V5, model_file="walker2d_v5.xml")
