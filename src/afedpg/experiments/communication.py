"""Bytes: how many each agent sends and receives, and how evenly the server's downlink is used over time.

A window as long as one synchronous round is cut into 20 bins; the bytes that leave the server in each bin are counted,
over 2,000 windows spread evenly over the run. (What the wire adds to a message is not in these bytes.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from afedpg import plotting
from afedpg.config import PROBLEMS
from afedpg.engine.timing import make_timing
from afedpg.experiments.choices import SUITABLE, Choices, Method
from afedpg.experiments.jobs import Plan, RunJob
from afedpg.experiments.learning import LearningPlan
from afedpg.experiments.outcome import Outcome, Picture, Verdict, rule
from afedpg.experiments.tables import Table, table
from afedpg.messages import Vector
from afedpg.record.database import read_arrivals

TITLE = "Communication: the same bytes, without the peaks"
AGENTS = 8
BINS = 20
WINDOWS = 2000
PEAK_SHARE = 0.45  # afedpg's fullest bin, of fedpg's
LEAST_ROUNDS = 50  # synchronous rounds that a run must cover before its windows say anything
SMALL_STEPS = 32  # environment steps per gradient: only messages matter here
ITERATIONS = {"smoke": 100, "short": 250, "full": 0}  # full: the preset's


@dataclass(frozen=True)
class Traffic:
    """The messages of one run in the order of time; `down` leaves the server when `up` has been applied."""

    label: str
    agent: NDArray[np.int64]
    seconds: Vector
    up: Vector  # bytes
    down: Vector
    rounds: int  # server steps


def task_of(choices: Choices) -> str:
    return choices.pick_tasks(("swimmer",))[0]


def runs(choices: Choices) -> dict[Method, RunJob]:
    task = task_of(choices)
    methods = choices.pick_methods(("fedpg", "afedpg"), SUITABLE["communication"])
    return {method: RunJob(_settings(choices, task, method)) for method in methods}


def _settings(choices: Choices, task: str, method: Method) -> Any:
    iterations = ITERATIONS[choices.scale] or LearningPlan(choices).iterations(task, method)
    shared: dict[str, Any] = {"iterations": iterations, "evaluate_episodes": 1}
    if task not in PROBLEMS:
        shared["steps"] = SMALL_STEPS  # messages are as long, as many and at the same times, however long the rollout
    seed = choices.pick_seeds(1, 1, 1)[0]
    return Plan(choices, choices.pick_preset(), shared).settings(task, method, AGENTS, seed)


def jobs(choices: Choices) -> Sequence[RunJob]:
    return list(runs(choices).values())


def read_traffic(label: str, run: RunJob, choices: Choices) -> Traffic:
    rows = read_arrivals(run.folder(choices.out).database)
    up, down = rows["bytes_up"].astype(np.float64), rows["bytes_down"].astype(np.float64)
    return Traffic(label, rows["agent"], rows["seconds"], up, down, int(rows["iteration"][-1]) + 1)


def windows(traffic: Traffic, length: float, count: int = WINDOWS) -> NDArray[np.float64]:
    """Bytes down in every bin of so many windows, [windows, bins]; starts spread evenly over the run."""
    starts = np.linspace(0.0, max(0.0, float(traffic.seconds[-1]) - length), count)
    edges = starts[:, None] + length * np.arange(BINS + 1) / BINS
    sent = np.concatenate([[0.0], np.cumsum(traffic.down)])
    before = sent[np.searchsorted(traffic.seconds, edges, side="left")]
    return np.asarray(np.diff(before, axis=1))


def peak(traffic: Traffic, length: float) -> float:
    """The fullest bin of a window, on average over the windows."""
    return float(windows(traffic, length).max(axis=1).mean())


def per_agent(traffic: Traffic, agents: int) -> Table:
    rows = [
        (traffic.label, agent + 1, int(mine.sum()), traffic.up[mine].sum(), traffic.down[mine].sum())
        for agent in range(agents)
        for mine in (traffic.agent == agent,)
    ]
    return table("method agent gradients bytes_up bytes_down", rows)


def judge(traffic: dict[str, Traffic], length: float) -> list[Verdict]:
    if not {"fedpg", "afedpg"} <= traffic.keys():
        return []
    waits, ours = traffic["fedpg"], traffic["afedpg"]
    count = min(len(waits.up), len(ours.up))
    totals = [float(t.up[:count].sum() + t.down[:count].sum()) for t in (waits, ours)]
    message = float(ours.up.mean() + ours.down.mean())
    apart = abs(totals[0] - totals[1]) / message
    share = peak(ours, length) / (peak(waits, length) or np.nan)  # a run too short to have a whole round
    rounds = float(ours.seconds[-1]) / length
    return [
        Verdict(
            claim="The bytes in all are the same: AFedPG sends no more than FedPG for the same number of gradients",
            verdict=rule(count >= AGENTS, apart <= AGENTS),
            statistic=f"after {count:,} gradients: fedpg {totals[0]:.6g} bytes, afedpg {totals[1]:.6g}, {apart:.3g} "
            "messages apart",
            value=apart,
            needed=f"at most N = {AGENTS} messages apart",
        ),
        Verdict(
            claim="The server's downlink has no peaks: AFedPG spreads over time what FedPG sends at once",
            verdict=rule(rounds >= LEAST_ROUNDS, share <= PEAK_SHARE),
            statistic=f"fullest of {BINS} bins of a round, mean of {WINDOWS:,} windows: afedpg {share:.3g} of fedpg's "
            f"(the run covers {rounds:.0f} rounds)",
            value=share,
            needed=f"at most {PEAK_SHARE:g}, over {LEAST_ROUNDS} rounds or more",
        ),
    ]


def round_seconds(traffic: dict[str, Traffic], choices: Choices) -> float:
    """How long a synchronous round lasts: measured, or the slowest agent's seconds where fedpg was left out."""
    if "fedpg" in traffic:
        return float(traffic["fedpg"].seconds[-1]) / traffic["fedpg"].rounds
    settings = next(iter(runs(choices).values())).settings
    seconds = make_timing(settings.config, settings.own().timing).seconds
    return max(seconds(agent, 0) for agent in range(AGENTS))


