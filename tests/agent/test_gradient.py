"""Gradients point uphill on J itself: every trajectory of a small decision process, weighted with its probability."""

import itertools

import numpy as np
import pytest

from afedpg.agent.estimators.advantage import gae
from afedpg.agent.estimators.gradient import a3c, advantage_gradient, reinforce
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.rollout import Rollout
from afedpg.seeding import stream

HORIZON = 4
GAMMA = 0.9
START = np.array([0.3, 0.7])
MOVE = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.35, 0.65]]])  # [state, action, next state]
REWARD = np.array([[1.0, -0.5], [0.3, 2.0]])  # [state, action]
POLICY = MlpPolicy(observations=2, actions=2, gaussian=False, hidden=(3,))


def probabilities(theta):
    """pi(a|s) as [state, action], written out without torch."""
    tensors = POLICY.layout.views(theta)
    hidden = np.maximum(np.eye(2) @ tensors["layer0.weight"] + tensors["layer0.bias"], 0)
    logits = hidden @ tensors["layer1.weight"] + tensors["layer1.bias"]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def expected_return(theta, gamma):
    """J by dynamic programming, independent of any trajectory."""
    pi = probabilities(theta)
    value = np.zeros(2)
    for _ in range(HORIZON):
        value = (pi * (REWARD + gamma * MOVE @ value)).sum(axis=1)
    return float(START @ value)


def finite_differences(theta, gamma, width=1e-5):
    gradient = np.zeros_like(theta)
    for index in range(theta.size):
        step = np.zeros_like(theta)
        step[index] = width
        gradient[index] = (expected_return(theta + step, gamma) - expected_return(theta - step, gamma)) / (2 * width)
    return gradient


def trajectories(theta):
    """(probability, states, actions) of all of them: 2^4 state sequences times 2^4 action sequences."""
    pi = probabilities(theta)
    for states in itertools.product(range(2), repeat=HORIZON):
        for actions in itertools.product(range(2), repeat=HORIZON):
            probability = START[states[0]]
            for t in range(HORIZON):
                probability *= pi[states[t], actions[t]]
                if t + 1 < HORIZON:
                    probability *= MOVE[states[t], actions[t], states[t + 1]]
            yield probability, states, actions


def as_rollout(*episodes):
    states = np.array([state for states, _ in episodes for state in states])
    actions = np.array([action for _, actions in episodes for action in actions])
    terminated = np.arange(len(states)) % HORIZON == HORIZON - 1
    observations = np.eye(2)[states]
    return Rollout(
        observations, observations.astype(np.float32), actions, REWARD[states, actions], terminated,
        np.zeros(len(states), bool), np.empty(0, np.int64), np.empty((0, 2), np.float32), (), (),
    )  # fmt: skip


@pytest.fixture(params=[0, 1, 2])
def theta(request):
    generator = stream(request.param, "theta")
    return POLICY.initial_theta(generator) + 0.5 * generator.standard_normal(POLICY.layout.size)


def test_reinforce_is_the_gradient_of_j(theta):
    total = sum(p * reinforce(POLICY, theta, as_rollout((s, a)), GAMMA) for p, s, a in trajectories(theta))
    assert np.abs(total).max() > 1e-2
    np.testing.assert_allclose(total, finite_differences(theta, GAMMA), atol=1e-6)


def test_reinforce_averages_over_episodes(theta):
    episodes = [(s, a) for _, s, a in itertools.islice(trajectories(theta), 40, 43)]
    together = reinforce(POLICY, theta, as_rollout(*episodes), GAMMA)
    alone = [reinforce(POLICY, theta, as_rollout(episode), GAMMA) for episode in episodes]
    np.testing.assert_allclose(together, np.mean(alone, axis=0), atol=1e-12)


def test_gae_with_lambda_one_and_no_baseline_is_the_gradient_of_j(theta):
    """Undiscounted, because GAE leaves out the factor gamma^t of the step itself; times T, because it averages."""
    total = np.zeros_like(theta)
    for probability, states, actions in trajectories(theta):
        rollout = as_rollout((states, actions))
        advantages = gae(rollout, np.zeros(HORIZON), np.empty(0), 1.0, 1.0)
        total += probability * HORIZON * advantage_gradient(POLICY, theta, rollout, advantages)
    np.testing.assert_allclose(total, finite_differences(theta, 1.0), atol=1e-6)


def test_any_baseline_of_the_state_leaves_the_expectation(theta):
    values_of = np.array([3.0, -7.0])
    total = np.zeros_like(theta)
    for probability, states, actions in trajectories(theta):
        rollout = as_rollout((states, actions))
        advantages = gae(rollout, values_of[list(states)], np.empty(0), 1.0, 1.0)
        total += probability * HORIZON * advantage_gradient(POLICY, theta, rollout, advantages)
    np.testing.assert_allclose(total, finite_differences(theta, 1.0), atol=1e-6)


SHARED = MlpPolicy(observations=2, actions=2, gaussian=False, hidden=(3,), value_hidden=(3,))


