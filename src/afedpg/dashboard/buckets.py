"""Curves of any number of rows in a bounded number of points, kept up to date row by row.

A bucket covers `width` neighbouring rows. When there are too many, every two become one and the width doubles: what has
been seen is never read again, and memory stays the same whether a run has a thousand rows or a billion.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.dashboard.tail import Rows

CAPACITY = 384  # there are this many to twice as many buckets: about one per pixel of a wide picture's half
VALUES = ("mean_return", "gradient_norm", "step_length", "lookahead_length", "delay")
TOTALS = ("steps", "bytes_up", "bytes_down")
Array = NDArray[np.float64]


class Curves:
    """Of each value the mean, least and greatest per bucket; of each total where it stands at the bucket's end."""

    def __init__(self) -> None:
        self.width = 1
        self.rows = 0
        self.merged = 0  # how often buckets became one: earlier ones are void then
        self._sums: Array = np.zeros((0, len(VALUES)))
        self._counts: Array = np.zeros((0, len(VALUES)))
        self._lows: Array = np.zeros((0, len(VALUES)))
        self._highs: Array = np.zeros((0, len(VALUES)))
        self._ends: Array = np.zeros((0, 3 + len(TOTALS)))  # gradient, iteration, seconds, totals
        self._totals: Array = np.zeros(len(TOTALS))

    @property
    def complete(self) -> int:
        """Buckets that will not change until the next merge."""
        return self.rows // self.width

    @property
    def gradient(self) -> int:
        """The newest."""
        return int(self._ends[-1, 0]) if self.rows else 0

    @property
    def totals(self) -> dict[str, float]:
        return dict(zip(TOTALS, self._totals.tolist(), strict=True))

    def steps_before(self, seconds: float) -> int:
        """Global steps made before that time; up to a bucket's width fewer."""
        place = int(np.searchsorted(self._ends[:, 2], seconds))
        return int(self._ends[place - 1, 1]) if place else 0

    def add(self, rows: Rows) -> None:
        count = len(rows["gradient"])
        if not count:
            return
        values = np.stack([rows[name] for name in VALUES], axis=1)
        known = ~np.isnan(values)
        running = np.cumsum(np.stack([rows[name] for name in TOTALS], axis=1), axis=0) + self._totals
        ends = np.column_stack([rows["gradient"], rows["iteration"] + 1, rows["seconds"], running])
        bucket = (self.rows + np.arange(count)) // self.width
        starts = np.flatnonzero(np.diff(bucket, prepend=-1))
        lasts = np.append(starts[1:], count) - 1
        self._append(
            np.add.reduceat(np.where(known, values, 0.0), starts),
            np.add.reduceat(known.astype(np.float64), starts),
            np.fmin.reduceat(values, starts),
            np.fmax.reduceat(values, starts),
            ends[lasts],
        )
        self.rows += count
        self._totals = running[-1]
        while len(self._ends) > 2 * CAPACITY:
            self._merge()

    def _append(self, sums: Array, counts: Array, lows: Array, highs: Array, ends: Array) -> None:
        if self.rows % self.width:  # the newest bucket goes on
            sums[0] += self._sums[-1]
            counts[0] += self._counts[-1]
            lows[0] = np.fmin(lows[0], self._lows[-1])
            highs[0] = np.fmax(highs[0], self._highs[-1])
        old = self.complete
        self._sums = np.concatenate([self._sums[:old], sums])
        self._counts = np.concatenate([self._counts[:old], counts])
        self._lows = np.concatenate([self._lows[:old], lows])
        self._highs = np.concatenate([self._highs[:old], highs])
        self._ends = np.concatenate([self._ends[:old], ends])

    def _merge(self) -> None:
        starts = np.arange(0, len(self._ends), 2)
        self._sums = np.add.reduceat(self._sums, starts)
        self._counts = np.add.reduceat(self._counts, starts)
        self._lows = np.fmin.reduceat(self._lows, starts)
        self._highs = np.fmax.reduceat(self._highs, starts)
        self._ends = self._ends[np.minimum(starts + 1, len(self._ends) - 1)]
        self.width *= 2
        self.merged += 1

    def points(self, start: int = 0) -> dict[str, list[Any]]:
        """Columns of the buckets from `start` on."""
        with np.errstate(invalid="ignore"):
            means = self._sums[start:] / self._counts[start:]
        names = ("gradient", "iteration", "seconds", *TOTALS)
        found = {name: rounded(self._ends[start:, place]) for place, name in enumerate(names)}
        found |= {name: rounded(means[:, place]) for place, name in enumerate(VALUES)}
        found["return_low"], found["return_high"] = rounded(self._lows[start:, 0]), rounded(self._highs[start:, 0])
        found["delay_high"] = rounded(self._highs[start:, VALUES.index("delay")])
        return found


class Concurrency:
    """omega_k: how many agents were at work when step k was made, as the mean over buckets of steps.

    A gradient says so itself: its agent was out from the step `version` until the step `iteration`. That is known only
    once it has arrived, so the newest steps still grow; `points` adds those who are out now.
    """

    def __init__(self) -> None:
        self.width = 1
        self._part: Array = np.zeros(0)  # steps of agents who were out during part of the bucket
        self._whole: Array = np.zeros(1)  # differences: agents who were out during all of it
        self._steps = 0

    def add(self, rows: Rows) -> None:
        if not len(rows["iteration"]):
            return
        last = rows["iteration"].astype(np.int64)
        first = np.clip(rows["version"].astype(np.int64), 0, last)
        self._steps = max(self._steps, int(last.max()) + 1)
        while self._steps > 2 * CAPACITY * self.width:
            self._merge()
        more = np.zeros(-(-self._steps // self.width) - len(self._part))
        self._part, self._whole = np.append(self._part, more), np.append(self._whole, more)
        self._count(self._part, self._whole, first, last)

    def points(self, out: Sequence[int]) -> dict[str, list[Any]]:
        """`out`: of every agent whose gradient has not come, the step it was sent out at."""
        part, whole = self._part.copy(), self._whole.copy()
        still = np.array([step for step in out if step < self._steps], np.int64)
        self._count(part, whole, still, np.full_like(still, self._steps - 1))
        ends = np.minimum((np.arange(len(part)) + 1) * self.width, self._steps)
        lengths = np.diff(ends, prepend=0)
        total = part + np.cumsum(whole)[:-1] * self.width
        return {"iteration": ends.tolist(), "concurrency": rounded(total / np.maximum(lengths, 1))}

    def _count(self, part: Array, whole: Array, first: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        start, stop = first // self.width, last // self.width
        inside = start == stop
        np.add.at(part, start[inside], (last - first + 1)[inside])
        start, stop, first, last = start[~inside], stop[~inside], first[~inside], last[~inside]
        np.add.at(part, start, (start + 1) * self.width - first)
        np.add.at(part, stop, last - stop * self.width + 1)
        np.add.at(whole, start + 1, 1)
        np.add.at(whole, stop, -1)

    def _merge(self) -> None:
        total = self._part + np.cumsum(self._whole)[:-1] * self.width
        self._part = np.add.reduceat(total, np.arange(0, len(total), 2)) if len(total) else total
        self._whole = np.zeros(len(self._part) + 1)
        self.width *= 2


def rounded(values: Array) -> list[float | int | None]:
    """Six digits are more than a picture shows; None where there is no number."""
    return [_round(value) if isfinite(value) else None for value in values.tolist()]


def _round(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.6g}")
