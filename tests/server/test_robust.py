"""Robust means: laws, versions that read like the formula, and another library's answers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tracemalloc
import types
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afedpg.server.robust import (
    centred_trimmed_mean,
    clipped_mean,
    coordinate_median,
    geometric_median,
    shorten,
    trimmed_mean,
)

SHARE = 0.3


def ctma(rows, weights, share=SHARE):
    return centred_trimmed_mean(rows, weights, share, geometric_median(rows, weights))


def clipped(rows, weights, radius=3.0):
    return clipped_mean(rows, weights, coordinate_median(rows, weights), radius)


MEANS = {
    "coordinate median": coordinate_median,
    "trimmed mean": partial(trimmed_mean, share=SHARE),
    "geometric median": geometric_median,
    "ctma": ctma,
    "clipped mean": clipped,
}
every_mean = pytest.mark.parametrize("name", MEANS)

# Whole numbers: their sums and differences are exact, so that a law's two sides differ by rounding alone.
whole = st.integers(-60, 60).map(float)


@st.composite
def federations(draw, least=1):
    """Rows [n, p] and their weights [n]."""
    agents, parameters = draw(st.integers(least, 9)), draw(st.integers(1, 5))
    rows = draw(arrays(np.float64, (agents, parameters), elements=whole))
    return rows, draw(arrays(np.float64, agents, elements=st.integers(1, 4).map(float)))


def close(found, expected, scale=60.0):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * scale)


def unambiguous(rows, weights):
    """CTMA's last row is one of several where two are equally far: there the order decides."""
    gaps = np.linalg.norm(rows - geometric_median(rows, weights), axis=1)
    assume(gaps.size < 2 or np.diff(np.sort(gaps)).min() > 1e-3)


@every_mean
@given(federation=federations(), seed=st.integers(0, 99))
def test_the_order_of_the_agents_leaves_no_trace(name, federation, seed):
    rows, weights = federation
    if name == "ctma":
        unambiguous(rows, weights)
    order = np.random.default_rng(seed).permutation(len(rows))
    close(MEANS[name](rows[order], weights[order]), MEANS[name](rows, weights))


@every_mean
@given(federation=federations(), seed=st.integers(0, 99))
def test_what_moves_every_row_moves_the_mean(name, federation, seed):
    rows, weights = federation
    if name == "ctma":
        unambiguous(rows, weights)
    shift = np.random.default_rng(seed).integers(-60, 60, rows.shape[1]).astype(float)
    close(MEANS[name](rows + shift, weights), MEANS[name](rows, weights) + shift)


@every_mean
@given(federation=federations())
def test_a_weight_is_how_often_a_row_is_there(name, federation):
    rows, weights = federation
    if name == "ctma":
        unambiguous(rows, weights)
    repeated = np.repeat(rows, weights.astype(int), axis=0)
    close(MEANS[name](repeated, np.ones(len(repeated))), MEANS[name](rows, weights))


@every_mean
@given(federation=federations(), factor=st.sampled_from([1e-9, 0.3, 1e12]))
def test_only_proportions_of_weights_count(name, federation, factor):
    rows, weights = federation
    if name == "ctma":
        unambiguous(rows, weights)
    close(MEANS[name](rows, factor * weights), MEANS[name](rows, weights))


@every_mean
@given(federation=federations())
def test_agents_that_agree_are_believed(name, federation):
    rows, weights = federation
    rows[:] = rows[0]
    close(MEANS[name](rows, weights), rows[0], 1e-6)


@every_mean
@given(federation=federations(), lie=st.sampled_from([-3e38, -1e9, 60.0, 1e5, 3e38]), copies=st.booleans())
def test_liars_without_weight_enough_leave_the_result_among_the_honest(name, federation, lie, copies):
    """The liars, of up to SHARE of the weight, say the same lie, or each its own."""
    honest, weights = federation
    bound = SHARE / (1 - SHARE) * weights.sum()
    lies = np.full((2, honest.shape[1]), lie)
    lies[1] *= 1 if copies else -0.7
    rows, weights = np.vstack([honest, lies]), np.concatenate([weights, [bound / 2, bound / 2]])
    found = MEANS[name](rows, weights)
    low, high = honest.min(axis=0), honest.max(axis=0)
    if name in ("coordinate median", "trimmed mean"):
        assert ((low - 1e-6 <= found) & (found <= high + 1e-6)).all()
        return
    centre = (low + high) / 2
    radius = np.linalg.norm(honest - centre, axis=1).max()
    # All but a share b of the weight in a ball: the geometric median is within 2 (1 - b) / (1 - 2 b) times its radius.
    # CTMA's rows are no further from that than the honest ones are; clipping's centre is in the box, and it steps 3.
    reach = 2 * (1 - SHARE) / (1 - 2 * SHARE) * radius
    reach = {"geometric median": reach, "ctma": 2 * reach + radius, "clipped mean": radius + 3.0}[name]
    assert np.linalg.norm(found - centre) <= 1.001 * reach + 1e-6


