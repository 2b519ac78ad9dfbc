"""Average reward: on a chain whose gain is known, and against the recursion written out."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from afedpg.agent.estimators.average import PULL
from afedpg.agent.estimators.gae import Gae
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.messages import Task, TaskId
from afedpg.sampling.rollout import Rollout

STATES, COST = 4, 0.5


class Chain(gymnasium.Env):
    """Action 1 goes right, and off the end, which terminates; action 0 goes left. Further right there is more."""

    observation_space = spaces.Box(0, 1, (STATES,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return np.eye(STATES)[0], {}

    def step(self, action):
        reward = 1 + 0.2 * self.state
        self.state = max(0, self.state + (1 if action else -1))
        over = self.state == STATES
        return np.eye(STATES)[min(self.state, STATES - 1)], reward, over, False, {}


def gain(work, theta):
    """Of the policy theta: the chain's stationary distribution, a reset leading to state 0."""
    import torch

    policy = work.policy
    tensors, at = {}, 0
    for name, shape in policy.layout.shapes:
        size = int(np.prod(shape))
        tensors[name], at = torch.tensor(theta[at : at + size].astype(np.float64)).view(shape), at + size
    right = policy.log_prob(tensors, torch.eye(STATES, dtype=torch.float64), torch.ones(STATES, dtype=torch.int64))
    right = right.exp().numpy()
    move, paid = np.zeros((STATES, STATES)), 1 + 0.2 * np.arange(STATES)
    for state in range(STATES):
        move[state, max(0, state - 1)] += 1 - right[state]
        move[state, (state + 1) % STATES] += right[state]
    paid[-1] -= COST * right[-1]
    share = np.linalg.matrix_power(move, 4096)[0]
    return float(share @ paid)


@pytest.mark.parametrize("estimator", ["gae:", "natural:", "clipped:rate=1e-9,"])
def test_the_gain_of_a_chain_is_found(estimator):
    method = {"method": "afedppo"} if estimator.startswith("clipped") else {}
    how = f"{estimator}average_reward=true,reset_cost={COST}"
    settings = {"task": "chain", "steps": 512, "hidden": (8,), "estimator": how, "scale_observations": False}
    work = EnvironmentWorkload(from_settings(method | settings), lambda agent: Chain())
    theta, state = work.initial_theta().astype(np.float32), work.start(0)
    found = []
    for n in range(80):
        state, report = work.work(state, Task(TaskId(0, n), 0, theta, n, {}))
        found.append(state["average"][0])
    assert np.mean(found[-20:]) == pytest.approx(gain(work, theta), rel=0.01)
    assert np.isfinite(report.payload).all()
    assert state["average"][2] == 80


def test_the_recursion_written_out():
    generator = np.random.default_rng(0)
    T, lam, scale = 30, 0.8, 2.0
    terminated, truncated = np.zeros(T, np.bool_), np.zeros(T, np.bool_)
    terminated[[4, 11, 29]], truncated[[17]] = True, True
    x = generator.normal(size=(T, 1)).astype(np.float32)
    rewards, values, beyond = generator.normal(size=T), generator.normal(size=T), np.array([0.7])
    rollout = Rollout(x.astype(float), x, np.zeros(T), rewards, terminated, truncated, np.array([17]), x[:1], (), (),
                      reward_scale=scale)  # fmt: skip
    state, found, targets = Gae(average_reward=True, reset_cost=3.0).averaged(
        {"average": np.array([0.5, 0.2, 99.0])}, rollout, rollout, values, beyond, lam
    )
    rho = 0.95 * 0.5 + 0.05 * (scale * rewards.sum() - 3 * 3.0) / T
    level = 0.95 * 0.2 + 0.05 * values.mean()
    assert state["average"] == pytest.approx([rho, level, 100])
    running = 0.0
    for t in reversed(range(T)):
        after = level if t == T - 1 else 0.7 if truncated[t] else values[t + 1]
        delta = rewards[t] - (3.0 / scale if terminated[t] else 0) - rho / scale + after - values[t]
        running = delta + (0.0 if truncated[t] else lam * running)
        assert found[t] == pytest.approx(running)
        assert targets[t] == pytest.approx(running + values[t] - PULL * level)
