"""Merging the observation moments that agents report, so that scaling is shared and observations are not.

They are merged as they arrive, and kept once more per agent: an agent whose moments are far outside what the others
observe is set aside, and one that is revoked is taken out. Only then are the merged ones made again from the agents'.

With an aggregator against liars they are not merged but the middle of what the agents observe, each with one vote: as
long as less than half of them lie, it is within what the honest ones observe, quantity by quantity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import Moments
from afedpg.server.robust import coordinate_median

PRIOR = -1  # what the run began with, as if an agent had reported it; trusted
FAR = 1e4  # a mean square beyond so many merged variances makes the server compare the agents at once
BOUND = 30.0  # on how many times the usual variance one agent may make the merged one
FIRST = 1e7  # is added to the bound until an agent has SEEN so many observations, and then falls with the fifth power
SEEN = 1500.0
FIXED = 1e-12  # a quantity whose variance is below this share of its mean square does not vary


class Slot(NamedTuple):
    """One agent's part of the statistics."""

    reports: int
    moments: Moments


@dataclass(slots=True)
class Observed:
    """What each agent observed, and whose observations are not used."""

    slots: dict[int, Slot] = field(default_factory=dict)
    aside: frozenset[int] = frozenset()
    reports: int = 0  # since the run began


def take(
    observed: Observed, statistics: Moments | None, agent_id: int, new: Moments, robust: bool = False
) -> Moments | None:
    """The shared statistics after a report: merged, or with `robust` the middle ones."""
    before = observed.slots.get(agent_id, Slot(0, new))
    merged = merge(before.moments, new) if before.reports else new
    observed.slots[agent_id] = Slot(before.reports + 1, merged)
    observed.reports += 1
    if robust:
        return middle(observed)
    # Comparing all agents costs N times as much as one report's merge: done once per N reports, it costs as much again.
    if observed.reports % len(observed.slots) == 0 or _is_far(statistics, new):
        aside = outliers(observed.slots)
        if aside != observed.aside:
            observed.aside = aside
            return together(observed)
    return statistics if agent_id in observed.aside else merge(statistics, new)


def forget(observed: Observed, statistics: Moments | None, agent_id: int, robust: bool = False) -> Moments | None:
    """The shared statistics without an agent."""
    if observed.slots.pop(agent_id, None) is None:
        return statistics
    if robust:
        return middle(observed)
    observed.aside = outliers(observed.slots)
    return together(observed)


def together(observed: Observed) -> Moments | None:
    """Everything that is used, merged by agent id."""
    merged = None
    for agent_id in sorted(observed.slots.keys() - observed.aside):
        merged = merge(merged, observed.slots[agent_id].moments)
    return merged


def middle(observed: Observed) -> Moments | None:
    """Mean and variance of every quantity are the medians of the agents' own."""
    if not observed.slots:
        return None
    parts = [observed.slots[agent_id].moments for agent_id in sorted(observed.slots)]
    if len(parts) == 1:
        return parts[0]  # to the bit what merging gives
    votes = np.ones(len(parts))
    mean = coordinate_median(np.array([part.mean for part in parts]), votes)
    variance = coordinate_median(np.array([part.m2 / part.count for part in parts]), votes)
    count = sum(part.count for part in parts)
    return Moments(count, mean, variance * count)


def outliers(slots: Mapping[int, Slot]) -> frozenset[int]:
    """The agents that would by themselves decide how observations are scaled.

    With w an agent's share of all observations and q its mean square around the usual mean, in usual variances, the
    merged variance is at least w q of the usual one. Usual is the median over agents, each of which has one vote; of
    two, the one that has reported more. Where the median agent sees no change, see `_where_most_see_no_change`.

    Beyond the bound on w q an agent is out, and so is one that observes next to nothing, so often that everybody else's
    variance is lost among it. Their observations are in nobody's share: who would be beyond the bound without them is
    out, too.
    """
    agents = sorted(slots)
    if len(agents) < 2:
        return frozenset()
    reports = np.array([slots[agent_id].reports for agent_id in agents])
    count = np.array([slots[agent_id].moments.count for agent_id in agents])
    mean = np.array([slots[agent_id].moments.mean for agent_id in agents])
    variance = np.array([slots[agent_id].moments.m2 for agent_id in agents]) / count[:, None]
    voters = [int(reports.argmax())] if len(agents) == 2 else list(range(len(agents)))
    middles = np.median(np.column_stack([mean, variance, count])[voters], axis=0)
    usual = Moments(1.0, *np.split(middles[:-1], 2))
    bound, rare = (BOUND + FIRST / max(middles[-1] / SEEN, 1.0) ** power for power in (5, 2))
    q = _mean_squares(_where_most_see_no_change(usual, mean, variance), mean, variance)
    q = q[:, (q > bound).any(axis=0)]  # in the others nobody is out: no share is above 1, and no bound is lower
    narrow = count / count.sum() > 1 - 1 / bound
    if narrow.any():
        narrow[narrow] = (_mean_squares(usual, mean[narrow], variance[narrow]) < 1 / bound).any(axis=1)
    if not q.size and not narrow.any():
        return frozenset()
    trusted = [agent == PRIOR or (len(agents) == 2 and index in voters) for index, agent in enumerate(agents)]
    bounds = _bounds(q[voters], bound, rare)
    used = np.ones(len(agents), bool)
    while True:
        wide = ((count / count[used].sum())[:, None] * q > bounds).any(axis=1)
        left = used & (~(wide | narrow) | trusted)
        if not left.any() or (left == used).all():
            return frozenset(agent for agent, is_used in zip(agents, used, strict=True) if not is_used)
        used = left


