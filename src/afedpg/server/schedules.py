"""alpha and eta over the run. A schedule is a function of (iteration k, version v).

alpha belongs to the policy that was sampled, so its index is the version; eta belongs to the step, so its index is the
iteration. A user's own schedule is any function of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from afedpg.config import Config

Schedule = Callable[[int, int], float]


@dataclass(frozen=True)
class Constant:
    value: float

    def __call__(self, iteration: int, version: int) -> float:
        return self.value


@dataclass(frozen=True)
class LinearDecay:
    """value (1 - k/K), down to a floor. Not in the paper: it steadies the end of a run."""

    value: float
    iterations: int
    floor: float = 0.0
    before: tuple[tuple[int, int], ...] = ()  # of a run that was extended: up to step k, K was less

    def __call__(self, iteration: int, version: int) -> float:
        total = self.iterations
        for step, less in self.before:
            if iteration < step:
                total = less
                break
        decayed = self.value * (1 - iteration / total)
        return decayed if decayed > self.floor else self.floor


@dataclass(frozen=True)
class StepPower:
    """value (1/(k+1))^power: eta of the two theorems."""

    value: float
    power: float

    def __call__(self, iteration: int, version: int) -> float:
        return self.value * math.pow(iteration + 1, -self.power)


@dataclass(frozen=True)
class MixPower:
    """(1/(i+1))^power with i the version: alpha of the two theorems.

    The proofs assume delay <= k/2. Without the clamp i = max(v, (k+1)//2) every agent's first report (v = 0, alpha = 1)
    wipes the direction out; `literal` switches it off.
    """

    power: float
    literal: bool = False

    def __call__(self, iteration: int, version: int) -> float:
        index = version if self.literal else max(version, (iteration + 1) // 2)
        return math.pow(index + 1, -self.power)


def schedules(config: Config, contributions: int = 1) -> tuple[Schedule, Schedule]:
    """alpha and eta as configured, for a rule whose steps are made of so many contributions each."""
    chosen = config.schedule
    # With n contributions to a step there are n times fewer steps per sample: n alpha and n eta give the same averaging
    # horizon and path per sample, and while n alpha is small the same lookahead. The decaying schedules index steps,
    # which has that effect already.
    factor = 1 if chosen.literal_constants else contributions
    alpha, eta = min(1.0, factor * chosen.alpha), factor * chosen.eta
    if chosen.schedule == "global":
        return MixPower(4 / 5, chosen.literal), StepPower(chosen.eta, 1.0)
    if chosen.schedule == "fosp":
        return MixPower(4 / 7, chosen.literal), StepPower(chosen.eta, 5 / 7)
    if chosen.schedule == "linear":
        steps, before = server_steps(config, contributions), tuple(shorter(config, contributions))
        return Constant(alpha), LinearDecay(eta, steps, factor * chosen.eta_floor, before)
    return Constant(alpha), Constant(eta)


def server_steps(config: Config, contributions: int) -> int:
    """Of the whole run, where each is made of so many contributions and none is dropped."""
    return -(-config.gradients // contributions)


def shorter(config: Config, contributions: int) -> list[tuple[int, int]]:
    """(server step, server steps) of a run that was extended: up to the one it was to have so many in all."""
    pairs = zip(config.extended[::2], config.extended[1::2], strict=False)
    return [(step, server_steps(replace(config, iterations=before), contributions)) for before, step in pairs]
