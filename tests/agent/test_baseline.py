"""Baselines against numpy.linalg, and against what they are for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.agent.baselines.linear import LinearBaseline, NoBaseline
from afedpg.agent.baselines.mlp import MlpBaseline
from afedpg.seeding import stream


def data(seed, steps, observations):
    generator = stream(seed, "agent")
    x = generator.standard_normal((steps, observations)).astype(np.float32)
    return x, 5 * x[:, 0].astype(np.float64) ** 2 - 3 * x[:, -1] + 10 + 0.1 * generator.standard_normal(steps)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 100), st.integers(1, 40), st.integers(1, 30))
def test_linear_fit_is_ridge_regression_towards_the_last_fit(seed, steps, observations):
    """Through numpy.linalg.lstsq on the augmented system, whichever of steps and features are more."""
    baseline = LinearBaseline(observations)
    x, y = data(seed, steps, observations)
    wide = x.astype(np.float64)
    features = np.hstack([wide, wide**2, np.ones((steps, 1))])
    before = stream(seed, "baseline").standard_normal(features.shape[1])
    pull = np.sqrt(baseline.ridge * steps)
    augmented = np.vstack([features, pull * np.eye(features.shape[1])])
    expected = np.linalg.lstsq(augmented, np.concatenate([y, pull * before]), rcond=None)[0]
    fitted = baseline.fit({"baseline": before}, x, y)["baseline"]
    np.testing.assert_allclose(fitted, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(baseline.values({"baseline": fitted}, x), features @ expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: LinearBaseline(4), lambda: MlpBaseline(4, (32,), 1e-2, 4)])
def test_repeated_fits_explain_the_returns(make):
    baseline = make()
    state = baseline.start(stream(0, "baseline"))
    for report in range(15):
        state |= baseline.fit(state, *data(report, 256, 4))
    x, y = data(99, 256, 4)
    assert np.var(y - baseline.values(state, x)) < 0.1 * np.var(y)


@pytest.mark.parametrize("make", [lambda: LinearBaseline(4), lambda: MlpBaseline(4, (32,), 1e-2, 2)])
def test_a_fit_depends_on_its_arguments_alone_and_leaves_them(make):
    baseline = make()
    state = baseline.start(stream(0, "baseline")) | {}
    state |= baseline.fit(state, *data(0, 64, 4))
    kept = {name: array.copy() for name, array in state.items()}
    first, second = (make().fit(state, *data(1, 64, 4)) for _ in range(2))
    for name, array in kept.items():
        np.testing.assert_array_equal(state[name], array)
        np.testing.assert_array_equal(first[name], second[name])
        assert first[name].ndim == 1
    assert not np.array_equal(first["baseline"], kept["baseline"])


def test_no_baseline_is_zero():
    assert not NoBaseline().values({}, np.ones((3, 2), np.float32)).any()
