"""The native kernels against torch's float64, whatever the shape; and the bits they promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch_reference import Net, exact, fisher_product, gradient, random_theta

from afedpg.agent.compute.kernels import CriticKernels, PolicyKernels
from afedpg.agent.compute.objectives import Clipped
from afedpg.compiled import fast_jit
from afedpg.policy.tanh import tanh

TOLERANCE = 1e-5
KINDS = ("usual", "no observation", "one state", "one extreme state", "few weights", "no weights")

widths = st.integers(1, 70)
nets = st.builds(
    lambda ends, hidden, *flags: Net((ends[0], *hidden, ends[1]), *flags),
    st.tuples(widths, st.integers(1, 20)), st.lists(widths, max_size=4), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    net: Net
    theta: NDArray[np.float32]
    observations: NDArray[np.float32]
    actions: NDArray[Any]
    weights: NDArray[np.float64]  # of the rows
    generator: np.random.Generator
    chunk: int

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        return exact(self.observations), exact(self.actions)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    net, generator = draw(nets), np.random.default_rng(draw(st.integers(0, 10**6)))
    rows, kind = draw(st.sampled_from([1, 2, 7, 64, 129])), draw(st.sampled_from(KINDS))
    observations = generator.normal(size=(rows, net.sizes[0])).astype(np.float32)
    if kind == "no observation":
        observations[:] = 0
    elif kind == "one state":
        observations[:] = observations[0]
    elif kind == "one extreme state":
        observations[0] = 10 * np.sign(observations[0])
    theta = random_theta(net, generator)
    x = exact(observations)
    if not net.tanh_layers:  # on a kink of relu one side is as right as the other
        assume(all(layer.abs().min() > 1e-5 for layer in net.layers(exact(theta), x)[:-1]))
    with torch.no_grad():
        mean = net.outputs(exact(theta), x).numpy()
    actions = np.tanh(mean) if net.squashed else mean
    actions = (actions + 0.6 * generator.normal(size=mean.shape)).astype(np.float32)
    weights = generator.normal(size=rows)
    if kind == "few weights":
        weights *= generator.random(rows) < 0.2
    elif kind == "no weights":
        weights[:] = 0
    chunk = draw(st.sampled_from([1, 3, 64, 256]))
    chosen = (mean + generator.gumbel(size=mean.shape)).argmax(1)
    return Case(net, theta, observations, actions if net.gaussian else chosen, weights, generator, chunk)


def assert_close(found: NDArray[Any], right: NDArray[np.float64]) -> None:
    assert np.linalg.norm(found - right) <= TOLERANCE * np.linalg.norm(right)


@given(cases())
def test_score_gradient(case: Case) -> None:
    net, (x, a) = case.net, case.inputs
    found = net.policy(case.chunk).score_gradient(case.theta, case.observations, case.actions, case.weights)
    right = gradient(lambda theta: (net.log_prob(theta, x, a) * exact(case.weights)).sum(), case.theta)
    assert_close(found, right)


@given(cases())
def test_log_prob(case: Case) -> None:
    right = case.net.log_prob(exact(case.theta), *case.inputs).numpy()
    found = case.net.policy(case.chunk).log_prob(case.theta, case.observations, case.actions)
    np.testing.assert_allclose(found, right, rtol=TOLERANCE, atol=TOLERANCE)


@given(cases(), st.booleans(), st.sampled_from([0.0, 0.01, 1.0]))
def test_clipped_gradient(case: Case, standardize: bool, bonus: float) -> None:
    net, (x, a) = case.net, case.inputs
    now = net.log_prob(exact(case.theta), x, a).numpy()
    before = now + case.generator.normal(0, 0.2, len(now))
    assume((np.abs(np.abs(np.exp(now - before) - 1) - 0.2) > 1e-4).all())  # nor is a kink of the clipping
    advantages = exact(case.weights)
    if standardize and len(now) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    def objective(theta: torch.Tensor) -> torch.Tensor:
        return net.clipped(theta, x, a, advantages, exact(before), 0.2) + bonus * net.entropy(theta, x).mean()

    clipped = Clipped(case.weights, before, 0.2, bonus, standardize and len(now) > 1)
    found, told = net.policy(case.chunk).clipped_gradient(case.theta, case.observations, case.actions, clipped)
    assert_close(found, gradient(objective, case.theta))
    ratio = np.exp(now - before)
    assert told["objective"] == pytest.approx(float(objective(exact(case.theta))), rel=1e-5, abs=1e-5)
    assert told["kl"] == pytest.approx((ratio - 1 - (now - before)).mean(), rel=1e-4, abs=1e-6)
    assert told["clipped"] == pytest.approx((np.abs(ratio - 1) > 0.2).mean())
    assert told["entropy"] == pytest.approx(float(net.entropy(exact(case.theta), x).mean()), rel=1e-5, abs=1e-5)


@given(cases())
def test_fisher_product(case: Case) -> None:
    vector = case.generator.normal(size=case.theta.size).astype(np.float32)
    found = case.net.policy(case.chunk).fisher_product(case.theta, case.observations, vector)
    assert_close(found, fisher_product(case.net, case.theta, exact(case.observations), vector))


@given(cases())
def test_divergence(case: Case) -> None:
    other = (case.theta + case.generator.normal(0, 0.02, case.theta.size)).astype(np.float32)
    kernels = case.net.policy(case.chunk)
    right = float(case.net.divergence(exact(case.theta), exact(other), exact(case.observations)))
    # quadratic in a difference of float32 outputs
    found = kernels.divergence(case.theta, other, case.observations)
    assert abs(found - right) <= 1e-5 * right + 1e-6 * np.sqrt(right)
    assert kernels.divergence(case.theta, case.theta, case.observations) == 0


@given(cases())
def test_values(case: Case) -> None:
    net, x = Net((*case.net.sizes[:-1], 1), case.net.tanh_layers), exact(case.observations)
    theta, targets = random_theta(net, case.generator), 3 * case.weights
    if not net.tanh_layers:
        assume(all(layer.abs().min() > 1e-5 for layer in net.layers(exact(theta), x)[:-1]))
    kernels = net.critic(case.chunk)

    def loss(theta: torch.Tensor) -> torch.Tensor:
        return ((net.outputs(theta, x)[:, 0] - exact(targets)) ** 2).mean()

    right = net.outputs(exact(theta), x)[:, 0].numpy()
    np.testing.assert_allclose(kernels.values(theta, case.observations), right, rtol=TOLERANCE, atol=TOLERANCE)
    found, mean = kernels.gradient(theta, case.observations, targets)
    assert_close(found, gradient(loss, theta))
    assert mean == pytest.approx(float(loss(exact(theta))), rel=1e-5, abs=1e-6)


def test_wide_networks_in_long_rollouts() -> None:
    generator = np.random.default_rng(0)
    for gaussian in (True, False):
        net = Net((17, 256, 256, 6), True, gaussian, squashed=False)
        theta, x = random_theta(net, generator), generator.normal(size=(700, 17)).astype(np.float32)
        a = generator.normal(size=(700, 6)).astype(np.float32) if gaussian else generator.integers(6, size=700)
        weights = generator.normal(size=700)
        found = net.policy(256).score_gradient(theta, x, a, weights)
        assert_close(found, gradient(lambda t: (net.log_prob(t, exact(x), exact(a)) * exact(weights)).sum(), theta))  # noqa: B023


@given(cases(), st.integers(1, 15))
def test_bits_depend_neither_on_the_chunk_nor_on_where_arrays_lie(case: Case, shift: int) -> None:
    def moved(array: NDArray[Any]) -> NDArray[Any]:
        """As contiguous as before, elsewhere."""
        return np.concatenate([np.zeros(shift, array.dtype), array.reshape(-1)])[shift:].reshape(array.shape)

    inputs = (case.theta, case.observations, case.actions, case.weights)
    found = case.net.policy(case.chunk).score_gradient(*inputs)
    np.testing.assert_array_equal(found, case.net.policy(50).score_gradient(*map(moved, inputs)))


@given(cases())
def test_a_call_leaves_nothing_for_the_next(case: Case) -> None:
    used = case.net.policy(case.chunk)
    inputs = (case.theta, case.observations, case.actions, case.weights)
    first = used.score_gradient(*inputs)
    used.fisher_product(case.theta, case.observations, case.theta)
    used.score_gradient(3 * case.theta, -case.observations, case.actions, case.weights)
    np.testing.assert_array_equal(first, used.score_gradient(*inputs))


def test_nan_is_not_lost() -> None:
    for tanh_layers in (True, False):
        net = Net((4, 8, 8, 2), tanh_layers, gaussian=True)
        theta = random_theta(net, np.random.default_rng(0))
        x = np.ones((5, 4), np.float32)
        x[3, 2] = np.nan
        log_prob = net.policy(64).log_prob(theta, x, np.ones((5, 2)))
        assert np.isnan(log_prob).tolist() == [False, False, False, True, False]
        assert np.isnan(net.policy(64).score_gradient(theta, x, np.ones((5, 2)), np.ones(5))).all()


@fast_jit
def apply_tanh(values: NDArray[np.float32]) -> None:
    tanh(values)


def test_tanh_everywhere() -> None:
    x = np.concatenate([np.linspace(-12, 12, 100_001), np.geomspace(1e-30, 10, 10_000)]).astype(np.float32)
    found, right = x.copy(), np.tanh(x.astype(np.float64))
    apply_tanh(found)
    np.testing.assert_allclose(found, right, rtol=3e-7)
    edges = np.array([np.inf, -np.inf, np.nan, 0], np.float32)
    apply_tanh(edges)
    np.testing.assert_allclose(edges, [1, -1, np.nan, 0], rtol=3e-7)


def test_what_lies_behind_the_parameters_is_not_looked_at() -> None:
    net, generator = Net((4, 8, 2), False, gaussian=True), np.random.default_rng(0)
    theta, x, a = random_theta(net, generator), generator.normal(size=(9, 4)), generator.normal(size=(9, 2))
    longer = np.concatenate([theta, np.full(30, np.nan, np.float32)])
    kernels = net.policy(64)
    found = kernels.score_gradient(longer, x, a, np.ones(9))
    np.testing.assert_array_equal(found, kernels.score_gradient(theta, x, a, np.ones(9)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"theta": np.zeros(5)}, "theta of shape"),
        ({"observations": np.zeros((9, 5))}, "observations of shape"),
        ({"actions": np.zeros(8, int)}, "actions of shape"),
        ({"actions": np.full(9, 3)}, "actions from 3 to 3, where 0 to 2 are meant"),
        ({"actions": np.full(9, -1)}, "actions from -1"),
        ({"weights": np.ones(10)}, "weights of shape"),
    ],
)
def test_arrays_that_do_not_fit(change: dict[str, NDArray[Any]], said: str) -> None:
    kernels = PolicyKernels((4, 8, 3), gaussian=False)
    fitting = {
        "theta": np.zeros(67),
        "observations": np.zeros((9, 4)),
        "actions": np.zeros(9, int),
        "weights": np.ones(9),
    }
    kernels.score_gradient(**fitting)
    with pytest.raises(ValueError, match=said):
        kernels.score_gradient(**(fitting | change))


def test_targets_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="targets of shape"):
        CriticKernels((4, 8)).gradient(np.zeros(49), np.zeros((9, 4)), np.zeros(8))
