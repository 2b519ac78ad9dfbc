"""The clipped objective's local epochs in torch: for policies of one's own, for the GPU, and to test native code by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.compute.kernels import Learner
from afedpg.agent.compute.local_steps import STATISTICS, Adam
from afedpg.agent.compute.objectives import Clipped as Objective
from afedpg.agent.compute.torch_steps import Moving
from afedpg.agent.estimators.advantage import Row
from afedpg.agent.estimators.estimator import Tools
from afedpg.messages import Floats
from afedpg.policy.mlp import gradient_of, leaves, to_torch
from afedpg.sampling.rollout import Rollout

if TYPE_CHECKING:
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
    policy, critic = (Moving(learner, how, device) for learner, how in zip(learners, rates, strict=True))
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
                policy.step(gradient_of(gain, tensors), -1.0)
                found["kl"] += kl
                found["clipped"] += outside
                found["policy_steps"] += 1
            tensors = leaves(network.layout, critic.theta)
            error = network(tensors, seen)[:, 0] - wanted[rows]
            critic.step(gradient_of((error * error).mean(), tensors), 1.0)
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
