"""Humanoid: run along x upright; observes inertias, velocities and forces of every body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from afedpg.compiled import jit
from afedpg.sampling.native.tasks import task
from afedpg.sampling.native.tasks.task import Action, Array, NativeTask, World, clip, write

FORWARD, CONTROL, HEALTHY, ALWAYS_HEALTHY_REWARD, TERMINATE, SKIPPED, LOW_Z, HIGH_Z = range(8)
CONTACT_COST, LOW_COST, HIGH_COST, INERTIA, VELOCITY, ACTUATOR, CONTACT, FIRST_BODY, FIRST_JOINT = range(8, 17)


@jit
def write_bodies(values: Array, first: int, observation: Array, start: int) -> int:
    for body in range(first, values.shape[0]):
        start = write(values[body], observation, start)
    return start


@task.measure
def observe(world: World, settings: Array, observation: Array) -> None:
    first = int(settings[FIRST_BODY])  # -v5 leaves out the world, whose rows are constant
    start = write(world.qpos[int(settings[SKIPPED]) :], observation, 0)
    start = write(world.qvel, observation, start)
    if settings[INERTIA] != 0:
        start = write_bodies(world.cinert, first, observation, start)
    if settings[VELOCITY] != 0:
        start = write_bodies(world.cvel, first, observation, start)
    if settings[ACTUATOR] != 0:
        start = write(world.qfrc_actuator[int(settings[FIRST_JOINT]) :], observation, start)
    if settings[CONTACT] != 0:
        write_bodies(world.cfrc_ext, first, observation, start)


@task.measure
def track(world: World, settings: Array, tracked: Array) -> None:
    """x of the centre of mass, from MuJoCo's xipos of the last substep, as Gymnasium has it."""
    weighted, mass = 0.0, 0.0
    for body in range(world.body_mass.size):
        weighted += world.body_mass[body] * world.xipos[body, 0]
        mass += world.body_mass[body]
    tracked[0] = weighted / mass


@jit
def is_healthy(world: World, settings: Array) -> bool:
    return bool(settings[LOW_Z] < world.qpos[2] < settings[HIGH_Z])


@jit
def sum_of_squares(values: Array) -> float:
    total = 0.0
    for value in values.flat:
        total += value * value
    return total


@task.reward
def reward(world: World, settings: Array, before: Array, after: Array, action: Action) -> float:
    velocity = (after[0] - before[0]) / world.dt
    rewarded = settings[ALWAYS_HEALTHY_REWARD] != 0 or is_healthy(world, settings)
    healthy_reward = settings[HEALTHY] if rewarded else 0.0
    costs = settings[CONTROL] * sum_of_squares(world.ctrl)
    if settings[CONTACT_COST] != 0:
        contact = settings[CONTACT_COST] * sum_of_squares(world.cfrc_ext)
        costs += clip(contact, settings[LOW_COST], settings[HIGH_COST])
    return float(settings[FORWARD] * velocity + healthy_reward - costs)


@task.terminated
def terminated(world: World, settings: Array) -> bool:
    return settings[TERMINATE] != 0 and not is_healthy(world, settings)


def _settings_v4(env: Any) -> Sequence[float]:
    return *task.upright_settings(env, 4, 2), 0, 0, 0, 1, 1, 1, 1, 0, 0


def _settings_v5(env: Any) -> Sequence[float]:
    return (
        *task.upright_settings(env, 5, 2), env._contact_cost_weight, *env._contact_cost_range,
        env._include_cinert_in_observation, env._include_cvel_in_observation,
        env._include_qfrc_actuator_in_observation, env._include_cfrc_ext_in_observation, 1, 6,
    )  # fmt: skip


HUMANOID_V4 = NativeTask(
    observe=observe,
    track=track,
    reward=reward,
    terminated=terminated,
    reset=task.uniform_reset,
    settings=_settings_v4,
    contact_forces=lambda env: True,
    model_file="humanoid.xml",
)
HUMANOID_V5 = replace(
    HUMANOID_V4,
    settings=_settings_v5,
    contact_forces=lambda env: bool(env._include_cfrc_ext_in_observation or env._contact_cost_weight),
)
