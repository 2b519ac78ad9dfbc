"""The operations of `afedpg bench compute` as everybody writes them: eager torch, its modules and its Adam."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from afedpg.agent.compute.objectives import Clipped
from afedpg.policy.mlp import HALF_LOG_TWO_PI


class TorchSide:
    """A Gaussian policy with a linear mean and a value network, tanh between the layers."""

    def __init__(
        self, sizes: Sequence[int], theta: NDArray[Any], values: NDArray[Any], observations: NDArray[Any],
        actions: NDArray[Any], given: Clipped, targets: NDArray[Any], minibatches: NDArray[np.int64],
    ) -> None:  # fmt: skip
        self._mean, self._critic = network_of(sizes, theta), network_of((*sizes[:-1], 1), values)
        self._log_std = torch.nn.Parameter(torch.tensor(theta[-sizes[-1] :]))
        self._policy = [*self._mean.parameters(), self._log_std]
        self._observations, self._actions = torch.tensor(observations), torch.tensor(actions)
        self._advantages, self._before, self._targets = (
            torch.tensor(row, dtype=torch.float32) for row in (given.advantages, given.log_prob, targets)
        )
        self._clip, self._minibatches = given.clip, torch.tensor(minibatches)
        # fused: the fastest of its three implementations for one thread
        self._adams = (
            torch.optim.Adam(self._policy, 3e-4, fused=True),
            torch.optim.Adam(self._critic.parameters(), 1e-3, fused=True),
        )

    def minibatches(self) -> None:
        for rows in self._minibatches:
            observations, advantages = self._observations[rows], self._advantages[rows]
            ratio = torch.exp(self._log_prob(observations, self._actions[rows]) - self._before[rows])
            clipped = torch.clamp(ratio, 1 - self._clip, 1 + self._clip)
            loss = -torch.min(ratio * advantages, clipped * advantages).mean()
            error = torch.nn.functional.mse_loss(self._critic(observations)[:, 0], self._targets[rows])
            for adam, objective in zip(self._adams, (loss, error), strict=True):
                adam.zero_grad()
                objective.backward()  # type: ignore[no-untyped-call]
                adam.step()

    def score_gradient(self) -> Tensor:
        objective = (self._log_prob(self._observations, self._actions) * self._advantages).sum()
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(objective, self._policy)])

    def fisher_product(self) -> Tensor:
        """The second derivative of the mean KL divergence from the policy to itself, by differentiating twice."""
        mean = self._mean(self._observations)
        fixed, log_std = mean.detach(), self._log_std.detach()
        spread = torch.exp(2 * log_std) + (fixed - mean) ** 2
        kl = (self._log_std - log_std + spread / (2 * torch.exp(2 * self._log_std))).sum(1).mean()
        slopes = torch.autograd.grad(kl, self._policy, create_graph=True)
        along = sum((slope * part.detach()).sum() for slope, part in zip(slopes, self._policy, strict=True))
        assert isinstance(along, Tensor)
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(along, self._policy)])

    @torch.no_grad()
    def log_prob(self) -> Tensor:
        return self._log_prob(self._observations, self._actions)

    @torch.no_grad()
    def values(self) -> Tensor:
        found: Tensor = self._critic(self._observations)[:, 0]
        return found

    def _log_prob(self, observations: Tensor, actions: Tensor) -> Tensor:
        z: Tensor = (actions - self._mean(observations)) * torch.exp(-self._log_std)
        return -0.5 * (z * z).sum(1) - self._log_std.sum() - actions.shape[1] * HALF_LOG_TWO_PI


def network_of(
    sizes: Sequence[int], theta: NDArray[Any], between: type[torch.nn.Module] = torch.nn.Tanh
) -> torch.nn.Sequential:
    """The layers that theta begins with."""
    modules: list[torch.nn.Module] = []
    at = 0
    for inputs, outputs in pairwise(sizes):
        linear = torch.nn.Linear(inputs, outputs)
        weight, bias = np.split(theta[at : at + (inputs + 1) * outputs].copy(), [inputs * outputs])
        linear.weight.data = torch.from_numpy(weight.reshape(inputs, outputs).T.copy())
        linear.bias.data = torch.from_numpy(bias)
        modules += [linear, between()]
        at += (inputs + 1) * outputs
    return torch.nn.Sequential(*modules[:-1])
