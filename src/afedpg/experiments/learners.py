"""Asynchronous PPO on six tasks: how much it learns, whether a seed is left behind, and what N and speeds cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from matplotlib.figure import Figure

from afedpg import plotting
from afedpg.experiments import bar
from afedpg.experiments.bar_runs import FIXED, PPO, RANDOM, BarRun
from afedpg.experiments.choices import Choices
from afedpg.experiments.curves import Curve, KeptRun, curves_table, over_samples, smoothed, window_of
from afedpg.experiments.learner_runs import CONSTANT, METHOD, TASKS, Cell, jobs, runs
from afedpg.experiments.outcome import Outcome, Picture, Verdict, rule
from afedpg.experiments.statistics import Interval, known_mean, reaches, running_mean, t_interval
from afedpg.experiments.tables import Table, table

__all__ = ["jobs", "outcome"]

TITLE = "Asynchronous PPO: what eight agents learn together"
ASKED = {  # study, task -> mean training return over the last 5%
    ("tasks", "hopper"): 2400, ("tasks", "walker2d"): 2300, ("tasks", "halfcheetah"): 3500,
    ("long", "hopper"): 2750, ("long", "walker2d"): 4000, ("long", "ant"): 2500, ("long", "humanoid"): 1300,
    ("long", "swimmer"): 200, ("plain", "hopper"): 1800,
}  # fmt: skip
SOLVED = {  # without a preset: what at least 9 of 10 seeds must reach
    "CartPole-v1": 475, "Acrobot-v1": -100, "Pendulum-v1": -250, "Reacher-v5": -7, "Pusher-v5": -45,
}  # fmt: skip
SEVERAL = ("teams", "critics", "discount", "parts", "liars", "bar")  # studies with more than one row per task
FEWEST, FIVE = 3, 5  # seeds of a row; of a mean that is asked for, where so many are planned
LEFT_BEHIND = 0.5  # of the median
WORST_CELL, WORST_LARGE = 0.7, 0.6  # of the best cell; with 32 agents
COST = 1.3  # samples to 80% of one agent's end, of what one agent needs
FASTER = 2.9  # and how many times shorter that takes than one agent of the fastest speed
HONEST = 0.8  # of the honest federation's return, where one of eight lies


@dataclass(frozen=True)
class Row:
    """A cell and its seeds' returns at the end."""

    cell: Cell
    returns: tuple[float, ...]  # mean training return over the last 5%, by seed
    curves: tuple[Curve, ...]

    @property
    def mean(self) -> Interval:
        return t_interval(np.array(self.returns))


def rows(choices: Choices) -> list[Row]:
    """A cell's first seeds, as far as every one is there: none is left out that a later one stands for."""
    found: dict[Cell, list[KeptRun | BarRun]] = {}
    for cell, run in runs(choices):
        found.setdefault(cell, []).append(run)
    there = {cell: list(takewhile(lambda run: run.finished(choices.out), mine)) for cell, mine in found.items()}
    return [_row(cell, mine, choices) for cell, mine in there.items() if len(mine) >= min(FEWEST, len(found[cell])) > 0]


def _row(cell: Cell, mine: Sequence[KeptRun | BarRun], choices: Choices) -> Row:
    curves = tuple(run.curve(choices.out) for run in mine)
    return Row(cell, tuple(_end(curve) for curve in curves), curves)


def _end(curve: Curve) -> float:
    window = window_of(len(curve.returns))
    weights = curve.episodes[-window:]
    known = weights > 0
    return float(np.average(curve.returns[-window:][known], weights=weights[known])) if known.any() else np.nan


def judge(found: Sequence[Row]) -> list[Verdict]:
    by = {(row.cell.study, row.cell.task): row for row in found if row.cell.study not in SEVERAL}
    verdicts = [_reaches(row, ASKED[key]) for key, row in by.items() if key in ASKED]
    verdicts += [
        _solves(row, SOLVED[task]) for (study, task), row in by.items() if study == "defaults" and task in SOLVED
    ]
    verdicts += [_left_behind(by["tasks", task]) for task in ("hopper", "walker2d") if ("tasks", task) in by]
    for task in ("hopper", "walker2d"):
        if {("alone", task), ("tasks", task)} <= by.keys():
            verdicts += _cost(by["alone", task], by["tasks", task])
    return verdicts + _teams(found) + _lies(found) + _bar(found)


