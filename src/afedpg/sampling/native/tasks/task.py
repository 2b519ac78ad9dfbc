"""What a MuJoCo task is made of, apart from its physics: four short compiled functions and how an episode starts.

    observe(world, settings, observation)                      fills observation [obs]
    track(world, settings, tracked)                            fills tracked [8]: what the reward compares over a step
    reward(world, settings, before, after, action) -> float    before, after: tracked, on both sides of the step
    terminated(world, settings) -> bool

Compiled by the decorators below, each with one fixed signature: the rollout is compiled once and serves every task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import types as numba_types
from numpy.typing import NDArray

from afedpg.compiled import first_class, jit

TRACKED = 8  # numbers a task may carry from one step to the next

Array = NDArray[np.float64]
Action = NDArray[np.float32]


class World(NamedTuple):
    """MuJoCo's own arrays, by their MuJoCo names; views, so they always show the present."""

    dt: float  # seconds per environment step: timestep x frame_skip
    qpos: Array  # [nq]
    qvel: Array  # [nv]
    ctrl: Array  # [nu]
    qfrc_actuator: Array  # [nv]
    qfrc_constraint: Array  # [nv]
    sensordata: Array  # [nsensordata]
    xpos: Array  # [nbody, 3]
    xquat: Array  # [nbody, 4]
    xipos: Array  # [nbody, 3]
    subtree_com: Array  # [nbody, 3]
    cinert: Array  # [nbody, 10]
    cvel: Array  # [nbody, 6]
    cfrc_ext: Array  # [nbody, 6] up to date only where the task asks for contact forces
    site_xpos: Array  # [nsite, 3]
    body_mass: Array  # [nbody] of the model


types: Any = numba_types
_ROW, _TABLE = types.float64[::1], types.float64[:, ::1]
_WORLD = types.NamedTuple((types.float64, *[_ROW] * 6, *[_TABLE] * 8, _ROW), World)
_MEASURE = types.void(_WORLD, _ROW, _ROW)
_REWARD = types.float64(_WORLD, _ROW, _ROW, _ROW, types.float32[::1])
_TERMINATED = types.boolean(_WORLD, _ROW)

Measure = Callable[[World, Array, Array], None]
Reward = Callable[[World, Array, Array, Array, Action], float]
Terminated = Callable[[World, Array], bool]


def measure(function: Measure) -> Measure:
    """Decorates `observe` and `track`."""
    return first_class(_MEASURE, function)


def reward(function: Reward) -> Reward:
    return first_class(_REWARD, function)


def terminated(function: Terminated) -> Terminated:
    return first_class(_TERMINATED, function)


Reset = Callable[[Any, np.random.Generator], tuple[Array, Array]]


@dataclass(frozen=True)
class NativeTask:
    """`env` is the unwrapped Gymnasium environment the task copies: its constructor arguments are read from it."""

    observe: Measure
    track: Measure
    reward: Reward
    terminated: Terminated
    reset: Reset  # (env, generator) -> qpos [nq], qvel [nv]; the very draws of env.reset(seed)
    settings: Callable[[Any], Sequence[float]]  # env -> the numbers the four functions read
    contact_forces: Callable[[Any], bool] = lambda env: False  # whether cfrc_ext is read: it costs a pass per step
    model_file: str = ""  # the XML the task was written for; any if empty


@measure
def track_nothing(world: World, settings: Array, tracked: Array) -> None:
    """For tasks whose reward looks at the present only."""


@measure
def track_root(world: World, settings: Array, tracked: Array) -> None:
    """The first coordinate: x of the root joint."""
    tracked[0] = world.qpos[0]


@terminated
def never_terminated(world: World, settings: Array) -> bool:
    return False


@jit
def control_cost(weight: float, action: Action) -> float:
    """weight |action|^2 in float32 and in numpy's own order of addition, as Gymnasium gets it for float32 actions."""
    cost: float = np.float64(np.float32(weight) * _sum_of_squares(action))
    return cost


@jit
def _sum_of_squares(values: NDArray[np.float32]) -> Any:
    """np.sum(np.square(values)) to the bit, for fewer than 129 float32: eight partial sums, joined pairwise."""
    count = values.size
    if count < 8:
        total = np.float32(0)
        for i in range(count):
            total += values[i] * values[i]
        return total
    partial = np.zeros(8, np.float32)
    whole = count - count % 8
    for i in range(whole):
        partial[i % 8] += values[i] * values[i]
    total = ((partial[0] + partial[1]) + (partial[2] + partial[3])) + (
        (partial[4] + partial[5]) + (partial[6] + partial[7])
    )
    for i in range(whole, count):
        total += values[i] * values[i]
    return total


@jit
def clip(value: float, low: float, high: float) -> float:
    """np.clip for one number: NaN stays NaN."""
    if value < low:
        return low
    if value > high:
        return high
    return value


@jit
def write(values: Array, target: Array, start: int) -> int:
    """Copy values into the target from `start` on; where the next ones go."""
    for i in range(values.size):
        target[start + i] = values[i]
    return start + values.size


def upright_settings(env: Any, version: int, hidden_positions: int) -> tuple[float, ...]:
    """Of tasks that pay for staying healthy, in this order; the height has bounds. Ant-v4 has no weight of velocity."""
    return (
        getattr(env, "_forward_reward_weight", 1.0),
        env._ctrl_cost_weight,
        env._healthy_reward,
        version == 4 and env._terminate_when_unhealthy,  # -v4 pays it for the last step as well
        env._terminate_when_unhealthy,
        hidden_positions if env._exclude_current_positions_from_observation else 0,
        *env._healthy_z_range,
    )


def uniform_reset(env: Any, generator: np.random.Generator) -> tuple[Array, Array]:
    """Both positions and velocities off by uniform noise of the environment's scale."""
    scale = env._reset_noise_scale
    qpos = env.init_qpos + generator.uniform(low=-scale, high=scale, size=env.model.nq)
    return qpos, env.init_qvel + generator.uniform(low=-scale, high=scale, size=env.model.nv)


def gaussian_velocity_reset(env: Any, generator: np.random.Generator) -> tuple[Array, Array]:
    """Positions off by uniform, velocities by Gaussian noise."""
    scale = env._reset_noise_scale
    qpos = env.init_qpos + generator.uniform(low=-scale, high=scale, size=env.model.nq)
    return qpos, env.init_qvel + scale * generator.standard_normal(env.model.nv)
