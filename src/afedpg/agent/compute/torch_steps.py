"""Steps of Adam in torch, on one flat vector of parameters: what the kernels do where they cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from afedpg.agent.compute.kernels import Learner
from afedpg.agent.compute.local_steps import Adam
from afedpg.messages import Floats
from afedpg.policy.mlp import to_torch

if TYPE_CHECKING:
    from torch import Tensor


class Moving:
    """A flat vector and its Adam."""

    def __init__(self, learner: Learner, how: Adam, device: str) -> None:
        import torch

        self.theta, self._first, self._second = (
            to_torch(vector, torch.float32, device) for vector in (learner.theta, learner.first, learner.second)
        )
        self._how = how
        self._steps, self._first_steps = learner.counts

    def step(self, gradient: Tensor, sign: float) -> None:
        """Downhill with sign 1, uphill with -1."""
        import torch

        how = self._how
        with torch.no_grad():
            if how.max_norm > 0:  # only then is the device waited for
                length = float(gradient.double().norm())
                sign *= how.max_norm / length if how.max_norm < length else 1.0
            gradient = sign * gradient
            self._steps, self._first_steps = self._steps + 1, self._first_steps + 1
            self._first.mul_(how.decay).add_(gradient, alpha=1 - how.decay)
            self._second.mul_(how.square_decay).addcmul_(gradient, gradient, value=1 - how.square_decay)
            deviation = (self._second / (1 - how.square_decay**self._steps)).sqrt_().add_(how.epsilon)
            self.theta = self.theta.addcdiv(
                self._first, deviation, value=-how.rate / (1 - how.decay**self._first_steps)
            )

    def learner(self) -> Learner:
        def taken(vector: Any) -> Floats:
            array: Floats = vector.cpu().numpy().copy()
            return array

        return Learner(taken(self.theta), taken(self._first), taken(self._second), self._steps, self._first_steps)
