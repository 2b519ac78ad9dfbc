"""Rewards divided by the running deviation of the discounted return, a statistic that the federation shares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from afedpg.compiled import jit
from afedpg.messages import Moments
from afedpg.sampling.rollout import Rollout

RETURNS = "returns"  # the statistic's name
EPSILON = 1e-8
LARGEST = 10.0  # a scaled reward: one fall at the start must not outweigh everything else


def discounted_returns(rollout: Rollout, before: float, gamma: float) -> tuple[NDArray[np.float64], float]:
    """R_t = gamma R_{t-1} + r_t, from `before` on and from 0 at an episode's start; and what the next rollout goes on
    from.
    """
    running = _running(rollout.rewards, rollout.terminated | rollout.truncated, before, gamma)
    ended = bool(rollout.terminated[-1] or rollout.truncated[-1])
    return running, 0.0 if ended else float(running[-1])


def reward_scale(statistics: Moments | None) -> float:
    """The deviation; 1 before anything was reported, and where the return never changes."""
    if statistics is None or statistics.count < 2:
        return 1.0
    deviation = math.sqrt(float(statistics.m2[0]) / statistics.count)
    return deviation if deviation > EPSILON else 1.0


@jit
def _running(
    rewards: NDArray[np.float64], ended: NDArray[np.bool_], before: float, gamma: float
) -> NDArray[np.float64]:
    returns = np.empty_like(rewards)
    running = before
    for t in range(len(rewards)):
        running = gamma * running + rewards[t]
        returns[t] = running
        if ended[t]:
            running = 0.0
    return returns
