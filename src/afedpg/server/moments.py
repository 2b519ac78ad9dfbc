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
    two, the one that has reported more.

    Contact forces and the like change rarely, and by orders of magnitude: honest agents that have seen one do not agree
    with those that have not. Two things make room for them. The bound on w q comes down to BOUND with the median number
    of observations: not of reports, which may be of 16 steps or of thousands, and not with an agent's own number, which
    it chooses. And it is divided by the q that a quarter of the agents are below, 1 at most: where they are as far
    below the usual one, an honest agent may be as far above it. So a liar has room in what many hardly see change, and
    nowhere else.

    Beyond the bound an agent is out, and so is one that observes next to nothing, so often that everybody else's
    variance is lost among it.
    """
    agents = sorted(slots)
    if len(agents) < 2:
        return frozenset()
    reports = np.array([slots[agent_id].reports for agent_id in agents])
    count = np.array([slots[agent_id].moments.count for agent_id in agents])
    mean = np.array([slots[agent_id].moments.mean for agent_id in agents])
    variance = np.array([slots[agent_id].moments.m2 for agent_id in agents]) / count[:, None]
    voters = [int(reports.argmax())] if len(agents) == 2 else list(range(len(agents)))
    usual = Moments(1.0, *np.median(np.array([mean[voters], variance[voters]]), axis=1))
    bound = BOUND + FIRST / max(float(np.median(count[voters])) / SEEN, 1.0) ** 5
    share = count / count.sum()
    q = _mean_squares(usual, mean, variance)
    quarter = (len(voters) - 1) // 4
    agree = np.minimum(np.partition(q[voters], quarter, axis=0)[quarter], 1)  # 0: so many have seen no change
    with np.errstate(over="ignore"):  # next to nothing is like nothing
        bounds = np.divide(bound, agree, out=np.full(agree.shape, math.inf), where=agree > 0)
    wide = (share[:, None] * q > bounds).any(axis=1)
    narrow = (share > 1 - 1 / bound) & (q < 1 / bound).any(axis=1)
    trusted = {PRIOR, *(agents[voter] for voter in voters if len(agents) == 2)}
    out = frozenset(agent for agent, is_out in zip(agents, wide | narrow, strict=True) if is_out) - trusted
    return out if len(out) < len(agents) else frozenset()


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
