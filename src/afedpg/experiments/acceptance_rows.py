"""What is promised about learning, row by row: which runs, what is read off them, how much is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from afedpg.engine.goals import EVALUATION_WINDOW
from afedpg.experiments import communication, complexity, heterogeneity, sample_speedup
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Job, Plan, RunJob
from afedpg.experiments.outcome import Outcome
from afedpg.experiments.statistics import reaches, running_mean
from afedpg.record.database import read_arrivals, read_evaluations

AGENTS = 8
EPISODES = 50


@dataclass(frozen=True)
class Found:
    passes: bool
    measured: dict[str, Any]


Stage = Callable[[Choices], Sequence[Job]]


@dataclass(frozen=True)
class Row:
    name: str
    asked: str
    stages: tuple[Stage, ...]
    measure: Callable[[Choices], Found]
    learns: bool = False  # its runs are learning curves worth showing


# learning: one preset, some seeds


def _runs(choices: Choices, task: str, preset: str, method: str, iterations: int, seeds: range) -> list[RunJob]:
    shared = {"iterations": iterations, "evaluate_episodes": EPISODES, "evaluate_kind": "sampled"}
    plan = Plan(choices, preset, shared)
    return [RunJob(plan.settings(task, Method(method), AGENTS, seed)) for seed in seeds]


def last_quarter(run: RunJob, out: Path) -> float:
    """Mean return of the training episodes that ended in the last quarter of the run."""
    rows = read_arrivals(run.folder(out).database)
    late = rows["gradient"] > 0.75 * len(rows["gradient"])
    ended = late & (rows["episodes"] > 0)
    return float(np.average(rows["mean_return"][ended], weights=rows["episodes"][ended]))


def final_evaluation(run: RunJob, out: Path) -> float:
    """Return of the final theta, sampled."""
    rows = read_evaluations(run.folder(out).database)
    return float(rows["mean"][rows["kind"] == "sampled"][-1])


def _swimmer_stage(choices: Choices) -> list[RunJob]:
    every = (_runs(choices, "swimmer", "paper", method, 300, range(5)) for method in ("afedpg", "afedpg-vanilla"))
    return [run for runs in every for run in runs]


def _swimmer(choices: Choices) -> Found:
    runs = _swimmer_stage(choices)
    values = [final_evaluation(run, choices.out) for run in runs]
    ours, without = float(np.mean(values[:5])), float(np.mean(values[5:]))
    documents = [runs[place].folder(choices.out).toml.read_text().splitlines() for place in (0, 5)]
    lines = sum(a != b for a, b in zip(*documents, strict=True))
    measured = {"afedpg": ours, "afedpg-vanilla": without, "seeds": values, "run.toml lines that differ": lines}
    return Found(ours >= 30 and ours - without >= 8 and lines == 1, measured)


def _tuned_stage(choices: Choices, task: str, iterations: int, seeds: range) -> list[RunJob]:
    return _runs(choices, task, "tuned", "afedpg", iterations, seeds)


def _tuned(
    choices: Choices, task: str, iterations: int, seeds: range, training: float, theta: float, worst: float
) -> Found:
    runs = _tuned_stage(choices, task, iterations, seeds)
    late = [last_quarter(run, choices.out) for run in runs]
    final = [final_evaluation(run, choices.out) for run in runs]
    measured = {
        "training return, last quarter": float(np.mean(late)), "theta, sampled": float(np.mean(final)),
        "training by seed": late, "theta by seed": final,
    }  # fmt: skip
    passes = np.mean(late) >= training and np.mean(final) >= theta and min(*late, *final) >= worst
    return Found(bool(passes), measured)


def _tuned_row(name: str, asked: str, task: str, iterations: int, seeds: range, *bounds: float) -> Row:
    stage = partial(_tuned_stage, task=task, iterations=iterations, seeds=seeds)
    training, theta, worst = bounds
    measure = partial(
        _tuned, task=task, iterations=iterations, seeds=seeds, training=training, theta=theta, worst=worst
    )
    return Row(name, asked, (stage,), measure, learns=True)


# global-time: constants searched with equal effort, then the time to a return

GRID = tuple((alpha, eta) for alpha in (0.1, 0.2, 0.5) for eta in (5e-3, 1e-2, 2e-2, 4e-2))
PACE = ((0.1, 2e-2), (0.5, 4e-2))  # run first: whatever is slower than the better of them is cut off there
GRID_SEEDS = range(100, 103)
TIME_SEEDS = range(5)
TIMED = ("afedpg", "fedpg")
CLOCKS = {"linear": 1.5, "straggler": 2.5}  # the ratio asked
GOAL = 1500.0
Constants = tuple[float, float]  # alpha, eta


def _hopper(
    choices: Choices, method: str, constants: Constants, seed: int, clock: str, limit: float | None = None
) -> RunJob:
    """A run to the goal. The grid is of the constants as they are used: fedpg's are not multiplied by N."""
    alpha, eta = constants
    shared = {
        "iterations": 400, "evaluate_every": 4, "evaluate_episodes": 5, "evaluate_kind": "sampled",
        "literal_constants": True, "alpha": alpha, "eta": eta, "timing": clock, "spread": 4.0,
        "stop_at_evaluation": GOAL, "stop_at_seconds": limit,
    }  # fmt: skip
    return RunJob(Plan(choices, "tuned", shared).settings("hopper", Method(method), AGENTS, seed))


