"""The compiled forward pass against the formula, and the bits it promises."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from afedpg.policy import forward

widths = st.lists(st.integers(1, 40), min_size=2, max_size=5)
activations = st.sampled_from(["relu", "tanh"])


def random_theta(sizes: list[int], seed: int = 0) -> NDArray[np.float32]:
    theta = forward.aligned(forward.parameter_count(sizes, log_std=True))
    theta[:] = np.random.default_rng(seed).normal(0, 0.3, len(theta))
    return theta


def slow_forward(
    theta: NDArray[np.float32], sizes: list[int], x: NDArray[np.float32], activation: str = "relu"
) -> NDArray[np.float64]:
    """x -> activation(x W + b) -> ... -> x W + b, in float64."""
    result, start = x.astype(np.float64), 0
    for layer, (rows, columns) in enumerate(pairwise(sizes)):
        bias = start + rows * columns
        result = result @ theta[start:bias].reshape(rows, columns) + theta[bias : bias + columns]
        start = bias + columns
        if layer < len(sizes) - 2:
            result = np.tanh(result) if activation == "tanh" else np.maximum(result, 0)
    return result


def fast_forward(
    theta: NDArray[np.float32], sizes: list[int], x: NDArray[np.float32], activation: str = "relu"
) -> NDArray[np.float32]:
    network = forward.network_of(sizes, activation)
    return forward.forward(theta, network, x, forward.scratch_for(sizes)).copy()


@given(widths, activations, st.integers(0, 1000))
def test_the_formula(sizes: list[int], activation: str, seed: int) -> None:
    theta = random_theta(sizes, seed)
    x = np.random.default_rng(seed + 1).normal(size=sizes[0]).astype(np.float32)
    found, right = fast_forward(theta, sizes, x, activation), slow_forward(theta, sizes, x, activation)
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4 if activation == "relu" else 1e-5)


@given(widths, activations, st.integers(1, 15))
def test_bits_do_not_depend_on_where_the_arrays_lie(sizes: list[int], activation: str, shift: int) -> None:
    theta = random_theta(sizes)
    x = np.random.default_rng(1).normal(size=sizes[0]).astype(np.float32)
    moved = forward.aligned(len(theta) + shift)[shift:]
    moved[:] = theta
    np.testing.assert_array_equal(fast_forward(theta, sizes, x, activation), fast_forward(moved, sizes, x, activation))


def test_zeros_are_left_out_without_a_trace() -> None:
    sizes = [64, 32, 3]
    theta = random_theta(sizes)
    x = np.random.default_rng(1).normal(size=64).astype(np.float32)
    x[::3] = 0
    np.testing.assert_allclose(fast_forward(theta, sizes, x), slow_forward(theta, sizes, x), rtol=1e-4, atol=1e-5)
    zero = np.zeros(64, np.float32)
    np.testing.assert_allclose(fast_forward(theta, sizes, zero), slow_forward(theta, sizes, zero), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_nan_is_not_lost(activation: str) -> None:
    sizes = [4, 8, 8, 2]
    x = np.ones(4, np.float32)
    x[2] = np.nan
    assert np.isnan(fast_forward(random_theta(sizes), sizes, x, activation)).all()


@pytest.mark.parametrize("behind", [0, 100])
@pytest.mark.parametrize(("name", "function"), [("tanh", np.tanh), ("linear", lambda x: x)])
def test_gaussian(name: str, function: Callable[[Any], Any], behind: int) -> None:
    """u = tanh(MLP(x)) or MLP(x) + exp(log_std) z, whatever lies behind the policy's parameters."""
    sizes = [5, 16, 3]
    policy = 3 * random_theta(sizes)
    network = forward.network_of(sizes, mean=name)
    theta = np.concatenate([policy, np.full(behind, 77, np.float32)])
    x, u, mean = np.linspace(-1, 1, 5, dtype=np.float32), np.empty(3, np.float32), np.empty(3, np.float32)
    scratch = forward.scratch_for(sizes)
    forward.sample_gaussian(theta, network, x, np.random.default_rng(3), scratch, u)
    forward.mean_gaussian(theta, network, x, scratch, mean)
    z = np.random.default_rng(3).standard_normal(3)
    np.testing.assert_allclose(mean, function(slow_forward(policy, sizes, x)), rtol=1e-6, atol=1e-6)
    assert np.abs(mean).max() > (0.9 if name == "tanh" else 1.5)
    np.testing.assert_allclose(u, mean + np.exp(policy[-3:]) * z, rtol=1e-6, atol=1e-6)


def test_categorical_frequencies() -> None:
    sizes = [3, 16, 4]
    theta, x = random_theta(sizes), np.ones(3, np.float32)
    logits = slow_forward(theta, sizes, x)
    p = np.exp(logits - logits.max())
    p /= p.sum()
    generator, scratch, draws = np.random.default_rng(0), forward.scratch_for(sizes), 20_000
    network = forward.network_of(sizes)
    found, choices = np.empty((draws, 1), np.int64), np.array([4])
    for row in found:
        forward.sample_choices(theta, network, x, choices, generator, scratch, row)
    counts = np.bincount(found[:, 0], minlength=4)
    assert ((counts - draws * p) ** 2 / (draws * p)).sum() < 16.27  # chi-square, 3 degrees of freedom, p = 0.001
    forward.mode_choices(theta, network, x, choices, scratch, found[0])
    assert found[0, 0] == logits.argmax()


def test_actions_stay_within_the_bounds() -> None:
    low, high = np.array([-0.4, -1, 0.1], np.float32), np.array([0.4, 1, 0.7], np.float32)
    middle, half = (low.astype(np.float64) + high) / 2, (high.astype(np.float64) - low) / 2
    out = np.empty(3, np.float32)
    for u in (-5.0, -1.0, 0.0, 0.3, 1.0, 9.0):
        forward.to_environment(np.full(3, u, np.float32), middle, half, low, high, out)
        assert (out >= low).all()
        assert (out <= high).all()
        np.testing.assert_allclose(out, middle + half * np.clip(u, -1, 1), atol=1e-7)
    forward.to_environment(np.full(3, np.nan, np.float32), middle, half, low, high, out)
    assert np.isnan(out).all()


def test_scaling() -> None:
    raw, out = np.array([1.0, 500.0, -500.0, np.nan]), np.empty(4, np.float32)
    forward.scale_observation(raw, np.full(4, 3.0), np.full(4, 2.0), out)
    np.testing.assert_array_equal(out, np.array([-1, 10, -10, np.nan], np.float32))
    forward.scale_observation(raw, np.empty(0), np.empty(0), out)
    np.testing.assert_array_equal(out, raw.astype(np.float32))
