"""How many seconds an agent takes for a gradient, and when it is there at all.

A timing model is a function of (agent, n, now, up, down): the seconds of that agent's n-th gradient, counted from 0,
which begins at the virtual second `now` and moves so many bytes up and down. What messages take comes on top of the
shipped models, as `Transfer` says; a model of one's own may count it itself. It knows nothing else, so the order of
events never depends on the host; randomness comes from a stream per (agent, n). An agent that never answers takes for
ever. A user's own model is any such function, or one of (agent, n) alone.
"""

from __future__ import annotations

import csv
import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Protocol

import numpy as np

from afedpg.config import LONGEST_SECONDS, Config
from afedpg.errors import BrokenPart, ConfigError
from afedpg.own_parts import asked, name_of
from afedpg.parts import build, parse
from afedpg.seeding import stream


class Seconds(Protocol):
    """Seconds of an agent's n-th gradient."""

    def __call__(self, agent_id: int, n: int, now: float = 0.0, up: int = 0, down: int = 0) -> float: ...


@dataclass(frozen=True)
class Timing:
    seconds: Seconds
    joins: dict[int, float] = field(default_factory=dict)  # agents that come later
    leaves: dict[int, float] = field(default_factory=dict)  # agents that drop out
    update_share: float = 0.0  # of a gradient's seconds, that an agent which fetches late takes after its fetch
    transfer: Seconds | None = None  # a Task's and a report's way, on top; not shortened where T is reported in parts


@dataclass(frozen=True)
class Fixed:
    """t_i, the same for each of agent i's gradients."""

    compute_seconds: tuple[float, ...]

    def __call__(self, agent_id: int, n: int, now: float = 0.0, up: int = 0, down: int = 0) -> float:
        return self.compute_seconds[agent_id]


@dataclass(frozen=True)
class Pareto:
    """Every single gradient's seconds have a heavy tail: fastest * U^(-1/shape)."""

    seed: int
    fastest: float
    shape: float

    def __call__(self, agent_id: int, n: int, now: float = 0.0, up: int = 0, down: int = 0) -> float:
        draw = 1 - stream(self.seed, "timing", agent_id, n).random()  # in (0, 1]
        return self.fastest * math.pow(draw, -1 / self.shape)


@dataclass(frozen=True)
class Trace:
    """Recorded seconds, played back in a circle."""

    rows: dict[int, tuple[float, ...]]

    def __call__(self, agent_id: int, n: int, now: float = 0.0, up: int = 0, down: int = 0) -> float:
        mine = self.rows[agent_id]
        return mine[n % len(mine)]


@dataclass(frozen=True)
class Transfer:
    """kappa_i: a Task's way down and a report's way up, (2 latency + bytes / bandwidth) times 1, sqrt(i) or i."""

    latency: float
    bandwidth: float  # bytes per second; 0: no limit
    law: str = "equal"

    def __call__(self, agent_id: int, n: int, now: float = 0.0, up: int = 0, down: int = 0) -> float:
        place = agent_id + 1
        factor = {"equal": 1.0, "sqrt": math.sqrt(place), "linear": float(place)}[self.law]
        return factor * (2 * self.latency + ((up + down) / self.bandwidth if self.bandwidth else 0.0))


@dataclass(frozen=True)
class Silent:
    """Some agents never answer."""

    others: Seconds
    silent: frozenset[int]

    def __call__(self, agent_id: int, n: int, now: float = 0.0, up: int = 0, down: int = 0) -> float:
        return math.inf if agent_id in self.silent else self.others(agent_id, n, now, up, down)


def linear(config: Config) -> Fixed:
    """Seconds per gradient from --fastest to --spread times that, in equal steps."""
    fastest, slowest = config.timing.fastest, config.timing.fastest * config.timing.spread
    return Fixed(tuple(float(t) for t in np.linspace(fastest, slowest, config.agents)))


def square_root(config: Config) -> Fixed:
    """--fastest seconds times sqrt(i), where i = 1, 2, ... is the agent's place."""
    return Fixed(tuple(config.timing.fastest * math.sqrt(place) for place in range(1, config.agents + 1)))


def straggler(config: Config) -> Fixed:
    """The last agent takes --spread times as long as the others."""
    fastest = config.timing.fastest
    return Fixed((fastest,) * (config.agents - 1) + (fastest * config.timing.spread,))


def leader(config: Config) -> Fixed:
    """All agents but the first take --spread times as long as it."""
    fastest = config.timing.fastest
    return Fixed((fastest,) + (fastest * config.timing.spread,) * (config.agents - 1))


def equal(config: Config) -> Fixed:
    """--fastest seconds for every agent."""
    return Fixed((config.timing.fastest,) * config.agents)


