"""Observation scaling with statistics shared by the federation: moments travel, observations do not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import AfedpgError
from afedpg.messages import Floats, Moments, Vector
from afedpg.policy.forward import scale_observation
from afedpg.sampling.rollout import Rollout

EPSILON = 1e-8  # keeps a quantity that never changes finite


def moments_of(raw: NDArray[np.float64]) -> Moments:
    """Count, mean and sum of squared deviations of a rollout's own observations [T, obs], in two passes."""
    mean = raw.mean(axis=0)
    deviations = raw - mean
    return Moments(float(len(raw)), mean, (deviations * deviations).sum(axis=0))


@dataclass(frozen=True)
class Scaling:
    """x -> clip((x - mean) / sqrt(var + eps), -10, 10); before anything was observed `mean` is empty and x stays x.

    The bytes of a picture stay as they are: a policy divides by the brightest.
    """

    size: int  # of an observation
    mean: Vector  # [obs]
    deviation: Vector  # [obs]

    def __call__(self, raw: NDArray[Any]) -> NDArray[Any]:
        """One observation [obs]."""
        if raw.size != self.size:  # compiled code does not look where an array ends
            raise AfedpgError(f"policy: an observation has {self.size} numbers, not {raw.size}")
        if raw.dtype == np.uint8:
            return raw.copy()  # the environment may write to its own
        scaled = np.empty(raw.size, np.float32)
        scale_observation(raw, self.mean, self.deviation, scaled)
        return scaled


def scaling(statistics: Moments | None, size: int) -> Scaling:
    """What the statistics handed out with a Task mean for its whole rollout, of observations of `size` numbers."""
    if statistics is None:
        return Scaling(size, np.empty(0), np.empty(0))
    mean, m2 = np.asarray(statistics.mean, np.float64), np.asarray(statistics.m2, np.float64)
    if not mean.shape == m2.shape == (size,):
        raise AfedpgError(f"statistics: of shapes {mean.shape} and {m2.shape}; an observation has {size} numbers")
    if statistics.count < 2:
        return Scaling(size, np.empty(0), np.empty(0))
    return Scaling(size, mean, np.sqrt(m2 / statistics.count + EPSILON))


def rescaled(rollout: Rollout, statistics: Moments) -> Rollout:
    """A rollout whose observations were not scaled, as a critic will see them once they are."""
    scale = scaling(statistics, rollout.raw.shape[1])

    def table(raw: NDArray[np.float64]) -> Floats:
        return np.array([scale(row) for row in raw], np.float32).reshape(raw.shape)

    seen, beyond = table(rollout.raw), table(rollout.cut_observations.astype(np.float64))
    return replace(rollout, observations=seen, cut_observations=beyond)
