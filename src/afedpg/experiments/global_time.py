"""Reward against global time at a fixed number of samples: what waiting costs, and what the lookahead is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from afedpg import plotting
from afedpg.engine.timing import make_timing
from afedpg.experiments.choices import PAPER_TASKS, SUITABLE, Choices
from afedpg.experiments.curves import Curve, Key, Mean, over_seconds, window_of
from afedpg.experiments.jobs import RunJob
from afedpg.experiments.learning import Learned, LearningPlan
from afedpg.experiments.outcome import Outcome, Verdict, settle
from afedpg.experiments.statistics import Interval, reaches, running_mean, t_interval
from afedpg.experiments.tables import Table, table
from afedpg.messages import Vector

TITLE = "Global time: what waiting costs"
AGENTS = (4, 8)  # at the same iterations per agent, so N = 4 has half the trajectories
SEEDS = (2, 3, 10)
LEAST_SEEDS = 3
SHARE = 0.8  # of the way from the start to the lower of two final returns: a level both methods end above


def runs(choices: Choices) -> list[tuple[Key, RunJob]]:
    plan = LearningPlan(choices)
    return [
        (Key(task, method, agents), RunJob(plan.settings(task, method, agents, seed)))
        for task in choices.pick_tasks(PAPER_TASKS)
        for agents in AGENTS
        for method in choices.pick_methods(SUITABLE["global-time"])
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
    start: float  # training return of both at the start
    ours_end: Interval  # final return
    other_end: Interval
    level: float
    ratio: Interval  # the other's seconds to the level / afedpg's; geometric mean over seeds
    ours_reached: int  # seeds that got there; the rest count with their last second, when they still had not
    other_reached: int
    seeds: int
    difference: Interval  # final return, afedpg minus the other
    pure: float  # the ratio of the times for equal gradients: what waiting alone costs

    @property
    def learned(self) -> bool:
        """Where one of them did not, there is no level worth reaching."""
        return self.ours_end.low > self.start and self.other_end.low > self.start


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
    start = _mean(np.array([_mean(c.returns[: window_of(len(c.returns))]) for c in (*ours.values(), *theirs.values())]))
    ends = [t_interval(np.array([_final(c) for c in group.values()])) for group in (ours, theirs)]
    level = start + SHARE * (min(end.value for end in ends) - start)
    reached = np.array([[_reached(group[seed], level) for seed in seeds] for group in (ours, theirs)])
    last = np.array([[group[seed].seconds[-1] for seed in seeds] for group in (ours, theirs)])
    arrived = np.isfinite(reached)
    logs = np.log(np.where(arrived, reached, last))
    found = t_interval(logs[1] - logs[0])
    ratio = Interval(*map(math.exp, found))
    difference = t_interval(np.array([_final(ours[seed]) - _final(theirs[seed]) for seed in seeds]))
    return Comparison(
        task, agents, other, start, ends[0], ends[1], level, ratio, int(arrived[0].sum()), int(arrived[1].sum()),
        len(seeds), difference, pure,
    )  # fmt: skip


def _mean(values: Vector) -> float:
    """Over the parts in which an episode ended; NaN if there is none."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _final(curve: Curve) -> float:
    return _mean(curve.returns[-max(1, len(curve.returns) // 10) :])  # the last tenth


def _reached(curve: Curve, level: float) -> float:
    """The first second at which the mean of the last 5% of the run is at the level; before 5% there is no such mean."""
    window = window_of(len(curve.returns))
    return reaches(curve.seconds[window - 1 :], running_mean(curve.returns, window)[window - 1 :], level)


def judge(found: Sequence[Comparison]) -> list[Verdict]:
    """Against fedpg the claim is about time; against the others, about the return after the same samples."""
    return [_judge_time(c) if c.other == "fedpg" else _judge_return(c) for c in found]


def _judge_time(c: Comparison) -> Verdict:
    """A last second is less than the time of a seed that never arrives: fedpg's can only make AFedPG look worse.

    With such a seed of afedpg's the ratio is too large, and the claim cannot hold by it.
    """
    earlier = c.ratio.above(1)
    sure = (c.ours_reached if earlier else c.other_reached) == c.seeds
    return Verdict(
        claim=f"{c.task}, N = {c.agents}: AFedPG is at the same return earlier than FedPG",
        verdict=settle(c.seeds >= LEAST_SEEDS and c.learned and sure, earlier),
        statistic=f"seconds until the training return is first {c.level:.4g}, fedpg / afedpg: {c.ratio}; afedpg gets "
        f"there in {c.ours_reached} of {c.seeds} seeds, fedpg in {c.other_reached} (in the rest its last second "
        f"counts); from {c.start:.4g} afedpg ends at {c.ours_end}, fedpg at {c.other_end}; waiting alone would give "
        f"{c.pure:.3g}",
        **c.ratio._asdict(),
        needed=f"lower 95% limit above 1, at least {LEAST_SEEDS} seeds, afedpg there in all of them, and both methods' "
        "final return above the start by more than its 95% interval",
    )  # fmt: skip


def _judge_return(c: Comparison) -> Verdict:
    return Verdict(
        claim=f"{c.task}, N = {c.agents}: AFedPG ends higher than {c.other} after the same samples",
        verdict=settle(c.seeds >= LEAST_SEEDS, c.difference.above(0)),
        statistic=f"final training return, afedpg minus {c.other}: {c.difference} ({c.seeds} seeds)",
        **c.difference._asdict(),
        needed=f"lower 95% limit above 0, at least {LEAST_SEEDS} seeds",
    )  # fmt: skip


def comparisons_table(found: Sequence[Comparison]) -> Table:
    rows = [
        (c.task, c.agents, c.other, c.level, *c.ratio, c.ours_reached, c.other_reached, c.pure, *c.difference, c.seeds)
        for c in found
    ]  # fmt: skip
    names = "task agents other level time_ratio ratio_low ratio_high ours_reached other_reached pure_time_ratio"
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
        mean.draw(panel, colors[label], label, plotting.line_of(label))
        panel.set_title(f"{key.task}, N = {key.agents}")
        panel.set_xlabel("global time in virtual seconds")
        plotting.thousands(panel)
    for panel in axes.flat:
        plotting.focus_on_means(panel)
    for row in axes:
        row[0].set_ylabel(ylabel)
    plotting.legend_below(figure, len(labels))
    return figure  # type: ignore[no-any-return]


def outcome(choices: Choices) -> Outcome:
    every = runs(choices)
    learned = Learned.read("global-time", every, choices.out)
    means = learned.means(over_seconds)
    ends = {key: float(np.mean([c.seconds[-1] for c in learned.curves if c.key == key])) for key in means}
    found = compare(learned.curves, ends)
    caption = "Return of training episodes (sampled with theta~; a3c: theta): mean of the seeds, 95% band, smoothed."
    return Outcome(
        title=TITLE,
        text="Every method gets the same number of samples; a synchronous round lasts as long as its slowest agent. "
        "N = 4 has half the trajectories of N = 8. fedpg's alpha and eta are N times the table's, so that its path per "
        "sample is the same.",
        verdicts=tuple(judge(found)),
        tables={**learned.tables(means, "seconds"), "global-time-comparisons": comparisons_table(found)},
        pictures=learned.pictures(means, "seconds", caption, draw),
        shown=("global-time-comparisons",),
        settings={**LearningPlan(choices).describe([run for _, run in every]), "agents' seconds": _speeds(every)},
    )


def _speeds(every: Sequence[tuple[Key, RunJob]]) -> list[str]:
    settings = max((run.settings for _, run in every), key=lambda settings: settings.config.agents)
    seconds = make_timing(settings.config, settings.own().timing).seconds
    return [f"{seconds(agent, 0):.3g}" for agent in range(settings.config.agents)]
