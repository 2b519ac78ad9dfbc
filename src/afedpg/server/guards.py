"""Parts of a user's own within the fold, held to what the fold asks of them: a mistake is told where it is made.

Shipped parts are not guarded, so an arrival costs them nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import BrokenPart, ConfigError
from afedpg.messages import TaskId, Vector
from afedpg.own_parts import STORED, asked, check_part, is_own, name_of, read_only, why_not_stored
from afedpg.server.aggregators import Aggregator, Drop, Given, Here, Keep, Memory, Use
from afedpg.server.kernels import norm
from afedpg.server.transforms import At, Chain, Direction, Transform

_ANSWERS = (Use, Keep, Drop)
_WEIGHTS = ("arrivals", "agents")
_log = logging.getLogger("afedpg")


def guarded(aggregator: Any) -> Aggregator:
    """The aggregator itself where it ships."""
    part: Aggregator = check_part("aggregator", aggregator, Aggregator)
    return GuardedAggregator(part) if is_own(part) else part


class GuardedAggregator(Aggregator):
    """One of the user's own. What it is given can be read only, as it will be on replay."""

    def __init__(self, inner: Aggregator) -> None:
        self.inner = inner
        self.waits, self.everyone, self.weigh, self.robust = inner.waits, inner.everyone, inner.weigh, inner.robust
        self.__name__ = type(inner).__name__  # what messages call it
        self._whose = f"aggregator: {self.__name__}"
        if self.weigh not in _WEIGHTS:
            raise ConfigError(f"{self._whose}: weigh is {self.weigh!r}; choose from {', '.join(_WEIGHTS)}")
        if self.waits and type(inner).changed is Aggregator.changed:
            raise ConfigError(
                f"{self._whose} has waits = True and no changed(memory, here): once an agent leaves, the others would "
                "wait for it for ever; define it"
            )
        self._arrays: frozenset[str] | None = None  # the names that its `start` gave
        self._said = False
        self._shown: tuple[Vector, Vector] | None = None  # theta, and the same to be read only

    def start(self, parameters: int) -> dict[str, NDArray[Any]]:
        return _started(f"{self._whose}: start", asked(self._whose, self.inner.start, parameters))

    def vectors(self, agents: int) -> int:
        return asked(self._whose, self.inner.vectors, agents)

    def contributions(self, agents: int) -> int:
        return asked(self._whose, self.inner.contributions, agents)

    def suspicions(self, memory: Memory) -> dict[int, float]:
        found = asked(self._whose, self.inner.suspicions, memory)
        if not isinstance(found, dict):
            raise BrokenPart(f"{self._whose}: suspicions gave {found!r}, not a dict of numbers by agent")
        return found

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        known = {*_ids(memory.kept), given.report.task_id}
        shown = Given(given.report, read_only(given.vector), given.norm)
        answer = asked(self._whose, self.inner.take, shown, memory, self._reading(here))
        if not isinstance(answer, _ANSWERS):
            raise BrokenPart(f"{self._whose} answered {answer!r}, not Use, Keep or Drop")
        if isinstance(answer, Keep) and not answer.task and not self.waits:
            raise BrokenPart(
                f"{self._whose} answered Keep(task=False), so agent {given.agent} would never work again; "
                "write waits = True in the class, or answer Keep()"
            )
        if isinstance(answer, Use):
            answer = self._checked(answer, here)
        self._check_memory(memory, here, given.agent)
        self._check_kept(known, memory, [given] if isinstance(answer, Drop) else _reports(answer))
        return answer

    def changed(self, memory: Memory, here: Here) -> Use | None:
        known = _ids(memory.kept)
        answer = asked(self._whose, self.inner.changed, memory, self._reading(here))
        if answer is not None and not isinstance(answer, Use):
            raise BrokenPart(f"{self._whose}: changed answered {answer!r}, not Use or None")
        if answer is not None:
            answer = self._checked(answer, here)
        self._check_memory(memory, here)
        self._check_kept(known, memory, _reports(answer))
        return answer

    def _reading(self, here: Here) -> Here:
        """The server's theta is one array for a whole run, and so is what shows it."""
        if self._shown is None or self._shown[0] is not here.theta:
            self._shown = here.theta, read_only(here.theta)
        return here._replace(theta=self._shown[1], agents=frozenset(here.agents))

    def _checked(self, use: Use, here: Here) -> Use:
        whose, reports, factors = self._whose, use.reports, use.factors
        if not isinstance(reports, list | tuple) or not reports or not all(isinstance(each, Given) for each in reports):
            raise BrokenPart(f"{whose} answered Use with other reports than a list of one Given or more")
        if len(_ids(reports)) < len(reports):
            raise BrokenPart(f"{whose} answered Use with one report twice, which would count twice")
        length = _length(f"{whose} answered with", use.direction, here.theta)
        if factors is not None and np.shape(factors) != (len(here.groups),):
            raise BrokenPart(
                f"{whose} answered with the factors {factors!r}, not one for each of {len(here.groups)} groups"
            )
        numbers = (use.factor, *(() if factors is None else factors))
        if not all(map(_is_finite, numbers)) or not math.isfinite(use.factor * length):
            agents = ", ".join(str(each.agent) for each in reports[:9])
            raise BrokenPart(
                f"{whose} answered with a direction or a factor that is not finite, at iteration {here.iteration}, of "
                f"reports of agents {agents}, which are finite; look for a division by zero in it"
            )
        if use.scalars is not None:
            self._check_scalars(use.scalars, reports[0].report.scalars)
        return use._replace(norm=length)

    def _check_scalars(self, given: Any, sent: Mapping[str, float]) -> None:
        """They take the place of all that came with the reports, and a rule would look in vain for what is missing."""
        if not isinstance(given, Mapping) or not all(map(_is_finite, given.values())):
            raise BrokenPart(f"{self._whose} answered with the scalars {given!r}, not a dict of finite numbers by name")
        if missing := sent.keys() - given.keys():
            names = ", ".join(map(str, given)) or "none"
            raise BrokenPart(
                f"{self._whose} answered with the scalars {names} and without {', '.join(sorted(missing))}, which came "
                "with the reports; what Use has takes the place of all of them"
            )

    def _check_memory(self, memory: Memory, here: Here, agent_id: int | None = None) -> None:
        """A checkpoint must hold all of it, and a run that goes on must find the names that it expects."""
        if self._arrays is None:
            self._arrays = frozenset(self.start(here.theta.size))
        if memory.arrays.keys() != self._arrays:
            made, now = (", ".join(sorted(names)) or "nothing" for names in (self._arrays, memory.arrays))
            raise BrokenPart(f"{self._whose} has {now} in memory.arrays, its start gave {made}; give all names there")
        for name, array in memory.arrays.items():
            if why := why_not_stored(array):
                raise BrokenPart(f"{self._whose} put {why} into memory.arrays['{name}'], not {STORED}")
        if agent_id in memory.slots and (why := why_not_stored(memory.slots[agent_id])):
            raise BrokenPart(f"{self._whose} put {why} into memory.slots[{agent_id}], not {STORED}")
        for key in memory.slots:
            if not isinstance(key, Integral):
                raise BrokenPart(f"{self._whose} put {key!r} into memory.slots, whose keys are agents' numbers")
        for each in memory.kept:
            if not isinstance(each, Given):
                raise BrokenPart(f"{self._whose} put a {type(each).__name__} into memory.kept, not a Given")

    def _check_kept(self, known: Set[TaskId], memory: Memory, done: Sequence[Given]) -> None:
        """A report counts once: one that was used or dropped had just come or was kept, and is kept no longer.

        One that vanishes is worth a warning, no more: who has only each agent's newest report may be right to let go of
        others.
        """
        counted, kept = _ids(done), _ids(memory.kept)
        if not counted <= known:
            raise BrokenPart(
                f"{self._whose} answered Use with a report that neither came now nor is in memory.kept; it may have "
                "been used before, and would count twice"
            )
        if counted & kept:
            raise BrokenPart(
                f"{self._whose} has a report in memory.kept that it used or dropped, which would count twice; remove "
                "it there, as with memory.kept.clear()"
            )
        if not known <= counted | kept and not self._said:
            self._said = True
            text = (
                "%s keeps a report no longer that no Use had: it counts neither as a contribution nor as "
                "unused; a report that is kept belongs into memory.kept until it is used, others are a Drop"
            )
            _log.warning(text, self._whose)


