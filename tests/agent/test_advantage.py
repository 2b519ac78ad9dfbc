"""Advantages and returns against slow formulas that read like the definitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.agent.estimators.advantage import bootstrapped_returns, gae, returns_from_start, standardized
from afedpg.sampling.rollout import Rollout

FLOATS = st.floats(-10, 10)


def make_rollout(rewards, terminated, truncated):
    """A rollout whose only meaningful arrays are rewards and ends."""
    steps = len(rewards)
    ended = [a or b for a, b in zip(terminated, truncated, strict=True)]
    cuts = [t for t in range(steps) if truncated[t] or (t == steps - 1 and not ended[t])]
    nothing = np.zeros((steps, 1))
    return Rollout(
        nothing, nothing.astype(np.float32), np.zeros(steps, np.int64), np.array(rewards, float),
        np.array(terminated, bool), np.array(truncated, bool), np.array(cuts, np.int64),
        np.zeros((len(cuts), 1), np.float32), (), (),
    )  # fmt: skip


@st.composite
def rollouts(draw):
    ends = draw(st.lists(st.sampled_from(["on", "on", "on", "terminated", "truncated"]), min_size=1, max_size=12))
    rewards = draw(st.lists(FLOATS, min_size=len(ends), max_size=len(ends)))
    return make_rollout(rewards, [end == "terminated" for end in ends], [end == "truncated" for end in ends])


def slow_next_value(rollout, t, values, cut_values):
    if rollout.terminated[t]:
        return 0.0
    cuts = rollout.cut_steps.tolist()
    return cut_values[cuts.index(t)] if t in cuts else values[t + 1]


def slow_gae(rollout, values, cut_values, gamma, gae_lambda):
    """A_t = sum_l (gamma lambda)^l delta_{t+l}, over the steps up to the end of t's episode or of the rollout."""
    advantages = []
    for t in range(rollout.steps):
        total = 0.0
        for h in range(t, rollout.steps):
            following = slow_next_value(rollout, h, values, cut_values)
            total += (gamma * gae_lambda) ** (h - t) * (rollout.rewards[h] + gamma * following - values[h])
            if rollout.terminated[h] or rollout.truncated[h]:
                break
        advantages.append(total)
    return advantages


@settings(max_examples=200, deadline=None)
@given(rollouts(), st.floats(0.1, 1), st.floats(0, 1), st.data())
def test_gae_is_the_sum_of_discounted_errors(rollout, gamma, gae_lambda, data):
    values = np.array(data.draw(st.lists(FLOATS, min_size=rollout.steps, max_size=rollout.steps)))
    cuts = len(rollout.cut_steps)
    cut_values = np.array(data.draw(st.lists(FLOATS, min_size=cuts, max_size=cuts)))
    expected = slow_gae(rollout, values, cut_values, gamma, gae_lambda)
    np.testing.assert_allclose(gae(rollout, values, cut_values, gamma, gae_lambda), expected, atol=1e-9)


@settings(max_examples=200, deadline=None)
@given(rollouts(), st.floats(0.1, 1), st.data())
def test_with_lambda_one_gae_is_return_minus_value(rollout, gamma, data):
    values = np.array(data.draw(st.lists(FLOATS, min_size=rollout.steps, max_size=rollout.steps)))
    cuts = len(rollout.cut_steps)
    cut_values = np.array(data.draw(st.lists(FLOATS, min_size=cuts, max_size=cuts)))
    returns = bootstrapped_returns(rollout, cut_values, gamma)
    np.testing.assert_allclose(gae(rollout, values, cut_values, gamma, 1.0), returns - values, atol=1e-9)


def slow_returns_from_start(rollout, gamma):
    """sum_{h >= t} gamma^h r_h, h counted from the start of the episode."""
    starts, start = [], 0
    for t in range(rollout.steps):
        starts.append(start)
        if rollout.terminated[t] or rollout.truncated[t]:
            start = t + 1
    return [
        sum(gamma ** (h - starts[h]) * rollout.rewards[h] for h in range(t, rollout.steps) if starts[h] == starts[t])
        for t in range(rollout.steps)
    ]


@settings(max_examples=200, deadline=None)
@given(rollouts(), st.floats(0.1, 1))
def test_returns_are_discounted_from_the_episodes_start(rollout, gamma):
    np.testing.assert_allclose(returns_from_start(rollout, gamma), slow_returns_from_start(rollout, gamma), atol=1e-9)


def test_termination_never_bootstraps_truncation_does():
    value = np.array([100.0])
    terminated = make_rollout([1.0], [True], [False])
    truncated = make_rollout([1.0], [False], [True])
    assert gae(terminated, np.zeros(1), np.empty(0), 0.5, 0.95)[0] == 1.0
    assert gae(truncated, np.zeros(1), value, 0.5, 0.95)[0] == 51.0


@given(st.lists(FLOATS, min_size=2, max_size=50))
def test_standardized_advantages(advantages):
    scaled = standardized(np.array(advantages))
    assert scaled.mean() == pytest.approx(0, abs=1e-6)
    if np.std(advantages) > 1e-3:
        assert scaled.std() == pytest.approx(1, rel=1e-4)
