"""The clipped objective's local epochs in torch: for policies of one's own, for the GPU, and to test native code by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.compute.kernels import Learner
from afedpg.agent.compute.local_steps import STATISTICS, Adam
from afedpg.agent.compute.objectives import Clipped as Objective
from afedpg.agent.estimators.advantage import Row
from afedpg.agent.estimators.estimator import Tools
from afedpg.messages import Floats
from afedpg.policy.mlp import leaves, to_torch
from afedpg.sampling.rollout import Rollout

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PICTURES = 64  # that go through the convolutions together: the planes of more leave the processor's cache


def values_in_torch(tools: Tools, value: Floats, observations: Floats) -> Row:
    import torch

    device, network = tools.settings.device, tools.critic_network
    count = PICTURES if tools.image is not None else max(1, len(observations))
    with torch.no_grad():
        tensors = leaves(network.layout, to_torch(value, torch.float32, device))
        blocks = (observations[at : at + count] for at in range(0, len(observations), count))
        found = [network(tensors, to_torch(block, torch.float32, device))[:, 0].cpu().numpy() for block in blocks]
    return np.concatenate([np.empty(0), *found])


def optimize_in_torch(
    tools: Tools,
    learners: tuple[Learner, Learner],
    rates: tuple[Adam, Adam],
    rollout: Rollout,
    given: Objective,
    targets: Row,
    passes: NDArray[np.int64],
    minibatch: int,
    max_kl: float,
) -> tuple[Learner, Learner, dict[str, float]]:
    """As `kernels.optimize`: policy and critic after all passes, and means over the minibatches."""
    import torch

    device, dtype = tools.settings.device, torch.float32
    policy, critic = (_Moving(learner, how, device) for learner, how in zip(learners, rates, strict=True))
    network = tools.critic_network
    kind = dtype if tools.image is None else torch.uint8  # a window of pictures is four times as large in floats
    observations = to_torch(rollout.observations, kind, device)
    whole = np.issubdtype(rollout.actions.dtype, np.integer)
    actions = to_torch(rollout.actions, torch.int64 if whole else dtype, device)
    advantages, before, wanted = (to_torch(row, dtype, device) for row in (given.advantages, given.log_prob, targets))
    found, stopped = dict.fromkeys(STATISTICS, 0.0), False
    for order in passes:
        for begin in range(0, len(order), minibatch):
            rows = to_torch(order[begin : begin + minibatch], torch.int64, device)
            seen = observations[rows].to(dtype)
            if not stopped:
                tensors = leaves(tools.policy.layout, policy.theta)
                log_prob = tools.policy.log_prob(tensors, seen, actions[rows])
                gain, kl, outside = _clipped(log_prob - before[rows], advantages[rows], given.clip)
                found["last_kl"], stopped = kl, 0 < max_kl < kl
            if not stopped:
                if given.entropy:
                    gain = gain + given.entropy * tools.policy.entropy(tensors, seen).mean()  # type: ignore[attr-defined]
                policy.step(_gradient(gain, tensors), -1.0)
                found["kl"] += kl
                found["clipped"] += outside
                found["policy_steps"] += 1
            tensors = leaves(network.layout, critic.theta)
            error = network(tensors, seen)[:, 0] - wanted[rows]
            critic.step(_gradient((error * error).mean(), tensors), 1.0)
            found["critic_steps"] += 1
    for name in ("kl", "clipped"):
        found[name] /= max(found["policy_steps"], 1.0)
    return policy.learner(), critic.learner(), found


def _clipped(log_ratio: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, float, float]:
    """The mean of min(r A, clip(r) A), the mean of r - 1 - log r, and the share of rows outside the range."""
    import torch

    ratio = log_ratio.exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    with torch.no_grad():
        kl = float((ratio - 1 - log_ratio).mean())
        outside = float(((ratio - 1).abs() > clip).float().mean())
    return gain, kl, outside


def _gradient(objective: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    import torch

    parts = torch.autograd.grad(objective, list(tensors.values()), allow_unused=True)
    return torch.cat([
        (torch.zeros_like(tensor) if part is None else part).reshape(-1)
        for tensor, part in zip(tensors.values(), parts, strict=True)
    ])  # fmt: skip


class _Moving:
    """A flat vector and its Adam."""

    def __init__(self, learner: Learner, how: Adam, device: str) -> None:
        import torch

        self.theta, self._first, self._second = (
            to_torch(vector, torch.float32, device) for vector in (learner.theta, learner.first, learner.second)
        )
        self._how = how
        self._steps, self._first_steps = learner.counts

    def step(self, gradient: torch.Tensor, sign: float) -> None:
        """Downhill with sign 1, uphill with -1."""
        import torch

        how = self._how
        with torch.no_grad():
            length = float(gradient.double().norm())
            factor = sign * (how.max_norm / length if 0 < how.max_norm < length else 1.0)
            gradient = factor * gradient
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
