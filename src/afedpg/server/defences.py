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
from afedpg.server.kernels import mix, norm
from afedpg.server.robust import (
    Rows,
    centred_trimmed_mean,
    clip_factor,
    clipped_mean,
    coordinate_median,
    distance,
    distances_to,
    geometric_median,
    lower_median,
    middle,
    shorten,
    trimmed_mean,
)

FREE_REPORTS = 1  # reports come one at a time
FEWEST = 3  # votes among which one lie is not the middle one
HELD = 2  # reports per agent: a first one may be zeros in some group, as clipped's is for the policy
RECENT = 0.1  # the last ten reports of everybody
QUARANTINE = "quarantine: its contributions are far from the others'"
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
    """Remembers numbers per agent, in arrays that have a row for each agent in `memory.slots`.

    One of them is `gaps`, the running mean of an agent's distance from the direction or the centre, or the newest one
    from theta, per group where groups are judged each for itself. In units of the middle agent's it is the agent's
    suspicion.
    """

    robust = True
    tables: ClassVar[tuple[str, ...]]  # the names of these arrays
    quarantine: float

    def row(self, memory: Memory, given: Given) -> int:
        """The agent's row, at first of zeros. Its slot holds the numbers that came with its newest report."""
        arrays, agent_id, scalars = memory.arrays, given.agent, given.report.scalars
        new = agent_id not in memory.slots
        memory.slots[agent_id] = np.array([scalars[name] for name in sorted(scalars)] or [0.0])
        if new:
            for name in self.tables:
                arrays[name] = np.concatenate([arrays[name], np.zeros((1, *arrays[name].shape[1:]))])
            arrays["agents"][-1] = agent_id
        return int(np.flatnonzero(arrays["agents"] == agent_id)[0])

    def per_group(self, memory: Memory, here: Here) -> None:
        """Before the first row: gaps have a column for each group."""
        if not len(memory.arrays["agents"]):
            memory.arrays["gaps"] = np.zeros((0, len(here.groups)))

    def scalars(self, memory: Memory, given: Given) -> dict[str, float] | None:
        """The middle of what the agents said last, one vote each; None where reports carry no numbers."""
        if not given.report.scalars:
            return None
        rows = np.array([memory.slots[agent_id] for agent_id in sorted(memory.slots)])
        middle = coordinate_median(rows, np.ones(len(rows))).tolist()
        return dict(zip(sorted(given.report.scalars), middle, strict=True))

    def suspicions(self, memory: Memory) -> dict[int, float]:
        arrays = memory.arrays
        return dict(zip(arrays["agents"].astype(int).tolist(), _suspicions(arrays["gaps"]).tolist(), strict=True))

    def kept_out(self, gaps: NDArray[Any]) -> NDArray[np.bool_]:
        """Whose contributions are not used: never more than half of the agents."""
        found = _suspicions(gaps)
        return found > max(self.quarantine, float(np.median(found)))

    def changed(self, memory: Memory, here: Here) -> Use | None:
        """Who has left has no vote."""
        arrays = memory.arrays
        stay = np.isin(arrays["agents"], list(memory.slots))
        if not stay.all():
            for name in self.tables:
                arrays[name] = arrays[name][stay]
        return None


def _suspicions(gaps: NDArray[Any]) -> Vector:
    """Of every row, its largest over the groups; 1 for all where there are too few to compare."""
    if len(gaps) < 3:
        return np.ones(len(gaps))
    columns = gaps.reshape(len(gaps), -1)
    usual = np.array([middle(column) for column in columns.T])
    ratios = np.divide(columns, usual, out=np.ones_like(columns), where=usual > 0)
    return np.asarray(ratios.max(axis=1))


