"""A run's learning curve: kept while it runs, or read from its folder, and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from afedpg.messages import Arrival, Evaluation, Vector
from afedpg.record.database import evaluation_of, read_arrivals, read_evaluations
from afedpg.record.returns import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from afedpg.runs.best import Evaluated


@dataclass
class Curve:
    """Training returns, which are theta~'s, and theta's evaluations, by samples."""

    training: History = field(default_factory=History)
    evaluations: list[tuple[int, Evaluation]] = field(default_factory=list)
    _noted: int = 0  # gradients

    def note(self, arrivals: Sequence[Arrival]) -> None:
        """The newest gradients; the same ones may be shown again."""
        for arrival in arrivals:
            if arrival.gradient > self._noted:
                self._noted = arrival.gradient
                if (value := arrival.stats.mean_return) is not None:
                    self.training.add(arrival.samples, value)

    def judge(self, at: Evaluated) -> None:
        self.evaluations += [(at.samples, evaluation) for evaluation in at.evaluations]

    @classmethod
    def read(cls, database: Path) -> Curve:
        curve, arrivals, rows = cls(), read_arrivals(database), read_evaluations(database)
        for samples, value in zip(arrivals["samples"], arrivals["mean_return"], strict=True):
            if np.isfinite(value):
                curve.training.add(float(samples), float(value))
        for row, samples in enumerate(rows["samples"]):
            curve.evaluations.append((int(samples), evaluation_of(rows, row)))
        return curve

    def draw(self, title: str, axes: Axes) -> None:
        from afedpg import plotting

        if self.training.points:
            axes.plot(*zip(*self.training.points, strict=True), color=plotting.SKY, label="training (theta~)")
        kinds = sorted({evaluation.kind for _, evaluation in self.evaluations}, reverse=True)  # sampled first
        for kind, color in zip(kinds, (plotting.BLUE, plotting.VERMILION), strict=False):
            samples, means, spans = self._means(kind)
            axes.errorbar(samples, means, spans, fmt="o-", markersize=3, color=color, label=f"theta, {kind}")
        axes.set(xlabel="samples", ylabel="return", title=title)
        plotting.thousands(axes)
        if kinds or self.training.points:
            axes.legend()

    def _means(self, kind: str) -> tuple[list[int], Vector, Vector]:
        """Samples, the mean over environments, and how far the 95% interval reaches below and above it, [2, n]."""
        mine: dict[int, list[tuple[float, float, float]]] = {}
        for samples, told in self.evaluations:
            if told.kind == kind:
                ends = [told.mean if end is None else end for end in (told.low, told.high)]
                mine.setdefault(samples, []).append((told.mean, told.mean - ends[0], ends[1] - told.mean))
        mean, below, above = np.array([np.mean(rows, axis=0) for rows in mine.values()]).T
        return list(mine), mean, np.array([below, above])
