"""What the benchmarks share: a clock, and a comparison as a row of one table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from afedpg.errors import ConfigError


def check_tasks(tasks: Sequence[str], sizes: Mapping[str, int]) -> None:
    """For benchmarks that know a task by the size of its policy alone."""
    for task in tasks:
        if task not in sizes:
            raise ConfigError(f"tasks: unknown '{task}'; this benchmark has {', '.join(sizes)}")


def processor_seconds(work: Callable[[], Any], repeats: int = 1) -> float:
    """Of this thread, per call."""
    start = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - start) / repeats


def compared(
    benchmark: str, task: str, subject: str, reference: str, ours: Sequence[float], others: Sequence[float], unit: str
) -> dict[str, Any]:
    """Prints the row and returns it.

    Both sides are measured round by round. The median of the rounds' own ratios counts: what slows the machine slows
    both sides of one.
    """
    ratios = [mine / other for mine, other in zip(ours, others, strict=True)]
    row = {
        "benchmark": benchmark,
        "task": task,
        "subject": subject,
        "reference": reference,
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "unit": unit,
        "subject_value": statistics.median(ours),
        "reference_value": statistics.median(others),
    }
    _print_heading()
    values = f"{row['subject_value']:>14,.7g}{row['reference_value']:>14,.7g} {unit}"
    print(f"{task:<34}{subject:<40}{reference:<24}{row['ratio']:>10,.3f}{values}", flush=True)
    return row


@cache
def _print_heading() -> None:
    """Above the first row of a command."""
    print(f"{'task':<34}{'subject':<40}{'reference':<24}{'ratio':>10}{'subject':>14}{'reference':>14}")
