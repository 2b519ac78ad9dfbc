"""Returns and generalized advantages; pure, compiled, arrays in and out.

Termination ends an episode for good: nothing beyond it counts. Truncation, and the end of a rollout, only stop looking:
the value of what came after stands for the rest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afedpg.compiled import jit
from afedpg.sampling.rollout import Rollout

Row = NDArray[np.float64]  # [T]


def next_values(rollout: Rollout, values: Row, cut_values: Row) -> Row:
    """V of what follows each step: 0 after a termination, `cut_values` [cuts] where something was cut."""
    following = np.zeros_like(values)
    following[:-1] = values[1:]
    following[rollout.terminated] = 0.0
    following[rollout.cut_steps] = cut_values
    return following


def gae(rollout: Rollout, values: Row, cut_values: Row, gamma: float, gae_lambda: float) -> Row:
    """A_t = delta_t + gamma lambda A_{t+1} within an episode, delta_t = r_t + gamma V(s_{t+1}) - V(s_t)."""
    following = next_values(rollout, values, cut_values)
    return discounted(rollout.rewards, values, following, rollout.terminated | rollout.truncated, gamma, gae_lambda)


def bootstrapped_returns(rollout: Rollout, cut_values: Row, gamma: float) -> Row:
    """G_t = r_t + gamma G_{t+1}, with the value of what came after where an episode was cut."""
    zeros = np.zeros(rollout.steps)
    following = next_values(rollout, zeros, cut_values)
    return discounted(rollout.rewards, zeros, following, rollout.terminated | rollout.truncated, gamma, 1.0)


def returns_from_start(rollout: Rollout, gamma: float) -> Row:
    """sum_{h >= t} gamma^h r_h with h counted from the episode's start; for rollouts of whole episodes."""
    return _returns_from_start(rollout.rewards, rollout.terminated | rollout.truncated, gamma)


def standardized(advantages: Row) -> Row:
    """Zero mean, unit deviation; equal ones become zero."""
    centred = advantages - advantages.mean()
    deviation = np.sqrt((centred * centred).mean())
    scaled: Row = centred / (deviation + 1e-8)
    return scaled


@jit
def discounted(
    rewards: Row, values: Row, following: Row, ended: NDArray[np.bool_], gamma: float, gae_lambda: float
) -> Row:
    """The recursion itself; nothing comes back over a step that `ended`."""
    advantages = np.empty_like(values)
    running = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        if ended[t]:
            running = 0.0
        running = rewards[t] + gamma * following[t] - values[t] + gamma * gae_lambda * running
        advantages[t] = running
    return advantages


@jit
def _returns_from_start(rewards: Row, ended: NDArray[np.bool_], gamma: float) -> Row:
    weighted = np.empty_like(rewards)
    weight = 1.0
    for t in range(len(rewards)):
        weighted[t] = weight * rewards[t]
        weight = 1.0 if ended[t] else weight * gamma
    running = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        running = weighted[t] if ended[t] else weighted[t] + running
        weighted[t] = running
    return weighted
