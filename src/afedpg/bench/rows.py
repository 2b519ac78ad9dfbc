"""A comparison as a row of the benchmark's table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any


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