def _ids(reports: Iterable[Given]) -> set[TaskId]:
    return {each.report.task_id for each in reports}


def _reports(answer: Use | Keep | Drop | None) -> Sequence[Given]:
    return answer.reports if isinstance(answer, Use) else ()


@dataclass(frozen=True)
class GuardedStep:
    """A transform of the user's own, or a chain in a rule of theirs."""

    inner: Transform
    whose: str  # the rule's name, as a message begins

    def buffers(self, size: int) -> dict[str, Vector]:
        return _started(f"{self._name}.buffers", asked(self.whose, self.inner.buffers, size))

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        shown = direction._replace(vector=read_only(direction.vector))
        new = asked(self.whose, self.inner.update, shown, buffers, _reading(at))
        gave = f"{self._name}.update gave"
        if not isinstance(new, Direction):
            raise BrokenPart(f"{gave} a {type(new).__name__}, not a Direction")
        length = _length(gave, new.vector, direction.vector)
        if not _is_finite(new.factor) or not math.isfinite(new.factor * length):
            raise BrokenPart(f"{gave} a direction that is not finite at iteration {at.iteration}")
        return Direction(new.vector, new.factor, length)

    @property
    def _name(self) -> str:
        return f"{self.whose}: {name_of(self.inner)}"


def guarded_step(step: Any, whose: str) -> GuardedStep:
    """Each transform of the user's own in a chain, too: what the next one cannot read is no mistake of the next one."""
    for method in ("buffers", "update"):
        if not callable(getattr(step, method, None)):
            raise ConfigError(f"{whose}: its step, {name_of(step)}, does not define {method}")
    if type(step) is Chain:
        held = (is_own(part) or isinstance(part, Chain) for part in step.parts)
        step = Chain(*(guarded_step(part, whose) if own else part for part, own in zip(step.parts, held, strict=True)))
    return GuardedStep(step, whose)