def bins_table(traffic: dict[str, Traffic], length: float) -> Table:
    """One window, the one drawn, and what the fullest bin is on average."""
    rows = [
        (label, place + 1, (place + 0.5) * length / BINS, value, peak(t, length))
        for label, t in traffic.items()
        for place, value in enumerate(typical(t, length))
    ]
    return table("method bin seconds bytes_down mean_fullest_bin", rows)


def typical(traffic: Traffic, length: float) -> Vector:
    """The window whose fullest bin is closest to the average one, and of those the middle one in time."""
    every = windows(traffic, length)
    far = np.abs(every.max(axis=1) - every.max(axis=1).mean())
    closest = np.flatnonzero(far == far.min())
    return np.asarray(every[closest[len(closest) // 2]])


def draw(traffic: dict[str, Traffic], length: float, speeds: Sequence[float]) -> Figure:
    figure, axes = plotting.panels(1, 2, width=4.1, height=3.3)
    _cumulative(axes[0][0], traffic, speeds)
    _window(axes[0][1], traffic, length)
    return figure  # type: ignore[no-any-return]


def _cumulative(axes: plotting.Axes, traffic: dict[str, Traffic], speeds: Sequence[float]) -> None:
    shades = plotting.sequential(len(speeds))
    for label, t in traffic.items():
        if label == "fedpg":
            mine = t.agent == t.agent[0]
            x, y = np.flatnonzero(mine) + 1, np.cumsum((t.up + t.down)[mine])
            axes.plot(x, y, color=plotting.METHOD_COLORS["fedpg"], linestyle="--", label="fedpg, every agent", zorder=4)
        elif label == "afedpg":
            for agent, color in enumerate(shades):
                mine = t.agent == agent
                x, y = np.flatnonzero(mine) + 1, np.cumsum((t.up + t.down)[mine])
                name = f"afedpg, {speeds[agent]:.2g} s per gradient" if agent in (0, len(shades) - 1) else None
                axes.plot(x, y, color=color, linewidth=1.2, label=name)
    axes.set(yscale="log", title="a  each agent's bytes", xlabel="applied gradients, all agents together")
    axes.set_ylabel("cumulative bytes, up and down")
    plotting.thousands(axes)
    axes.legend(loc="lower right")


def _window(axes: plotting.Axes, traffic: dict[str, Traffic], length: float) -> None:
    colors = plotting.colors_of(list(traffic))
    width = length / BINS
    for place, (label, t) in enumerate(traffic.items()):
        centres = (np.arange(BINS) + 0.5) * width
        shift = width * 0.8 * ((place + 0.5) / len(traffic) - 0.5)
        axes.bar(
            centres + shift, typical(t, length) / 1e3, width * 0.8 / len(traffic), color=colors[label], label=label
        )
        axes.axhline(peak(t, length) / 1e3, color=colors[label], linestyle=":", linewidth=1.2)
    axes.set(title="b  the server's downlink in one window", xlabel="time in the window, virtual seconds")
    axes.set_ylabel("kilobytes per bin")
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.9))


def outcome(choices: Choices) -> Outcome:
    every = runs(choices)
    traffic = {method.label: read_traffic(method.label, run, choices) for method, run in every.items()}
    length = round_seconds(traffic, choices)
    settings = next(iter(every.values())).settings
    seconds = make_timing(settings.config, settings.own().timing).seconds
    speeds = [seconds(agent, 0) for agent in range(AGENTS)]
    agents = [per_agent(t, AGENTS) for t in traffic.values()]
    caption = (
        f"{settings.config.task}, N = {AGENTS}. a: bytes of each agent; under fedpg all are equal. b: one window as "
        f"long as a synchronous round ({length:.3g} s), {BINS} bins; dotted: the fullest, mean of {WINDOWS:,} windows."
    )
    return Outcome(
        title=TITLE,
        text="From the record of a run of each method: every applied gradient went up, and fresh parameters went down.",
        verdicts=tuple(judge(traffic, length)),
        tables={
            "communication": Table(agents[0].columns, tuple(row for part in agents for row in part.rows)),
            "communication-bins": bins_table(traffic, length),
        },
        pictures=(Picture("communication", caption, lambda: draw(traffic, length, speeds)),),
        shown=("communication",),
        settings={**LearningPlan(choices).describe(list(every.values())), "seconds per gradient": speeds},
    )
