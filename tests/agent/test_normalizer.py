"""Moments and scaling against two-pass formulas."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afedpg.messages import Moments
from afedpg.sampling.normalizer import moments_of, scaling

ROWS = arrays(np.float64, st.tuples(st.integers(2, 30), st.integers(1, 5)), elements=st.floats(-1e3, 1e3))


@given(ROWS)
def test_moments_are_the_two_pass_ones(raw):
    moments = moments_of(raw)
    assert moments.count == len(raw)
    np.testing.assert_allclose(moments.mean, raw.mean(axis=0))
    np.testing.assert_allclose(moments.m2, raw.var(axis=0) * len(raw), atol=1e-9)


@settings(deadline=None)
@given(ROWS)
def test_scaling_is_standardization_within_bounds(raw):
    scale = scaling(moments_of(raw), raw.shape[1])
    expected = np.clip((raw - raw.mean(axis=0)) / np.sqrt(raw.var(axis=0) + 1e-8), -10, 10)
    scaled = np.array([scale(row) for row in raw])
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, expected, atol=1e-4)


def test_offset_does_not_cost_precision():
    raw = 1e6 + np.linspace(0, 1, 100)[:, None]
    np.testing.assert_allclose(moments_of(raw).m2 / 100, np.linspace(0, 1, 100).var(), rtol=1e-6)


def test_nothing_observed_yet_means_no_scaling():
    raw = np.array([100.0, -3.0])
    np.testing.assert_array_equal(scaling(None, 2)(raw), raw.astype(np.float32))
    np.testing.assert_array_equal(scaling(Moments(1.0, raw, np.zeros(2)), 2)(raw), raw.astype(np.float32))


def test_what_is_far_out_is_clipped():
    scale = scaling(Moments(100.0, np.zeros(2), np.full(2, 100.0)), 2)
    np.testing.assert_array_equal(scale(np.array([50.0, -50.0])), [10, -10])
