"""Agents whose environments differ, the slow ones ten times slower: whose returns does a method optimize?

On the quadratic with an optimum per agent the end of a run says it exactly: 0 is the plain mean of the optima, 1 their
mean weighted by how often agents arrive. With environments the returns at every site say it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from afedpg import plotting
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Plan, RunJob, Settings
from afedpg.experiments.outcome import Outcome, Picture, Verdict, settle
from afedpg.experiments.statistics import Interval, t_interval
from afedpg.experiments.tables import Table, table
from afedpg.messages import Vector
from afedpg.record import checkpoint
from afedpg.record.database import read_evaluations

TITLE = "Sites that differ: the bias towards fast agents, and its cure"
SPEEDS = (1.0, 1.0, 1.0, 10.0, 10.0)  # seconds per gradient; the last sites are the slow ones
AGENTS, SLOW = len(SPEEDS), 2
US, CURE = "afedpg", "afedpg, newest"
EXACT = "quadratic"
TASKS = (EXACT, "CartPole-v1", "hopper")
OPTIMA = (0.0, 1.0, 2.0, 3.0, 4.0)
PLAIN = float(np.mean(OPTIMA))
BY_RATE = float(np.average(OPTIMA, weights=1 / np.array(SPEEDS)))
WITHIN = 0.02  # of the distance between the two means
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    EXACT: {"optima": OPTIMA, "dimension": 3, "noise": 0.1, "schedule": "global", "eta": 1.0},
    "CartPole-v1": {"sites": "length:values=[0.5,1,2,4,8]"},
    "hopper": {"sites": "gravity:low=0.5,high=1.5,count=5", "hidden": (64, 64), "compute": "auto"},
}
ITERATIONS = {  # per agent on average, at each scale
    EXACT: {"smoke": 2_000, "short": 4_000, "full": 4_000},
    "CartPole-v1": {"smoke": 2, "short": 40, "full": 40},
    "hopper": {"smoke": 1, "short": 20, "full": 60},
}
USUAL_STEPS = 1024  # T, which ITERATIONS are counted in
SEEDS = (2, 3, 5)
LEAST_SEEDS = 5
EPISODES = {"smoke": 2, "short": 20, "full": 20}  # per site, of the last theta


class Contestant(NamedTuple):
    label: str
    method: Method
    aggregator: str = ""


def contestants(choices: Choices, task: str) -> list[Contestant]:
    """Those whose method was named; asynchronous PPO where none was and there is an environment."""
    afedpg, fedpg = Method(US), Method("fedpg")
    every = [
        Contestant(US, afedpg),
        Contestant(CURE, afedpg, "newest"),
        Contestant("malenia", afedpg, f"malenia:batch={AGENTS}"),
        Contestant("fedpg", fedpg),
    ]
    shown = choices.pick_methods((US, "fedpg"))
    found = [who for who in every if who.method in shown]
    if task != EXACT and not any(method.own is None for method in choices.methods):
        found.append(Contestant("afedppo", Method("afedppo")))
    return found + [Contestant(method.label, method) for method in shown if method.own]


def run_of(choices: Choices, task: str, who: Contestant, seed: int) -> RunJob:
    # The paper's constants are for runs of another length, and not for asynchronous PPO.
    plan = Plan(choices, choices.pick_preset("ppo" if who.label == "afedppo" else "tuned"))
    usual = {"sites": "gravity:low=0.5,high=1.5,count=5"}
    more = dict(SETTINGS.get(task, usual))
    if who.label == "afedppo":  # its preset has a network and rollouts of its own
        more.pop("hidden", None)
    if task != EXACT:
        more |= {"evaluate_kind": "sampled", "evaluate_episodes": EPISODES[choices.scale]}

    def made(iterations: int) -> Settings:
        return plan.settings(
            task, who.method, AGENTS, seed, **more, timing="list", speeds=SPEEDS, aggregator=who.aggregator,
            iterations=iterations,
        )  # fmt: skip

    iterations = ITERATIONS.get(task, ITERATIONS["hopper"])[choices.scale]
    steps = USUAL_STEPS if task == EXACT else made(iterations).config.agent.steps
    return RunJob(made(max(1, round(iterations * USUAL_STEPS / steps))))  # the same samples for everybody


def runs(choices: Choices) -> list[tuple[str, Contestant, RunJob]]:
    return [
        (task, who, run_of(choices, task, who, seed))
        for task in choices.pick_tasks(TASKS)
        for who in contestants(choices, task)
        for seed in choices.pick_seeds(*SEEDS)
    ]


def jobs(choices: Choices) -> Sequence[RunJob]:
    return [run for _, _, run in runs(choices)]


@dataclass(frozen=True)
class Row:
    """One contestant on one task: its seeds' returns at every site at the end, [seeds, sites]."""

    task: str
    label: str
    seeds: tuple[int, ...]
    sites: tuple[str, ...]
    returns: Vector
    seconds: Vector  # [seeds] virtual ones, of the whole run
    places: Vector  # [seeds] of the quadratic: 0 at the plain mean of the optima, 1 at the one by arrivals; else empty

    @property
    def worst(self) -> Vector:
        return np.asarray(self.returns.min(axis=1))

    @property
    def slow(self) -> Vector:
        """The mean over the slow sites."""
        return np.asarray(self.returns[:, -SLOW:].mean(axis=1))

    @property
    def mean(self) -> Vector:
        return np.asarray(self.returns.mean(axis=1))


