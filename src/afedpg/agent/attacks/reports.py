"""Lies an agent can tell by itself: what it found honestly is changed before it is sent.

`start` says what the liar remembers, as arrays; `tell` turns that and an honest report into what it remembers next and
what it sends. Both are pure, so a run with liars is killed, resumed and replayed like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from afedpg.config import option
from afedpg.errors import ConfigError
from afedpg.messages import AgentState, Exchange, Floats, Moments, Report, Vector
from afedpg.seeding import freeze, thaw
from afedpg.server.kernels import norm


class Lie(ABC):
    """What every lie is. Unless it says otherwise it remembers nothing."""

    def fitted(self, exchange: Exchange) -> Lie:
        """The same for reports that look like this; a ConfigError where there is nothing to lie about."""
        return self

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
        noise = _noise(generator, report.payload, self.scale)
        return {"stream": freeze(generator)}, with_vector(report, noise)


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

    def fitted(self, exchange: Exchange) -> Lie:
        if not exchange.statistics:
            raise ConfigError("attack: poisoned-moments needs agents that report moments; use --scale-observations")
        return self

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        return state, report._replace(moments={name: self._poisoned(part) for name, part in report.moments.items()})

    def _poisoned(self, honest: Moments) -> Moments:
        deviation = np.sqrt(honest.m2 / honest.count)
        return Moments(honest.count, honest.mean + self.shift * deviation, honest.m2 * self.spread**2)


@dataclass(frozen=True)
class FalseDrift(Lie):
    """An honest gradient, and numbers beside it, such as a drift, that are the least or the largest believed."""

    to: str = option("highest", "which of its bounds every number is at", ("lowest", "highest"))
    ends: Mapping[str, float] = field(default_factory=dict)  # the numbers' bounds on that side

    def fitted(self, exchange: Exchange) -> Lie:
        if not exchange.scalars:
            raise ConfigError("attack: false-drift needs an estimator whose reports carry numbers, its `scalars`")
        return replace(self, ends={s.name: s.low if self.to == "lowest" else s.high for s in exchange.scalars})

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        return state, report._replace(scalars={**report.scalars, **self.ends})


@dataclass(frozen=True)
class RandomValues(Noise):
    """Honest but for one part of theta, the value network: noise `scale` times as long as the honest numbers."""

    scale: float = option(10.0, "how many times as long as the honest numbers", above=0)
    group: str = option("value", "the group whose numbers are random; moments: all of moments.NAME")
    place: slice = field(default_factory=lambda: slice(0, 0))  # of the group in theta, or of all that begin so

    def fitted(self, exchange: Exchange) -> Lie:
        ends = np.cumsum([0, *(group.size for group in exchange.groups)]).tolist()
        names = [group.name for group in exchange.groups]
        mine = [place for place, name in enumerate(names) if self.group in (name, name.partition(".")[0])]
        if not mine:
            known = ", ".join(names) or "none; use --method afedppo"
            raise ConfigError(f"attack: random-values: theta has no group '{self.group}'; its groups are {known}")
        return replace(self, place=slice(ends[mine[0]], ends[mine[-1] + 1]))

    def tell(self, state: AgentState, report: Report) -> tuple[AgentState, Report]:
        generator = thaw(state["stream"])
        vector = report.payload.astype(np.float64)
        vector[self.place] = _noise(generator, report.payload[self.place], self.scale)
        return {"stream": freeze(generator)}, with_vector(report, vector)


def _noise(generator: np.random.Generator, honest: Floats, scale: float) -> Vector:
    """Gaussian, `scale` times as long."""
    noise = generator.standard_normal(honest.size)
    return noise * (scale * norm(honest) / max(norm(noise), 1e-300))


def with_vector(report: Report, vector: Vector | Floats) -> Report:
    """The same report with another contribution, as numbers that can travel."""
    limit = float(np.finfo(np.float32).max)
    return report._replace(payload=np.clip(vector, -limit, limit).astype(np.float32))
