"""How much time not waiting saves: time(fedpg) / time(afedpg) for the same number of gradients, against t_max / t_min.

Measured in the virtual engine, beside the time model K t_max / N over K / sum_i(1/t_i):
one straggler gives (1 + (N-1) r) / N, one leader (r + N-1) / N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from afedpg import plotting
from afedpg.engine.timing import make_timing
from afedpg.experiments.choices import BESIDE, SHOWN_TIMINGS, SUITABLE, Choices, Method
from afedpg.experiments.jobs import Plan
from afedpg.experiments.measurements import Measurement
from afedpg.experiments.outcome import Outcome, Picture, Verdict, rule
from afedpg.experiments.tables import Table, table

TITLE = "Time saved by not waiting, against the spread of speeds"
ITERATIONS = 100  # K = 100 N gradients, so the count's last, unfinished gradients are 1% at most
AGENTS = {"smoke": (2, 8, 32), "short": (2, 4, 8, 16, 64, 256), "full": tuple(2**power for power in range(1, 11))}
SPREADS = {"smoke": (1, 4, 10, 100), "short": (1, 2, 4, 10, 30, 100), "full": (1, 2, 3, 4, 6, 10, 20, 30, 50, 70, 100)}
SYNCHRONOUS = Method(BESIDE["heterogeneity"])


@dataclass(frozen=True)
class Point:
    """One place of the figure: the synchronous run and the others under the same clock."""

    model: str
    agents: int
    spread: int
    times: dict[Method, Measurement]  # fedpg's first


def points(choices: Choices) -> list[Point]:
    named = (choices.timing,) if choices.timing else SHOWN_TIMINGS["heterogeneity"]
    models = ("own",) if choices.own_timing else named
    spreads = (1,) if choices.own_timing else SPREADS[choices.scale]
    return [_point(choices, *place) for place in product(models, AGENTS[choices.scale], spreads)]


def _point(choices: Choices, model: str, agents: int, spread: int) -> Point:
    clock = {} if model == "own" else {"timing": model, "spread": float(spread)}
    plan = Plan(choices, shared={"dimension": 1, "iterations": ITERATIONS})
    methods = (SYNCHRONOUS, *choices.pick_methods(("afedpg",), SUITABLE["heterogeneity"]))
    return Point(model, agents, spread, {m: _timed(plan, m, agents, clock) for m in methods})


def _timed(plan: Plan, method: Method, agents: int, clock: dict[str, object]) -> Measurement:
    settings = plan.settings("quadratic", method, agents, seed=0, **clock)
    return Measurement(settings, (settings.config.gradients,))


def jobs(choices: Choices) -> Sequence[Measurement]:
    return [measurement for point in points(choices) for measurement in point.times.values()]


def formula(model: str, agents: int, spread: float) -> float:
    """K t_max / N over K / sum_i(1/t_i)."""
    return (1 + (agents - 1) * spread) / agents if model == "straggler" else (spread + agents - 1) / agents


def expected(choices: Choices, point: Point) -> float:
    """The formula's speedup; for a timing model of the user's own, the same with each agent's mean seconds."""
    if point.model != "own":
        return formula(point.model, point.agents, point.spread)
    settings = point.times[SYNCHRONOUS].settings
    model = make_timing(settings.config, settings.own().timing).seconds
    seconds = np.array([[model(agent, n) for n in range(ITERATIONS)] for agent in range(point.agents)])
    return float(seconds.max(axis=0).mean() / point.agents * np.sum(1 / seconds.mean(axis=1)))


def measured(choices: Choices) -> Table:
    rows = []
    for point in points(choices):
        synchronous = _seconds(choices, point.times[SYNCHRONOUS])
        for method, measurement in list(point.times.items())[1:]:
            seconds, should = _seconds(choices, measurement), expected(choices, point)
            gradients = measurement.gradients
            speedup = synchronous / seconds
            error = abs(speedup / should - 1)
            rows.append((
                point.model, method.label, point.agents, point.spread, gradients, synchronous, seconds, speedup,
                should, error, point.agents / gradients,
            ))  # fmt: skip
    columns = "timing method agents spread gradients fedpg_seconds seconds speedup formula error allowed"
    return table(columns, rows)


def _seconds(choices: Choices, measurement: Measurement) -> float:
    return float(measurement.read(choices.out).numbers("seconds")[-1])


def judge(data: Table) -> list[Verdict]:
    """The worst point of each clock decides; the allowance is N / K, the share of gradients still under way."""
    verdicts = []
    for model in dict.fromkeys(data.column("timing")):
        rows = [row for row in data.records() if row["timing"] == model and row["method"] == "afedpg"]
        if not rows:
            continue
        worst = max(rows, key=lambda row: float(row["error"]) / float(row["allowed"]))
        inside = float(worst["error"]) <= float(worst["allowed"])
        fastest = max(rows, key=lambda row: float(row["speedup"]))
        spans = len({row["agents"] for row in rows}) > 1
        where = f"N = {worst['agents']}" + ("" if model == "own" else f", r = {worst['spread']}")
        names = {"straggler": "one straggler: (1 + (N-1) r)/N", "leader": "one leader: (r + N-1)/N"}
        verdicts.append(
            Verdict(
                claim="AFedPG needs K / sum(1/t_i) seconds where FedPG needs K t_max / N; with "
                f"{names.get(str(model), 'this timing model: the mean seconds in their place')}",
                verdict=rule(spans and all(float(row["allowed"]) <= 0.01 for row in rows), inside),
                statistic=f"largest relative error {float(worst['error']):.2g} ({where}); largest speedup measured "
                f"{float(fastest['speedup']):.4g}",
                value=float(worst["error"]),
                needed=f"at most N/K = {float(worst['allowed']):.2g} at every point, K >= 100 N",
            )
        )
    return verdicts


