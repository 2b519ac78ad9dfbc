"""InvertedPendulum and InvertedDoublePendulum: keep a pole, or two on top of each other, upright on a cart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from afedpg.compiled import jit
from afedpg.sampling.native.tasks import task
from afedpg.sampling.native.tasks.task import Action, Array, NativeTask, World, clip, write

PAID_AT_THE_END = 0  # InvertedPendulum-v4 pays its 1 for the last step as well
HEALTHY, CONSTRAINTS = 1, 2  # of InvertedDoublePendulum: the bonus, and how many constraint forces are observed


@task.measure
def observe(world: World, settings: Array, observation: Array) -> None:
    write(world.qvel, observation, write(world.qpos, observation, 0))


@jit
def has_fallen(world: World) -> bool:
    finite = True
    for i in range(2):
        finite = finite and np.isfinite(world.qpos[i]) and np.isfinite(world.qvel[i])
    return not finite or abs(world.qpos[1]) > 0.2


@task.terminated
def terminated(world: World, settings: Array) -> bool:
    return has_fallen(world)


@task.reward
def reward(world: World, settings: Array, before: Array, after: Array, action: Action) -> float:
    return 1.0 if settings[PAID_AT_THE_END] != 0 or not has_fallen(world) else 0.0


@task.measure
def observe_double(world: World, settings: Array, observation: Array) -> None:
    observation[0] = world.qpos[0]
    for i in range(2):
        observation[1 + i] = np.sin(world.qpos[1 + i])
        observation[3 + i] = np.cos(world.qpos[1 + i])
    for i in range(3):
        observation[5 + i] = clip(world.qvel[i], -10.0, 10.0)
    for i in range(int(settings[CONSTRAINTS])):
        observation[8 + i] = clip(world.qfrc_constraint[i], -10.0, 10.0)


@task.terminated
def terminated_double(world: World, settings: Array) -> bool:
    return bool(world.site_xpos[0, 2] <= 1)


@task.reward
def reward_double(world: World, settings: Array, before: Array, after: Array, action: Action) -> float:
    x, y = world.site_xpos[0, 0], world.site_xpos[0, 2]  # of the tip
    paid = settings[PAID_AT_THE_END] != 0 or not y <= 1
    bonus = settings[HEALTHY] if paid else 0.0
    distance_penalty = 0.01 * x**2 + (y - 2) ** 2
    velocity_penalty = 1e-3 * world.qvel[1] ** 2 + 5e-3 * world.qvel[2] ** 2
    return float(bonus - distance_penalty - velocity_penalty)


def _reset_v4(env: Any, generator: np.random.Generator) -> tuple[Array, Array]:
    qpos = env.init_qpos + generator.uniform(low=-0.01, high=0.01, size=env.model.nq)
    return qpos, env.init_qvel + generator.uniform(low=-0.01, high=0.01, size=env.model.nv)


def _reset_double_v4(env: Any, generator: np.random.Generator) -> tuple[Array, Array]:
    qpos = env.init_qpos + generator.uniform(low=-0.1, high=0.1, size=env.model.nq)
    return qpos, env.init_qvel + generator.standard_normal(env.model.nv) * 0.1


PENDULUM_V4 = NativeTask(
    observe=observe,
    track=task.track_nothing,
    reward=reward,
    terminated=terminated,
    reset=_reset_v4,
    settings=lambda env: (1,),
    model_file="inverted_pendulum.xml",
)
PENDULUM_V5 = replace(PENDULUM_V4, reset=task.uniform_reset, settings=lambda env: (0,))
DOUBLE_PENDULUM_V4 = NativeTask(
    observe=observe_double,
    track=task.track_nothing,
    reward=reward_double,
    terminated=terminated_double,
    reset=_reset_double_v4,
    settings=lambda env: (1, 10, 3),
    model_file="inverted_double_pendulum.xml",
)
DOUBLE_PENDULUM_V5 = replace(
    DOUBLE_PENDULUM_V4,
    reset=task.gaussian_velocity_reset,
    settings=lambda env: (0, env._healthy_reward, 1),
)
