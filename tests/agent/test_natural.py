"""The natural gradient against the dense Fisher matrix, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_clipped import Logits

from afedpg import train
from afedpg.agent.compute.kernels import PolicyKernels
from afedpg.agent.estimators.estimator import Tools
from afedpg.agent.estimators.gradient import advantage_gradient
from afedpg.agent.estimators.natural import Natural, fisher, solve
from afedpg.config import AgentConfig
from afedpg.messages import Task, TaskId
from afedpg.policy.mlp import MlpPolicy, leaves
from afedpg.policy.own import ModulePolicy
from afedpg.sampling.rollout import Rollout

POLICIES = {
    "Gaussian": MlpPolicy(3, 2, True, (5, 4), -0.3, activation="tanh", mean="linear"),
    "Gaussian, squashed": MlpPolicy(3, 2, True, (6,), 0.2),
    "categorical": MlpPolicy(3, 4, False, (5,), activation="tanh"),
}
each = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
T = 40


def made(policy, dtype=np.float64):
    generator = np.random.default_rng(3)
    theta = (policy.initial_theta(generator) + 0.3 * generator.normal(size=policy.layout.size)).astype(dtype)
    observations = generator.normal(size=(T, 3)).astype(np.float32)
    gaussian = getattr(policy, "gaussian", False)
    actions = generator.normal(size=(T, 2)).astype(np.float32) if gaussian else generator.integers(2, size=T)
    ends = np.arange(T) % 13 == 12
    no = np.zeros(T, np.bool_)
    rollout = Rollout(observations.astype(float), observations, actions, generator.normal(size=T), ends, no,
                      np.array([T - 1]), observations[:1], (), ())  # fmt: skip
    return theta, rollout, generator.normal(size=T)


def distribution(policy, theta, x):
    tensors, at = {}, 0
    for name, shape in policy.layout.shapes:
        size = int(np.prod(shape))
        tensors[name], at = theta[at : at + size].view(shape), at + size
    for n in range(len(policy.hidden) + 1):
        x = x @ tensors[f"layer{n}.weight"] + tensors[f"layer{n}.bias"]
        if n < len(policy.hidden):
            x = torch.tanh(x) if policy.activation == "tanh" else torch.relu(x)
    if not policy.gaussian:
        return torch.distributions.Categorical(logits=x)
    x = torch.tanh(x) if policy.mean == "tanh" else x
    return torch.distributions.Independent(torch.distributions.Normal(x, tensors["log_std"].exp().expand_as(x)), 1)


def divergence(policy, before, theta, x):
    one, other = distribution(policy, before, x), distribution(policy, theta, x)
    return torch.distributions.kl_divergence(one, other).mean()


def dense(policy, theta, rollout):
    """The curvature of the mean divergence at its minimum."""
    x, here = torch.tensor(rollout.observations, dtype=torch.float64), torch.tensor(theta, dtype=torch.float64)
    return torch.autograd.functional.hessian(lambda there: divergence(policy, here, there, x), here).numpy()


@each
def test_conjugate_gradient_solves_for_the_dense_fisher(policy):
    theta, rollout, advantages = made(policy)
    tools = Tools(policy, AgentConfig(), 3)
    uphill = advantage_gradient(policy, theta, rollout, advantages)
    damping = 1e-2
    right = np.linalg.solve(dense(policy, theta, rollout) + damping * np.eye(theta.size), uphill)
    found = solve(fisher(tools, theta, rollout), uphill, 4 * theta.size, damping)
    assert np.linalg.norm(found - right) < 1e-6 * np.linalg.norm(right)
    few = solve(fisher(tools, theta, rollout), uphill, 2, damping)
    assert np.linalg.norm(few - right) > 1e-3 * np.linalg.norm(right)


@each
def test_a_contribution_is_as_long_as_its_divergence(policy):
    theta, rollout, _ = made(policy)
    kl, damping, tools = 1e-6, 0.01, Tools(policy, AgentConfig(baseline="none"), 3)
    task = Task(TaskId(0, 0), 0, theta, 0)
    _, contribution = Natural(iterations=400, damping=damping, kl=kl, every=1).estimate(tools, {}, task, rollout)
    x = torch.tensor(rollout.observations, dtype=torch.float64)
    step = np.asarray(contribution.vector)
    modelled = step @ dense(policy, theta, rollout) @ step / 2
    assert modelled + damping * step @ step / 2 == pytest.approx(kl, rel=1e-6)
    moved = divergence(policy, torch.tensor(theta), torch.tensor(theta + step), x)
    assert 0.3 * kl < modelled == pytest.approx(float(moved), rel=0.02)


@each
def test_native_code_and_torch_agree(policy):
    theta, rollout, advantages = made(policy, np.float32)
    kernels = PolicyKernels(policy.sizes, policy.gaussian, policy.activation == "tanh", policy.mean == "tanh")
    native, usual = Tools(policy, AgentConfig(), 3, lambda: (kernels, None)), Tools(policy, AgentConfig(), 3)
    uphill = advantage_gradient(policy, theta, rollout, advantages)
    one, other = (solve(fisher(tools, theta, rollout), uphill, 60, 0.1) for tools in (native, usual))
    assert np.linalg.norm(one - other) < 1e-5 * np.linalg.norm(other)


def test_a_policy_of_ones_own_has_the_fisher_of_its_log_probabilities():
    import gymnasium

    spaces = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)
    policy = ModulePolicy.make(Logits, *spaces, np.random.default_rng(0))
    theta, rollout, advantages = made(policy)
    x, a = torch.tensor(rollout.observations, dtype=torch.float64), torch.tensor(rollout.actions)

    def log_prob(flat):
        parts, at = {}, 0
        for name, shape in policy.layout.shapes:
            size = int(np.prod(shape))
            parts[name], at = flat[at : at + size].view(shape), at + size
        return policy.log_prob(parts, x, a)

    jacobian = torch.autograd.functional.jacobian(log_prob, torch.tensor(theta)).numpy()
    uphill = jacobian.T @ advantages / T
    right = np.linalg.solve(jacobian.T @ jacobian / T + 0.1 * np.eye(theta.size), uphill)
    tools = Tools(policy, AgentConfig(), 3)
    found = solve(fisher(tools, theta, rollout), advantage_gradient(policy, theta, rollout, advantages), 100, 0.1)
    assert np.linalg.norm(found - right) < 1e-6 * np.linalg.norm(right)
    assert set(leaves(policy.layout, torch.tensor(theta))) == {"layer.weight", "layer.bias"}


@each
def test_every_third_state_is_a_rollout_of_those(policy):
    theta, rollout, _ = made(policy)
    tools, vector = Tools(policy, AgentConfig(), 3), np.random.default_rng(1).normal(size=theta.size)
    fewer = replace(rollout, observations=rollout.observations[::3], actions=rollout.actions[::3])
    found = fisher(tools, theta, rollout, every=3)(vector)
    np.testing.assert_allclose(found, dense(policy, theta, fewer) @ vector, rtol=1e-6, atol=1e-9)


def test_without_a_gradient_there_is_no_step():
    policy = POLICIES["categorical"]
    theta, rollout, _ = made(policy)
    rollout = Rollout(*(getattr(rollout, name) for name in Rollout.__slots__[:3]), np.zeros(T), rollout.terminated,
                      rollout.truncated, rollout.cut_steps, rollout.cut_observations, (), ())  # fmt: skip
    tools = Tools(policy, AgentConfig(baseline="none"), 3)
    _, contribution = Natural().estimate(tools, {}, Task(TaskId(0, 0), 0, theta, 0), rollout)
    assert not np.any(contribution.vector)


@pytest.mark.parametrize("compute", ["native", "torch"])
def test_it_learns(compute):
    result = train(
        "CartPole-v1", method="pg-plain", agents=1, estimator="natural:kl=0.02", eta=1.0, iterations=25, steps=512,
        hidden=(16,), schedule="constant", compute=compute, evaluate_kind="sampled",
    )  # fmt: skip
    assert result.evaluations[-1].mean > 100