def draw(data: Table) -> Figure:
    models = list(dict.fromkeys(str(model) for model in data.column("timing")))
    figure, axes = plotting.panels(1, len(models), width=3.9, height=3.3, sharey=True)
    for place, model in enumerate(models):
        _draw_own(axes[0][place], data) if model == "own" else _draw_model(axes[0][place], data, model)
    methods = list(dict.fromkeys(str(method) for method in data.column("method")))
    axes[0][0].set_ylabel("time of FedPG / time of " + ("AFedPG" if methods == ["afedpg"] else "the method"))
    if len(methods) > 1:
        style = {"color": plotting.GREY, "linestyle": "none", "markerfacecolor": "white"}
        handles = [plotting.Line2D([], [], label=m, **style, **mark) for m, mark in _marks(methods).items()]  # type: ignore[arg-type]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure  # type: ignore[no-any-return]


def _marks(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Points of several methods often coincide: each is larger than the one drawn over it."""
    shapes = "osD^v" * len(methods)
    sizes = {method: 4.0 + 3.0 * place for place, method in enumerate(methods)}
    marks = {m: {"marker": shape, "markersize": sizes[m]} for m, shape in zip(methods, shapes, strict=False)}
    return dict(reversed(marks.items()))


def _draw_model(axes: plotting.Axes, data: Table, model: str) -> None:
    agents = sorted({int(n) for n in data.column("agents")})
    methods = list(dict.fromkeys(str(method) for method in data.column("method")))
    line = np.geomspace(1, 100, 100)
    for count, color in zip(agents, plotting.sequential(len(agents)), strict=True):
        axes.plot(line, [formula(model, count, r) for r in line], color=color, linewidth=1.2, zorder=2)
        for method, mark in _marks(methods).items():
            rows = [r for r in data.records() if (r["timing"], r["agents"], r["method"]) == (model, count, method)]
            x, y = [float(r["spread"]) for r in rows], [float(r["speedup"]) for r in rows]
            axes.plot(x, y, linestyle="none", color=color, markerfacecolor="white", zorder=3, **mark)
    top = {"straggler": "one straggler, N - 1 fast agents", "leader": "one leader, N - 1 slow agents"}
    axes.set_title(top[model])
    axes.set(xscale="log", yscale="log", xlabel="spread of speeds  $r = t_{max} / t_{min}$")
    axes.set_xlim(0.9, 115)
    plotting.plain_logarithms(axes)
    _name_colors(axes, agents, model)


def _name_colors(axes: plotting.Axes, agents: list[int], model: str) -> None:
    """A legend of N, from the highest curve down."""
    handles = [
        plotting.Line2D([], [], color=color, marker="o", markerfacecolor="white", markersize=4, label=f"N = {count}")
        for count, color in zip(agents, plotting.sequential(len(agents)), strict=True)
    ]
    order = handles[::-1] if model == "straggler" else handles
    axes.legend(handles=order, loc="upper left", ncols=2 if len(agents) > 5 else 1)


def _draw_own(axes: plotting.Axes, data: Table) -> None:
    methods = list(dict.fromkeys(str(method) for method in data.column("method")))
    colors = plotting.colors_of(methods)
    for label, mark in _marks(methods).items():
        rows = [row for row in data.records() if row["method"] == label]
        x = [float(row["agents"]) for row in rows]
        axes.plot(x, [float(row["formula"]) for row in rows], color=plotting.GREY, linewidth=1.2)
        y = [float(row["speedup"]) for row in rows]
        axes.plot(x, y, linestyle="none", color=colors[label], markerfacecolor="white", **mark)
    axes.set_title("timing model of your own")
    axes.set(xscale="log", xlabel="number of agents N")
    axes.set_xticks(x, [f"{count:g}" for count in x])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


def outcome(choices: Choices) -> Outcome:
    data = measured(choices)
    return Outcome(
        title=TITLE,
        text=f"Every point is two runs of {ITERATIONS} gradients per agent in the virtual engine, one synchronous and "
        "one not; the lines are the formula. Times do not depend on what the agents compute, so the agents here "
        "climb a quadratic.",
        verdicts=tuple(judge(data)),
        tables={"heterogeneity": data},
        pictures=(
            Picture("heterogeneity", "Circles: measured. Lines: the formula. Virtual time.", lambda: draw(data)),
        ),
        settings={"task": "quadratic", "iterations": ITERATIONS, "agents": list(AGENTS[choices.scale])},
    )