@dataclass(frozen=True)
class Slots(_PerAgent):
    """A running mean of each agent's contributions, and of these means a robust one, at every arrival.

        m_i <- (1 - beta) m_i + beta g,    direction = robust mean of m_1, ..., m_N

    Single contributions are mostly noise, in which a lie hides; their means are not. An agent's weight is the number of
    contributions in its mean, up to what the middle one of all agents has sent, and up to the 1/beta that a mean can
    remember. So nobody gains weight by reporting more often than the others. Nor does anybody make the server step
    much more often: of the last reports, those of an agent that has sent more than `fair` times as many as the middle
    one are not used. While an agent is in quarantine its mean goes on, so that it can leave again, but has no weight,
    and its contributions are not used.

    Whoever reports first would lead theta alone, and far, since steps have the same length however unsure the direction
    is. So theta stays until 1 - share of the agents, which the honest ones are by themselves, have means of 1/(2 beta)
    contributions.
    """

    tables = ("agents", "counts", "recent", "gaps", "rows")
    weigh = "agents"

    mean: str = option("ctma", "how the agents' means become one", tuple(MEANS))
    beta: float = option(0.1, "weight of an agent's newest contribution in its mean", above=0, at_most=1)
    share: float = option(0.3, "of the weight that may be liars'", at_least=0, at_most=0.49)
    fair: float = option(1.5, "how many times as many reports as the middle agent's are used of one", at_least=1)
    quarantine: float = option(0.0, "suspicion above which an agent is kept out; 0: nobody is", at_least=0)

    def start(self, parameters: int) -> Arrays:
        vectors = {"direction": np.zeros(parameters), "rows": np.zeros((0, parameters))}
        return {**vectors, "moving": np.zeros(1), **{name: np.zeros(0) for name in self.tables if name != "rows"}}

    def vectors(self, agents: int) -> int:
        return agents + 2

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        arrays = memory.arrays
        self.per_group(memory, here)
        usual = middle(arrays["recent"]) if len(arrays["recent"]) else 0.0
        new = given.agent not in memory.slots
        row = self.row(memory, given)
        counts, recent, gaps, rows = (arrays[name] for name in self.tables[1:])
        if new:
            recent[row] = usual  # or who leaves and comes back could flood again
        if recent[row] >= self.fair * usual + FREE_REPORTS:
            return Drop(f"flood: {recent[row]:.1f} of the last reports, {usual:.1f} of the middle agent's")
        recent *= 1 - RECENT / len(recent)
        recent[row] += 1
        counts[row] += 1
        beta = max(self.beta, 1 / counts[row])  # at first a plain mean
        mix(rows[row], given.vector, 1 - beta, beta)
        last = arrays["direction"]
        gaps[row] += beta * (np.array([distance(last[place], rows[row, place]) for place in here.places]) - gaps[row])
        weights = np.minimum(counts, min(max(1.0, middle(counts)), 1 / self.beta))
        if self.quarantine:
            weights[self.kept_out(gaps)] = 0.0
            if weights[row] == 0:
                return Drop(QUARANTINE)
        for place in here.places:
            last[place] = MEANS[self.mean](rows[:, place], weights, self.share, last[place])
        agents = len(here.agents | memory.slots.keys())
        if (2 * self.beta * counts >= 1).sum() >= (1 - self.share) * agents:
            arrays["moving"][0] = 1
        direction = last if arrays["moving"][0] else _without_steps(last, here)
        return Use(direction, (given,), given.version, scalars=self.scalars(memory, given))


def _without_steps(direction: Vector, here: Here) -> Vector:
    """Zero where it would be a step; values of parameters stay."""
    still = direction.copy()
    for group, place in here.groups:
        if group.kind == "step":
            still[place] = 0.0
    return still


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
    quarantine: float = option(0.0, "suspicion above which an agent is kept out; 0: nobody is", at_least=0)

    def start(self, parameters: int) -> Arrays:
        vectors = {name: np.zeros(parameters, np.float32) for name in ("centre", "clipped")}  # as contributions are
        return {**vectors, "radius": np.zeros(1), **{name: np.zeros(0) for name in self.tables}}

    def vectors(self, agents: int) -> int:
        return 2

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        arrays, centre = memory.arrays, memory.arrays["centre"]
        row = self.row(memory, given)
        counts, gaps = arrays["counts"], arrays["gaps"]
        gap = distance(centre, given.vector)
        counts *= 1 - RECENT / len(counts)
        counts[row] += 1
        gaps[row] += (gap - gaps[row]) * max(self.beta, 1 / counts[row])
        if self.quarantine and self.kept_out(gaps)[row]:
            return Drop(QUARANTINE)
        scalars = self.scalars(memory, given)
        radius = arrays["radius"][0] = self.reach * middle(gaps)
        part = clip_factor(gap, radius) * min(1.0, self.fair * middle(counts) / counts[row])
        if part == 1:
            mix(centre, given.vector, 1 - self.beta, self.beta)
            return Use(given.vector, (given,), given.version, given.norm, scalars=scalars)
        length = shorten(arrays["clipped"], centre, given.vector, part, self.beta)
        return Use(arrays["clipped"], (given,), given.version, length, scalars=scalars)