def seconds_to_goal(run: RunJob, out: Path) -> float:
    rows = read_evaluations(run.folder(out).database)
    means = running_mean(rows["mean"], EVALUATION_WINDOW)
    return reaches(rows["seconds"][EVALUATION_WINDOW - 1 :], means[EVALUATION_WINDOW - 1 :], GOAL)


def last_second(run: RunJob, out: Path) -> float:
    return float(read_arrivals(run.folder(out).database)["seconds"][-1])


def _searched(choices: Choices, method: str, constants: Constants, limit: float | None = None) -> list[RunJob]:
    return [_hopper(choices, method, constants, seed, "linear", limit) for seed in GRID_SEEDS]


def _pace_stage(choices: Choices) -> list[RunJob]:
    return [run for method in TIMED for point in PACE for run in _searched(choices, method, point)]


def _score(runs: Sequence[RunJob], out: Path) -> tuple[float, float]:
    """Constants are ranked by their median seed's seconds; those that never arrive by the return at the end."""
    ends = [final_evaluation(run, out) for run in runs]
    return median(seconds_to_goal(run, out) for run in runs), -float(np.mean(ends))


def _grid(choices: Choices, method: str) -> dict[Constants, list[RunJob]]:
    """The whole grid. A run that has not arrived when the better of the first two points had cannot win: it is cut."""
    first = {point: _searched(choices, method, point) for point in PACE}
    limit = min(_score(runs, choices.out)[0] for runs in first.values())
    cut = limit if np.isfinite(limit) else None
    return first | {point: _searched(choices, method, point, cut) for point in GRID if point not in PACE}


def _grid_stage(choices: Choices) -> list[RunJob]:
    return [run for method in TIMED for runs in _grid(choices, method).values() for run in runs]


def _best(choices: Choices, method: str) -> Constants:
    grid = _grid(choices, method)
    return min(grid, key=lambda point: _score(grid[point], choices.out))


def _timed_runs(choices: Choices, method: str, clock: str) -> list[RunJob]:
    best = _best(choices, method)
    return [_hopper(choices, method, best, seed, clock) for seed in TIME_SEEDS]


def _time_stage(choices: Choices) -> list[RunJob]:
    return [run for method in TIMED for clock in CLOCKS for run in _timed_runs(choices, method, clock)]


def _time(choices: Choices) -> Found:
    measured: dict[str, Any] = {f"constants of {method}": list(_best(choices, method)) for method in TIMED}
    passes = True
    for clock, asked in CLOCKS.items():
        ours, theirs = (
            [seconds_to_goal(run, choices.out) for run in _timed_runs(choices, method, clock)] for method in TIMED
        )
        end = min(last_second(run, choices.out) for run in _timed_runs(choices, "fedpg", clock))
        ratio = min(median(theirs), end) / median(ours)  # a run that never arrives took at least its whole time
        measured[f"{clock}: seconds of fedpg / afedpg, medians"] = ratio
        measured[f"{clock}: afedpg by seed"], measured[f"{clock}: fedpg by seed"] = ours, theirs
        passes &= bool(ratio >= asked)
    return Found(passes, measured)


# rows that are an experiment at full scale


def _swimmer_only(choices: Choices) -> Choices:
    return replace(choices, tasks=("swimmer",))


def _verdicts(outcome: Callable[[Choices], Outcome], choices: Choices) -> Found:
    verdicts = outcome(choices).verdicts
    return Found(
        all(v.verdict == "holds" for v in verdicts), {v.claim: f"{v.verdict}: {v.statistic}" for v in verdicts}
    )


