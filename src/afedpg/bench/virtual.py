"""What one arrival costs in virtual time, with a hundred agents and with ten thousand.

Processor seconds of the whole run, its start included, over its arrivals; the two sizes take turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import psutil

from afedpg.runs.parts import configure
from afedpg.runs.train import run as train_run

FEW, MANY = 100, 10_000
ARRIVALS = 100_000


def run(tasks: Sequence[str] = ("quadratic",), rounds: int = 3) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}; prints a table on the way."""
    rows = []
    print(f"{'arrivals':<18}{f'us, {FEW} agents':>20}{f'us, {MANY} agents':>20}{'ratio':>10}{'memory, MiB':>14}")
    for task in tasks:
        few, many = [], []
        before = psutil.Process().memory_info().rss
        grown = 0
        for _ in range(rounds):
            few.append(_microseconds(task, FEW))
            many.append(_microseconds(task, MANY))
            grown = max(grown, psutil.Process().memory_info().rss - before)
        ratio = statistics.median(large / small for small, large in zip(few, many, strict=True))
        middle = statistics.median
        print(f"{task:<18}{middle(few):>20.1f}{middle(many):>20.1f}{ratio:>10.2f}{grown / 2**20:>14.0f}", flush=True)
        rows.append({
            "benchmark": "virtual", "task": task, "subject": f"{MANY} agents", "reference": f"{FEW} agents",
            "ratio": ratio, "subject_us": middle(many), "reference_us": middle(few), "memory_mib": grown / 2**20,
        })  # fmt: skip
    return rows


def _microseconds(task: str, agents: int) -> float:
    config = configure(task, None, {"agents": agents, "iterations": ARRIVALS // agents, "timing": "lognormal"})
    start = time.thread_time()
    train_run(config)
    return (time.thread_time() - start) / ARRIVALS * 1e6
