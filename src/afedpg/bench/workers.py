"""What a second worker process brings: Hopper with 8 equal agents, both samplers, real seconds.

Whole runs with one worker and with two take turns. Counted from the first arrival of every agent on, so that starting
the processes is not part of it; needs two idle cores to mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from afedpg.bench.rows import compared
from afedpg.messages import Arrival, Vector
from afedpg.runs.parts import configure
from afedpg.runs.train import run as train_run

AGENTS, ITERATIONS = 8, 8


def run(tasks: Sequence[str] = ("hopper",), rounds: int = 3) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    rows = []
    for task in tasks:
        for sampler in ("native", "gymnasium"):
            pairs = [(_speed(task, sampler, 1), _speed(task, sampler, 2)) for _ in range(rounds)]
            one, two = zip(*pairs, strict=True)
            rows.append(compared("workers", task, f"2 workers, {sampler} sampler", "1 worker", two, one, "steps/s"))
    return rows


def _speed(task: str, sampler: str, workers: int) -> float:
    settings = {"agents": AGENTS, "iterations": ITERATIONS, "timing": "equal", "sampler": sampler}
    config = configure(task, "tuned", settings | {"evaluate_episodes": 1, "evaluate_kind": "sampled"})
    times: list[float] = []
    steps: list[int] = []

    def arrived(arrival: Arrival, seconds: float, theta: Vector) -> None:
        times.append(time.perf_counter())
        steps.append(arrival.stats.steps)

    train_run(config, workers=workers, on_arrival=arrived)
    return sum(steps[AGENTS:]) / (times[-1] - times[AGENTS - 1])
