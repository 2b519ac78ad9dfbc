"""The same effort for every method: twelve settings each, three seeds that serve nothing else, one race on Hopper.

A setting is as good as the virtual seconds its median seed takes to a return. Two settings of each method run first; a
run that has not arrived when the better of those two had is cut off there, and a setting with two such runs cannot win
any more and gets no third.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Plan, RunJob
from afedpg.experiments.statistics import reaches, running_mean
from afedpg.experiments.tables import Table, table
from afedpg.record.database import read_arrivals, read_evaluations
from afedpg.runs.goals import EVALUATION_WINDOW

SEEDS = range(100, 103)
AGENTS = 8
GOAL = 1500.0  # of theta, running mean of the evaluations
Point = tuple[float, float]  # values of the two settings that are searched


@dataclass(frozen=True)
class Space:
    """What is searched for one method."""

    method: str
    first: tuple[Point, Point]  # run to their end
    names: tuple[str, str] = ("alpha", "eta")
    values: tuple[tuple[float, ...], tuple[float, ...]] = ((0.1, 0.2, 0.5), (5e-3, 1e-2, 2e-2, 4e-2))
    literal: bool = True  # fedpg: the constants as they are, not N times both

    @property
    def grid(self) -> tuple[Point, ...]:
        return tuple(product(*self.values))

    def settings(self, point: Point) -> dict[str, float]:
        return dict(zip(self.names, point, strict=True))

    def at_the_edge(self, point: Point) -> list[str]:
        """Settings whose best value is the smallest or the largest tried: a better one may lie outside."""
        parts = zip(self.names, point, self.values, strict=True)
        return [name for name, value, tried in parts if value in (tried[0], tried[-1])]


SPACES = {
    "afedpg": Space("afedpg", ((0.1, 2e-2), (0.5, 4e-2))),
    "fedpg": Space("fedpg", ((0.1, 2e-2), (0.5, 4e-2))),
    # fedpg makes N times fewer steps of the same length, so that the same grid holds shorter ways for it: here is the
    # grid with the constants that give it the same way per sample.
    "fedpg-scaled": Space("fedpg", ((0.1, 5e-3), (0.1, 1e-2)), literal=False),
    "afedpg-vanilla": Space("afedpg-vanilla", ((0.1, 2e-2), (0.5, 4e-2))),
    # No direction to average; eta is RMSProp's rate.
    "a3c": Space(
        "a3c", ((1e-2, 3e-4), (1e-2, 7e-4)), ("entropy", "eta"), ((0.0, 1e-3, 1e-2), (1e-4, 3e-4, 7e-4, 1.5e-3))
    ),
}


def race(
    choices: Choices, space: Space, point: Point, seed: int, clock: str = "linear", limit: float | None = None
) -> RunJob:
    """A run to the goal."""
    shared = {
        "iterations": 400, "evaluate_every": 4, "evaluate_episodes": 5, "evaluate_kind": "sampled",
        "literal_constants": space.literal, **space.settings(point), "timing": clock, "spread": 4.0,
        "stop_at_evaluation": GOAL, "stop_at_seconds": limit,
    }  # fmt: skip
    return RunJob(Plan(choices, "tuned", shared).settings("hopper", Method(space.method), AGENTS, seed))


def seconds_to_goal(run: RunJob, out: Path) -> float:
    rows = read_evaluations(run.folder(out).database)
    means = running_mean(rows["mean"], EVALUATION_WINDOW)
    return reaches(rows["seconds"][EVALUATION_WINDOW - 1 :], means[EVALUATION_WINDOW - 1 :], GOAL)


def last_second(run: RunJob, out: Path) -> float:
    """When it arrived, or when it ended without."""
    return float(read_arrivals(run.folder(out).database)["seconds"][-1])


def final_evaluation(run: RunJob, out: Path) -> float:
    """Return of the final theta, sampled."""
    rows = read_evaluations(run.folder(out).database)
    return float(rows["mean"][rows["kind"] == "sampled"][-1])


def first_runs(choices: Choices, space: Space) -> dict[Point, list[RunJob]]:
    return {point: [race(choices, space, point, seed) for seed in SEEDS] for point in space.first}


def pairs(choices: Choices, space: Space) -> dict[Point, list[RunJob]]:
    """The whole grid, two seeds where the first runs, which must be done, have not all three."""
    return first_runs(choices, space) | _cut_off(choices, space, SEEDS[:2])


def all_runs(choices: Choices, space: Space) -> dict[Point, list[RunJob]]:
    """The whole search; the pairs must be done. Two seeds that miss decide the median of three."""
    every = pairs(choices, space)
    for point, third in _cut_off(choices, space, SEEDS[2:]).items():
        if any(np.isfinite(seconds_to_goal(run, choices.out)) for run in every[point]):
            every[point] += third
    return every


def _cut_off(choices: Choices, space: Space, seeds: range) -> dict[Point, list[RunJob]]:
    """The points that do not run first, up to the time of the better one that did."""
    best_first = min(score(runs, choices.out)[0] for runs in first_runs(choices, space).values())
    limit = best_first if np.isfinite(best_first) else None
    others = [point for point in space.grid if point not in space.first]
    return {point: [race(choices, space, point, seed, limit=limit) for seed in seeds] for point in others}


def score(runs: Sequence[RunJob], out: Path) -> tuple[float, float]:
    """Smaller is better: the median seed's seconds, and among those that never arrive the return at the end."""
    ends = [final_evaluation(run, out) for run in runs]
    return median(seconds_to_goal(run, out) for run in runs), -float(np.mean(ends))


def best(choices: Choices, space: Space) -> Point:
    every = all_runs(choices, space)
    return min(every, key=lambda point: score(every[point], choices.out))


def results(choices: Choices, names: Sequence[str]) -> Table:
    """Every run of the search: when it arrived (inf: not before it ended), when and with what return it ended."""
    rows = [
        (name, *(SPACES[name].settings(point).get(setting, "") for setting in ("alpha", "eta", "entropy")),
         run.settings.config.seed, seconds_to_goal(run, choices.out), last_second(run, choices.out),
         final_evaluation(run, choices.out))
        for name in names
        for point, runs in all_runs(choices, SPACES[name]).items()
        for run in runs
    ]  # fmt: skip
    return table("search alpha eta entropy seed seconds_to_goal seconds final_return", rows)