def rows(choices: Choices) -> list[Row]:
    """Of the contestants whose runs are all there."""
    found: dict[tuple[str, str], list[RunJob]] = {}
    for task, who, run in runs(choices):
        found.setdefault((task, who.label), []).append(run)
    whole = {key: mine for key, mine in found.items() if all(run.finished(choices.out) for run in mine)}
    return [_row(*key, mine, choices) for key, mine in whole.items()]


def _row(task: str, label: str, mine: Sequence[RunJob], choices: Choices) -> Row:
    ends, places = [], []
    for run in mine:
        told = read_evaluations(run.folder(choices.out).database)
        ends.append({name: value[told["gradients"] == told["gradients"].max()] for name, value in told.items()})
        if task == EXACT:
            _, tree = checkpoint.load_latest(run.folder(choices.out).checkpoints)
            places.append((float(np.mean(tree["server"]["theta"])) - PLAIN) / (BY_RATE - PLAIN))
    return Row(
        task, label, tuple(run.settings.config.seed for run in mine), tuple(map(str, ends[0]["environment"])),
        np.array([end["mean"] for end in ends]), np.array([end["seconds"][0] for end in ends]), np.array(places),
    )  # fmt: skip


def judge(found: Sequence[Row]) -> list[Verdict]:
    verdicts = [_judge_exact(row) for row in found if row.task == EXACT]
    for task in dict.fromkeys(row.task for row in found if row.task != EXACT):
        here = {row.label: row for row in found if row.task == task}
        if {US, "fedpg"} <= here.keys():
            verdicts.append(_compare(here[US], here["fedpg"], "slow", "lower at the slow sites than", -1))
        if {US, CURE} <= here.keys():
            verdicts.append(_compare(here[CURE], here[US], "worst", "higher at the worst site than", 1))
    return verdicts


def _judge_exact(row: Row) -> Verdict:
    """Own rules have no place that they should end at, so they are shown and not judged."""
    wanted = {US: 1.0, CURE: 0.0, "malenia": 0.0, "fedpg": 0.0}.get(row.label, math.nan)
    mean = "weighted by arrivals" if wanted == 1 else "over agents"
    off = float(np.max(np.abs(row.places - wanted)))
    inside = None if math.isnan(off) else off <= WITHIN
    return Verdict(
        claim=f"quadratic: {row.label} ends at the mean {mean} of the agents' optima",
        verdict=settle(len(row.seeds) >= LEAST_SEEDS, inside),
        statistic=f"at most {off:.2%} of the distance between the two means away, {len(row.seeds)} seeds",
        value=off,
        needed=f"within {WITHIN:.0%} of that distance for each of at least {LEAST_SEEDS} seeds",
    )


