"""What an environment answers, taken apart. What is not as Gymnasium has it is named, with what to return instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from afedpg.errors import ConfigError


class Wrong(Exception):
    """An answer that cannot be used; the text goes on from "the environment"."""


def opening(answer: Any) -> Any:
    """The observation that env.reset returned."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong(f"returned {_kind(answer)} from reset instead of (observation, info)")
    return answer[0]


def outcome(answer: Any) -> tuple[Any, float, bool, bool]:
    """Observation, reward, terminated and truncated, as env.step returned them."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 5:
        wanted = "(observation, reward, terminated, truncated, info)"
        raise Wrong(f"returned {_kind(answer)} from step instead of {wanted}")
    observation, reward, terminated, truncated, _ = answer
    return observation, _number(reward), _flag("terminated", terminated), _flag("truncated", truncated)


def _number(reward: Any) -> float:
    if isinstance(reward, (float, int)):  # nearly always
        return float(reward)
    if not isinstance(reward, (str, bytes)) and np.shape(reward) == ():
        try:
            return float(reward)
        except (TypeError, ValueError):
            pass
    raise Wrong(f"returned {_kind(reward)} as the reward instead of one number, as float(...) gives")


def _flag(name: str, value: Any) -> bool:
    if type(value) is bool:
        return value
    if value is not None and not isinstance(value, (str, bytes, Mapping, tuple, list)):
        try:
            return bool(value)
        except (TypeError, ValueError, RuntimeError):
            pass
    raise Wrong(f"returned {_kind(value)} as `{name}` instead of True or False")


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (tuple, list, Mapping)):
        return f"a {type(value).__name__} of {len(value)}"
    shape = getattr(value, "shape", ())
    return f"an array of shape {tuple(shape)}" if shape else f"a {type(value).__name__}"


def check_kind(env: Any, where: str) -> None:
    """PettingZoo's, Gym's and vector environments look alike, and are used in other ways."""
    inner = type(env.unwrapped if isinstance(env, gymnasium.Env) else env)
    kind = f"{inner.__module__}.{inner.__qualname__}"
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"{where}: {kind} is no gymnasium.Env; derive the class from gymnasium.Env, or wrap what it is in one that "
            "has the reset, step and spaces of a single agent"
        )
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gymnasium.Space):
            raise ConfigError(f"{where}: {kind}'s {name} is {_kind(space)}; set it to one of gymnasium.spaces")
