"""A Markov decision process of three states and two actions with a softmax table for a policy.

Instead of discounting, an episode goes on with probability gamma after every step: the undiscounted return then has the
discounted value as its expectation, and a sampled gradient is unbiased without cutting episodes off.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from afedpg.compiled import jit
from afedpg.messages import Floats, Vector

STATES, ACTIONS, GAMMA = 3, 2, 0.8
LONGEST = 200  # gamma^200 is below float64's resolution: no episode is ever cut short in earnest

# Moving right (action 1) pays only at the end of the chain; staying put pays a little at once.
REWARD = np.array([[0.2, 0.0], [0.1, 0.0], [0.0, 1.0]])  # [state, action]
MOVE = np.array(
    [[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]], [[0.8, 0.2, 0.0], [0.1, 0.1, 0.8]], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]]
)  # [state, action, next state]
START = np.array([0.8, 0.1, 0.1])


@dataclass(frozen=True)
class SoftmaxMDP:
    parameters: int = STATES * ACTIONS
    width: int = 1 + 3 * LONGEST  # the first state, then action, next state and whether to go on, for every step

    def initial_theta(self) -> Vector:
        return np.zeros(self.parameters)

    @cached_property
    def optimum(self) -> float:
        """The best deterministic policy's value: one of eight."""
        choices = product(range(ACTIONS), repeat=STATES)
        return max(float(START @ self._solve(np.eye(ACTIONS)[list(choice)])) for choice in choices)

    def policy(self, theta: Vector) -> Vector:
        logits = theta.reshape(STATES, ACTIONS)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def _solve(self, policy: Vector) -> Vector:
        """V = (I - gamma P)^-1 r under that policy, [state]."""
        moves = np.einsum("sa,san->sn", policy, MOVE)
        return np.linalg.solve(np.eye(STATES) - GAMMA * moves, (policy * REWARD).sum(axis=1))

    def value(self, theta: Vector) -> float:
        return float(START @ self._solve(self.policy(theta)))

    def gradient(self, theta: Vector) -> Vector:
        """The policy gradient theorem: visits(s) pi(a|s) (Q(s, a) - V(s))."""
        policy = self.policy(theta)
        values = self._solve(policy)
        moves = np.einsum("sa,san->sn", policy, MOVE)
        visits = np.linalg.solve((np.eye(STATES) - GAMMA * moves).T, START)
        advantage = REWARD + GAMMA * MOVE @ values - values[:, None]
        return np.asarray((visits[:, None] * policy * advantage).ravel())

    def draw(self, generator: np.random.Generator, samples: int) -> Vector:
        return generator.random((samples, self.width))

    def sample(self, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        """sum_t grad log pi(a_t|s_t) sum_{h >= t} r_h over one episode."""
        gradient = np.zeros((STATES, ACTIONS))
        reward = _episode(self.policy(theta.astype(np.float64)), draw, REWARD, MOVE, START, gradient)
        return gradient.ravel().astype(np.float32), reward


@jit
def _episode(policy: Vector, draw: Vector, rewards: Vector, moves: Vector, start: Vector, gradient: Vector) -> float:
    """The episode's return; its score function is added to `gradient` [state, action]."""
    states, actions = np.empty(LONGEST, np.int64), np.empty(LONGEST, np.int64)
    total, length, state = 0.0, 0, _pick(start, draw[0])
    while length < LONGEST:
        action = _pick(policy[state], draw[3 * length + 1])
        states[length], actions[length] = state, action
        total += rewards[state, action]
        state = _pick(moves[state, action], draw[3 * length + 2])
        length += 1
        if draw[3 * length] >= GAMMA:
            break
    to_go = 0.0
    for t in range(length - 1, -1, -1):
        to_go += rewards[states[t], actions[t]]
        for action in range(ACTIONS):
            score = (1.0 if action == actions[t] else 0.0) - policy[states[t], action]
            gradient[states[t], action] += score * to_go
    return total


@jit
def _pick(probabilities: Vector, draw: float) -> int:
    """Which of the outcomes: the first whose cumulated probability is above the number drawn."""
    below = 0.0
    for outcome in range(probabilities.size - 1):
        below += probabilities[outcome]
        if draw < below:
            return outcome
    return int(probabilities.size - 1)
