"""Aggregators for federations in which some agents may lie.

What they have in common: an agent has one vote however often it reports, because asynchronously a fast liar would
otherwise outvote everybody. Groups of theta are judged each for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from afedpg.config import option
from afedpg.messages import Vector
from afedpg.server.aggregators import Aggregator, Drop, Given, Here, Keep, Memory, Use
from afedpg.server.kernels import mix
from afedpg.server.robust import (
    Rows,
    centred_trimmed_mean,
    clip_factor,
    clipped_mean,
    coordinate_median,
    distance,
    distances_to,
    geometric_median,
    shorten,
    trimmed_mean,
)

FREE_REPORTS = 10  # of every agent: somebody has to begin
Arrays = dict[str, NDArray[Any]]
Mean = Callable[[Rows, Vector, float, Vector], Vector]  # rows, weights, the liars' share of them, the last direction


def _trimmed(rows: Rows, weights: Vector, share: float, last: Vector) -> Vector:
    return trimmed_mean(rows, weights, share)


def _geometric(rows: Rows, weights: Vector, share: float, last: Vector) -> Vector:
    return geometric_median(rows, weights)


def _nearest(rows: Rows, weights: Vector, share: float, last: Vector) -> Vector:
    return centred_trimmed_mean(rows, weights, share, geometric_median(rows, weights))


def _clipped(rows: Rows, weights: Vector, share: float, last: Vector) -> Vector:
    """The radius is the distance within which half of the weight is."""
    radius = coordinate_median(distances_to(last, rows)[:, None], weights)[0]
    return clipped_mean(rows, weights, last, float(radius))


MEANS: dict[str, Mean] = {
    "trimmed-mean": _trimmed, "geometric-median": _geometric, "ctma": _nearest, "clipped": _clipped,
}  # fmt: skip


class _PerAgent(Aggregator):
    """Remembers numbers per agent, in arrays that have a row for each agent in `memory.slots`."""

    tables: ClassVar[tuple[str, ...]]  # the names of these arrays

    def row(self, memory: Memory, agent_id: int) -> int:
        """The agent's row, at first of zeros."""
        arrays = memory.arrays
        if agent_id not in memory.slots:
            memory.slots[agent_id] = np.zeros(1)  # says that it is there, until it leaves
            for name in self.tables:
                arrays[name] = np.concatenate([arrays[name], np.zeros((1, *arrays[name].shape[1:]))])
            arrays["agents"][-1] = agent_id
        return int(np.flatnonzero(arrays["agents"] == agent_id)[0])

    def changed(self, memory: Memory, here: Here) -> Use | None:
        """Who has left has no vote."""
        arrays = memory.arrays
        stay = np.isin(arrays["agents"], list(memory.slots))
        if not stay.all():
            for name in self.tables:
                arrays[name] = arrays[name][stay]
        return None


@dataclass(frozen=True)
class Slots(_PerAgent):
    """A running mean of each agent's contributions, and of these means a robust one, at every arrival.

        m_i <- (1 - beta) m_i + beta g,    direction = robust mean of m_1, ..., m_N

    Single contributions are mostly noise, in which a lie hides; their means are not. An agent's weight is the number of
    contributions in its mean, up to what the middle one of all agents has sent, and up to the 1/beta that a mean can
    remember. So nobody gains weight by reporting more often than the others. Nor does anybody make the server step
    much more often: beyond its first ten, reports of an agent that has sent more than `fair` times as many as the
    middle one are not used.
    """

    tables = ("agents", "counts", "rows")
    weigh = "agents"

    mean: str = option("ctma", "how the agents' means become one", tuple(MEANS))
    beta: float = option(0.1, "weight of an agent's newest contribution in its mean", above=0, at_most=1)
    share: float = option(0.3, "of the weight that may be liars'", at_least=0, at_most=0.49)
    fair: float = option(3.0, "how many times as many reports as the middle agent's are used of one", at_least=1)

    def start(self, parameters: int) -> Arrays:
        rows, none = np.zeros((0, parameters)), np.zeros(0)
        return {"direction": np.zeros(parameters), "rows": rows, "agents": none, "counts": none}

    def vectors(self, agents: int) -> int:
        return agents + 2

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        arrays = memory.arrays
        row = self.row(memory, given.agent)
        counts, rows = arrays["counts"], arrays["rows"]
        middle = float(np.median(counts))
        if counts[row] >= self.fair * middle + FREE_REPORTS:
            return Drop(f"flood: {counts[row]:.0f} of its reports were used, {middle:.0f} of the middle agent")
        counts[row] += 1
        beta = max(self.beta, 1 / counts[row])  # at first a plain mean
        mix(rows[row], given.vector, 1 - beta, beta)
        weights = np.minimum(counts, min(max(1.0, middle), 1 / self.beta))
        last = arrays["direction"]
        for place in here.places:
            last[place] = MEANS[self.mean](rows[:, place], weights, self.share, last[place])
        return Use(last, (given,), given.version)


@dataclass(frozen=True)
class ClipCentred(_PerAgent):
    """Every contribution at once, but none moves the direction by more than the usual one does.

        x = c + w_i clip(g - c),    c <- (1 - beta) c + beta x

    clip shortens what is longer than a radius: `reach` times the middle of the agents' own mean distances from the
    centre. w_i is below 1 for an agent that reports more than `fair` times as often as the middle one. The centre is
    all it remembers of theta's length, and three numbers per agent.
    """

    tables = ("agents", "counts", "gaps")

    beta: float = option(0.1, "weight of the newest contribution in the centre", above=0, at_most=1)
    reach: float = option(1.0, "the radius, in usual distances from the centre", above=0)
    fair: float = option(1.0, "how many times as often as the middle agent one may report and count whole", at_least=1)

    def start(self, parameters: int) -> Arrays:
        vectors = {name: np.zeros(parameters, np.float32) for name in ("centre", "clipped")}  # as contributions are
        return {**vectors, "radius": np.zeros(1), **{name: np.zeros(0) for name in self.tables}}

    def vectors(self, agents: int) -> int:
        return 2

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        arrays, centre = memory.arrays, memory.arrays["centre"]
        row = self.row(memory, given.agent)
        counts, gaps = arrays["counts"], arrays["gaps"]
        gap = distance(centre, given.vector)
        counts *= 1 - 0.1 / len(counts)  # the last ten reports of everybody
        counts[row] += 1
        gaps[row] += (gap - gaps[row]) * max(self.beta, 1 / counts[row])
        radius = arrays["radius"][0] = self.reach * float(np.median(gaps))
        part = clip_factor(gap, radius) * min(1.0, self.fair * float(np.median(counts)) / counts[row])
        if part == 1:
            mix(centre, given.vector, 1 - self.beta, self.beta)
            return Use(given.vector, (given,), given.version, given.norm)
        length = shorten(arrays["clipped"], centre, given.vector, part, self.beta)
        return Use(arrays["clipped"], (given,), given.version, length)


def centre_and_radius(memory: Memory) -> tuple[Vector, float] | None:
    """What somebody would know who knew of centred clipping; None where it is not in use."""
    arrays = memory.arrays
    return (arrays["centre"].astype(np.float64), float(arrays["radius"][0])) if "centre" in arrays else None
