"""Intervals, slopes and first passages against values known from elsewhere or computed by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from afedpg.experiments import statistics
from afedpg.experiments.statistics import (
    Interval,
    band,
    bootstrap,
    expanded_tail,
    falls_to,
    interquartile_mean,
    mean_slope,
    reaches,
    running_mean,
    slope,
    stratified_bootstrap,
    t_interval,
)  # fmt: skip
from afedpg.student import t_quantile


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.7062), (2, 4.30265), (9, 2.26216), (100, 1.98397), (9999, 1.9602)])
def test_students_quantiles_are_those_of_the_tables(freedom: int, t: float) -> None:
    assert t_quantile(freedom) == pytest.approx(t, rel=1e-4)


def test_a_t_interval_by_hand() -> None:
    found = t_interval(np.array([1.0, 2.0, 3.0]))
    half = 4.30265 * 1.0 / math.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0 - half, 2.0 + half), rel=1e-4)


def test_one_seed_has_a_mean_and_no_interval() -> None:
    found = t_interval(np.array([5.0]))
    assert found.value == 5.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_t_intervals_cover_the_truth_as_often_as_they_say() -> None:
    draws = np.random.default_rng(0).standard_normal((2000, 5)) + 3.0
    hits = sum(found.low <= 3.0 <= found.high for found in map(t_interval, draws))
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_band_leaves_out_parts_without_an_episode() -> None:
    values = np.array([[1.0, np.nan, np.nan], [3.0, 4.0, np.nan]])
    mean, low, high = band(values)
    assert mean[:2].tolist() == [2.0, 4.0]
    assert np.isnan(mean[2])
    assert low[0] < 2.0 < high[0]
    assert np.isnan(low[1])


def test_a_power_law_has_its_exponent_for_a_slope() -> None:
    x = np.geomspace(10, 1e5, 30)
    assert slope(x, 7.0 * x**-0.4) == pytest.approx(-0.4)


def test_the_bootstrap_brackets_the_slope_and_repeats_itself() -> None:
    x = np.geomspace(10, 1e4, 25)
    noise = np.exp(0.3 * np.random.default_rng(1).standard_normal((24, 25)))
    found = mean_slope(x, x**-0.5 * noise)
    assert found.low < -0.5 < found.high
    assert found.high - found.low < 0.1
    assert found == mean_slope(x, x**-0.5 * noise)


def test_the_bootstrap_of_a_mean_is_as_wide_as_its_error() -> None:
    values = np.random.default_rng(2).standard_normal(400)
    found = bootstrap(values, lambda sample: float(sample.mean()), seed=0)
    assert found.high - found.low == pytest.approx(2 * 1.96 / 20, rel=0.15)


def mean_of(sample: np.ndarray) -> float:
    return float(sample.sum()) / len(sample)


@pytest.mark.parametrize("count", [8, 24])
def test_bootstraps_cover_the_truth_as_often_as_they_say(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The percentiles 2.5% and 97.5% cover 89.7% and 92.3% of these."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    draws = np.random.default_rng(count).standard_normal((600, count)) + 3.0
    found = [bootstrap(values, mean_of, seed) for seed, values in enumerate(draws)]
    assert np.mean([one.low <= 3.0 <= one.high for one in found]) == pytest.approx(0.95, abs=0.02)


def test_with_many_seeds_the_bootstraps_tails_are_the_usual_ones() -> None:
    """Phi(-1.0690 * 2.3646) by hand for eight."""
    assert expanded_tail(8) == pytest.approx(0.00574, rel=0.01)
    assert expanded_tail(100_000) == pytest.approx(0.025, rel=1e-3)


def test_a_bootstrap_of_one_seed_has_no_interval() -> None:
    found = bootstrap(np.array([5.0]), mean_of, seed=0)
    assert found.value == 5.0
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_a_bootstrap_keeps_what_is_infinite() -> None:
    """One seed of eight never arrives: its resamples are infinite, and more than a tail of them has it."""
    found = bootstrap(np.array([1.0] * 7 + [math.inf]), mean_of, seed=0)
    assert (found.low, found.high) == (1.0, math.inf)


@pytest.mark.parametrize("count", range(1, 13))
def test_an_interquartile_mean_leaves_whole_values_out(count: int) -> None:
    """One value after the other is taken away, from either end, as long as no more than a quarter is gone."""
    values = np.random.default_rng(count).standard_normal(count)
    left = sorted(values.tolist())
    while 4 * ((count - len(left)) / 2 + 1) <= count:
        left.remove(min(left))
        left.remove(max(left))
    assert interquartile_mean(values) == pytest.approx(sum(left) / len(left))


def test_the_interquartile_mean_of_eight_by_hand() -> None:
    assert interquartile_mean(np.array([100.0, 3.0, 1.0, 2.0, -50.0, 4.0, 5.0, 0.0])) == 2.5


def test_a_stratified_bootstrap_is_that_of_every_resample_there_is() -> None:
    """All 2^2 3^3 of them, each as likely: their quantiles, up to what 2,000 draws miss."""
    strata = [np.array([0.0, 10.0]), np.array([1.0, 2.0, 6.0])]

    def ratio(samples) -> float:
        return float(np.mean(samples[0]) - 3 * np.mean(samples[1]))

    every = sorted(
        ratio((first, second))
        for first in itertools.product(strata[0], repeat=2)
        for second in itertools.product(strata[1], repeat=3)
    )
    found = stratified_bootstrap(strata, ratio, seed=0)
    assert found.value == ratio(strata) == -4.0
    for end, share in ((found.low, 0.025), (found.high, 0.975)):
        below = sum(value < end - 1e-9 for value in every) / len(every)
        up_to = sum(value <= end + 1e-9 for value in every) / len(every)
        assert below - 0.012 <= share <= up_to + 0.012
    assert found == stratified_bootstrap(strata, ratio, seed=0)


def test_strata_are_resampled_each_by_itself() -> None:
    """What differs between strata alone has no width; a sample of both together would have one."""
    strata = [np.full(4, 1.0), np.full(6, 100.0)]
    assert stratified_bootstrap(strata, lambda samples: float(np.concatenate(samples).mean()), 0) == (60.4,) * 3


def test_an_interval_speaks_only_if_all_of_it_is_on_one_side() -> None:
    found = Interval(2.0, 1.0, 3.0)
    assert [found.above(bound) for bound in (0.9, 1.0, 2.0, 3.0)] == [True, None, None, False]
    assert [found.at_most(bound) for bound in (0.9, 1.0, 2.0, 3.0)] == [False, None, None, True]
    assert Interval(2.0, math.nan, math.nan).above(0.0) is None
    assert Interval(2.0, math.nan, math.nan).at_most(9.0) is None


def test_a_running_mean_looks_back_and_skips_what_is_missing() -> None:
    values = np.array([1.0, np.nan, 4.0, 10.0])
    assert running_mean(values, 2).tolist() == [1.0, 1.0, 4.0, 7.0]


def test_reaching_a_level_and_staying_there() -> None:
    x, y = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([0.0, 5.0, 1.0, 5.0, 6.0])
    assert reaches(x, y, 5.0) == 2.0
    assert reaches(x, y, 5.0, stays=True) == 4.0
    assert reaches(x, y, 7.0) == math.inf
    assert reaches(x, y, -1.0, stays=True) == 1.0


def test_falling_to_a_level_is_interpolated_in_the_logarithms() -> None:
    x = np.geomspace(1, 1e4, 9)
    assert falls_to(x, 1 / x, 0.003) == pytest.approx(1 / 0.003)
    assert falls_to(x, 1 / x, 1e-9) == math.inf
    assert falls_to(x, 1 / x, 2.0) == 1.0