def _reaches(row: Row, asked: float) -> Verdict:
    mean = row.mean
    told = ", ".join(f"{value:.0f}" for value in row.returns)
    claim = f"{row.cell.label}: a return of {asked:g} over the last 5%"
    seeds = min(FIVE, row.cell.planned)
    needed = f"a mean of at least {asked:g}, {seeds} seeds"
    text = f"{mean.value:.0f} [{mean.low:.0f}, {mean.high:.0f}], seeds {told}"
    holds = rule(len(row.returns) >= seeds and bool(np.isfinite(mean.value)), mean.value >= asked)
    return Verdict(claim, holds, text, *mean, needed)


def _solves(row: Row, asked: float) -> Verdict:
    solved = sum(value >= asked for value in row.returns)
    told = ", ".join(f"{value:.4g}" for value in row.returns)
    claim = f"{row.cell.label}, no preset: {asked:g} for at least 9 of 10 seeds"
    text = f"{solved} of {len(row.returns)}: {told}"
    return Verdict(claim, rule(len(row.returns) == 10, solved >= 9), text, solved, needed="9 of 10 seeds")


def _left_behind(row: Row) -> Verdict:
    worst, median = min(row.returns), float(np.median(row.returns))
    text = f"worst {worst:.0f}, median {median:.0f}, {len(row.returns)} seeds"
    claim, needed = f"{row.cell.label}: no seed is left behind", f"the worst at least {LEFT_BEHIND:g} of the median"
    return Verdict(
        claim, rule(len(row.returns) >= 10, worst >= LEFT_BEHIND * median), text, worst / median, needed=needed
    )


def _cost(alone: Row, team: Row) -> list[Verdict]:
    """Samples of all agents, and seconds, until the seeds' mean stays at 80% of where one agent ends."""
    seeds = [curve.seed for curve in alone.curves]
    one = over_samples(alone.curves)
    many = over_samples([curve for curve in team.curves if curve.seed in seeds])
    level = 0.8 * alone.mean.value
    at = [
        reaches(
            mean.x * agents, running_mean(known_mean(mean.values, axis=0), window_of(len(mean.x))), level, stays=True
        )
        for mean, agents in ((one, 1), (many, team.cell.agents))
    ]
    ratio, agents, task, enough = at[1] / at[0], team.cell.agents, team.cell.task, len(seeds) >= 3
    text = f"{at[1]:.0f} samples against {at[0]:.0f} to {level:.0f}: {ratio:.2f} ({len(seeds)} seeds)"
    claim = f"{task}: asynchrony costs at most {COST - 1:.0%} of the samples"
    cost = Verdict(claim, rule(enough, ratio <= COST), text, ratio, needed=f"at most {COST:g}")
    if not np.isfinite(ratio):
        return [cost]
    # N T is the same for all N: in what is a second of one agent, each of N makes N rollouts.
    per_second = [row.curves[0].samples[-1] * n / row.curves[0].seconds[-1] for row, n in ((alone, 1), (team, agents))]
    shorter = (at[0] / per_second[0]) / (at[1] / per_second[1] / agents)
    claim = f"{task}: {agents} agents learn in less time than one that is as fast as the fastest of them"
    text = f"{shorter:.2f} times shorter to {level:.0f} ({len(seeds)} seeds)"
    return [cost, Verdict(claim, rule(enough, shorter >= FASTER), text, shorter, needed=f"{FASTER:g} times shorter")]


def _teams(found: Sequence[Row]) -> list[Verdict]:
    """Hopper with every N and spread; the same defaults throughout."""
    mine = [row for row in found if row.cell.task == "hopper" and row.cell.study in ("tasks", "alone", "teams")]
    if not any(row.cell.study == "teams" for row in mine):
        return []
    means = {(row.cell.agents, row.cell.spread): float(np.mean(row.returns[:3])) for row in mine}
    best = max(means.values())
    small = min(value for (agents, _), value in means.items() if agents < 32) / best
    large = min((value for (agents, _), value in means.items() if agents == 32), default=np.nan) / best
    told = ", ".join(f"N = {agents}, {spread:g}:1: {value:.0f}" for (agents, spread), value in sorted(means.items()))
    enough = all(len(row.returns) >= 3 for row in mine) and len(means) >= 10
    needed = f"no cell under {WORST_CELL:g} of the best, with 32 agents none under {WORST_LARGE:g}"
    holds = small >= WORST_CELL and large >= WORST_LARGE
    text = f"worst {small:.2f} of the best, with 32 agents {large:.2f} ({told}; seeds 0-2)"
    return [
        Verdict(
            "Hopper needs no other settings for other N and speeds", rule(enough, holds), text, small, needed=needed
        )
    ]