@given(federations(), st.integers(0, 3))
def test_trimmed_mean_by_sorting_and_dropping(federation, dropped):
    rows, weights = federation
    repeated = np.sort(np.repeat(rows, weights.astype(int), axis=0), axis=0)
    assume(2 * dropped < len(repeated))
    expected = repeated[dropped : len(repeated) - dropped].mean(axis=0)
    np.testing.assert_allclose(trimmed_mean(rows, weights, dropped / len(repeated)), expected, rtol=1e-9, atol=1e-9)


@given(federations())
def test_coordinate_median_is_the_median_of_repeated_rows(federation):
    rows, weights = federation
    expected = np.median(np.repeat(rows, weights.astype(int), axis=0), axis=0)
    np.testing.assert_allclose(coordinate_median(rows, weights), expected, rtol=1e-8, atol=1e-8)


@given(federations(), arrays(np.float64, (20, 5), elements=whole))
def test_no_point_is_nearer_to_all_than_the_geometric_median(federation, others):
    rows, weights = federation

    def objective(point):
        return (weights * np.linalg.norm(rows - point, axis=1)).sum()

    found = geometric_median(rows, weights, iterations=2000)
    step = np.random.default_rng(0).standard_normal((50, rows.shape[1]))
    points = [*rows, *others[:, : rows.shape[1]], *(found + 0.1 * step), rows.mean(axis=0)]
    assert objective(found) <= min(map(objective, points)) * (1 + 1e-4) + 1e-4


def test_geometric_median_of_a_triangle_sees_its_sides_at_equal_angles():
    """Fermat's point, and by hand: of an equilateral triangle the middle."""
    triangle = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, np.sqrt(3)]])
    np.testing.assert_allclose(geometric_median(triangle, np.ones(3)), [1.0, 1 / np.sqrt(3)], atol=1e-5)


@given(federations(), st.floats(0, 0.49))
def test_ctma_adds_the_nearest_until_there_is_weight_enough(federation, share):
    rows, weights = federation
    centre = rows.mean(axis=0)
    left, total = (1 - share) * weights.sum(), np.zeros(rows.shape[1])
    for row in np.argsort(np.linalg.norm(rows - centre, axis=1), kind="stable"):
        total += min(weights[row], left) * rows[row]
        left -= min(weights[row], left)
    gaps = np.sort(np.linalg.norm(rows - centre, axis=1))
    assume(gaps.size < 2 or np.diff(gaps).min() > 1e-6)
    close(centred_trimmed_mean(rows, weights, share, centre), total / ((1 - share) * weights.sum()))


@given(federations(), arrays(np.float64, 5, elements=whole), st.sampled_from([0.0, 0.5, 10.0, np.inf]))
def test_clipped_mean_row_by_row(federation, centre, radius):
    rows, weights = federation
    centre = centre[: rows.shape[1]]
    expected = centre.copy()
    for row, weight in zip(rows, weights, strict=True):
        gap = row - centre
        length = np.linalg.norm(gap)
        expected += weight / weights.sum() * (gap if length <= radius else gap * (radius / length))
    close(clipped_mean(rows, weights, centre, radius), expected, 1e-3)


@given(
    arrays(np.float32, 7, elements=st.floats(-9, 9, width=32)),
    arrays(np.float32, 7, elements=st.floats(-9, 9, width=32)),
    st.floats(0, 1),
    st.floats(0.01, 1),
)
def test_shorten_moves_a_part_of_the_way(centre, vector, part, beta):
    result, moved = np.empty(7, np.float32), centre.copy()
    length = shorten(result, moved, vector, part, beta)
    expected = (1 - part) * centre + part * vector.astype(np.float64)
    np.testing.assert_allclose(result, expected, atol=2e-6)
    np.testing.assert_allclose(moved, (1 - beta) * centre + beta * expected, atol=2e-6)
    assert length == pytest.approx(np.linalg.norm(expected), abs=1e-6)


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 5000])
def test_every_coordinate_is_reached(size):
    """Sums are taken in blocks of 1,024."""
    rows = np.random.default_rng(size).standard_normal((5, size))
    for mean in MEANS.values():
        one_by_one = [mean(rows[:, [0]], np.ones(5))[0]] if size == 1 else mean(rows[:, ::-1].copy(), np.ones(5))[::-1]
        np.testing.assert_allclose(mean(rows, np.ones(5)), one_by_one, atol=1e-9)