def complexity_figures(choices: Choices) -> Found:
    """The figures asked for, whatever the other methods do."""
    outcome = complexity.outcome(choices)
    slopes = {(row["study"], row["method"]): row for row in outcome.tables["complexity"].records()}
    teams = {row["agents"]: row for row in outcome.tables["complexity-agents"].records()}
    lookahead = next(v for v in outcome.verdicts if v.claim.startswith("The lookahead"))
    gap, norm, tight = (slopes[name, "afedpg"] for name in ("gap", "norm", "saturating"))
    ratios = [float(teams[n]["gap_ratio"]) for n in (2, 4, 8, 16)]
    lowest = [float(teams[n]["gap_low"]) for n in (2, 4, 8, 16)]
    measured = {
        "lq-bandit, global: slope of the gap": [gap["slope"], gap["low"], gap["high"]],
        "lq-bandit, global, eta0 = 3: vanilla / afedpg": lookahead.value,
        "gap(N) / gap(1), N = 2, 4, 8, 16": ratios,
        "samples per agent to 1e-3, N = 8 / N = 1": teams[8]["sample_ratio"],
        "lq-bandit, fosp: slope of the gradient norm": [norm["slope"], norm["low"], norm["high"]],
        "lq-bandit, fosp: the same without the lookahead": slopes["norm", "afedpg-vanilla"]["slope"],
        "saturating bandit: slope of the gap": [tight["slope"], tight["low"], tight["high"]],
    }
    passes = (
        float(gap["high"]) <= -2 / 5
        and (lookahead.value or 0.0) >= 3
        and all(low <= 1.02 for low in lowest)  # within its interval of what was seen before, or better
        and float(teams[8]["sample_ratio"]) <= 1.1 / 8
        and float(norm["low"]) <= -0.38  # likewise: a steeper slope is better
        and float(tight["low"]) <= -0.45
    )
    return Found(passes, measured)


ROWS = {
    row.name: row
    for row in (
        Row(
            "swimmer-paper",
            "Swimmer paper, N = 8, 300 iterations per agent, seeds 0-4: theta (sampled, 50 episodes) >= 30, at least "
            "8 above afedpg-vanilla; the two run.toml differ in one line",
            (_swimmer_stage,),
            _swimmer,
            learns=True,
        ),
        _tuned_row(
            "hopper-tuned",
            "hopper tuned, N = 8, 400 iterations per agent, seeds 0-4: training return over the last quarter >= 1,900, "
            "theta >= 1,900, no seed under 1,200",
            "hopper", 400, range(5), 1900.0, 1900.0, 1200.0,
        ),
        _tuned_row(
            "walker2d-tuned", "walker2d tuned, N = 8, 2M samples in all, seeds 0-2: >= 1,200",
            "walker2d", 2_000_000 // (AGENTS * 1024), range(3), 1200.0, 1200.0, -np.inf,
        ),
        _tuned_row(
            "humanoid-tuned", "humanoid tuned, N = 8, 2M samples in all, seeds 0-2: >= 550",
            "humanoid", 2_000_000 // (AGENTS * 512), range(3), 550.0, 550.0, -np.inf,
        ),
        Row(
            "sample-speedup",
            "Swimmer paper, full, 10 seeds: samples per agent to N = 1's final mean at most 0.55, 0.30, 0.16 of N = "
            "1's for N = 2, 4, 8",
            (lambda choices: sample_speedup.jobs(_swimmer_only(choices)),),
            lambda choices: _verdicts(sample_speedup.outcome, _swimmer_only(choices)),
        ),
        Row(
            "global-time",
            "Hopper tuned, N = 8, the same 12-point grid on seeds 100-102 for both methods, then seeds 0-4: seconds "
            "until theta's return (running mean of 5) is >= 1,500, fedpg / afedpg, medians: >= 1.5 for the linear "
            "spread r = 4, >= 2.5 for one straggler r = 4",
            (_pace_stage, _grid_stage, _time_stage),
            _time,
        ),
        Row(
            "heterogeneity", "on the formula within N/K for N = 2..1024 and r = 1..100, K >= 100 N",
            (heterogeneity.jobs,), partial(_verdicts, heterogeneity.outcome),
        ),
        Row(
            "communication",
            "totals at equal gradients differ by at most N messages; afedpg's fullest bin at most 0.45 of fedpg's",
            (communication.jobs,), partial(_verdicts, communication.outcome),
        ),
        Row(
            "complexity", "the figures stated for the two bandits, within their intervals or better",
            (complexity.jobs,), complexity_figures,
        ),
    )
}  # fmt: skip