@dataclass(frozen=True)
class GuardedNumber:
    """The weight of an agent's values, or how far agents are sent ahead, by a rule of the user's own."""

    inner: Callable[[At], float]
    whose: str  # the rule's name and the method's, as a message begins
    share: bool = False  # between 0 and 1

    def __call__(self, at: At) -> float:
        number = asked(self.whose, self.inner, _reading(at))
        if not _is_finite(number) or (self.share and not 0 <= number <= 1):
            asked_for = "a number from 0 to 1" if self.share else "a finite number"
            raise BrokenPart(f"{self.whose} gave {number!r} at iteration {at.iteration}, not {asked_for}")
        return float(number)

    def stretch(self, at: At) -> float:
        return self(at)


def _is_finite(number: Any) -> bool:
    return isinstance(number, Real) and math.isfinite(number)


def _reading(at: At) -> At:
    return at if at.theta is None else at._replace(theta=read_only(at.theta))


def _length(gave: str, vector: Any, like: NDArray[Any]) -> float:
    """Of a direction that is as long as `like`; measured, whatever the part says that it is."""
    if not isinstance(vector, np.ndarray) or vector.dtype not in (np.float64, np.float32):
        what = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        raise BrokenPart(f"{gave} a direction of {what}, not of float64 or float32")
    if vector.shape != like.shape:
        numbers = vector.size if vector.ndim == 1 else list(vector.shape)
        raise BrokenPart(f"{gave} a direction of {numbers} numbers, not of {like.size}")
    return norm(vector)


def _started(gave: str, arrays: Any) -> dict[str, NDArray[Any]]:
    """What a part remembers, as it is at the start."""
    if not isinstance(arrays, dict):
        raise ConfigError(f"{gave} gave {arrays!r}, not a dict of arrays by name")
    for name, array in arrays.items():
        if why := why_not_stored(array):
            raise ConfigError(f"{gave} gave {why} as '{name}', not {STORED}")
    return arrays
