"""Merging the observation moments that agents report, so that scaling is shared and observations are not."""

from __future__ import annotations

import math

import numpy as np

from afedpg.messages import Moments


def merge(old: Moments | None, new: Moments) -> Moments:
    """Count, mean and M2 of two disjoint sets together (Chan et al. 1979), in float64."""
    if old is None:
        return new
    count = old.count + new.count
    gap = new.mean - old.mean
    mean = old.mean + gap * (new.count / count)
    m2 = old.m2 + new.m2 + gap * gap * (old.count * new.count / count)
    return Moments(count, mean, m2)


def why_not(old: Moments | None, new: Moments) -> str | None:
    """Why these moments cannot be those of real observations, or None."""
    if not math.isfinite(new.count) or new.count < 1 or new.count != int(new.count):
        return f"moments: a count of {new.count} is not a number of observations"
    if new.mean.ndim != 1 or new.mean.shape != new.m2.shape:
        return f"moments: shapes {new.mean.shape} and {new.m2.shape} do not belong together"
    if old is not None and new.mean.shape != old.mean.shape:
        return f"moments: {new.mean.size} observed quantities, the federation has {old.mean.size}"
    if not (np.isfinite(new.mean).all() and np.isfinite(new.m2).all()):
        return "moments: not finite"
    if (new.m2 < 0).any() or (new.count == 1 and new.m2.any()):
        return "moments: impossible squared deviations"
    return None
