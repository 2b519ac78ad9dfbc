"""Swimmer and HalfCheetah: run forward, pay for control, never terminate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from afedpg.sampling.native.tasks import task
from afedpg.sampling.native.tasks.task import Action, Array, NativeTask, World, control_cost, write

FORWARD, CONTROL, SKIPPED = range(3)


@task.measure
def observe(world: World, settings: Array, observation: Array) -> None:
    start = write(world.qpos[int(settings[SKIPPED]) :], observation, 0)
    write(world.qvel, observation, start)


@task.reward
def reward(world: World, settings: Array, before: Array, after: Array, action: Action) -> float:
    velocity = (after[0] - before[0]) / world.dt
    return float(settings[FORWARD] * velocity - control_cost(settings[CONTROL], action))


def _settings(env: Any, hidden_positions: int) -> Sequence[float]:
    skipped = hidden_positions if env._exclude_current_positions_from_observation else 0
    return env._forward_reward_weight, env._ctrl_cost_weight, skipped


SWIMMER = NativeTask(
    observe=observe,
    track=task.track_root,
    reward=reward,
    terminated=task.never_terminated,
    reset=task.uniform_reset,
    settings=lambda env: _settings(env, 2),
    model_file="swimmer.xml",
)
HALF_CHEETAH = replace(
    SWIMMER,
    reset=task.gaussian_velocity_reset,
    settings=lambda env: _settings(env, 1),
    model_file="half_cheetah.xml",
)
