"""Reward against global time at a fixed number of samples: what waiting costs, and what the lookahead is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from afedpg.config import SHORT_NAMES
from afedpg.engine.timing import make_timing
from afedpg.experiments import plotting
from afedpg.experiments.choices import Choices
from afedpg.experiments.curves import (
    Curve,
    Key,
    Mean,
    curves_table,
    evaluations_table,
    means_table,
    over_seconds,
    read_curve,
    read_evaluated,
    smoothed,
    window_of,
)  # fmt: skip
from afedpg.experiments.jobs import RunJob
from afedpg.experiments.learning import evaluations, learning_plan
from afedpg.experiments.outcome import Outcome, Picture, Verdict, rule
from afedpg.experiments.statistics import Interval, reaches, running_mean, t_interval
from afedpg.experiments.tables import Table, table

TITLE = "Global time: what waiting costs"
AGENTS = (4, 8)  # at the same iterations per agent, so N = 4 has half the trajectories
USUAL = ("afedpg", "fedpg", "afedpg-vanilla", "a3c")
SEEDS = (2, 3, 10)
LEAST_SEEDS = 3
SHARE = 0.8  # of the way from the start to the lower of two final returns: a level both methods reach for good


def runs(choices: Choices) -> list[tuple[Key, RunJob]]:
    plan = learning_plan(choices)
    return [
        (Key(task, method, agents), RunJob(plan.settings(task, method, agents, seed)))
        for task in choices.pick_tasks(tuple(SHORT_NAMES))
        for agents in AGENTS
        for method in choices.pick_methods(USUAL)
        for seed in choices.pick_seeds(*SEEDS)
    ]


def jobs(choices: Choices) -> Sequence[RunJob]:
    return [run for _, run in runs(choices)]


@dataclass(frozen=True)
class Comparison:
    """afedpg and another method on one task with N agents, seed by seed."""

    task: str
    agents: int
    other: str
    level: float
    ratio: Interval  # the other's seconds to the level / afedpg's; geometric mean over seeds
    reached: int  # seeds in which both got there
    seeds: int
    difference: Interval  # final return, afedpg minus the other
    pure: float  # the ratio of the times for equal gradients: what waiting alone costs


def compare(curves: Sequence[Curve], total_seconds: dict[Key, float]) -> list[Comparison]:
    found = []
    for task, agents in dict.fromkeys((c.key.task, c.key.agents) for c in curves):
        here = [c for c in curves if (c.key.task, c.key.agents) == (task, agents)]
        ours = {c.seed: c for c in here if c.key.method.name == "afedpg"}
        for method in dict.fromkeys(c.key.method for c in here):
            if method.name != "afedpg" and ours:
                theirs = {c.seed: c for c in here if c.key.method == method}
                pure = total_seconds[Key(task, method, agents)] / total_seconds[next(iter(ours.values())).key]
                found.append(_compare(task, agents, method.label, ours, theirs, pure))
    return found


def _compare(
    task: str, agents: int, other: str, ours: dict[int, Curve], theirs: dict[int, Curve], pure: float
) -> Comparison:
    seeds = sorted(ours.keys() & theirs.keys())
    level = _level([*ours.values()], [*theirs.values()])
    times = [(_reached(ours[seed], level), _reached(theirs[seed], level)) for seed in seeds]
    logs = np.array([math.log(theirs / ours) for ours, theirs in times if math.isfinite(ours + theirs)])
    found = t_interval(logs) if len(logs) else Interval(math.nan, math.nan, math.nan)
    ratio = Interval(*(math.exp(part) for part in (found.value, found.low, found.high)))
    difference = t_interval(np.array([_final(ours[seed]) - _final(theirs[seed]) for seed in seeds]))
    return Comparison(task, agents, other, level, ratio, len(logs), len(seeds), difference, pure)


def _final(curve: Curve) -> float:
    return float(np.nanmean(curve.returns[-max(1, len(curve.returns) // 10) :]))  # the last tenth


def _level(ours: Sequence[Curve], theirs: Sequence[Curve]) -> float:
    start = float(np.nanmean([np.nanmean(c.returns[: window_of(len(c.returns))]) for c in (*ours, *theirs)]))
    end = min(float(np.mean([_final(c) for c in group])) for group in (ours, theirs))
    return start + SHARE * (end - start)


def _reached(curve: Curve, level: float) -> float:
    return reaches(curve.seconds, running_mean(curve.returns, window_of(len(curve.returns))), level)


def judge(found: Sequence[Comparison]) -> list[Verdict]:
    """Against fedpg the claim is about time; against the others, about the return after the same samples."""
    return [_judge_time(c) if c.other == "fedpg" else _judge_return(c) for c in found]


def _judge_time(c: Comparison) -> Verdict:
    enough = c.reached >= LEAST_SEEDS
    return Verdict(
        claim=f"{c.task}, N = {c.agents}: AFedPG is at the same return earlier than FedPG",
        verdict=rule(enough, c.ratio.low > 1),
        statistic=f"seconds to a training return of {c.level:.4g}, fedpg / afedpg: {c.ratio} over {c.reached} of "
        f"{c.seeds} seeds; waiting alone would give {c.pure:.3g}",
        value=c.ratio.value, low=c.ratio.low, high=c.ratio.high,
        needed=f"lower 95% limit above 1, at least {LEAST_SEEDS} seeds that get there",
    )  # fmt: skip


def _judge_return(c: Comparison) -> Verdict:
    return Verdict(
        claim=f"{c.task}, N = {c.agents}: AFedPG ends higher than {c.other} after the same samples",
        verdict=rule(c.seeds >= LEAST_SEEDS, c.difference.low > 0),
        statistic=f"final training return, afedpg minus {c.other}: {c.difference} ({c.seeds} seeds)",
        value=c.difference.value, low=c.difference.low, high=c.difference.high,
        needed=f"lower 95% limit above 0, at least {LEAST_SEEDS} seeds",
    )  # fmt: skip


def comparisons_table(found: Sequence[Comparison]) -> Table:
    rows = [
        (c.task, c.agents, c.other, c.level, c.ratio.value, c.ratio.low, c.ratio.high, c.reached, c.pure,
         c.difference.value, c.difference.low, c.difference.high, c.seeds)
        for c in found
    ]  # fmt: skip
    names = "task agents other level time_ratio ratio_low ratio_high reached pure_time_ratio"
    return table(f"{names} return_difference difference_low difference_high seeds", rows)


def draw(means: dict[Key, Mean], ylabel: str) -> Figure:
    tasks, sizes = list(dict.fromkeys(k.task for k in means)), list(dict.fromkeys(k.agents for k in means))
    labels = list(dict.fromkeys(k.method.label for k in means))
    colors = plotting.colors_of(labels)
    figure, axes = plotting.panels(len(sizes), len(tasks)) if len(tasks) > 1 else plotting.panels(1, len(sizes))
    for key, mean in means.items():
        place = (sizes.index(key.agents), tasks.index(key.task))
        panel = axes[place] if len(tasks) > 1 else axes[place[::-1]]
        label = key.method.label
        plotting.curve(panel, mean, colors[label], label, plotting.line_of(label))
        panel.set_title(f"{key.task}, N = {key.agents}")
        panel.set_xlabel("global time in virtual seconds")
        plotting.thousands(panel)
    for panel in axes.flat:
        plotting.focus_on_means(panel)
    for row in axes:
        row[0].set_ylabel(ylabel)
    plotting.legend_below(figure, axes[0][0], len(labels))
    return figure  # type: ignore[no-any-return]


def outcome(choices: Choices) -> Outcome:
    every = runs(choices)
    curves = [read_curve(key, run, choices.out) for key, run in every]
    keys = list(dict.fromkeys(key for key, _ in every))
    means = {key: over_seconds([smoothed(c) for c in curves if c.key == key]) for key in keys}
    ends = {key: float(np.mean([c.seconds[-1] for c in curves if c.key == key])) for key in keys}
    evaluated = [e for key, run in every for e in read_evaluated(key, run, choices.out)]
    found = compare(curves, ends)
    theta = evaluations(evaluated, over="seconds")
    caption = "Return of training episodes (sampled with theta~; a3c: theta): mean of the seeds, 95% band, smoothed."
    pictures = [Picture("global-time", caption, lambda: draw(means, "training return"))]
    if theta:
        more = "Return of theta itself on separate evaluation episodes: mean of the seeds and 95% band."
        pictures.append(Picture("global-time-theta", more, lambda: draw(theta, "return of theta")))
    return Outcome(
        title=TITLE,
        text="Every method gets the same number of samples; a synchronous round lasts as long as its slowest agent. "
        "N = 4 has half the trajectories of N = 8. fedpg's alpha and eta are N times the table's, so that its path per "
        "sample is the same.",
        verdicts=tuple(judge(found)),
        tables={
            "global-time": curves_table(curves),
            "global-time-means": means_table(means.items(), "seconds"),
            "global-time-evaluations": evaluations_table(evaluated),
            "global-time-comparisons": comparisons_table(found),
        },
        pictures=tuple(pictures),
        shown=("global-time-comparisons",),
        settings={**learning_plan(choices).describe([run for _, run in every]), "agents' seconds": _speeds(every)},
    )


def _speeds(every: Sequence[tuple[Key, RunJob]]) -> list[str]:
    settings = max((run.settings for _, run in every), key=lambda settings: settings.config.agents)
    seconds = make_timing(settings.config, settings.own().timing).seconds
    return [f"{seconds(agent, 0):.3g}" for agent in range(settings.config.agents)]