def _compare(one: Row, other: Row, what: str, words: str, sign: int) -> Verdict:
    """Of the same seeds."""
    difference = t_interval(getattr(one, what) - getattr(other, what))
    side = difference.above(0.0) if sign > 0 else _below(difference)
    return Verdict(
        claim=f"{one.task}: the return of {one.label} is {words} that of {other.label}",
        verdict=settle(len(one.seeds) >= LEAST_SEEDS, side),
        statistic=f"{np.mean(getattr(one, what)):.4g} against {np.mean(getattr(other, what)):.4g}: difference "
        f"{difference}, {len(one.seeds)} seeds",
        **difference._asdict(),
        needed=f"95% interval {'above' if sign > 0 else 'below'} 0, {LEAST_SEEDS} seeds or more",
    )  # fmt: skip


def _below(difference: Interval) -> bool | None:
    return Interval(-difference.value, -difference.high, -difference.low).above(0.0)


def runs_table(found: Sequence[Row]) -> Table:
    return table(
        "task method seed site return virtual_seconds",
        [
            (row.task, row.label, seed, site, row.returns[i, j], row.seconds[i])
            for row in found
            for i, seed in enumerate(row.seeds)
            for j, site in enumerate(row.sites)
        ],
    )


def means_table(found: Sequence[Row]) -> Table:
    """Per site, over the slow ones, the worst and the mean of all, each with its interval over the seeds."""
    lines = []
    for row in found:
        of_sites = {site: row.returns[:, j] for j, site in enumerate(row.sites)}
        every = {**of_sites, "slow sites": row.slow, "worst site": row.worst, "mean of sites": row.mean}
        every |= {"place between the means": row.places} if len(row.places) else {}
        for where, values in every.items():
            lines.append((row.task, row.label, where, *t_interval(values), len(row.seeds)))
    return table("task method where value low high seeds", lines)


def draw(found: Sequence[Row]) -> Figure:
    tasks = list(dict.fromkeys(row.task for row in found))
    figure, axes = plotting.panels(1, len(tasks), width=3.6, height=3.2)
    colors = plotting.colors_of(list(dict.fromkeys(row.label for row in found)))
    for panel, task in zip(axes[0], tasks, strict=True):
        here = [row for row in found if row.task == task]
        for place, row in enumerate(here):
            told = [t_interval(values) for values in row.returns.T]
            x = np.arange(len(told)) + 0.08 * (place - (len(here) - 1) / 2)
            for at, one in zip(x, told, strict=True):
                panel.plot([at, at], [one.low, one.high], color=colors[row.label], linewidth=1)
            panel.plot(x, [one.value for one in told], "o-", color=colors[row.label], markersize=4, label=row.label)
        panel.set_title(task)
        panel.set_xticks(range(len(here[0].sites)), [site.replace("agent ", "") for site in here[0].sites], rotation=30)
        panel.set_xlabel(f"site; the last {SLOW} are slow")
    axes[0][0].set_ylabel("return")
    plotting.legend_below(figure, 5)
    return figure  # type: ignore[no-any-return]


def outcome(choices: Choices) -> Outcome:
    found = rows(choices)
    caption = (
        "Return of the last theta at every site, mean of the seeds and 95% interval; quadratic: exact, with an optimum "
        "per agent."
    )
    return Outcome(
        title=TITLE,
        text=f"{AGENTS} agents, each at a site of its own; a gradient takes {SPEEDS} virtual seconds, so the last "
        f"{SLOW} sites make {SLOW / (10 * (AGENTS - SLOW) + SLOW):.0%} of an asynchronous method's contributions. All "
        "methods have the same samples, not the same time. With newest a step is made of the mean of all agents' "
        "newest contributions. The settings were not searched.",
        verdicts=tuple(judge(found)),
        tables={"sites": means_table(found), "sites-runs": runs_table(found)},
        pictures=(Picture("sites", caption, lambda: draw(found)),),
        shown=("sites",),
        settings={
            "agents": AGENTS, "seconds per gradient": list(SPEEDS), "seeds": list(choices.pick_seeds(*SEEDS)),
            "presets": "tuned where a task has one, afedppo: ppo; unless another one is named",
            "iterations": {task: steps[choices.scale] for task, steps in ITERATIONS.items()},
            **{task: str(dict(values)) for task, values in SETTINGS.items()},
        },
    )  # fmt: skip
