"""The trainings behind `complexity`: which problem, schedule and length, and what is read off them.

Runs have N = 8 agents whose seconds per gradient spread linearly up to t_max = 4 t_min, except where N is what varies.
K counts applied gradients, of all agents together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.experiments.choices import SUITABLE, Choices, Method
from afedpg.experiments.jobs import Plan
from afedpg.experiments.measurements import Measurement, log_points
from afedpg.experiments.statistics import Interval
from afedpg.messages import Vector

AGENTS = 8
FIRST = 100  # gradients at the first look
PER_DECADE = 20
METHODS = SUITABLE["complexity"]
SEEDS = (4, 8, 24)
# Plain policy gradient has theory's schedules of its own: eta0 (k+1)^-2/3 for the gap's K^-1/3 (a gradient-dominated
# objective), eta0 (k+1)^-1/2 for the gradient norm's K^-1/4.
PLAIN_POWERS = {"global": 2 / 3, "fosp": 1 / 2}


@dataclass(frozen=True)
class Study:
    """One question: a problem, a schedule, and how long."""

    name: str
    problem: str
    schedule: str
    eta: float
    gradients: Mapping[str, int]  # K at each scale
    decades: float  # the slope is taken over the last so many
    # Plain steps are as long as the gradient, whose noise on the lq-bandit grows with the distance squared: with
    # eta0 = 1 a sixth (global) to a third (fosp) of all seeds never come back.
    plain_eta: float = 1.0
    methods: tuple[str, ...] = METHODS
    common: bool = False  # methods are compared on the same draws


STUDIES = {
    study.name: study
    for study in (
        Study("gap", "lq-bandit", "global", 1.0, {"smoke": 8_000, "short": 100_000, "full": 1_000_000}, 2.0, 0.3),
        Study("norm", "lq-bandit", "fosp", 3.0, {"smoke": 8_000, "short": 100_000, "full": 200_000},
              np.log10(200), 0.1),
        Study("saturating", "saturating-bandit", "global", 1.0,
              {"smoke": 8_000, "short": 50_000, "full": 200_000}, 2.0),
        Study("lookahead", "lq-bandit", "global", 3.0, {"smoke": 8_000, "short": 50_000, "full": 100_000}, 2.0,
              methods=("afedpg", "afedpg-vanilla"), common=True),
    )
}  # fmt: skip
SHARED_K = 10_000  # where gap(N) / gap(1) is read
LEVEL = 1e-3  # the gap whose samples per agent are compared
TEAMS = {"smoke": (1, 8), "short": (1, 2, 4, 8), "full": (1, 2, 4, 8, 16)}
TEAM_GRADIENTS = {"smoke": 20_000, "short": 40_000, "full": 40_000}


@dataclass(frozen=True)
class Curves:
    """The seeds of one method in one study."""

    gradients: Vector  # [points]
    gap: NDArray[np.float64]  # [seeds, points]
    norm: NDArray[np.float64]
    seconds: NDArray[np.float64]
    delays: NDArray[np.float64]  # sums over all gradients so far


@dataclass(frozen=True)
class Team:
    """N agents against one, on the same problem."""

    agents: int
    gap_ratio: Interval  # gap(N) / gap(1) after the same number of gradients in all
    sample_ratio: Interval  # samples per agent to the level, of N = 1's
    delay: float  # average over applied gradients
    seeds: int


def measurements(choices: Choices, study: Study) -> dict[Method, list[Measurement]]:
    points = log_points(FIRST, study.gradients[choices.scale], PER_DECADE)
    methods = choices.pick_methods(study.methods)
    return {method: _measure(choices, study, method, AGENTS, points, study.common) for method in methods}


def team_measurements(choices: Choices) -> dict[int, list[Measurement]]:
    """afedpg with N = 1, 2, ... agents on the first study's problem, all on the same draws."""
    points = log_points(FIRST, TEAM_GRADIENTS[choices.scale], 2 * PER_DECADE)
    teams = TEAMS[choices.scale]
    return {
        agents: _measure(choices, STUDIES["gap"], Method("afedpg"), agents, points, common=True) for agents in teams
    }


def _measure(
    choices: Choices, study: Study, method: Method, agents: int, points: Sequence[int], common: bool
) -> list[Measurement]:
    plain = method.name == "pg-plain"
    used = 1 if method.name in ("pg", "pg-plain") else agents
    shared: dict[str, Any] = {
        "schedule": study.schedule,
        "eta": study.plain_eta if plain else study.eta,
        "iterations": -(-points[-1] // used),
        "eta_power": PLAIN_POWERS[study.schedule] if plain else None,
    }
    plan = Plan(choices, shared=shared)
    return [
        Measurement(plan.settings(study.problem, method, used, seed), tuple(points), common)
        for seed in choices.pick_seeds(*SEEDS)
    ]


def read_curves(measured: Sequence[Measurement], out: Path) -> Curves:
    tables = [measurement.read(out) for measurement in measured]
    names = ("gap", "gradient_norm", "seconds", "delays")
    columns = (np.array([data.numbers(name) for data in tables]) for name in names)
    return Curves(tables[0].numbers("gradients"), *columns)


def fit_range(study: Study, scale: str) -> tuple[float, float]:
    """From where to where the slope is taken."""
    last = study.gradients[scale]
    return float(round(last / 10**study.decades)), float(last)
