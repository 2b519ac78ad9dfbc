"""The same effort for every method: twelve settings each, three seeds that serve nothing else, one race on Hopper.

A setting is as good as the virtual seconds its median seed takes to a return. Two settings of each method run first; a
run that has not arrived when the better of those two had cannot win any more and is cut off there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

from afedpg.engine.goals import EVALUATION_WINDOW
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Plan, RunJob
from afedpg.experiments.statistics import reaches, running_mean
from afedpg.experiments.tables import Table, table
from afedpg.record.database import read_arrivals, read_evaluations

Point = tuple[float, float]  # two settings, whose names are the method's
METHODS = ("afedpg", "fedpg", "afedpg-vanilla", "a3c")
STEP_LENGTHS = ("alpha", "eta")
NAMES = {"a3c": ("entropy", "eta")}  # no direction to average; its eta is RMSProp's rate
GRID: tuple[Point, ...] = tuple(product((0.1, 0.2, 0.5), (5e-3, 1e-2, 2e-2, 4e-2)))
GRIDS = {"a3c": tuple(product((0.0, 1e-3, 1e-2), (3e-4, 7e-4, 1.5e-3, 3e-3)))}
FIRST: tuple[Point, ...] = ((0.1, 2e-2), (0.5, 4e-2))
FIRSTS = {"a3c": ((0.0, 7e-4), (1e-3, 1.5e-3))}
SEEDS = range(100, 103)
AGENTS = 8
GOAL = 1500.0  # of theta, running mean of the evaluations


def names(method: str) -> tuple[str, str]:
    return NAMES.get(method, STEP_LENGTHS)


def grid(method: str) -> tuple[Point, ...]:
    return GRIDS.get(method, GRID)


def race(
    choices: Choices, method: str, point: Point, seed: int, clock: str = "linear", limit: float | None = None
) -> RunJob:
    """A run to the goal. The grid is of the constants as they are used: fedpg's are not multiplied by N."""
    shared = {
        "iterations": 400, "evaluate_every": 4, "evaluate_episodes": 5, "evaluate_kind": "sampled",
        "literal_constants": True, **dict(zip(names(method), point, strict=True)), "timing": clock, "spread": 4.0,
        "stop_at_evaluation": GOAL, "stop_at_seconds": limit,
    }  # fmt: skip
    return RunJob(Plan(choices, "tuned", shared).settings("hopper", Method(method), AGENTS, seed))


def seconds_to_goal(run: RunJob, out: Path) -> float:
    rows = read_evaluations(run.folder(out).database)
    means = running_mean(rows["mean"], EVALUATION_WINDOW)
    return reaches(rows["seconds"][EVALUATION_WINDOW - 1 :], means[EVALUATION_WINDOW - 1 :], GOAL)


def last_second(run: RunJob, out: Path) -> float:
    return float(read_arrivals(run.folder(out).database)["seconds"][-1])


def final_evaluation(run: RunJob, out: Path) -> float:
    """Return of the final theta, sampled."""
    rows = read_evaluations(run.folder(out).database)
    return float(rows["mean"][rows["kind"] == "sampled"][-1])


def first_runs(choices: Choices, method: str) -> list[RunJob]:
    return [run for point in FIRSTS.get(method, FIRST) for run in _seeds(choices, method, point)]


def all_runs(choices: Choices, method: str) -> dict[Point, list[RunJob]]:
    """The whole grid; the first runs must be done."""
    first = {point: _seeds(choices, method, point) for point in FIRSTS.get(method, FIRST)}
    limit = min(score(runs, choices.out)[0] for runs in first.values())
    cut = limit if np.isfinite(limit) else None
    return {point: first.get(point) or _seeds(choices, method, point, cut) for point in grid(method)}


def _seeds(choices: Choices, method: str, point: Point, limit: float | None = None) -> list[RunJob]:
    return [race(choices, method, point, seed, limit=limit) for seed in SEEDS]


def score(runs: Sequence[RunJob], out: Path) -> tuple[float, float]:
    """Smaller is better: the median seed's seconds, and among those that never arrive the return at the end."""
    ends = [final_evaluation(run, out) for run in runs]
    return median(seconds_to_goal(run, out) for run in runs), -float(np.mean(ends))


def best(choices: Choices, method: str) -> Point:
    every = all_runs(choices, method)
    return min(every, key=lambda point: score(every[point], choices.out))


def results(choices: Choices, methods: Sequence[str]) -> Table:
    """Every run of the search: when it arrived (inf: not before it ended), when and with what return it ended."""
    rows = [
        (method, *(dict(zip(names(method), point, strict=True)).get(name, "") for name in ("alpha", "eta", "entropy")),
         run.settings.config.seed, seconds_to_goal(run, choices.out), last_second(run, choices.out),
         final_evaluation(run, choices.out))
        for method in methods
        for point, runs in all_runs(choices, method).items()
        for run in runs
    ]  # fmt: skip
    return table("method alpha eta entropy seed seconds_to_goal seconds final_return", rows)