def _bounds(q: NDArray[np.float64], bound: float, rare: float) -> NDArray[np.float64]:
    """[varying] on an agent's share times its q, of the voters' q [voters, varying].

    Contact forces and the like change rarely, and by orders of magnitude: honest agents that have seen one do not agree
    with those that have not. Two things make room for them. `bound` comes down to BOUND with the median number of
    observations: not of reports, which may be of 16 steps or of thousands, and not with an agent's own number, which it
    chooses. And it is divided by the q that a quarter of the agents are below, 1 at most: where they are as far below
    the usual one, an honest agent may be as far above it.

    That alone is no bound where a quarter of the agents see no change, or say so. So the room ends at `rare` times the
    largest q when the largest ones are left out: those of fewer than a quarter of the agents, but of one at least. If
    no more than so many lie, this q is at most that of an honest agent.

    `rare` is for the agent that has felt the strongest force while the others have felt weaker ones. In random rollouts
    of Humanoid-v5 (eight agents, reports of 128 steps) the largest w q was up to 500 times the second largest q after
    256 steps of each, 25 times after 512, and twice after 8,192; on Ant-v5 less. `rare` is 1e7, 1e7 and 3e5 there,
    because other tasks may have rarer forces. With simulated forces at one step in 30,000, of magnitudes spread evenly
    over 3.5 decades, up to 2% of the quantities of eight honest agents are beyond it. If `rare` came down with the
    fifth power, as `bound` does, up to 14% would be.
    """
    quarter = (len(q) - 1) // 4
    top = max(len(q) - 1 - max(quarter, 1), 0)
    few, many = np.partition(q, [quarter, top], axis=0)[[quarter, top]]
    with np.errstate(divide="ignore", over="ignore"):  # next to nothing is like nothing
        bounds: NDArray[np.float64] = np.minimum(bound / np.minimum(few, 1), rare * np.maximum(many, 1))
    return bounds


def _where_most_see_no_change(usual: Moments, mean: NDArray[np.float64], variance: NDArray[np.float64]) -> Moments:
    """The usual moments; where the median agent sees no change, the variance is the second largest mean square.

    No single liar decides that one. Two agents or more must see a change there, and a third one must see it or have
    another mean: of two alone, nobody can tell which one lies.
    """
    least = FIXED * (1 + usual.mean * usual.mean)
    still = np.flatnonzero(usual.m2 <= least)
    seen = still[(variance[:, still] > least[still]).sum(axis=0) >= 2]
    if not seen.size:
        return usual
    gap = mean[:, seen] - usual.mean[seen]
    squares = variance[:, seen] + gap * gap
    spread = usual.m2.copy()
    spread[seen] = np.where((squares > least[seen]).sum(axis=0) >= 3, np.partition(squares, -2, axis=0)[-2], 0)
    return Moments(1.0, usual.mean, spread)


def _is_far(usual: Moments | None, new: Moments) -> bool:
    return usual is not None and bool((_mean_squares(usual, new.mean, new.m2 / new.count) > FAR).any())


def _mean_squares(usual: Moments, mean: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float64]:
    """[..., varying] around the usual mean in usual variances, of the quantities that vary: where nothing varies there
    is nothing to lose by a larger variance.
    """
    spread = usual.m2 / usual.count
    varies = spread > FIXED * (1 + usual.mean * usual.mean)
    gap = mean - usual.mean
    squares: NDArray[np.float64] = (variance + gap * gap)[..., varies] / spread[varies]
    return squares


def merge(old: Moments | None, new: Moments) -> Moments:
    """Count, mean and M2 of two disjoint sets together (Chan et al. 1979), in float64."""
    if old is None:
        return new
    count = old.count + new.count
    gap = new.mean - old.mean
    mean = old.mean + gap * (new.count / count)
    m2 = old.m2 + new.m2 + gap * gap * (old.count * new.count / count)
    return Moments(count, mean, m2)


def why_not(old: Moments | None, new: Moments) -> str | None:
    """Why these moments cannot be those of real observations, or None."""
    if not math.isfinite(new.count) or new.count < 1 or new.count != int(new.count):
        return f"moments: a count of {new.count} is not a number of observations"
    if new.mean.ndim != 1 or new.mean.shape != new.m2.shape:
        return f"moments: shapes {new.mean.shape} and {new.m2.shape} do not belong together"
    if old is not None and new.mean.shape != old.mean.shape:
        return f"moments: {new.mean.size} observed quantities, the federation has {old.mean.size}"
    if not (np.isfinite(new.mean).all() and np.isfinite(new.m2).all()):
        return "moments: not finite"
    if (new.m2 < 0).any() or (new.count == 1 and new.m2.any()):
        return "moments: impossible squared deviations"
    return None
