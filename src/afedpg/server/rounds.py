"""fedpg's average: the gradients of a round become one. When a round closes is the fold's business."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from afedpg.messages import Floats, Vector


def average(gradients: Sequence[Floats]) -> Vector:
    """The mean in float64, summed in the order given (by agent id), so that arrival order leaves no trace."""
    total = gradients[0].astype(np.float64)
    for gradient in gradients[1:]:
        total += gradient
    total /= len(gradients)
    return total
