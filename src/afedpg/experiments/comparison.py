"""Runs side by side: the settings that differ and what came of them, over the seeds of each setting."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from afedpg.config import flat
from afedpg.errors import AfedpgError
from afedpg.experiments.statistics import Interval, t_interval
from afedpg.printable import printable
from afedpg.record.database import read_totals
from afedpg.record.folder import RunFolder, read_each, summarize
from afedpg.record.returns import TRAINING, finite

GAP = "  "


@dataclass(frozen=True)
class Measured:
    """One run."""

    path: str
    seed: int
    state: str
    settings: dict[str, Any]  # flat, less the seed
    results: dict[str, float]
    gradients: int


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed."""

    runs: tuple[Measured, ...]

    @property
    def settings(self) -> dict[str, Any]:
        return self.runs[0].settings

    def values(self, result: str) -> list[float]:
        return [run.results[result] for run in self.runs if result in run.results]

    def interval(self, result: str) -> Interval | None:
        values = self.values(result)
        return t_interval(np.array(values)) if values else None


@dataclass(frozen=True)
class Comparison:
    groups: tuple[Group, ...]
    differing: tuple[str, ...]  # settings
    results: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"settings": list(self.differing), "groups": [self._group(group) for group in self.groups]}

    def _group(self, group: Group) -> dict[str, Any]:
        return {
            "runs": [run.path for run in group.runs],
            "seeds": [run.seed for run in group.runs],
            "states": [run.state for run in group.runs],
            "settings": {name: group.settings.get(name) for name in self.differing},
            "results": {name: _plain(group, name) for name in self.results if group.values(name)},
        }

    def table(self, width: int | None = None) -> str:
        """A column per group, as many beside each other as fit into `width`."""
        names = ["runs", "state", "seeds", *self.differing, *self.results]
        columns = [self._column(group) for group in self.groups]
        head = max(len(name) for name in names)
        blocks: list[list[list[str]]] = [[]]
        room = width
        for column in columns:
            taken = len(GAP) + max(len(cell) for cell in column)
            if room is not None and width is not None and blocks[-1] and head + taken > room:
                blocks.append([])
                room = width
            blocks[-1].append(column)
            room = None if room is None else room - taken
        return "\n\n".join(_block(names, block, head) for block in blocks)

    def _column(self, group: Group) -> list[str]:
        states = [run.state for run in group.runs]
        counts = {state: states.count(state) for state in dict.fromkeys(states)}
        said = ", ".join(state if len(counts) == 1 else f"{count} {state}" for state, count in counts.items())
        seeds = ",".join(str(run.seed) for run in group.runs)
        settings = [_show_setting(group.settings.get(name)) for name in self.differing]
        paths = printable(_together([run.path for run in group.runs]))
        return [paths, said, seeds, *settings, *(_show(group, name) for name in self.results)]


def compare(runs: Sequence[RunFolder], warn: Callable[[str], None]) -> Comparison:
    """A run whose configuration cannot be read is left out, and said to be; so is all of a seed but the run that came
    furthest, because twice the same run would make the interval narrower than it is."""
    measured = read_each(runs, _measure, warn)
    groups: dict[str, list[Measured]] = {}
    for one in measured:
        groups.setdefault(json.dumps(one.settings, sort_keys=True), []).append(one)
    settings = dict.fromkeys(name for one in measured for name in one.settings)
    differing = [name for name in settings if len({json.dumps(one.settings.get(name)) for one in measured}) > 1]
    results = dict.fromkeys(name for one in measured for name in one.results)
    distinct = (_one_per_seed(group, warn) for group in groups.values())
    return Comparison(tuple(Group(group) for group in distinct), tuple(differing), tuple(results))


def _one_per_seed(group: Sequence[Measured], warn: Callable[[str], None]) -> tuple[Measured, ...]:
    kept: dict[int, Measured] = {}
    for one in sorted(group, key=lambda run: (run.seed, run.state != "finished", -run.gradients, run.path)):
        first = kept.setdefault(one.seed, one)
        if first is not one:
            warn(f"left out: {one.path} has the settings and the seed of {first.path}")
    return tuple(kept.values())


def _measure(run: RunFolder) -> Measured:
    settings, summary = flat(run.config().to_dict()), summarize(run)
    seed = settings.pop("seed")
    try:
        totals = read_totals(run.database)
    except AfedpgError:  # killed before its first row: there is nothing to measure yet
        totals = None
    results = {f"theta, {kind}": value for kind, value in summary.theta.items() if value is not None}
    if summary.last_return is not None:
        results[TRAINING] = summary.last_return
    if totals is not None:
        clock = "virtual seconds" if settings["engine"] == "virtual" else "seconds"
        results |= {
            "samples": totals.samples, clock: totals.seconds, "delay, mean": totals.mean_delay,
            "delay, max": totals.max_delay, "bytes up": totals.bytes_up, "bytes down": totals.bytes_down,
        }  # fmt: skip
    return Measured(str(run.path), seed, summary.state, settings, results, summary.gradients)


def _plain(group: Group, result: str) -> dict[str, Any]:
    """JSON has no word for what one run cannot tell: null."""
    found = group.interval(result)
    assert found is not None
    mean, low, high = map(finite, found)
    return {"mean": mean, "low": low, "high": high, "values": [*map(finite, group.values(result))]}


def _show(group: Group, result: str) -> str:
    """An interval where the seeds differ."""
    found, values = group.interval(result), group.values(result)
    if found is None:
        return "-"
    if len(set(values)) == 1:
        return _number(values[0])
    return f"{_number(found.value)} [{_number(found.low)}, {_number(found.high)}]"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1e5 else f"{value:.4g}"


def _show_setting(value: Any) -> str:
    return printable(value) if isinstance(value, str) else "-" if value is None else json.dumps(value)


def _together(paths: Sequence[str]) -> str:
    """runs/hopper-seed0 and runs/hopper-seed1 as runs/hopper-seed{0,1}, as a shell writes it."""
    if len(paths) == 1:
        return paths[0]
    start = _shared(paths)
    rests = [path[len(start) :] for path in paths]
    end = _shared([rest[::-1] for rest in rests])[::-1]
    parts = [rest[: len(rest) - len(end)] for rest in rests]
    shown = parts if len(parts) <= 4 else [parts[0], "..", parts[-1]]
    return f"{start}{{{','.join(shown)}}}{end}"


def _shared(words: Sequence[str]) -> str:
    """The letters all of them begin with."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*words, strict=False))
    return "".join(letters[0] for letters in same)


def _block(names: Sequence[str], columns: Sequence[Sequence[str]], head: int) -> str:
    widths = [max(len(cell) for cell in column) for column in columns]
    rows = zip(names, *columns, strict=True)
    return "\n".join(
        GAP.join([name.ljust(head), *(cell.ljust(w) for cell, w in zip(cells, widths, strict=True))]).rstrip()
        for name, *cells in rows
    )