@pytest.mark.parametrize("agents", [*range(1, 20), 31, 32, 33, 100, 1000])
def test_any_number_of_agents_is_sorted(agents):
    rows = np.random.default_rng(agents).standard_normal((agents, 300))
    np.testing.assert_allclose(coordinate_median(rows, np.ones(agents)), np.median(rows, axis=0), atol=1e-8)
    dropped = (agents - 1) // 3
    expected = np.sort(rows, axis=0)[dropped : agents - dropped].mean(axis=0)
    np.testing.assert_allclose(trimmed_mean(rows, np.ones(agents), dropped / agents), expected, atol=1e-8)


@every_mean
def test_memory_beside_the_rows_is_a_few_results(name):
    rows = np.random.default_rng(0).standard_normal((20, 50_000))
    MEANS[name](rows, np.ones(20))
    tracemalloc.start()
    try:
        MEANS[name](rows, np.ones(20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 8 * 50_000


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, np.nan, 1.0], [1.0, np.inf, 1.0]])
def test_weights_that_are_none(weights):
    with pytest.raises(ValueError, match="weights"):
        coordinate_median(np.zeros((3, 2)), np.array(weights))


@pytest.mark.parametrize("share", [-0.1, 0.5, 1.0, np.nan])
def test_shares_that_are_none(share):
    for mean in (trimmed_mean, partial(centred_trimmed_mean, centre=np.zeros(2))):
        with pytest.raises(ValueError, match="share"):
            mean(np.zeros((3, 2)), np.ones(3), share)


@pytest.fixture(scope="module")
def byzfl():
    """Another library, whose rows all have the same weight. Its aggregators alone: the rest of it imports torchvision,
    which does not load beside a torch that was built for other hardware.
    """
    found = importlib.util.find_spec("byzfl")
    if found is None:
        pytest.skip("byzfl is not installed")
    package = types.ModuleType("byzfl")
    package.__path__ = list(found.submodule_search_locations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "byzfl", package)
        yield importlib.import_module("byzfl.aggregators.aggregators")


@pytest.fixture(params=[(4, 2), (7, 5), (10, 300), (25, 40)], ids=str)
def rows(request):
    honest = np.random.default_rng(sum(request.param)).standard_normal(request.param)
    honest[-1] *= 50
    return honest + 0.3


def test_another_librarys_geometric_median(byzfl, rows):
    expected = byzfl.GeometricMedian(nu=1e-9, T=3000)(rows)
    found = geometric_median(rows, np.ones(len(rows)), smoothing=1e-9, tolerance=0, iterations=3000)
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


def test_another_librarys_geometric_median_as_it_is_used(byzfl, rows):
    expected = byzfl.GeometricMedian(nu=1e-9, T=3000)(rows)
    found = geometric_median(rows, np.ones(len(rows)))
    assert np.linalg.norm(found - expected) <= 1e-4 * np.linalg.norm(expected)


def test_another_librarys_trimmed_mean(byzfl, rows):
    for dropped in range((len(rows) + 1) // 2):
        expected = byzfl.TrMean(f=dropped)(rows)
        found = trimmed_mean(rows, np.ones(len(rows)), dropped / len(rows))
        assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)


def test_another_librarys_coordinate_median(byzfl, rows):
    np.testing.assert_allclose(coordinate_median(rows, np.ones(len(rows))), byzfl.Median()(rows), rtol=1e-6)


@pytest.mark.parametrize("radius", [0.01, 3.0, 1e3])
def test_another_librarys_centred_clipping(byzfl, rows, radius):
    aggregator = byzfl.CenteredClipping(L=3, tau=radius)
    expected, found = aggregator(rows), np.zeros(rows.shape[1])
    for _ in range(3):
        found = clipped_mean(rows, np.ones(len(rows)), found, radius)
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)
