"""Two contextual Gaussian bandits on which the theorems' rates can be measured (a softmax policy cannot show them: its
Fisher matrix is not positive definite).

A context s_m is drawn evenly, the policy acts a = theta_m s_m + sigma z, and the gradient of one sample is the score
function's: grad_m log pi(a) r = s_m z / sigma * r.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from afedpg.messages import Floats, Vector

SIGMA = 0.5
FAR = -700.0  # the sigmoid is 0 to 300 digits here, and exp overflows soon after


@dataclass(frozen=True)
class Bandit(ABC):
    contexts: tuple[float, ...]
    optimum: float
    width: int = 2  # which context, and the action's noise

    @property
    def parameters(self) -> int:
        return len(self.contexts)

    @cached_property
    def scale(self) -> Vector:
        return np.array(self.contexts)

    def initial_theta(self) -> Vector:
        return np.zeros(self.parameters)

    def draw(self, generator: np.random.Generator, samples: int) -> Vector:
        context = generator.integers(self.parameters, size=samples)
        return np.column_stack([context, generator.standard_normal(samples)])

    def sample(self, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        context, noise = int(draw[0]), float(draw[1])
        scale = self.contexts[context]
        reward = self.reward(float(theta[context]) * scale + SIGMA * noise, scale)
        gradient = np.zeros(self.parameters, np.float32)
        gradient[context] = scale * noise / SIGMA * reward
        return gradient, reward

    @abstractmethod
    def reward(self, action: float, scale: float) -> float:
        """What an action earns in that context."""


@dataclass(frozen=True)
class LQBandit(Bandit):
    """r = -(a - s)^2, so the gap to the optimum is mean_m s_m^2 (theta_m - 1)^2."""

    contexts: tuple[float, ...] = (1.0, 0.5, 0.3, 0.2)
    optimum: float = -(SIGMA**2)

    def reward(self, action: float, scale: float) -> float:
        return -((action - scale) ** 2)

    def value(self, theta: Vector) -> float:
        return self.optimum - float(np.mean(self.scale**2 * (theta - 1) ** 2))

    def gradient(self, theta: Vector) -> Vector:
        return -2 * self.scale**2 * (theta - 1) / self.parameters


@dataclass(frozen=True)
class SaturatingBandit(Bandit):
    """r = sigmoid(a): the optimum 1 is approached only at infinity, so -2/5 is nearly tight here."""

    contexts: tuple[float, ...] = (1.0, 0.7)
    optimum: float = 1.0

    @cached_property
    def _quadrature(self) -> tuple[Vector, Vector]:
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        return nodes, weights / np.sqrt(2 * np.pi)

    def reward(self, action: float, scale: float) -> float:
        return float(_sigmoid(np.float64(max(action, FAR))))

    def _expect(self, theta: Vector, derivative: bool) -> Vector:
        """E sigmoid(a) or E sigmoid'(a) per context, by Gauss-Hermite quadrature: exact to rounding."""
        nodes, weights = self._quadrature
        action = (theta * self.scale)[:, None] + SIGMA * nodes
        value = _sigmoid(np.maximum(action, FAR))
        return np.asarray((value * (1 - value) if derivative else value) @ weights)

    def value(self, theta: Vector) -> float:
        return float(np.mean(self._expect(theta, derivative=False)))

    def gradient(self, theta: Vector) -> Vector:
        return self._expect(theta, derivative=True) * self.scale / self.parameters


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
