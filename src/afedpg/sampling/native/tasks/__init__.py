"""The MuJoCo tasks that can be rolled out in compiled code, found by the class of their Gymnasium environment."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from afedpg.sampling.native.tasks.task import NativeTask

# Gymnasium's class -> where the task lies; imported only when asked for, because a task's functions compile on import.
GYMNASIUM = {
    "swimmer_v4:SwimmerEnv": "swimmer:SWIMMER",
    "swimmer_v5:SwimmerEnv": "swimmer:SWIMMER",
    "half_cheetah_v4:HalfCheetahEnv": "swimmer:HALF_CHEETAH",
    "half_cheetah_v5:HalfCheetahEnv": "swimmer:HALF_CHEETAH",
    "hopper_v4:HopperEnv": "walker:HOPPER_V4",
    "hopper_v5:HopperEnv": "walker:HOPPER_V5",
    "walker2d_v4:Walker2dEnv": "walker:WALKER_V4",
    "walker2d_v5:Walker2dEnv": "walker:WALKER_V5",
    "ant_v4:AntEnv": "ant:ANT_V4",
    "ant_v5:AntEnv": "ant:ANT_V5",
    "humanoid_v4:HumanoidEnv": "humanoid:HUMANOID_V4",
    "humanoid_v5:HumanoidEnv": "humanoid:HUMANOID_V5",
    "inverted_pendulum_v4:InvertedPendulumEnv": "pendulum:PENDULUM_V4",
    "inverted_pendulum_v5:InvertedPendulumEnv": "pendulum:PENDULUM_V5",
    "inverted_double_pendulum_v4:InvertedDoublePendulumEnv": "pendulum:DOUBLE_PENDULUM_V4",
    "inverted_double_pendulum_v5:InvertedDoublePendulumEnv": "pendulum:DOUBLE_PENDULUM_V5",
}


def task_of(kind: type) -> NativeTask | None:
    """The task of exactly this class: a subclass may do anything, so it does not inherit one.

    A class of one's own carries its task as the attribute `native_task`.
    """
    own: NativeTask | None = vars(kind).get("native_task")
    if own is not None or not has_task(kind):
        return own
    name, _, attribute = GYMNASIUM[_name(kind)].partition(":")
    found: NativeTask = getattr(importlib.import_module(f"afedpg.sampling.native.tasks.{name}"), attribute)
    return found


def has_task(kind: type) -> bool:
    """Without importing, and so compiling, anything."""
    return "native_task" in vars(kind) or _name(kind) in GYMNASIUM


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}".removeprefix("gymnasium.envs.mujoco.")
