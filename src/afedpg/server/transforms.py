"""The parts a server step is chained from. A part turns one direction into another and remembers in its buffers.

    gradient -> Mix(alpha) -> Normalize() -> Scale(eta) -> the step that is added to theta

A direction is a vector and a factor: parts that only rescale touch the factor, not the vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from afedpg.messages import Floats, Vector
from afedpg.server.kernels import mix, norm, rmsprop
from afedpg.server.schedules import Schedule

SHORTEST = 1e-300  # the length of a direction below which its entries have lost bits


class At(NamedTuple):
    """Where the server stands when a contribution is applied, and whose it is."""

    iteration: int  # k
    version: int  # v = k - delay
    agent: int = -1  # -1 where it is made of several agents' contributions
    theta: Vector | None = None  # of the group, before the step; not to be written to
    scalars: Mapping[str, float] = MappingProxyType({})  # that came with it; means where it is made of several


class Direction(NamedTuple):
    vector: Vector | Floats
    factor: float = 1.0
    norm: float | None = None  # of the vector alone, once somebody has computed it

    @property
    def length(self) -> float:
        return abs(self.factor) * (norm(self.vector) if self.norm is None else self.norm)


class Transform(Protocol):
    def buffers(self, size: int) -> dict[str, Vector]:
        """What the part remembers between gradients, as it is at the start."""

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        """The new direction; may write to its buffers, must not write to the vector it is given."""


class Stateless:
    def buffers(self, size: int) -> dict[str, Vector]:
        return {}


@dataclass(frozen=True)
class Mix:
    """d = (1 - alpha) d + alpha g: alpha is the newest gradient's share of the running average."""

    alpha: Schedule

    def buffers(self, size: int) -> dict[str, Vector]:
        return {"direction": np.zeros(size)}

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        alpha = self.alpha(at.iteration, at.version)
        mix(buffers["direction"], direction.vector, 1 - alpha, alpha * direction.factor)
        return Direction(buffers["direction"])


@dataclass(frozen=True)
class Normalize(Stateless):
    """d / |d|; a zero direction stays zero, and so does one too short for 1 / |d| to be finite."""

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        length = norm(direction.vector)
        factor = math.copysign(1 / length, direction.factor) if length > SHORTEST and direction.factor != 0 else 0.0
        return Direction(direction.vector, factor, length)


@dataclass(frozen=True)
class Scale(Stateless):
    """eta d."""

    eta: Schedule

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        return Direction(direction.vector, direction.factor * self.eta(at.iteration, at.version), direction.norm)


@dataclass(frozen=True)
class RMSProp:
    """s = rho s + (1 - rho) g^2, then g / sqrt(s + epsilon): a3c's statistics, shared by all agents."""

    rho: float = 0.99
    epsilon: float = 1e-5

    def buffers(self, size: int) -> dict[str, Vector]:
        return {"square": np.zeros(size), "scaled": np.zeros(size)}

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        square, scaled = buffers["square"], buffers["scaled"]
        rmsprop(square, scaled, direction.vector, direction.factor, self.rho, self.epsilon)
        return Direction(scaled)


class Chain:
    """Parts one after the other; each has its buffers under its place in the chain: '0.direction'."""

    def __init__(self, *parts: Transform) -> None:
        self.parts = parts
        # looked up once: `update` runs at every arrival
        self._updates = [
            (part.update, [(name, f"{place}.{name}") for name in part.buffers(1)]) for place, part in enumerate(parts)
        ]

    def buffers(self, size: int) -> dict[str, Vector]:
        return {
            f"{place}.{name}": buffer
            for place, part in enumerate(self.parts)
            for name, buffer in part.buffers(size).items()
        }

    def update(self, direction: Direction, buffers: Mapping[str, Vector], at: At) -> Direction:
        for update, names in self._updates:
            mine = {}
            for short, name in names:
                mine[short] = buffers[name]
            direction = update(direction, mine, at)
        return direction