def _lies(found: Sequence[Row]) -> list[Verdict]:
    """Of as many seeds as both have."""
    parts = {row.cell.task: row for row in found if row.cell.study == "parts" and row.cell.variant == CONSTANT}
    verdicts = []
    for row in found:
        honest = parts.get(row.cell.task)
        if honest is None or row.cell.study != "liars":
            continue
        seeds = min(len(row.returns), len(honest.returns))
        lied, told = float(np.mean(row.returns[:seeds])), float(np.mean(honest.returns[:seeds]))
        claim = f"{row.cell.label}, told by the fastest agent: the others learn all the same"
        text = f"{lied:.0f} against {told:.0f} of the honest: {lied / told:.2f} ({seeds} seeds)"
        holds = rule(seeds >= 3, lied >= HONEST * told)
        verdicts.append(Verdict(claim, holds, text, lied / told, needed=f"at least {HONEST:g} of the honest return"))
    return verdicts


def _bar(found: Sequence[Row]) -> list[Verdict]:
    """On the seeds that ours and PPO both have."""
    ours, theirs, random = (
        {row.cell.task: _by_seed(row) for row in found if (row.cell.study, row.cell.method) == which}
        for which in (("tasks", METHOD), ("bar", PPO), ("bar", RANDOM))
    )
    contests = []
    for task in (task for task in TASKS if task in ours and task in theirs and task in random):
        seeds = [seed for seed in theirs[task] if seed in ours[task]]
        mine, others = (np.array([side[task][seed] for seed in seeds]) for side in (ours, theirs))
        if seeds:
            contests.append(bar.Contest(task, mine, others, float(np.mean(list(random[task].values())))))
    return [bar.judge(contests, TASKS)] if theirs else []


def _by_seed(row: Row) -> dict[int, float]:
    return {curve.seed: value for curve, value in zip(row.curves, row.returns, strict=True)}


def returns_table(found: Sequence[Row]) -> Table:
    return table(
        "study task agents spread samples variant seed training_return",
        [
            (*row.cell[:5], row.cell.variant, curve.seed, value)
            for row in found
            for curve, value in zip(row.curves, row.returns, strict=True)
        ],
    )


def means_table(found: Sequence[Row]) -> Table:
    rows = [(*row.cell[:5], row.cell.variant, *row.mean, min(row.returns), len(row.returns)) for row in found]
    return table("study task agents spread samples variant mean low high worst seeds", rows)


def draw(shown: Sequence[Row]) -> Figure:
    """A panel per task and number of samples; PPO's curve beside ours where it is there."""
    by: dict[str, list[Row]] = {}
    for row in shown:
        by.setdefault(f"{row.cell.task}, {row.cell.samples / 1e6:g}M", []).append(row)
    figure, axes = plotting.panels(-(-len(by) // 3), 3)
    for panel, (title, mine) in zip(axes.flat, by.items(), strict=False):
        for row in mine:
            color, line = (plotting.BLUE, "-") if row.cell.method == METHOD else (plotting.VERMILION, "--")
            mean = over_samples([smoothed(curve) for curve in row.curves])
            replace(mean, x=mean.x * row.cell.agents).draw(panel, color, row.cell.variant or METHOD.label, line)
        panel.set_title(title)
        plotting.thousands(panel)
        panel.set_xlabel("samples of all agents")
    for panel in axes.flat[len(by) :]:
        panel.set_axis_off()
    plotting.legend_below(figure, 2)
    return figure  # type: ignore[no-any-return]


def outcome(choices: Choices) -> Outcome:
    found = rows(choices)
    with_bar = any(row.cell.study == "bar" for row in found)
    shown = [row for row in found if row.cell.study in ("tasks", "long") or row.cell.method == PPO]
    caption = "Return of training episodes: mean of the seeds and 95% band, smoothed over 5%."
    return Outcome(
        title=TITLE,
        text="Eight asynchronous agents at speeds 4:1 unless said otherwise; samples are those of all agents together. "
        "Settings were chosen on seeds 100 to 102."
        + (
            " PPO of Stable-Baselines3 has Tianshou's settings, chosen before any run and not tuned."
            if with_bar
            else ""
        ),
        verdicts=tuple(judge(found)),
        tables={
            "learners": curves_table([curve for row in found for curve in row.curves]),
            "learners-returns": returns_table(found),
            "learners-means": means_table(found),
        },
        pictures=(Picture("learners", caption, lambda: draw(shown)),) if shown else (),
        shown=("learners-means",),
        settings={"method": METHOD.name, "preset": "ppo where a task has one"}
        | ({PPO.name: [f"{name}: {value}" for name, value in FIXED.items()]} if with_bar else {}),
    )
