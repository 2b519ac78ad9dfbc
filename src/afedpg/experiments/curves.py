"""Learning curves from run folders: the return of training episodes, and of theta itself where it was evaluated.

Training episodes are sampled with theta~ (the paper's measure); an evaluation is of theta. Figures say which they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg import plotting
from afedpg.errors import AfedpgError
from afedpg.experiments.choices import Method
from afedpg.experiments.jobs import Progress, RunJob
from afedpg.experiments.statistics import band, known_mean
from afedpg.experiments.tables import Table, read, table
from afedpg.messages import Vector
from afedpg.record.database import read_arrivals, read_evaluations

BINS = 200  # points of a curve
WINDOW = 0.05  # of a run: how long a mean must hold to count
KEPT = "samples_per_agent seconds training_return episodes"  # the columns of a curve that is kept


@dataclass(frozen=True)
class Key:
    """One curve of a figure; its seeds are averaged."""

    task: str
    method: Method
    agents: int

    @property
    def cells(self) -> tuple[str, str, int]:
        """Of a table's row."""
        return self.task, self.method.label, self.agents


@dataclass(frozen=True)
class Curve:
    """One run, cut into equal parts by the number of applied gradients."""

    key: Key
    seed: int
    samples: Vector  # per agent on average, at the end of each part
    seconds: Vector
    returns: Vector  # mean over the episodes that ended in the part; NaN if none did
    episodes: NDArray[np.int64]


@dataclass(frozen=True)
class Evaluated:
    """theta of one run on separate episodes."""

    key: Key
    seed: int
    kind: str
    samples: Vector  # per agent on average
    seconds: Vector
    means: Vector
    episodes: int


def read_curve(key: Key, run: RunJob, out: Path) -> Curve:
    rows = read_arrivals(run.folder(out).database)
    count = len(rows["gradient"])
    edges = np.unique(np.linspace(0, count, min(BINS, count) + 1).astype(int))
    weights = rows["episodes"] * np.isfinite(rows["mean_return"])
    totals = np.where(weights > 0, rows["mean_return"], 0.0) * weights
    episodes = np.add.reduceat(weights, edges[:-1])
    sums = np.add.reduceat(totals, edges[:-1])
    with np.errstate(invalid="ignore"):
        returns = np.where(episodes > 0, sums / np.maximum(episodes, 1), np.nan)
    samples = rows["samples"][edges[1:] - 1] / key.agents
    seed = run.settings.config.seed
    return Curve(key, seed, samples, rows["seconds"][edges[1:] - 1], returns, episodes.astype(np.int64))


@dataclass(frozen=True)
class KeptRun(RunJob):
    """A run that leaves its curve as OUT/curves/NAME.csv. That is all a figure needs: the run may be deleted, and a
    curve that was computed on another machine counts as a finished run.
    """

    key: Key

    def path(self, out: Path) -> Path:
        return kept_at(out, self.name)

    def finished(self, out: Path) -> bool:
        return self.path(out).is_file()

    def perform(self, out: Path, workers: int, progress: Progress) -> None:
        if not super().finished(out):
            super().perform(out, workers, progress)
        keep(read_curve(self.key, self, out), self.path(out))

    def curve(self, out: Path) -> Curve:
        return read_kept(self.path(out), self.key, self.settings.config.seed)


def kept_at(out: Path, name: str) -> Path:
    return out / "curves" / f"{name}.csv"


def keep(curve: Curve, path: Path) -> None:
    table(KEPT, zip(curve.samples, curve.seconds, curve.returns, curve.episodes, strict=True)).write(path)


def read_kept(path: Path, key: Key, seed: int) -> Curve:
    try:
        kept = read(path)
        samples, seconds, returns, episodes = (kept.numbers(name) for name in KEPT.split())
        return Curve(key, seed, samples, seconds, returns, episodes.astype(np.int64))
    except (ValueError, IndexError) as error:  # it may have come from anywhere
        raise AfedpgError(f"{path} is no curve; remove it, and it is computed again") from error


