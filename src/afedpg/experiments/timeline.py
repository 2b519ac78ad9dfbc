"""Who works when: each agent's stretches of work, and the global steps with their numbers, with and without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from afedpg import plotting
from afedpg.engine.timing import Seconds, make_timing
from afedpg.experiments.choices import SUITABLE, Choices, Method
from afedpg.experiments.jobs import Plan, RunJob
from afedpg.experiments.outcome import Outcome, Picture, Verdict, rule
from afedpg.experiments.tables import Table, table
from afedpg.record.database import read_arrivals

TITLE = "Who works when: synchronous against asynchronous"
SPEEDS = (1.1, 1.75, 2.45, 4.0)  # seconds per gradient; no two agents in step
SHOWN_ROUNDS = 2  # synchronous rounds that the picture covers
ITERATIONS = 12  # per agent: enough to cover them
USUAL = ("fedpg", "afedpg")


@dataclass(frozen=True)
class Stretch:
    """One piece of work of one agent, and the global step its gradient went into."""

    method: str
    agent: int
    start: float  # handed out
    finish: float  # gradient ready
    applied: float  # the server stepped with it
    iteration: int  # 1 is the first step


def runs(choices: Choices) -> dict[Method, RunJob]:
    clock = {} if choices.own_timing or choices.timing else {"timing": "list", "speeds": SPEEDS}
    plan = Plan(choices, shared={"dimension": 2, "iterations": ITERATIONS, **clock})
    methods = choices.pick_methods(USUAL, SUITABLE["timeline"])
    return {m: RunJob(plan.settings("quadratic", m, len(SPEEDS), seed=0)) for m in methods}


def jobs(choices: Choices) -> Sequence[RunJob]:
    return list(runs(choices).values())


def stretches(choices: Choices) -> list[Stretch]:
    found = []
    for method, run in runs(choices).items():
        arrivals = read_arrivals(run.folder(choices.out).database)
        seconds = make_timing(run.settings.config, run.settings.own().timing).seconds
        agents, applied, iterations = (arrivals[name].tolist() for name in ("agent", "seconds", "iteration"))
        found += pieces(method.label, agents, applied, iterations, seconds)
    return found


def pieces(
    method: str, agents: Sequence[int], applied: Sequence[float], iterations: Sequence[int], seconds: Seconds
) -> list[Stretch]:
    """An agent's next work starts when its last gradient was applied, and lasts what the timing model says."""
    since: dict[int, float] = {}
    counts: dict[int, int] = {}
    found = []
    for agent, at, iteration in zip(agents, applied, iterations, strict=True):
        agent, start, count = int(agent), since.get(int(agent), 0.0), counts.get(int(agent), 0)
        finish = start + seconds(agent, count)
        found.append(Stretch(method, agent, start, finish, float(at), int(iteration) + 1))
        since[agent], counts[agent] = float(at), count + 1
    return found


def to_table(found: Sequence[Stretch]) -> Table:
    rows = [(s.method, s.agent + 1, s.start, s.finish, s.applied, s.iteration) for s in found]
    return table("method agent start_seconds finish_seconds applied_seconds iteration", rows)


def idle_share(found: Sequence[Stretch]) -> float:
    """Agents' time spent waiting for the server, of all their time until their last applied gradient."""
    waiting = sum(stretch.applied - stretch.finish for stretch in found)
    return waiting / sum(stretch.applied - stretch.start for stretch in found)


def judge(found: Sequence[Stretch]) -> Verdict:
    by_method = {m: [s for s in found if s.method == m] for m in dict.fromkeys(s.method for s in found)}
    idle = {method: idle_share(mine) for method, mine in by_method.items()}
    both = "fedpg" in idle and "afedpg" in idle
    window = SHOWN_ROUNDS * max((s.finish - s.start for s in found), default=0.0)
    gradients = {m: sum(s.applied <= window + 1e-9 for s in mine) for m, mine in by_method.items()}
    told = "; ".join(f"{m} idle {abs(idle[m]):.1%}, {gradients[m]} gradients in {window:.3g} s" for m in by_method)
    return Verdict(
        claim="Nothing waits: asynchronous agents are never idle, synchronous ones wait for the slowest",
        verdict=rule(both, both and idle["afedpg"] < 1e-6 and idle["fedpg"] > 0),
        statistic=told,
        value=idle.get("afedpg"),
        needed="no idle time with afedpg, some with fedpg",
    )


def draw(found: Sequence[Stretch]) -> Figure:
    methods = list(dict.fromkeys(stretch.method for stretch in found))
    end = SHOWN_ROUNDS * max(stretch.finish - stretch.start for stretch in found)
    figure, axes = plotting.panels(len(methods), 1, width=8.2, height=2.2, sharex=True)
    colors = plotting.colors_of(methods)
    for place, method in enumerate(methods):
        mine = [s for s in found if s.method == method and s.start < end]
        _draw_method(axes[place][0], method, mine, colors[method], end)
    axes[-1][0].set_xlabel("virtual time in seconds")
    return figure  # type: ignore[no-any-return]


def _draw_method(axes: plotting.Axes, method: str, found: Sequence[Stretch], color: str, end: float) -> None:
    for s in found:
        axes.barh(s.agent, s.finish - s.start, left=s.start, height=0.56, color=color, alpha=0.75, edgecolor="white")
        if s.applied - s.finish > 1e-9:
            axes.barh(
                s.agent, s.applied - s.finish, left=s.finish, height=0.56, color="white", edgecolor=plotting.GREY,
                hatch="////", linewidth=0.5, alpha=0.6,
            )  # fmt: skip
    agents = max(s.agent for s in found) + 1
    steps = sorted({(s.applied, s.iteration) for s in found if s.applied <= end})
    for place, (at, iteration) in enumerate(steps):
        axes.axvline(at, color=plotting.BLACK, linewidth=0.7, zorder=3)
        close = place > 0 and at - steps[place - 1][0] < end / 60  # two numbers would lie on top of each other
        if not close:
            axes.text(at, -0.66, f"{iteration}", ha="center", va="bottom", fontsize=8)
    axes.set_yticks(range(agents), [f"agent {agent + 1}" for agent in range(agents)])
    axes.set_ylim(agents - 0.5, -0.6)
    axes.set_xlim(0, end * 1.002)
    axes.grid(visible=False)
    done = steps[-1][1] if steps else 0
    axes.set_title(f"{method}: {done} global steps, {abs(idle_share(found)):.0%} of the agents' time idle", pad=16)


def outcome(choices: Choices) -> Outcome:
    found, clock = stretches(choices), jobs(choices)[0].settings.clock
    caption = (
        "Bars: an agent computes a gradient. Hatched: it waits. Vertical lines: a global step, with its number. "
        f"{len(SPEEDS)} agents; seconds per gradient: {clock}."
    )
    return Outcome(
        title=TITLE,
        text="The same agents under both rules, from the record of two short runs.",
        verdicts=(judge(found),),
        tables={"timeline": to_table(found)},
        pictures=(Picture("timeline", caption, lambda: draw(found)),),
        settings={"task": "quadratic", "seconds per gradient": clock},
    )
