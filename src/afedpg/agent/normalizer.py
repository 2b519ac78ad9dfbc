"""Observation scaling with statistics shared by the federation: moments travel, observations do not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.forward import scale_observation
from afedpg.messages import Floats, Moments, Vector

EPSILON = 1e-8  # keeps a quantity that never changes finite


def moments_of(raw: NDArray[np.float64]) -> Moments:
    """Count, mean and sum of squared deviations of a rollout's own observations [T, obs], in two passes."""
    mean = raw.mean(axis=0)
    deviations = raw - mean
    return Moments(float(len(raw)), mean, (deviations * deviations).sum(axis=0))


@dataclass(frozen=True)
class Scaling:
    """x -> clip((x - mean) / sqrt(var + eps), -10, 10); before anything was observed `mean` is empty and x stays x."""

    mean: Vector  # [obs]
    deviation: Vector  # [obs]

    def __call__(self, raw: NDArray[np.float64]) -> Floats:
        """One observation [obs]."""
        scaled = np.empty(raw.size, np.float32)
        scale_observation(raw, self.mean, self.deviation, scaled)
        return scaled


def scaling(statistics: Moments | None) -> Scaling:
    """What the statistics handed out with a Task mean for its whole rollout."""
    if statistics is None or statistics.count < 2:
        return Scaling(np.empty(0), np.empty(0))
    variance = np.asarray(statistics.m2, np.float64) / statistics.count
    return Scaling(np.asarray(statistics.mean, np.float64), np.sqrt(variance + EPSILON))