def a3c_objective(theta, weights, targets, rollout, entropy, value_weight):
    """Written out in numpy; `weights` and `targets` are held fixed, as the gradient holds them."""
    tensors = SHARED.layout.views(theta)
    x = rollout.observations.astype(np.float64)
    logits = np.maximum(x @ tensors["layer0.weight"] + tensors["layer0.bias"], 0) @ tensors["layer1.weight"]
    logits = logits + tensors["layer1.bias"]
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    values = np.maximum(x @ tensors["value0.weight"] + tensors["value0.bias"], 0) @ tensors["value1.weight"]
    errors = targets - (values + tensors["value1.bias"])[:, 0]
    chosen = log_p[np.arange(len(x)), rollout.actions]
    return float((chosen * weights - entropy * (np.exp(log_p) * log_p).sum(axis=1) - value_weight * errors**2).mean())


def test_a3c_gradient_is_uphill_on_its_objective():
    generator = stream(0, "theta")
    theta = SHARED.initial_theta(generator) + 0.3 * generator.standard_normal(SHARED.layout.size)
    rollout = as_rollout(((0, 1, 1, 0), (0, 0, 1, 1)), ((1, 0, 1, 1), (1, 0, 0, 1)))
    tensors = SHARED.layout.views(theta)
    values = np.maximum(rollout.raw @ tensors["value0.weight"] + tensors["value0.bias"], 0) @ tensors["value1.weight"]
    values = (values + tensors["value1.bias"])[:, 0]
    targets = np.concatenate([_returns(rollout.rewards[:4]), _returns(rollout.rewards[4:])])
    gradient = a3c(SHARED, theta, rollout, GAMMA, entropy=0.3, value_weight=0.7)
    for index in range(theta.size):
        step = np.zeros_like(theta)
        step[index] = 1e-6
        up, down = (
            a3c_objective(theta + sign * step, targets - values, targets, rollout, 0.3, 0.7) for sign in (1, -1)
        )
        assert gradient[index] == pytest.approx((up - down) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("gaussian", [True, False])
def test_a3c_looks_beyond_a_cut_and_values_entropy(gaussian):
    """A segment whose first episode was truncated and whose second goes on; finite differences on the formula."""
    generator = stream(0, "theta")
    policy = MlpPolicy(2, 2, gaussian, (3,), -0.5, (3,))
    theta = policy.initial_theta(generator) + 0.3 * generator.standard_normal(policy.layout.size)
    x, after = (generator.standard_normal((count, 2)).astype(np.float32) for count in (5, 2))
    actions = generator.standard_normal((5, 2)) if gaussian else np.array([0, 1, 1, 0, 1])
    rewards, never = generator.standard_normal(5), np.zeros(5, bool)
    truncated = np.array([False, True, False, False, False])
    rollout = Rollout(x.astype(float), x, actions, rewards, never, truncated, np.array([1, 4]), after, (), ())

    def value(flat, rows):
        tensors = policy.layout.views(flat)
        hidden = np.maximum(rows.astype(float) @ tensors["value0.weight"] + tensors["value0.bias"], 0)
        return (hidden @ tensors["value1.weight"] + tensors["value1.bias"])[:, 0]

    targets, beyond = np.zeros(5), dict(zip((1, 4), value(theta, after), strict=True))
    for step in reversed(range(5)):
        targets[step] = rewards[step] + GAMMA * (beyond[step] if step in beyond else targets[step + 1])
    weights = targets - value(theta, x)

    def objective(flat):
        tensors = policy.layout.views(flat)
        hidden = np.maximum(x.astype(float) @ tensors["layer0.weight"] + tensors["layer0.bias"], 0)
        out = hidden @ tensors["layer1.weight"] + tensors["layer1.bias"]
        if gaussian:
            log_std = tensors["log_std"]
            log_p = -0.5 * (((actions - np.tanh(out)) / np.exp(log_std)) ** 2).sum(axis=1) - log_std.sum()
            entropy = log_std.sum()  # up to a constant
        else:
            logs = out - np.log(np.exp(out).sum(axis=1, keepdims=True))
            log_p, entropy = logs[np.arange(5), actions], -(np.exp(logs) * logs).sum(axis=1)
        return np.mean(log_p * weights + 0.3 * entropy - 0.7 * (targets - value(flat, x)) ** 2)

    slopes = [(objective(theta + step) - objective(theta - step)) / 2e-6 for step in 1e-6 * np.eye(theta.size)]
    np.testing.assert_allclose(a3c(policy, theta, rollout, GAMMA, 0.3, 0.7), slopes, atol=1e-6)


def _returns(rewards):
    return np.array([sum(GAMMA ** (h - t) * rewards[h] for h in range(t, len(rewards))) for t in range(len(rewards))])


def test_gradients_are_float32_where_theta_is():
    theta = POLICY.initial_theta(stream(0, "theta")).astype(np.float32)
    assert reinforce(POLICY, theta, as_rollout(((0, 1, 1, 0), (0, 0, 1, 1))), GAMMA).dtype == np.float32
