"""Ant: run along x on four legs; -v5 observes the contact forces and pays for them, -v4 does when asked to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np

from afedpg.compiled import jit
from afedpg.sampling.native.tasks import task
from afedpg.sampling.native.tasks.task import Action, Array, NativeTask, World, clip, control_cost, write

FORWARD, CONTROL, HEALTHY, ALWAYS_HEALTHY_REWARD, TERMINATE, SKIPPED, LOW_Z, HIGH_Z, BODY = range(9)
CONTACT_COST, LOW_FORCE, HIGH_FORCE, FIRST_OBSERVED_BODY = range(9, 13)


@task.measure
def observe(world: World, settings: Array, observation: Array) -> None:
    start = write(world.qpos[int(settings[SKIPPED]) :], observation, 0)
    start = write(world.qvel, observation, start)
    for body in range(int(settings[FIRST_OBSERVED_BODY]), world.cfrc_ext.shape[0]):
        for i in range(6):
            observation[start] = clip(world.cfrc_ext[body, i], settings[LOW_FORCE], settings[HIGH_FORCE])
            start += 1


@task.measure
def track(world: World, settings: Array, tracked: Array) -> None:
    tracked[0] = world.xpos[int(settings[BODY]), 0]


@jit
def is_healthy(world: World, settings: Array) -> bool:
    for value in world.qpos:
        if not np.isfinite(value):
            return False
    for value in world.qvel:
        if not np.isfinite(value):
            return False
    return bool(settings[LOW_Z] <= world.qpos[2] <= settings[HIGH_Z])


@jit
def contact_cost(world: World, settings: Array) -> float:
    total = 0.0
    for force in world.cfrc_ext.flat:
        total += clip(force, settings[LOW_FORCE], settings[HIGH_FORCE]) ** 2
    return float(settings[CONTACT_COST] * total)


@task.reward
def reward(world: World, settings: Array, before: Array, after: Array, action: Action) -> float:
    velocity = (after[0] - before[0]) / world.dt
    rewarded = settings[ALWAYS_HEALTHY_REWARD] != 0 or is_healthy(world, settings)
    healthy_reward = settings[HEALTHY] if rewarded else 0.0
    costs = control_cost(settings[CONTROL], action)
    if settings[CONTACT_COST] != 0:
        costs += contact_cost(world, settings)
    return float(settings[FORWARD] * velocity + healthy_reward - costs)


@task.terminated
def terminated(world: World, settings: Array) -> bool:
    return settings[TERMINATE] != 0 and not is_healthy(world, settings)


def _settings_v4(env: Any) -> Sequence[float]:
    torso = mujoco.mj_name2id(env.model, mujoco.mjtObj.mjOBJ_BODY, "torso")
    used = env._use_contact_forces
    return (
        *task.upright_settings(env, 4, 2),
        torso,
        env._contact_cost_weight if used else 0.0,
        *env._contact_force_range,
        0 if used else env.model.nbody,
    )


def _settings_v5(env: Any) -> Sequence[float]:
    body = env.data.body(env._main_body).id  # a name or a number
    return (
        *task.upright_settings(env, 5, 2),
        body,
        env._contact_cost_weight,
        *env._contact_force_range,
        1 if env._include_cfrc_ext_in_observation else env.model.nbody,
    )


ANT_V4 = NativeTask(
    observe=observe,
    track=track,
    reward=reward,
    terminated=terminated,
    reset=task.gaussian_velocity_reset,
    settings=_settings_v4,
    contact_forces=lambda env: bool(env._use_contact_forces),
    model_file="ant.xml",
)
ANT_V5 = replace(
    ANT_V4,
    settings=_settings_v5,
    contact_forces=lambda env: bool(env._include_cfrc_ext_in_observation or env._contact_cost_weight),
)
