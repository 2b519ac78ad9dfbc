"""When is there a direction, and of which contributions is it made? An aggregator answers for every report.

    Use(direction, reports)   a server step, now
    Keep(task)                later: the contribution waits in `memory.kept`, or in what the aggregator made of it
    Drop(reason)              never: counted as unused; no refusal

What it remembers is arrays by name, a vector per agent, and the reports it keeps; the checkpoint holds all three. It
has no clock and no randomness.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import Codec, Floats, Group, Report, Vector
from afedpg.server.kernels import norm

Groups = Sequence[tuple[Group, slice]]  # with their places in theta


class Given(NamedTuple):
    """A report that was believed, with its contribution as the codec decodes it."""

    report: Report
    vector: Floats  # [parameters]
    norm: float  # of the vector's steps, all groups together

    @property
    def agent(self) -> int:
        return self.report.agent_id

    @property
    def version(self) -> int:
        return self.report.version


class Use(NamedTuple):
    direction: Vector | Floats  # [parameters], not written to by anybody
    reports: Sequence[Given]  # what went into it: a row each in the record
    version: int | None = None  # the iteration it counts as taken at; None: the first report's
    norm: float | None = None  # of the direction, where it is known
    factor: float = 1.0  # of the direction's steps; an agent's own values, in groups of parameters, stay what they are
    scalars: Mapping[str, float] | None = None  # for the rule's parts; None: the reports', as means
    factors: Sequence[float] | None = None  # by group: of its step, or of its way towards an agent's values; None: 1


class Keep(NamedTuple):
    task: bool = True  # the agent gets its next Task now; else when its contribution was used


class Drop(NamedTuple):
    reason: str


@dataclass
class Memory:
    """What an aggregator remembers. It may write to all of it."""

    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    slots: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # agent -> a vector; gone when it leaves
    kept: list[Given] = field(default_factory=list)


class Here(NamedTuple):
    """Where the server stands."""

    iteration: int
    theta: Vector  # not to be written to
    awaited: int  # agents at work whose report this step may still wait for
    agents: Set[int]  # that take part, or did before the server was started again; not to be written to
    deadline: bool = False  # the round's time is over
    groups: Groups = ((Group("theta", 0), slice(None)),)

    @property
    def places(self) -> list[slice]:
        """Of the groups in theta."""
        return [place for _, place in self.groups]


class Aggregator(ABC):
    """What every aggregator is, and what it does unless it says otherwise.

    `waits`: an agent whose contribution is kept gets no Task before it is used, so its memory holds a contribution of
    each agent at most. A contribution of an agent that leaves meanwhile is then void, and so are all when the server is
    started again; without it what is kept stays.

    `everyone`: no step is made before every agent has contributed, so an agent that never answers stops the run.

    `weigh`: where agents differ, the mean of what is optimized: over contributions as they arrive, so that fast agents
    count more, or over agents.

    `robust`: it is there against liars. So the shared statistics are the middle of the agents' instead of merged, and
    what it drops takes nothing from the contributions that a run has: a flood would end it.
    """

    waits: bool = False
    everyone: bool = False
    weigh: str = "arrivals"  # or "agents"
    robust: bool = False

    def start(self, parameters: int) -> dict[str, NDArray[Any]]:
        """The arrays it remembers, as they are at the start."""
        return {}

    def vectors(self, agents: int) -> int:
        """How many of theta's length it remembers at most; announced before a run starts."""
        return 0

    def contributions(self, agents: int) -> int:
        """How many a step is made of, nominally: alpha and eta are per so many contributions."""
        return 1

    @abstractmethod
    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        """What becomes of a contribution that has just arrived."""

    def changed(self, memory: Memory, here: Here) -> Use | None:
        """Somebody left, or the deadline is over: is there a direction now?"""
        return None

    def suspicions(self, memory: Memory) -> dict[int, float]:
        """How far from the others each agent is, 1 being usual; recorded and shown. Empty where it does not judge."""
        return {}


@dataclass(frozen=True)
class Each(Aggregator):
    """Every contribution by itself, the moment it arrives."""

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        return Use(given.vector, (given,), None, given.norm)


@dataclass(frozen=True)
class All(Aggregator):
    """The mean over all agents, one contribution each, once the last has come: synchronous rounds."""

    waits = True
    everyone = True
    weigh = "agents"

    def vectors(self, agents: int) -> int:
        return agents

    def contributions(self, agents: int) -> int:
        return agents

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        if given.version < here.iteration:
            return Drop(f"late: its round closed {here.iteration - given.version} iterations ago")
        # Who came back into an open round may answer again: its newest contribution is the one that counts.
        memory.kept = [*(kept for kept in memory.kept if kept.agent != given.agent), given]
        return Keep(task=False) if here.awaited else self._close(memory)

    def changed(self, memory: Memory, here: Here) -> Use | None:
        over = here.deadline or not here.awaited
        return self._close(memory) if memory.kept and over else None

    def _close(self, memory: Memory) -> Use:
        reports = sorted(memory.kept, key=lambda given: given.agent)  # arrival order leaves no trace
        memory.kept.clear()
        return Use(mean([given.vector for given in reports]), reports)


def mean(vectors: Sequence[Floats]) -> Vector:
    """In float64, summed in the order given."""
    total = vectors[0].astype(np.float64)
    for vector in vectors[1:]:
        total += vector
    total /= len(vectors)
    return total


def decoded(report: Report, codec: Codec, groups: Groups) -> Given:
    """Of a report that was believed before, as a checkpoint keeps it."""
    vector = codec.decode(report.payload, sum(group.size for group, _ in groups))
    return Given(report, vector, lengths(vector, groups)[1])


def lengths(vector: Floats, groups: Groups) -> tuple[Sequence[float], float]:
    """Of each group, and of all groups of steps together."""
    if len(groups) == 1:
        whole = norm(vector)
        return (whole,), whole
    sizes = [norm(vector[place]) for _, place in groups]
    return sizes, math.hypot(*(size for size, (group, _) in zip(sizes, groups, strict=True) if group.kind == "step"))
