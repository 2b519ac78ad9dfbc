"""Who works when: each agent's stretches of work, and the numbers of the global steps, as in the paper's figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from afedpg.dashboard.tail import Rows, Waits

MOST_LANES = 96  # agents that a picture has room for


@dataclass(frozen=True)
class Open:
    """Work that is not done yet."""

    now: float  # on the run's clock
    since: dict[int, float]  # agent -> when it was sent out
    waits: dict[int, float]  # agent -> when it was done, where it waits for the others


def timeline(rows: Rows, waits: Waits, first: int, still: Open | None) -> dict[str, Any]:
    """The work behind the gradients from `first` on. `rows` begins earlier, where that work was handed out."""
    gradient, agent, version = (rows[name].astype(np.int64).tolist() for name in ("gradient", "agent", "version"))
    iteration, seconds = rows["iteration"].astype(np.int64).tolist(), rows["seconds"].tolist()
    applied = {-1: 0.0}  # step -> when; version v was handed out when step v - 1 had been made
    begin = min((at for number, at in zip(gradient, seconds, strict=True) if number >= first - 1), default=0.0)
    if first == 1:
        begin = 0.0
    found: dict[str, list[Any]] = {"agent": [], "start": [], "finish": [], "end": [], "step": [], "delay": []}
    lanes = set(sorted(set(agent) | set(still.since if still else ()))[:MOST_LANES])
    for number, who, given, step, at in zip(gradient, agent, version, iteration, seconds, strict=True):
        if number >= first and who in lanes:
            start = applied.get(given - 1)
            found["agent"].append(who)
            found["start"].append(_exact(begin if start is None else max(start, begin)))
            found["finish"].append(_exact(waits.get((step, who), at)))
            found["end"].append(_exact(at))
            found["step"].append(step + 1)
            found["delay"].append(step - given)
        applied[step] = at
    until = max([begin, *found["end"], *([still.now] if still else ())])
    out = [
        (who, _exact(max(at, begin)), _exact(still.waits.get(who, until)))
        for who, at in (still.since.items() if still else ())
        if still and who in lanes
    ]
    return {**found, "out": out, "begin": _exact(begin), "until": _exact(until), "lanes": sorted(lanes)}


def _exact(seconds: float) -> float:
    return float(f"{seconds:.12g}")
