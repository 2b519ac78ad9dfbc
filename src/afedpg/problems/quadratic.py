"""A noisy quadratic bowl: J(theta) = J* - 1/2 sum_j h_j (theta_j - c)^2, curvatures h from 1 to 10; c = 1, J* = 0.

Where agents differ, agent i has a bowl of its own around c_i. Curvatures are the same, so the mean of the bowls is a
bowl around the mean of the c_i, and a mean weighted by w_i is one around sum_i w_i c_i: what a method converges to says
how it weighs the agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from afedpg.messages import Floats, Vector


@dataclass(frozen=True)
class Quadratic:
    parameters: int = 10
    noise: float = 1.0  # deviation of every coordinate of a sampled gradient
    optimum: float = 0.0  # J*
    centre: float = 1.0  # c, every coordinate of the best theta

    @classmethod
    def mean_of(cls, parameters: int, noise: float, centres: Sequence[float]) -> Quadratic:
        """The mean over the bowls: the spread of their centres lowers J*."""
        spread = float(np.sum(cls(parameters).curvature) * np.var(centres))
        return cls(parameters, noise, -0.5 * spread, float(np.mean(centres)))

    @property
    def width(self) -> int:
        return self.parameters

    @cached_property
    def curvature(self) -> Vector:
        return np.geomspace(1.0, 10.0, self.parameters)

    def initial_theta(self) -> Vector:
        return np.zeros(self.parameters)

    def value(self, theta: Vector) -> float:
        return self.optimum - 0.5 * float(np.sum(self.curvature * (theta - self.centre) ** 2))

    @cached_property
    def _downwards(self) -> Vector:
        return -self.curvature

    def gradient(self, theta: Vector) -> Vector:
        return self._downwards * (theta - self.centre)

    def draw(self, generator: np.random.Generator, samples: int) -> Vector:
        return generator.standard_normal((samples, self.width))

    def sample(self, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        gradient = self.gradient(theta.astype(np.float64))
        # J(theta) once more: h (theta - c)^2 = -gradient (theta - c)
        reward = self.optimum + 0.5 * float(np.add.reduce(gradient * (theta - self.centre)))
        return (gradient + self.noise * draw).astype(np.float32), reward
