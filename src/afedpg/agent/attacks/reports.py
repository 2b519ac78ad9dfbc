"""Lies an agent can tell by itself: what it found honestly is changed before it is sent.

`start` says what the liar remembers, as arrays; `tell` turns that and an honest report into what it remembers next and
what it sends. Both are pure, so a run with liars is killed, resumed and replayed like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from afedpg.config import option
from afedpg.errors import ConfigError
from afedpg.messages import AgentState, Exchange, Floats, Moments, Report, Vector
from afedpg.seeding import freeze, thaw
from afedpg.server.kernels import norm


class Lie(ABC):
    """What every lie is. Unless it says otherwise it remembers nothing."""

    def check(self, exchange: Exchange) -> None:  # noqa: B027 - most need nothing
        """Raises a ConfigError where there is nothing to lie about."""

    def start(self, generator: np.random.Generator) -> AgentState:
        """What the liar remembers at first. Arrays whose names end in `stream` are random streams."""
        return {}

    @abstractmethod
    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        """What it remembers then, and the report that is sent instead; the arguments are left as they are."""


@dataclass(frozen=True)
class SignFlip(Lie):
    """-scale g: downhill."""

    scale: float = option(1.0, "how many times as long as the honest one", above=0)

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        return state, with_vector(report, -self.scale * report.payload.astype(np.float64))


@dataclass(frozen=True)
class ScaledSignFlip(SignFlip):
    """-2.5 g, as the literature has it."""

    scale: float = option(2.5, "how many times as long as the honest one", above=0)


@dataclass(frozen=True)
class Zeros(Lie):
    """A free rider: counted as work, moves nothing."""

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        return state, with_vector(report, np.zeros_like(report.payload))


@dataclass(frozen=True)
class Noise(Lie):
    """Gaussian noise, `scale` times as long as the honest gradient: a bound on the length does not find it."""

    scale: float = option(1.0, "how many times as long as the honest gradient", above=0)

    def start(self, generator: np.random.Generator) -> AgentState:
        return {"stream": freeze(generator)}

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        generator = thaw(state["stream"])
        noise = generator.standard_normal(report.payload.size)
        length = self.scale * norm(report.payload) / max(norm(noise), 1e-300)
        return {"stream": freeze(generator)}, with_vector(report, length * noise)


@dataclass(frozen=True)
class Copies(Lie):
    """A free rider that sends the first gradient it ever made, again and again."""

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        first: Floats = state.get("first", report.payload)
        return {"first": first}, with_vector(report, first)


@dataclass(frozen=True)
class PoisonedMoments(Lie):
    """An honest gradient, and observations that are said to lie `shift` deviations away, `spread` times as wide."""

    shift: float = option(100.0, "how many deviations the mean is moved by")
    spread: float = option(100.0, "how many times as wide", above=0)

    def check(self, exchange: Exchange) -> None:
        if not exchange.statistics:
            raise ConfigError("attack: poisoned-moments needs agents that report moments; use --scale-observations")

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        return state, replace(report, moments={name: self._poisoned(part) for name, part in report.moments.items()})

    def _poisoned(self, honest: Moments) -> Moments:
        deviation = np.sqrt(honest.m2 / honest.count)
        return Moments(honest.count, honest.mean + self.shift * deviation, honest.m2 * self.spread**2)


def with_vector(report: Report, vector: Vector | Floats) -> Report:
    """The same report with another contribution, as numbers that can travel."""
    limit = float(np.finfo(np.float32).max)
    return replace(report, payload=np.clip(vector, -limit, limit).astype(np.float32))
