"""Reward against samples per agent for N = 1, 2, 4, 8: how much each agent saves when others sample too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from afedpg import plotting
from afedpg.experiments.choices import PAPER_TASKS, SUITABLE, TEAMS, Choices, Method
from afedpg.experiments.curves import Key, Mean, over_samples, window_of
from afedpg.experiments.jobs import RunJob
from afedpg.experiments.learning import Learned, LearningPlan
from afedpg.experiments.outcome import Outcome, Verdict, rule
from afedpg.experiments.statistics import Interval, bootstrap, known_mean, reaches, running_mean
from afedpg.experiments.tables import Table, table
from afedpg.messages import Vector

TITLE = "Samples per agent: what the others' samples are worth"
AGENTS = TEAMS["sample-speedup"]
ALLOWED = {2: 0.55, 4: 0.30, 8: 0.16}  # of N = 1's samples: 1/N, with room for noise
LEAST_SEEDS = 3


@dataclass(frozen=True)
class Size:
    """What tells this experiment from `long-runs`: how long the runs are, and how many seeds."""

    id: str
    title: str
    factor: int
    seeds: tuple[int, int, int]  # smoke, short, full


SIZE = Size("sample-speedup", TITLE, 1, (2, 3, 10))


def runs(choices: Choices, size: Size = SIZE) -> list[tuple[Key, RunJob]]:
    plan = LearningPlan(choices)
    found = []
    for task in choices.pick_tasks(PAPER_TASKS):
        for method in choices.pick_methods(("afedpg",), SUITABLE[size.id]):
            for agents in choices.pick_agents(AGENTS):
                alone = agents == 1 and method.name in ("afedpg", "fedpg")  # the same rule, whose name is pg
                used = Method("pg") if alone else method
                key = Key(task, method, agents)
                found += [
                    (key, RunJob(plan.settings(task, used, agents, seed, factor=size.factor)))
                    for seed in choices.pick_seeds(*size.seeds)
                ]
    return found


def jobs(choices: Choices) -> Sequence[RunJob]:
    return [run for _, run in runs(choices)]


@dataclass(frozen=True)
class Speedup:
    """Samples per agent until the mean of the seeds is where N = 1 ended."""

    key: Key
    level: float  # N = 1's mean over its last 5%
    samples: float  # infinite: never
    ratio: Interval  # to N = 1's; the seeds are resampled, the same ones for both
    gain: float  # N = 1's level above its start, in half-widths of its band
    seeds: int


def speedups(means: dict[Key, Mean]) -> list[Speedup]:
    found = []
    for key, mean in means.items():
        alone = means[Key(key.task, key.method, 1)]
        everyone = np.arange(mean.seeds)  # N = 1 has the same ones
        level, samples, _ = _passage(alone, mean, everyone)
        ratio = bootstrap(everyone, partial(_ratio, alone, mean), seed=0)
        found.append(Speedup(key, level, samples, ratio, _gain(alone, level), mean.seeds))
    return found


def _passage(alone: Mean, mean: Mean, seeds: NDArray[np.int64]) -> tuple[float, float, float]:
    """The level, and the samples until the mean of these seeds is there and stays: with N agents, and with one."""
    steady = _steady(alone, seeds)
    level = float(steady[-1])  # so N = 1 itself is there at its end, if not before
    first = reaches(mean.x, _steady(mean, seeds), level, stays=True)
    return level, first, reaches(alone.x, steady, level, stays=True)


def _ratio(alone: Mean, mean: Mean, seeds: NDArray[np.int64]) -> float:
    _, first, base = _passage(alone, mean, seeds)
    return first / base


def _steady(mean: Mean, seeds: NDArray[np.int64]) -> Vector:
    return running_mean(known_mean(mean.values[seeds], axis=0), window_of(len(mean.x)))


def _gain(alone: Mean, level: float) -> float:
    """How clearly N = 1 learned at all: where it did not, there is no level worth reaching."""
    window = window_of(len(alone.x))
    start = float(np.nanmean(alone.mean[:window]))
    half = float(np.nanmean((alone.high - alone.low)[-window:])) / 2
    return (level - start) / half if half > 0 else (math.inf if level > start else 0.0)


def judge(found: Sequence[Speedup]) -> list[Verdict]:
    """One verdict per task and method: every N must do."""
    verdicts = []
    for task, method in dict.fromkeys((s.key.task, s.key.method) for s in found):
        mine = [s for s in found if (s.key.task, s.key.method) == (task, method) and s.key.agents > 1]
        enough = all(s.seeds >= LEAST_SEEDS and s.gain > 1 for s in mine)
        holds = all(s.ratio.value <= allowed(s.key.agents) for s in mine)
        told = ", ".join(f"N = {s.key.agents}: {s.ratio}" for s in mine)
        verdicts.append(
            Verdict(
                claim=f"{task}, {method.label}: N agents get where one agent gets with about 1/N of its samples each",
                verdict=rule(enough, holds),
                statistic=f"samples per agent to N = 1's final return {mine[0].level:.4g}, of N = 1's: {told} "
                f"({mine[0].seeds} seeds; N = 1 rose by {mine[0].gain:.2g} half-widths of its band)",
                value=mine[-1].ratio.value,
                needed=", ".join(f"N = {s.key.agents}: at most {allowed(s.key.agents):.2g}" for s in mine)
                + f"; the seeds' mean curve decides, at least {LEAST_SEEDS} seeds, and N = 1 must have learned; the "
                "intervals, with the seeds resampled, say how sure it is",
            )
        )
    return verdicts


def allowed(agents: int) -> float:
    return ALLOWED.get(agents, 1.28 / agents)


def speedups_table(found: Sequence[Speedup]) -> Table:
    rows = [(*s.key.cells, s.level, s.samples, *s.ratio, 1 / s.key.agents, s.seeds) for s in found]
    return table("task method agents level samples_per_agent ratio low high one_over_n seeds", rows)


def draw(means: dict[Key, Mean], ylabel: str) -> Figure:
    tasks, methods = list(dict.fromkeys(k.task for k in means)), list(dict.fromkeys(k.method for k in means))
    figure, axes = plotting.panels(len(methods), len(tasks))
    for row, method in enumerate(methods):
        for column, task in enumerate(tasks):
            panel = axes[row][column]
            for place, agents in enumerate(AGENTS):
                if (mean := means.get(Key(task, method, agents))) is None:
                    continue
                color, line = plotting.AGENT_COLORS[place], plotting.AGENT_LINES[place]
                mean.draw(panel, color, f"N = {agents}", line)
            panel.set_title(task if len(methods) == 1 else f"{task}, {method.label}")
            plotting.thousands(panel)
            plotting.focus_on_means(panel)
            panel.set_xlabel("samples per agent")
        axes[row][0].set_ylabel(ylabel)
    plotting.legend_below(figure, len(AGENTS))
    return figure  # type: ignore[no-any-return]


def outcome(choices: Choices, size: Size = SIZE) -> Outcome:
    every = runs(choices, size)
    learned = Learned.read(size.id, every, choices.out)
    shown, found = learned.means(over_samples), speedups(learned.means(over_samples, smooth=False))
    caption = "Return of training episodes (sampled with theta~): mean of the seeds and 95% band, smoothed over 5%."
    return Outcome(
        title=size.title,
        text=f"The same task learned by N = {', '.join(map(str, choices.pick_agents(AGENTS)))} agents; the horizontal "
        "axis counts the environment steps of one agent, on average.",
        verdicts=tuple(judge(found)),
        tables={**learned.tables(shown, "samples_per_agent"), f"{size.id}-ratios": speedups_table(found)},
        pictures=learned.pictures(shown, "samples", caption, draw),
        shown=(f"{size.id}-ratios",),
        settings=LearningPlan(choices).describe([run for _, run in every]),
    )
