"""The picture of `complexity`: four curves that should fall, and two panels on what N agents save."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from afedpg import plotting
from afedpg.experiments.choices import Method
from afedpg.experiments.statistics import band
from afedpg.experiments.studies import STUDIES, Curves, Team, fit_range
from afedpg.messages import Vector

FLOOR = 0.2  # of the mean: where bands end below
PANELS = (
    ("gap", "gap", "a  lq-bandit, global schedule", "gap  $J^* - J$", -2 / 5, "$K^{-2/5}$"),
    ("norm", "norm", "b  lq-bandit, fosp schedule", "gradient norm", -2 / 7, "$K^{-2/7}$"),
    ("saturating", "gap", "c  saturating bandit, global schedule", "gap  $J^* - J$", -2 / 5, "$K^{-2/5}$"),
    ("lookahead", "gap", "d  with and without the lookahead", "gap  $J^* - J$", -2 / 5, "$K^{-2/5}$"),
)


def draw(
    curves: dict[str, dict[Method, Curves]], team: dict[int, Curves], together: Sequence[Team], scale: str
) -> Figure:
    figure, axes = plotting.panels(2, 3, width=3.3, height=2.7)
    labels = list(dict.fromkeys(method.label for methods in curves.values() for method in methods))
    colors = plotting.colors_of(labels)
    for panel, (name, measure, title, ylabel, exponent, text) in zip(axes.flat, PANELS, strict=False):
        for method, c in curves[name].items():
            values = c.norm if measure == "norm" else c.gap
            _falling(panel, c.gradients, values, colors[method.label], method.label, plotting.line_of(method.label))
        if curves[name]:  # none of the methods named may be part of a study
            _guide(panel, fit_range(STUDIES[name], scale), exponent, text)
            plotting.readable_logarithms(panel)
        panel.set(title=title, xlabel="applied gradients K", ylabel=ylabel)
    _shared(axes[1][1], team)
    _speedup(axes[1][2], together)
    plotting.legend_below(figure, len(labels))
    return figure  # type: ignore[no-any-return]


def _falling(
    panel: plotting.Axes, x: Vector, values: NDArray[np.float64], color: str, label: str, line: object
) -> None:
    mean, low, high = band(values)
    floor = FLOOR * mean  # a logarithm has no place for a band that reaches below zero
    plotting.line_with_band(panel, x, mean, np.maximum(low, floor), high, color, label, line)
    panel.set(xscale="log", yscale="log")


def _guide(panel: plotting.Axes, reach: tuple[float, float], exponent: float, text: str) -> None:
    """The paper's slope, a little above the highest curve, where the slopes were fitted."""
    x = np.array(reach)
    top = max(float(np.interp(x[0], line.get_xdata(), line.get_ydata())) for line in panel.get_lines())  # type: ignore[arg-type]
    y = 1.7 * top * (x / x[0]) ** exponent
    panel.plot(x, y, color=plotting.BLACK, linewidth=1.0, linestyle=(0, (4, 3)))
    middle = np.sqrt(x[0] * x[1])
    panel.annotate(text, (middle, 1.15 * y[0] * (middle / x[0]) ** exponent), fontsize=8, ha="left", va="bottom")


def _shared(panel: plotting.Axes, team: dict[int, Curves]) -> None:
    for (agents, c), color in zip(team.items(), plotting.sequential(len(team)), strict=True):
        _falling(panel, c.gradients, c.gap, color, f"N = {agents}", "-")
    panel.set(title="e  N agents share K", xlabel="applied gradients K", ylabel="gap  $J^* - J$")
    plotting.readable_logarithms(panel)
    panel.legend(loc="lower left")


def _speedup(panel: plotting.Axes, together: Sequence[Team]) -> None:
    agents = np.array([team.agents for team in together], np.float64)
    ratios = np.array([team.sample_ratio.value for team in together])
    low = np.array([team.sample_ratio.low for team in together])
    high = np.array([team.sample_ratio.high for team in together])
    known = np.isfinite(ratios) & np.isfinite(low) & np.isfinite(high)
    panel.plot(agents, 1 / agents, color=plotting.BLACK, linewidth=1.0, linestyle=(0, (4, 3)), label="1/N")
    errors = [ratios[known] - low[known], high[known] - ratios[known]]
    panel.errorbar(agents[known], ratios[known], errors, fmt="o", color=plotting.BLUE, capsize=3, label="measured")
    panel.set(xscale="log", yscale="log", title="f  samples per agent, to gap 0.001")
    panel.set(xlabel="number of agents N", ylabel="share of what N = 1 needs")
    panel.set_xticks(agents, [f"{count:g}" for count in agents], minor=False)
    panel.set_yticks(1 / agents, [f"1/{count:g}" if count > 1 else "1" for count in agents], minor=False)
    panel.minorticks_off()
    panel.legend(loc="lower left")
