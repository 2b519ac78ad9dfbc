"""One style for every figure, of experiments and of single runs: Okabe-Ito colours (the colour-blind tell them apart),
units on the axes, 95% bands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from afedpg.messages import Vector

__all__ = ["Axes", "Figure", "Line2D"]

BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#666666"
METHOD_COLORS = {
    "afedpg": BLUE, "fedpg": VERMILION, "afedpg-vanilla": ORANGE, "a3c": PURPLE, "pg": GREEN, "pg-plain": GREY,
}  # fmt: skip
SPARE_COLORS = (BLACK, SKY, GREEN, GREY)  # for the user's own, in order
AGENT_COLORS = (GREY, ORANGE, GREEN, BLUE)  # N = 1, 2, 4, 8
AGENT_LINES: tuple[Any, ...] = (":", "-.", "--", "-")
_DASHES: Any = (0, (5, 1, 1, 1, 1, 1))
METHOD_LINES: dict[str, Any] = {
    "afedpg": "-", "fedpg": "--", "afedpg-vanilla": "-.", "a3c": ":", "pg": _DASHES, "pg-plain": (0, (1, 1)),
}  # fmt: skip  # a second cue beside colour
STYLE: Any = {
    "figure.dpi": 100, "savefig.dpi": 200, "figure.constrained_layout.use": True,
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
    "axes.titlesize": 10, "axes.labelsize": 9, "legend.fontsize": 8, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "axes.grid": True, "grid.color": "#E6E6E6", "grid.linewidth": 0.6, "axes.axisbelow": True,
    "lines.linewidth": 1.6, "legend.frameon": False, "svg.fonttype": "path", "svg.hashsalt": "afedpg",
}  # fmt: skip
_TIMELESS: dict[str, dict[str, Any]] = {  # what a format would say of the moment and of matplotlib's version
    ".png": {"Software": None}, ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}  # fmt: skip
PANEL_WIDTH, PANEL_HEIGHT = 3.1, 2.5  # inches


def panels(rows: int, columns: int, width: float = PANEL_WIDTH, height: float = PANEL_HEIGHT, **more: Any) -> Any:
    """A figure and its axes [rows, columns]."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


class Shown(Figure):
    """A figure that a notebook shows when it is a cell's last value."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(picture)
        return picture.getvalue()


def panel() -> tuple[Shown, Axes]:
    """A figure of one."""
    figure = Shown(figsize=(1.6 * PANEL_WIDTH, 1.3 * PANEL_HEIGHT), layout="constrained")
    return figure, figure.subplots()


def save(draw: Callable[[], Figure], path: Path) -> None:
    """PATH.png, PATH.svg and PATH.pdf, in the style, with the same bytes for the same data."""
    with matplotlib.rc_context(STYLE):
        figure = draw()
        for ending in _TIMELESS:
            write(figure, path.with_name(path.name + ending))


def write(figure: Figure, path: Path) -> None:
    """One file, of the format that its name ends with."""
    figure.savefig(path, metadata=_TIMELESS.get(path.suffix))


def plain_logarithms(axes: Axes, x: bool = True, y: bool = True) -> None:
    """1, 10, 100 instead of powers of ten, for quantities people count in."""
    for axis, wanted in ((axes.xaxis, x), (axes.yaxis, y)):
        if wanted:
            axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))


def readable_logarithms(axes: Axes) -> None:
    """A vertical axis with fewer than two powers of ten has no scale by them alone: 2 and 5 get labels as well."""
    low, high = np.log10(axes.get_ylim())
    if np.floor(high) - np.ceil(low) >= 1:
        axes.yaxis.set_minor_formatter(NullFormatter())
        return
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    plain_logarithms(axes, x=False)


def thousands(axes: Axes) -> None:
    """12k, 1.5M: samples and seconds in few characters."""
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: _short(value)))
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def colors_of(labels: Sequence[str]) -> dict[str, str]:
    """A method keeps its colour in every figure; the user's own take the spare ones."""
    spare = iter(SPARE_COLORS * len(labels))
    return {label: METHOD_COLORS.get(label) or next(spare) for label in labels}


def sequential(count: int) -> list[str]:
    """Ordered colours for an ordered quantity such as N; cividis reads the same to the colour-blind."""
    ramp = matplotlib.colormaps["cividis"]
    return [to_hex(ramp(0.85 * place / max(1, count - 1))) for place in range(count)]


def line_of(label: str) -> Any:
    """A method's line style; the user's own are drawn solid, in colours of their own."""
    return METHOD_LINES.get(label, "-")


def line_with_band(
    axes: Axes, x: Vector, mean: Vector, low: Vector, high: Vector, color: str, label: str, line: Any = "-"
) -> None:
    axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    axes.plot(x, mean, color=color, label=label, linestyle=line)


def focus_on_means(axes: Axes) -> None:
    """With few seeds a t-interval may be many times as wide as the curve is high: the means decide the view."""
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axes.get_lines()])
    values = values[np.isfinite(values)]
    if len(values):
        low, high = float(values.min()), float(values.max())
        room = 0.6 * (high - low) or 1.0
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, low - room), min(top, high + room))


def legend_below(figure: Figure, columns: int) -> None:
    """One legend for all panels that have none of their own, out of the data's way."""
    shared = [panel.get_legend_handles_labels() for panel in figure.axes if panel.get_legend() is None]
    entries = {label: handle for handles, labels in shared for handle, label in zip(handles, labels, strict=True)}
    room = max(2, int(figure.get_figwidth() / 1.5))  # inches that an entry takes
    count = min(columns, len(entries), room)
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=count)
