"""A comparison as a row of the benchmark's table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from afedpg.errors import ConfigError


def check_tasks(tasks: Sequence[str], sizes: Mapping[str, int]) -> None:
    """For benchmarks that know a task by the size of its policy alone."""
    for task in tasks:
        if task not in sizes:
            raise ConfigError(f"tasks: unknown '{task}'; this benchmark has {', '.join(sizes)}")


def compared(
    benchmark: str, task: str, subject: str, reference: str, ours: Sequence[float], others: Sequence[float]
) -> dict[str, Any]:
    """Speeds round by round. The median of the rounds' own ratios: what slows the machine slows both sides of one."""
    ratios = [mine / other for mine, other in zip(ours, others, strict=True)]
    return {
        "benchmark": benchmark,
        "task": task,
        "subject": subject,
        "reference": reference,
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "subject_per_second": statistics.median(ours),
        "reference_per_second": statistics.median(others),
    }
