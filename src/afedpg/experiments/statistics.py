"""The numbers behind a verdict: intervals over seeds, slopes in the logarithm, smoothing, first passages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import Vector
from afedpg.student import t_quantile

RESAMPLES = 2000


class Interval(NamedTuple):
    """An estimate with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    def above(self, bound: float) -> bool | None:
        """Whether the whole interval is, or the whole of it is not; None: it lies on both sides, or has no ends."""
        if self.low > bound:
            return True
        return False if self.high <= bound else None

    def at_most(self, bound: float) -> bool | None:
        above = self.above(bound)
        return None if above is None else not above


def t_interval(values: Vector) -> Interval:
    """The mean of independent values, such as one per seed, with its t-interval; one value has no width to tell."""
    values = np.asarray(values, np.float64)
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    half = t_quantile(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def band(values: NDArray[np.float64]) -> tuple[Vector, Vector, Vector]:
    """Mean and t-interval of every column of [seeds, points]; NaN (no episode ended there) is left out."""
    counts = np.sum(np.isfinite(values), axis=0)
    mean, low, high = (np.full(values.shape[1], np.nan) for _ in range(3))
    for place in np.flatnonzero(counts):
        column = values[:, place]
        mean[place], low[place], high[place] = t_interval(column[np.isfinite(column)])
    return mean, low, high


def bootstrap(curves: NDArray[Any], statistic: Callable[[NDArray[Any]], float], seed: int) -> Interval:
    """A statistic of curves [seeds, ...], or of the seeds' places, with its expanded percentile interval."""
    count = len(curves)
    if count < 2:
        return Interval(statistic(curves), math.nan, math.nan)
    picks = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    tail = expanded_tail(count)
    # Without interpolation: between two resamples that never reach a level there is infinity, not NaN.
    draws = [statistic(curves[pick]) for pick in picks]
    low, high = np.quantile(draws, [tail, 1 - tail], method="inverted_cdf")
    return Interval(statistic(curves), float(low), float(high))


def expanded_tail(count: int) -> float:
    """Phi(-sqrt(n / (n - 1)) t_{0.975, n-1}): the share of resamples to cut off at each end, less than 2.5%.

    Resamples of n values spread like a variance divided by n instead of n - 1, and with normal tails: at 2.5% the
    interval of a mean would cover the truth in 89% of all cases with 8 seeds (Hesterberg, "What Teachers Should Know
    About the Bootstrap", 2015). No bootstrap reaches beyond its data: with 4 seeds it covers at most 1 - 2/2^4 = 88%.
    """
    return math.erfc(math.sqrt(count / (count - 1)) * t_quantile(count - 1) / math.sqrt(2)) / 2


def interquartile_mean(values: Vector) -> float:
    """The mean without the lowest and the highest quarter, each rounded down to whole values (Agarwal et al. 2021)."""
    cut = len(values) // 4
    return float(np.mean(np.sort(values)[cut : len(values) - cut]))


def stratified_bootstrap(
    strata: Sequence[Vector], statistic: Callable[[Sequence[Vector]], float], seed: int
) -> Interval:
    """A statistic of several samples, each resampled by itself, with the percentile interval of Agarwal et al. 2021.

    The tails are 2.5% as theirs are, not expanded: with few values per stratum the interval is somewhat narrow.
    """
    generator = np.random.default_rng(seed)
    draws = [
        statistic([stratum[generator.integers(len(stratum), size=len(stratum))] for stratum in strata])
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(statistic(strata), float(low), float(high))


def slope(x: Vector, y: Vector) -> float:
    """Of the least-squares line through log y over log x."""
    log_x, log_y = np.log(x), np.log(y)
    centred = log_x - log_x.mean()
    return float(np.sum(centred * log_y) / np.sum(centred**2))


def mean_slope(x: Vector, curves: NDArray[np.float64], seed: int = 0) -> Interval:
    """The slope of the seeds' mean curve, bootstrapped over the seeds."""
    return bootstrap(curves, lambda sample: slope(x, sample.mean(axis=0)), seed)


def known_mean(values: NDArray[np.float64], axis: int) -> Vector:
    """NaN is left out; NaN where there is nothing else."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=axis) / known.sum(axis=axis))


def running_mean(values: Vector, window: int) -> Vector:
    """The mean of the last `window` values up to each place, of fewer at the start; NaN is left out."""
    values = np.asarray(values, np.float64)
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - window)
    with np.errstate(invalid="ignore"):
        return np.asarray((sums[ends] - sums[starts]) / (counts[ends] - counts[starts]))


def reaches(x: Vector, y: Vector, level: float, stays: bool = False) -> float:
    """The first x at which y >= level, and with `stays` never falls below again; infinite if there is none."""
    above = np.asarray(y) >= level
    if stays:
        above = np.flip(np.logical_and.accumulate(np.flip(above)))
    places = np.flatnonzero(above)
    return float(x[places[0]]) if len(places) else math.inf


def falls_to(x: Vector, y: Vector, level: float) -> float:
    """Where a falling curve first is at the level, by interpolation in the logarithms; infinite if nowhere."""
    places = np.flatnonzero(np.asarray(y) <= level)
    if not len(places):
        return math.inf
    at = int(places[0])
    if at == 0 or y[at] == y[at - 1]:
        return float(x[at])
    share = (math.log(y[at - 1]) - math.log(level)) / (math.log(y[at - 1]) - math.log(y[at]))
    return float(math.exp(math.log(x[at - 1]) + share * (math.log(x[at]) - math.log(x[at - 1]))))
