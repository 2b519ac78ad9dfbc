"""Student's t: how wide a 95% interval of a mean is, by the number of values behind it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

CONFIDENCE = 0.95


@cache
def t_quantile(freedom: int) -> float:
    """The t such that 95% of Student's distribution with so many degrees of freedom lie within -t..t."""

    def inside(t: float) -> float:
        # x = sqrt(freedom) tan(angle) turns the density into cos^(freedom - 1) on a finite range.
        angles = np.linspace(0.0, math.atan(t / math.sqrt(freedom)), 20_001)
        weight = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
        return 2 * weight * float(np.trapezoid(np.cos(angles) ** (freedom - 1), angles))

    low, high = 0.0, 1e3
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < CONFIDENCE else (low, middle)
    return (low + high) / 2
