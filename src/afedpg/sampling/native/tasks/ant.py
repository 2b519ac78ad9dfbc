"""Ant: run along x on four legs; -v5 observes the contact forces and pays for them, -v4 does when asked to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from afedpg.compiled import jit
from afedpg.sampling.native.tasks import task
from afedpg.sampling.native.tasks.task import NativeTask, World, clip, control_cost, write

FORWARD, CONTROL, HEALTHY, ALWAYS_HEALTHY_REWARD, TERMINATE, SKIPPED, LOW_Z, HIGH_Z, BODY = range(9)
CONTACT_COST, LOW_FORCE, HIGH_FORCE, FIRST_OBSERVED_BODY = range(9, 13)


@task.measure
def observe(world: World, settings: NDArray[np.float64], observation: NDArray[np.float64]) -> None:
    start = write(world.qpos[int(settings[SKIPPED]) :], observation, 0)
    start = write(world.qvel, observation, start)
    for body in range(int(settings[FIRST_OBSERVED_BODY]), world.cfrc_ext.shape[0]):
        for i in range(6):
            observation[start] = clip(world.cfrc_ext[body, i], settings[LOW_FORCE], settings[HIGH_FORCE])
            start += 1


@task.measure
def track(world: World, settings: NDArray[np.float64], tracked: NDArray[np.float64]) -> None:
    tracked[0] = world.xpos[int(settings[BODY]), 0]


@jit
def is_healthy(world: World, settings: NDArray[np.float64]) -> bool:
    for value in world.qpos:
        if not np.isfinite(value):
            return False
    for value in world.qvel:
        if not np.isfinite(value):
            return False
    return bool(settings[LOW_Z] <= world.qpos[2] <= settings[HIGH_Z])


@jit
def contact_cost(world: World, settings: NDArray[np.float64]) -> float:
    total = 0.0
    for force in world.cfrc_ext.flat:
        total += clip(force, settings[LOW_FORCE], settings[HIGH_FORCE]) ** 2
    return float(settings[CONTACT_COST] * total)


@task.reward
def reward(
    world: World,
    settings: NDArray[np.float64],
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    action: NDArray[np.float32],
) -> float:
    velocity = (after[0] - before[0]) / world.dt
    rewarded = settings[ALWAYS_HEALTHY_REWARD] != 0 or is_healthy(world, settings)
    healthy_reward = settings[HEALTHY] if rewarded else 0.0
    costs = control_cost(settings[CONTROL], action)
    if settings[CONTACT_COST] != 0:
        costs += contact_cost(world, settings)
    return float(settings[FORWARD] * velocity + healthy_reward - costs)


@task.terminated
def terminated(world: World, settings: NDArray[np.float64]) -> bool:
    return settings[TERMINATE] != 0 and not is_healthy(world, settings)


def _shared(env: Any, forward: float, always_healthy_reward: bool, body: int) -> Sequence[float]:
    skipped = 2 if env._exclude_current_positions_from_observation else 0
    return (
        forward, env._ctrl_cost_weight, env._healthy_reward, always_healthy_reward, env._terminate_when_unhealthy,
        skipped, *env._healthy_z_range, body,
    )  # fmt: skip


def _settings_v4(env: Any) -> Sequence[float]:
    torso = mujoco.mj_name2id(env.model, mujoco.mjtObj.mjOBJ_BODY, "torso")
    used = env._use_contact_forces
    return (
        *_shared(env, 1.0, env._terminate_when_unhealthy, torso),
        env._contact_cost_weight if used else 0.0,
        *env._contact_force_range,
        0 if used else env.model.nbody,
    )


def _settings_v5(env: Any) -> Sequence[float]:
    body = env.data.body(env._main_body).id  # a name or a number
    return (
        *_shared(env, env._forward_reward_weight, False, body),
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
