"""What one arrival costs in virtual time, with a hundred agents and with ten thousand.

Processor seconds of the whole run, its start included, over its arrivals; the two sizes take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psutil

from afedpg.bench.rows import compared, processor_seconds
from afedpg.runs.parts import configure
from afedpg.runs.train import run as train_run

FEW, MANY = 100, 10_000
ARRIVALS = 100_000


def run(tasks: Sequence[str] = ("quadratic",), rounds: int = 3) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    rows = []
    for task in tasks:
        few, many = [], []
        before = psutil.Process().memory_info().rss
        grown = 0
        for _ in range(rounds):
            few.append(_microseconds(task, FEW))
            many.append(_microseconds(task, MANY))
            grown = max(grown, psutil.Process().memory_info().rss - before)
        row = compared("virtual", task, f"{MANY} agents", f"{FEW} agents", many, few, "us per arrival")
        print(f"{grown / 2**20:.0f} MiB of memory", flush=True)
        rows.append(row | {"memory_mib": grown / 2**20})
    return rows


def _microseconds(task: str, agents: int) -> float:
    config = configure(task, None, {"agents": agents, "iterations": ARRIVALS // agents, "timing": "lognormal"})
    return processor_seconds(lambda: train_run(config)) / ARRIVALS * 1e6
