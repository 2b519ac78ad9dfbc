"""What agents are sent: theta~, ahead of theta by the step just made, or theta itself.

The law behind it: (1 - alpha)(theta_{k-1} - theta_k) + alpha (theta~_k - theta_k) = 0, so that the Hessian terms of an
old direction and of a gradient taken at theta~ cancel in the mix.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from afedpg.server.schedules import Schedule
from afedpg.server.transforms import At


class Broadcast(Protocol):
    def stretch(self, at: At) -> float:
        """theta~ = theta + stretch * step."""


@dataclass(frozen=True)
class LookAhead:
    """theta~_k = theta_k + (1 - alpha)/alpha (theta_k - theta_{k-1})."""

    alpha: Schedule

    def stretch(self, at: At) -> float:
        alpha = self.alpha(at.iteration, at.version)
        return (1 - alpha) / alpha


@dataclass(frozen=True)
class SendTheta:
    def stretch(self, at: At) -> float:
        return 0.0
