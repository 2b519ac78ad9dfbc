"""The compiled loops against numpy that reads like the formula; the elementwise ones bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afedpg.compiled import fast_jit, jit
from afedpg.server.kernels import advance, mix, norm, rmsprop

sizes = st.integers(0, 40)
wide = st.floats(-1e9, 1e9)
travelling = st.floats(-(2.0**30), 2.0**30, width=32)
weights = st.floats(-2, 2)


@st.composite
def vectors(draw, count):
    """`count` float64 vectors and one gradient, which is float32 from an agent and float64 from a round."""
    size = draw(sizes)
    own = [draw(arrays(np.float64, size, elements=wide)) for _ in range(count)]
    kind = draw(st.sampled_from([np.float32, np.float64]))
    return [*own, draw(arrays(np.float32, size, elements=travelling)).astype(kind)]


@given(vectors(1), weights, weights)
def test_mix(vectors, old_weight, new_weight):
    direction, gradient = vectors
    expected = old_weight * direction + new_weight * gradient.astype(np.float64)
    mix(direction, gradient, old_weight, new_weight)
    assert direction.tobytes() == expected.tobytes()


@given(vectors(1), weights, st.floats(0, 1e3))
def test_advance(vectors, factor, stretch):
    theta, direction = vectors
    step = factor * direction.astype(np.float64)
    expected, ahead = theta + step, np.empty(theta.size, np.float32)
    advance(theta, ahead, direction, factor, stretch)
    assert theta.tobytes() == expected.tobytes()
    assert ahead.tobytes() == (expected + stretch * step).astype(np.float32).tobytes()


@given(vectors(1), weights, st.floats(0.5, 1), st.floats(1e-8, 1))
def test_rmsprop(vectors, factor, rho, epsilon):
    square, gradient = vectors
    square = np.abs(square)
    value = factor * gradient.astype(np.float64)
    expected, scaled = rho * square + (1 - rho) * (value * value), np.empty(square.size)
    rmsprop(square, scaled, gradient, factor, rho, epsilon)
    assert square.tobytes() == expected.tobytes()
    assert scaled.tobytes() == (value / np.sqrt(expected + epsilon)).tobytes()


@given(vectors(0))
def test_norm(vectors):
    [vector] = vectors
    assert norm(vector) == pytest.approx(np.sqrt(np.sum(vector.astype(np.float64) ** 2)), rel=1e-12)


def test_the_norm_of_float32_is_taken_in_float64():
    """1e38 squared is beyond float32, and 2^24 + 1 is beyond its digits."""
    assert norm(np.full(4, 1e38, np.float32)) == pytest.approx(2e38, rel=1e-6)
    assert norm(np.array([2.0**13] + [1.0] * 9, np.float32)) ** 2 == pytest.approx(2**26 + 9, rel=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 999])
def test_the_norm_sees_whatever_is_not_finite(bad, place):
    for kind in (np.float32, np.float64):
        vector = np.ones(1000, kind)
        vector[place] = bad
        assert not np.isfinite(norm(vector))


@example(np.array([1.0]), -1024)
@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1, 1)), st.integers(-1060, 1000))
def test_norm_of_numbers_whose_squares_have_no_room(vector, power):
    """Beside Python's own hypot, which scales by the largest entry too."""
    vector = np.ldexp(vector, power)
    assert norm(vector) == pytest.approx(math.hypot(*vector), rel=1e-12, abs=5e-324)


@pytest.mark.parametrize(
    ("vector", "expected"),
    [([], 0.0), ([0.0, 0.0], 0.0), ([1.0, math.inf], math.inf), ([-math.inf, 1e-320], math.inf)],
)
def test_norm_at_its_edges(vector, expected):
    assert norm(np.array(vector, np.float64)) == expected


@pytest.mark.parametrize("beside", [0.0, 1e-320, 1.0, 1e308, math.inf])
def test_norm_of_nan_is_nan(beside):
    assert math.isnan(norm(np.array([beside, math.nan, beside])))


@jit
def left_over(a: float, b: float) -> float:
    return (a + b) - a


@fast_jit
def left_over_by_a_fast_caller(a: float, b: float) -> float:
    return left_over(a, b)


def test_a_fast_caller_leaves_an_exact_function_exact():
    """Though it is the first to have it compiled; reordered, the result would be b."""
    assert left_over_by_a_fast_caller(1e16, 1.0) == 0.0
    assert left_over(1e16, 1.0) == 0.0
