"""Aggregators of other asynchronous methods, to be compared with `each` under the same outer step.

What they differ in is which contributions make a step: how many, how old, and with which weights. Each class is named
after its method; docs/algorithms has a page with the equations of each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.config import option
from afedpg.messages import Vector
from afedpg.server.aggregators import Aggregator, Drop, Given, Here, Keep, Memory, Use, mean

ROUNDING = 1e-12  # relative; the harmonic mean of equal batch sizes must count as that size
DELAY_LAWS = ("constant", "polynomial", "hinge")


def _outdated(given: Given, here: Here) -> Drop | None:
    delay = here.iteration - given.version
    return Drop(f"delay {delay}: only contributions of the present iteration count") if delay else None


@dataclass(frozen=True)
class Rennala(Aggregator):
    """A batch of M contributions, all taken at the present theta~; older ones are dropped.

    Rennala NIGT (arXiv 2509.24305): an agent whose contribution was kept starts again at once, so fast agents give
    several to a batch. Here every contribution travels by itself. In the paper an agent adds its own up locally and
    sends the sum when the batch is full; the smaller communication complexity rests on that and is not tested here.
    """

    batch: int = option(8, "M, contributions per server step", at_least=1, at_most=1 << 20)

    def vectors(self, agents: int) -> int:
        return self.batch

    def contributions(self, agents: int) -> int:
        return self.batch

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        if dropped := _outdated(given, here):
            return dropped
        memory.kept.append(given)
        kept = _full(memory, self.batch)
        return Keep() if kept is None else Use(mean([each.vector for each in kept]), kept)


def _full(memory: Memory, size: int) -> list[Given] | None:
    """The kept contributions, once there are enough; they are kept no longer then."""
    if len(memory.kept) < size:
        return None
    kept, memory.kept = memory.kept, []
    return kept


@dataclass(frozen=True)
class Malenia(Aggregator):
    """A batch per agent at the present theta~ until their harmonic mean is M/N; every agent weighs the same.

    Malenia NIGT (arXiv 2509.24305): the direction is the mean over agents of each one's own mean, so that what is
    optimized is the mean over agents, however fast they are. An agent that leaves is not waited for; what it gave to
    the open batch still counts.
    """

    batch: int = option(8, "M: a step is made once the harmonic mean of the agents' batches is M/N", at_least=1)
    most: int = option(100, "an agent's contributions to one step; further ones are dropped", at_least=1)

    everyone = True
    weigh = "agents"

    def vectors(self, agents: int) -> int:
        return agents * self.most

    def contributions(self, agents: int) -> int:
        return max(self.batch, agents)

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        if dropped := _outdated(given, here):
            return dropped
        if sum(each.agent == given.agent for each in memory.kept) >= self.most:
            return Drop(f"the agent has given {self.most} contributions to this step already")
        memory.kept.append(given)
        return self.changed(memory, here) or Keep()

    def changed(self, memory: Memory, here: Here) -> Use | None:
        batches = Counter(given.agent for given in memory.kept)
        agents = here.agents | batches.keys()
        if not batches or len(batches) < len(agents) or not self._enough(batches.values()):
            return None
        kept = sorted(memory.kept, key=lambda given: given.agent)  # the sort is stable: by arrival within an agent
        memory.kept = []
        return Use(_mean_over_agents(kept, batches), kept)

    def _enough(self, batches: Iterable[int]) -> bool:
        """Whether N / sum_i (1/B_i) >= M/N."""
        inverse = [1 / batch for batch in batches]
        return len(inverse) ** 2 * (1 + ROUNDING) >= self.batch * math.fsum(inverse)


def _mean_over_agents(kept: Sequence[Given], batches: Counter[int]) -> Vector:
    """1/N sum_i 1/B_i sum_j g_ij."""
    total = np.zeros(kept[0].vector.size)
    for agent in sorted(batches):
        total += mean([given.vector for given in kept if given.agent == agent])
    total /= len(batches)
    return total


@dataclass(frozen=True)
class Weighted(Aggregator):
    """What FedBuff and FedAsync share: a weight s(delay) of every contribution."""

    law: str = option("constant", "how a contribution's weight falls with its delay", DELAY_LAWS)
    power: float = option(0.5, "polynomial: the weight is (1 + delay)^-power", at_least=0)
    slope: float = option(10.0, "hinge: the weight is 1 / (1 + slope (delay - bound)) beyond the bound", at_least=0)
    bound: int = option(6, "hinge: the largest delay that has the full weight", at_least=0)

    def weight(self, given: Given, here: Here) -> float:
        delay = here.iteration - given.version
        if self.law == "polynomial":
            return math.pow(1 + delay, -self.power)
        if self.law == "hinge" and delay > self.bound:
            return 1 / (1 + self.slope * (delay - self.bound))
        return 1.0


@dataclass(frozen=True)
class FedBuff(Weighted):
    """A buffer of K contributions of any age: a step with their mean once it is full.

    Nguyen et al., AISTATS 2022. With another law than `constant` each is first multiplied by s(delay); a group of
    parameters is not, because a share of them is no place that anybody was at.
    """

    size: int = option(8, "K, contributions per server step", at_least=1, at_most=1 << 20)

    def vectors(self, agents: int) -> int:
        return self.size

    def contributions(self, agents: int) -> int:
        return self.size

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        memory.kept.append(given)
        if (kept := _full(memory, self.size)) is None:
            return Keep()
        total = np.zeros(given.vector.size)
        for each in kept:
            total += self.weight(each, here) * each.vector.astype(np.float64)
        total /= len(kept)
        for group, place in here.groups:
            if group.kind == "parameters":
                total[place] = mean([each.vector[place] for each in kept])
        return Use(total, kept, sum(each.version for each in kept) // len(kept))


@dataclass(frozen=True)
class FedAsync(Weighted):
    """Every contribution by itself, with a weight that falls with its delay.

    Xie, Koyejo, Gupta 2019. There the weight multiplies the share at which an agent's parameters are mixed in; here a
    contribution is a direction, and the weight multiplies it.
    """

    law: str = option("polynomial", "how a contribution's weight falls with its delay", DELAY_LAWS)

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        return Use(given.vector, (given,), given.version, given.norm, self.weight(given, here))


@dataclass(frozen=True)
class Ringmaster(Aggregator):
    """Every contribution by itself, unless its delay is R or more: then it is dropped.

    Ringmaster ASGD (Maranjyan, Tyurin, Richtarik 2025). R = 1 makes every step with a contribution taken at the present
    theta~; a large R is `each`.
    """

    threshold: int = option(8, "R: contributions with a delay of R or more are dropped", at_least=1)

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        delay = here.iteration - given.version
        if delay >= self.threshold:
            return Drop(f"delay {delay}: at most {self.threshold - 1} is used")
        return Use(given.vector, (given,), given.version, given.norm)


@dataclass(frozen=True)
class Newest(Aggregator):
    """The mean of every agent's newest contribution, at every arrival: agents weigh the same, and nobody waits.

    With one contribution of each agent in every step it does not matter how often an agent arrives, so that what is
    optimized is the mean over agents. One that is not replaced for `most` times N server steps is forgotten: an agent
    that went silent must not pull for ever. (Incremental aggregated gradient: Blatt, Hero, Gauchman 2007.)
    """

    most: float = option(20.0, "server steps, in units of N, for which a contribution counts at most", at_least=1)

    weigh = "agents"

    def start(self, parameters: int) -> dict[str, NDArray[Any]]:
        return {"total": np.zeros(parameters)}

    def vectors(self, agents: int) -> int:
        return agents + 1

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        slots, total, agents = memory.slots, memory.arrays["total"], len(here.agents)
        if given.agent in slots:
            total -= slots[given.agent][1:]
        total += given.vector
        slots[given.agent] = np.concatenate([[here.iteration], given.vector])  # when, and what
        if here.iteration % agents == 0:  # often enough, and cheap with many agents
            self._tidy(memory, here.iteration - self.most * agents)
        return Use(total / len(memory.slots), (given,), given.version)

    def changed(self, memory: Memory, here: Here) -> Use | None:
        self._tidy(memory, -math.inf)
        return None

    def _tidy(self, memory: Memory, oldest: float) -> None:
        """Without what is older, and summed anew: who left is in the total still, and so are roundings."""
        memory.slots = {agent: slot for agent, slot in memory.slots.items() if slot[0] >= oldest}
        total = memory.arrays["total"]
        total[:] = 0.0
        for agent in sorted(memory.slots):
            total += memory.slots[agent][1:]
