"""Gravity, friction and wind of MuJoCo tasks as settings, whether or not the task's own constructor knows them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from afedpg.errors import ConfigError
from afedpg.sampling.sites import changes_of

NAMES = ("gravity", "friction", "wind")


@dataclass(frozen=True)
class Physics:
    """What is changed in a MuJoCo model."""

    task: str
    values: Mapping[str, Any]

    def apply(self, env: gymnasium.Env[Any, Any]) -> None:
        """gravity: m/s^2 upwards (-9.81 is the earth's); friction: a factor; wind: m/s along x, or (x, y, z)."""
        model = getattr(env.unwrapped, "model", None)
        if not hasattr(model, "geom_friction"):
            env.close()
            known = [name for name in self.values if name in changes_of(env)]
            other = f"; --sites {known[0]} multiplies its own" if known else ""
            names = ", ".join(self.values)
            raise ConfigError(f"env_kwargs: {self.task} has no {names} that is set as an argument{other}")
        assert model is not None
        try:
            numbers = {name: np.asarray(value, np.float64) for name, value in self.values.items()}
            if "gravity" in numbers:
                model.opt.gravity[2] = numbers["gravity"]
            if "friction" in numbers:
                model.geom_friction[:, 0] *= numbers["friction"]  # sliding
            if "wind" in numbers:
                model.opt.wind[: numbers["wind"].size] = numbers["wind"]
        except (TypeError, ValueError) as error:
            env.close()
            raise ConfigError(f"env_kwargs: {dict(self.values)}: {error}") from error


def split_physics(task: str, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Physics | None]:
    """The arguments that the task's constructor takes, and those to set in its model."""
    asked = [word for word in NAMES if word in kwargs]
    if not asked:
        return dict(kwargs), None
    module, _, name = task.rpartition(":")
    if module:  # gymnasium.make imports it, gymnasium.spec does not
        importlib.import_module(module)
    creator: Any = gymnasium.spec(name).entry_point
    if isinstance(creator, str):
        creator = gymnasium.envs.registration.load_env_creator(creator)
    known = inspect.signature(creator).parameters if creator is not None else {}
    values = {word: kwargs[word] for word in asked if word not in known}
    settings = {word: value for word, value in kwargs.items() if word not in values}
    return settings, Physics(task, values) if values else None
