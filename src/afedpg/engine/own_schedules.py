"""Schedules of a user's own, held to what the server's step asks of them."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from afedpg.engine.process import DeadEnd
from afedpg.errors import ConfigError
from afedpg.server.schedules import Schedule


class BadSchedule(DeadEnd):
    """A value that no step can be made with. Raised within the fold, which is then left half done."""


@dataclass(frozen=True)
class Checked:
    """alpha in (0, 1], for the lookahead divides by it; eta finite and not negative."""

    name: str  # alpha or eta
    schedule: Schedule

    def __post_init__(self) -> None:
        """Its first value is asked for before anything is written."""
        try:
            inspect.signature(self.schedule).bind(0, 0)
        except TypeError as error:
            raise ConfigError(f"{self.name}: a schedule is a function of (iteration, version): {error}") from error
        except ValueError:  # of compiled functions, which have no signature
            pass
        if problem := self._problem(0, 0, self.schedule(0, 0)):
            raise ConfigError(problem)

    def __call__(self, iteration: int, version: int) -> float:
        value = self.schedule(iteration, version)
        if problem := self._problem(iteration, version, value):
            raise BadSchedule(problem)
        return value

    def _problem(self, iteration: int, version: int, value: float) -> str:
        # An array of one number compares as that number, and no step can be made with it.
        good = isinstance(value, Real | np.ndarray) and np.ndim(value) == 0
        good = good and bool(0 < value <= 1 if self.name == "alpha" else 0 <= value < math.inf)
        told = " ".join(repr(value).split())
        where = f"at iteration {iteration}, version {version}"
        range = "in (0, 1]" if self.name == "alpha" else "finite and not negative"
        return "" if good else f"{self.name}: your schedule gave {told} {where}; it must be {range}"