@dataclass(frozen=True)
class Bounded(_PerAgent):
    """Every contribution at once, but none moves a group of theta further than `factor` times the usual length.

        b = factor * median_i l_i,    a group's part of length l > b is multiplied by (b / l)^2

    Lengths are |g| of a group of steps and |x - theta| of a group of parameters; l_i is that of what agent i sent last,
    before it was shortened: one vote per agent, however often it reports. The median of an even number is the lower one
    of the middle two. A length of 0 is no vote, because where rewards are rare most contributions are zeros and those
    that are not must count. So while the liars among the voters are fewer than half, the median is within the honest
    lengths, whatever the lies are. With the square the way that is gone, b^2 / l, is the shorter the longer the lie is:
    one that is far too long is not taken for a usual one.

    The first to report would be compared with itself alone. So a group stays as it is until FEWEST agents have a vote
    on it, or all where there are fewer, but for the first HELD * N steps of a run at most: some may never answer.
    """

    tables = ("agents", "gaps")

    factor: float = option(2.0, "how many times the usual length a contribution may have", at_least=1)
    quarantine: float = option(0.0, "suspicion above which an agent is kept out; 0: nobody is", at_least=0)

    def start(self, parameters: int) -> Arrays:
        return {name: np.zeros(0) for name in self.tables}

    def take(self, given: Given, memory: Memory, here: Here) -> Use | Keep | Drop:
        self.per_group(memory, here)
        row = self.row(memory, given)
        gaps = memory.arrays["gaps"]
        gaps[row] = _lengths(given, here)
        if self.quarantine and self.kept_out(gaps)[row]:
            return Drop(QUARANTINE)
        agents = len(here.agents | memory.slots.keys())
        fewest = min(FEWEST, agents) if here.iteration < HELD * agents else 0
        factors = [self._factor(lengths, row, fewest) for lengths in gaps.T]
        scalars = self.scalars(memory, given)
        return Use(given.vector, (given,), given.version, given.norm, scalars=scalars, factors=factors)

    def _factor(self, lengths: Vector, row: int, fewest: int) -> float:
        """Of a group's part of the contribution; 0 where too few agents have a vote to say what is usual."""
        if lengths[row] == 0:
            return 1.0
        votes = lengths[lengths > 0]
        return clip_factor(lengths[row], self.factor * lower_median(votes)) ** 2 if len(votes) >= fewest else 0.0


def _lengths(given: Given, here: Here) -> list[float]:
    """How far the contribution would move each group."""
    if len(here.groups) == 1 and here.groups[0][0].kind == "step":
        return [given.norm]
    return [
        norm(given.vector[place]) if group.kind == "step" else distance(here.theta[place], given.vector[place])
        for group, place in here.groups
    ]


def centre_and_radius(memory: Memory) -> tuple[Vector, float] | None:
    """What somebody would know who knew of the defence: where its centre is, and how far from there the middle agent
    is, beyond which what is sent is clipped or counts less. None where there is no defence.
    """
    arrays = memory.arrays
    if "centre" in arrays:
        return arrays["centre"].astype(np.float64), float(arrays["radius"][0])
    if "direction" not in arrays or not len(arrays["gaps"]):
        return None
    return arrays["direction"].copy(), float(np.median(np.linalg.norm(arrays["gaps"], axis=1)))
