"""A noisy quadratic bowl: J(theta) = -1/2 sum_i h_i (theta_i - 1)^2, curvatures h from 1 to 10."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from afedpg.messages import Floats, Vector


@dataclass(frozen=True)
class Quadratic:
    parameters: int = 10
    noise: float = 1.0  # deviation of every coordinate of a sampled gradient
    optimum: float = 0.0

    @property
    def width(self) -> int:
        return self.parameters

    @cached_property
    def curvature(self) -> Vector:
        return np.geomspace(1.0, 10.0, self.parameters)

    def initial_theta(self) -> Vector:
        return np.zeros(self.parameters)

    def value(self, theta: Vector) -> float:
        return float(-0.5 * np.sum(self.curvature * (theta - 1) ** 2))

    def gradient(self, theta: Vector) -> Vector:
        return -self.curvature * (theta - 1)

    def draw(self, generator: np.random.Generator, samples: int) -> Vector:
        return generator.standard_normal((samples, self.width))

    def sample(self, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        gradient = self.gradient(theta.astype(np.float64))
        reward = 0.5 * float(np.sum(gradient * (theta - 1)))  # J(theta) once more: h (theta-1)^2 = -gradient (theta-1)
        return (gradient + self.noise * draw).astype(np.float32), reward
