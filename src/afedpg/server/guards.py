"""Parts of a user's own within the fold, held to what the fold asks of them: a mistake is told where it is made.

Shipped parts are not guarded, so an arrival costs them nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import BrokenPart, ConfigError
from afedpg.messages import Vector
from afedpg.server.aggregators import Aggregator, Drop, Given, Here, Keep, Memory, Use
from afedpg.server.kernels import norm
from afedpg.server.transforms import At, Direction, Transform

T = TypeVar("T")
_ANSWERS = (Use, Keep, Drop)
_BASE = f"{Aggregator.__module__}.{Aggregator.__name__}"
_READ_ONLY = "read-only"  # in what numpy says of a write to such an array
_STORED = "an array of numbers"
_log = logging.getLogger("afedpg")


def is_own(part: Any) -> bool:
    """Not of this package: a function, an object or a class of the user's."""
    return str(getattr(part, "__module__", "")).partition(".")[0] != "afedpg"


def guarded(aggregator: Any) -> Aggregator:
    """The aggregator itself where it ships."""
    if isinstance(aggregator, type):
        name = aggregator.__name__
        raise ConfigError(f"aggregator: {name} is a class; give an object of it, as {name}()")
    if not isinstance(aggregator, Aggregator):
        name = getattr(aggregator, "__name__", type(aggregator).__name__)
        raise ConfigError(f"aggregator: {name} does not inherit from {_BASE}; write class {name}(Aggregator)")
    return GuardedAggregator(aggregator) if is_own(aggregator) else aggregator


class GuardedAggregator(Aggregator):
    """One of the user's own. What it is given can be read only, as it will be on replay."""

    def __init__(self, inner: Aggregator) -> None:
        self.inner = inner
        self.waits, self.everyone, self.weigh, self.robust = inner.waits, inner.everyone, inner.weigh, inner.robust
        self._whose = f"aggregator: {type(inner).__name__}"
        self._arrays: frozenset[str] | None = None  # the names that its `start` gave
        self._said = False
        self._shown: tuple[Vector, Vector] | None = None  # theta, and the same to be read only

    def start(self, parameters: int) -> dict[str, NDArray[Any]]:
        arrays = self.inner.start(parameters)
        if not isinstance(arrays, dict):
            raise ConfigError(f"{self._whose}: start gave {arrays!r}, not a dict of arrays by name")
        for name, array in arrays.items():
            if why := _why_not_stored(array):
                raise ConfigError(f"{self._whose}: start gave {why} as '{name}', not {_STORED}")
        return arrays

    def vectors(self, agents: int) -> int:
        return self.inner.vectors(agents)

    def contributions(self, agents: int) -> int:
        return self.inner.contributions(agents)

    def suspicions(self, memory: Memory) -> dict[int, float]:
        return self.inner.suspicions(memory)

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        kept = len(memory.kept)
        shown = Given(given.report, read_only(given.vector), given.norm)
        answer = _asked(self._whose, self.inner.take, shown, memory, self._reading(here))
        if not isinstance(answer, _ANSWERS):
            raise BrokenPart(f"{self._whose} answered {answer!r}, not Use, Keep or Drop")
        if isinstance(answer, Keep) and not answer.task and not self.waits:
            raise BrokenPart(
                f"{self._whose} answered Keep(task=False), so agent {given.agent} would never work again; "
                "write waits = True in the class, or answer Keep()"
            )
        self._check_memory(memory, here, given.agent)
        self._check_kept(kept if isinstance(answer, Drop) else kept + 1, memory, answer)
        return self._checked(answer, here) if isinstance(answer, Use) else answer

    def changed(self, memory: Memory, here: Here) -> Use | None:
        kept = len(memory.kept)
        answer = _asked(self._whose, self.inner.changed, memory, self._reading(here))
        if answer is not None and not isinstance(answer, Use):
            raise BrokenPart(f"{self._whose}: changed answered {answer!r}, not Use or None")
        self._check_memory(memory, here)
        self._check_kept(kept, memory, answer)
        return None if answer is None else self._checked(answer, here)

    def _reading(self, here: Here) -> Here:
        """The server's theta is one array for a whole run, and so is what shows it."""
        if self._shown is None or self._shown[0] is not here.theta:
            self._shown = here.theta, read_only(here.theta)
        return Here(here.iteration, self._shown[1], here.awaited, here.agents, here.deadline, here.groups)

    def _checked(self, use: Use, here: Here) -> Use:
        whose, reports, direction = self._whose, use.reports, use.direction
        if not reports or not all(isinstance(each, Given) for each in reports):
            raise BrokenPart(f"{whose} answered Use with {len(reports)} reports, not with a list of one Given or more")
        if len(reports) > 1 and len({each.report.task_id for each in reports}) < len(reports):
            raise BrokenPart(f"{whose} answered Use with one report twice, which would count twice")
        if not isinstance(direction, np.ndarray) or direction.dtype not in (np.float64, np.float32):
            what = direction.dtype if isinstance(direction, np.ndarray) else type(direction).__name__
            raise BrokenPart(f"{whose} answered with a direction of {what}, not of float64 or float32")
        if direction.shape != here.theta.shape:
            numbers = direction.size if direction.ndim == 1 else list(direction.shape)
            raise BrokenPart(f"{whose} answered with a direction of {numbers} numbers, theta has {here.theta.size}")
        if use.factors is not None and len(use.factors) != len(here.groups):
            raise BrokenPart(f"{whose} answered with {len(use.factors)} factors for {len(here.groups)} groups")
        if not math.isfinite(use.factor * (norm(direction) if use.norm is None else use.norm)):
            agents = ", ".join(str(each.agent) for each in reports[:9])
            raise BrokenPart(
                f"{whose} answered with a direction that is not finite, at iteration {here.iteration}, of "
                f"reports of agents {agents}, which are finite; look for a division by zero in it"
            )
        return use

    def _check_memory(self, memory: Memory, here: Here, agent_id: int | None = None) -> None:
        """A checkpoint must hold all of it, and a run that goes on must find the names that it expects."""
        if self._arrays is None:
            self._arrays = frozenset(self.inner.start(here.theta.size))
        if memory.arrays.keys() != self._arrays:
            made, now = (", ".join(sorted(names)) or "nothing" for names in (self._arrays, memory.arrays))
            raise BrokenPart(f"{self._whose} has {now} in memory.arrays, its start gave {made}; give all names there")
        for name, array in memory.arrays.items():
            if why := _why_not_stored(array):
                raise BrokenPart(f"{self._whose} put {why} into memory.arrays['{name}'], not {_STORED}")
        if agent_id in memory.slots and (why := _why_not_stored(memory.slots[agent_id])):
            raise BrokenPart(f"{self._whose} put {why} into memory.slots[{agent_id}], not {_STORED}")

    def _check_kept(self, before: int, memory: Memory, answer: Use | Keep | Drop | None) -> None:
        """Worth a warning, no more: one that has only each agent's newest report may be right to let go of others."""
        used = len(answer.reports) if isinstance(answer, Use) else 0
        if len(memory.kept) + used < before and not self._said:
            self._said = True
            text = (
                "%s keeps a report no longer that no Use had: it counts neither as a contribution nor as "
                "unused; a report that is kept belongs into memory.kept until it is used, others are a Drop"
            )
            _log.warning(text, self._whose)