def listed(config: Config) -> Fixed:
    """The seconds that --speeds gives for each agent."""
    return Fixed(config.timing.speeds)


def lognormal(config: Config) -> Fixed:
    """Seconds drawn once per agent: log-normal, with the median --fastest and --sigma as the logarithm's deviation."""
    draws = stream(config.seed, "timing").standard_normal(config.agents)
    with np.errstate(over="ignore"):  # infinite seconds are refused where the model is made
        return Fixed(tuple(float(t) for t in config.timing.fastest * np.exp(config.timing.sigma * draws)))


def pareto(config: Config) -> Pareto:
    """Seconds drawn for every gradient anew: --fastest or more, with a heavy tail of index --shape."""
    return Pareto(config.seed, config.timing.fastest, config.timing.shape)


def trace(config: Config) -> Trace:
    """Seconds as recorded in the file that --trace names, played back in a circle."""
    return read_trace(Path(config.timing.trace), config.agents)


def read_trace(path: Path, agents: int) -> Trace:
    """A CSV of agent,seconds rows in the order they happened."""
    rows: defaultdict[int, list[float]] = defaultdict(list)
    try:
        with path.open(newline="") as file:
            for line, row in enumerate(csv.DictReader(file), start=2):
                try:
                    agent_id, seconds = int(row["agent"]), float(row["seconds"])
                except (KeyError, TypeError, ValueError) as error:
                    raise ConfigError(f"trace: {path}, line {line}: expected columns agent,seconds") from error
                if not 0 < seconds < LONGEST_SECONDS:
                    reason = "must be above 0, and within 292 years"
                    raise ConfigError(f"trace: {path}, line {line}: {seconds} seconds; {reason}")
                rows[agent_id].append(seconds)
    except OSError as error:
        raise ConfigError(f"trace: cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"trace: {path} is not a CSV of agent,seconds rows: {error}") from error
    missing = [agent_id for agent_id in range(agents) if agent_id not in rows]
    if missing:
        raise ConfigError(f"trace: {path} has no rows of agent {missing[0]}; the run has {agents} agents")
    return Trace({agent_id: tuple(seconds) for agent_id, seconds in rows.items()})


@dataclass(frozen=True)
class Own:
    """A user's model, of all five arguments or of (agent, n) alone."""

    model: Callable[..., float]
    arguments: int

    def __call__(self, agent_id: int, n: int, now: float = 0.0, up: int = 0, down: int = 0) -> float:
        whose = f"timing: {name_of(self.model)}"
        found: float = asked(whose, self.model, *(agent_id, n, now, up, down)[: self.arguments])
        number = found[()] if isinstance(found, np.ndarray) and found.shape == () else found
        if not isinstance(number, Real):
            what = f"an array {list(number.shape)}" if isinstance(number, np.ndarray) else f"a {type(number).__name__}"
            raise BrokenPart(f"{whose} gave {what} for gradient {n} of agent {agent_id}; return its seconds, a number")
        return found


def with_clock(model: Callable[..., float]) -> Seconds:
    """A model of five arguments from one of five or two."""
    for arguments in (5, 2):
        try:
            inspect.signature(model).bind(*range(arguments))
        except TypeError:
            continue
        return Own(model, arguments)
    raise ConfigError("timing: a model is a function of (agent, n, now, up, down), or of (agent, n)")


def make_timing(config: Config, own: Callable[..., float] | None = None) -> Timing:
    """As configured; `own` stands in for the named model, silent agents stay silent."""
    chosen = config.timing
    if own is None and parse("timing", chosen.timing).file:
        own = build("timing", chosen.timing, {})
    seconds = with_clock(own) if own is not None else _model(config)
    if chosen.silent:
        seconds = Silent(seconds, frozenset(chosen.silent))
    joins = {int(agent): at for agent, at in chosen.late.items()}
    leaves = {int(agent): at for agent, at in chosen.drop.items()}
    costs = chosen.latency or chosen.bandwidth
    transfer = Transfer(chosen.latency, chosen.bandwidth, chosen.transfer) if costs else None
    return Timing(seconds, joins, leaves, chosen.update_share, transfer)


MODELS: Mapping[str, Callable[[Config], Seconds]] = {
    "linear": linear, "sqrt": square_root, "straggler": straggler, "leader": leader, "equal": equal, "list": listed,
    "lognormal": lognormal, "pareto": pareto, "trace": trace,
}  # fmt: skip


def _model(config: Config) -> Seconds:
    chosen = config.timing.timing
    model = MODELS[chosen](config)
    if isinstance(model, Fixed) and not all(0 < seconds < LONGEST_SECONDS for seconds in model.compute_seconds):
        raise ConfigError(f"timing: {chosen} gives an agent no seconds, or more than 292 years of them")
    return model