def read_evaluated(key: Key, run: RunJob, out: Path) -> list[Evaluated]:
    """One per way of acting; where agents have environments of their own, the mean over them."""
    rows = read_evaluations(run.folder(out).database)
    found = []
    for kind in dict.fromkeys(rows["kind"]):
        mine = rows["kind"] == kind
        gradients = np.unique(rows["gradients"][mine])
        at = [mine & (rows["gradients"] == count) for count in gradients]
        samples = np.array([rows["samples"][place][0] for place in at]) / key.agents
        seconds = np.array([rows["seconds"][place][0] for place in at])
        means = np.array([rows["mean"][place].mean() for place in at])
        episodes = int(rows["episodes"][mine][0])
        found.append(Evaluated(key, run.settings.config.seed, str(kind), samples, seconds, means, episodes))
    return found


def curves_table(curves: Iterable[Curve]) -> Table:
    rows = [
        (*c.key.cells, c.seed, c.samples[i], c.seconds[i], c.returns[i], c.episodes[i])
        for c in curves
        for i in range(len(c.samples))
    ]
    return table(f"task method agents seed {KEPT}", rows)


def evaluations_table(evaluated: Iterable[Evaluated]) -> Table:
    rows = [
        (*e.key.cells, e.seed, e.kind, e.samples[i], e.seconds[i], e.means[i], e.episodes)
        for e in evaluated
        for i in range(len(e.samples))
    ]
    return table("task method agents seed kind samples_per_agent seconds return episodes", rows)


@dataclass(frozen=True)
class Mean:
    """The seeds of one curve together: their mean and its 95% band."""

    x: Vector
    values: NDArray[np.float64]  # [seeds, points]; NaN where no episode ended

    @property
    def seeds(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> Vector:
        return self._band[0]

    @property
    def low(self) -> Vector:
        return self._band[1]

    @property
    def high(self) -> Vector:
        return self._band[2]

    @cached_property
    def _band(self) -> tuple[Vector, Vector, Vector]:
        return band(self.values)

    def draw(self, panel: plotting.Axes, color: str, label: str, line: Any = "-") -> None:
        plotting.line_with_band(panel, self.x, *self._band, color, label, line)


def over_samples(curves: Sequence[Curve]) -> Mean:
    """Runs of one kind apply the same number of gradients, so their parts lie at the same samples."""
    points = min(len(curve.samples) for curve in curves)
    x = np.mean([curve.samples[:points] for curve in curves], axis=0)
    return Mean(x, np.array([curve.returns[:points] for curve in curves]))


def over_seconds(curves: Sequence[Curve]) -> Mean:
    """On a common grid of time: where speeds are random, the seeds' parts end at different seconds."""
    end = min(float(curve.seconds[-1]) for curve in curves)
    points = min(len(curve.seconds) for curve in curves)
    x = np.linspace(end / points, end, points)
    return Mean(x, np.array([_interpolate(x, curve.seconds, curve.returns) for curve in curves]))


def _interpolate(x: Vector, seconds: Vector, values: Vector) -> Vector:
    known = np.isfinite(values)
    if not known.any():
        return np.full(len(x), np.nan)
    return np.interp(x, seconds[known], values[known])


def means_table(means: Iterable[tuple[Key, Mean]], x: str) -> Table:
    rows = [(*key.cells, m.x[i], m.mean[i], m.low[i], m.high[i], m.seeds) for key, m in means for i in range(len(m.x))]
    return table(f"task method agents {x} mean low high seeds", rows)


def window_of(points: int) -> int:
    return max(1, round(WINDOW * points))


def smoothed(curve: Curve) -> Curve:
    """For display only: the centred mean over 5% of the run."""
    half = window_of(len(curve.returns)) // 2
    if not half:
        return curve
    padded = np.concatenate([np.full(half, np.nan), curve.returns, np.full(half, np.nan)])
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    return replace(curve, returns=known_mean(around, axis=1))