@dataclass(frozen=True)
class GuardedStep:
    """The transforms of a rule of the user's own."""

    inner: Transform
    whose: str  # the rule's name, as a message begins

    def buffers(self, size: int) -> dict[str, Vector]:
        return self.inner.buffers(size)

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        shown = Direction(read_only(direction.vector), direction.factor, direction.norm)
        new = _asked(self.whose, self.inner.update, shown, buffers, at)
        if not isinstance(new, Direction) or np.shape(new.vector) != direction.vector.shape:
            told = f"{np.size(new.vector)} numbers" if isinstance(new, Direction) else repr(new)
            raise BrokenPart(f"{self.whose}: its step gave {told}, not a Direction of {direction.vector.size} numbers")
        length = norm(new.vector) if new.norm is None else new.norm
        if not math.isfinite(new.factor * length):
            raise BrokenPart(f"{self.whose}: its step at iteration {at.iteration} is not finite")
        return Direction(new.vector, new.factor, length)


@dataclass(frozen=True)
class GuardedMixing:
    """The weight of an agent's values by a rule of the user's own."""

    inner: Callable[[At], float]
    whose: str

    def __call__(self, at: At) -> float:
        weight = self.inner(at)
        if not math.isfinite(weight):
            raise BrokenPart(f"{self.whose}: mixing gave {weight!r} at iteration {at.iteration}")
        return weight


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _asked(whose: str, method: Callable[..., T], *given: Any) -> T:
    """The part's answer. Where it writes to what it is given, the line that does so."""
    try:
        return method(*given)
    except ValueError as error:
        if _READ_ONLY not in str(error):
            raise
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
        raise BrokenPart(f"{whose} writes to an array that it may only read{place}; copy it first") from error


def _why_not_stored(array: Any) -> str:
    """What it is, where a checkpoint could not give it back as it was."""
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__name__}"
    return "" if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8 else f"an array of {array.dtype}"
