"""The same policies and objectives in torch's float64, written as in a textbook and differentiated by autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from afedpg.agent.compute.kernels import CriticKernels, PolicyKernels


@dataclass(frozen=True)
class Net:
    """x W + b with activations between the layers; a Gaussian's log_std behind the last bias."""

    sizes: tuple[int, ...]
    tanh_layers: bool
    gaussian: bool = False
    squashed: bool = False

    def policy(self, chunk: int) -> PolicyKernels:
        return PolicyKernels(self.sizes, self.gaussian, self.tanh_layers, self.squashed, chunk)

    def critic(self, chunk: int) -> CriticKernels:
        return CriticKernels(self.sizes[:-1], self.tanh_layers, chunk)

    @property
    def parameters(self) -> int:
        layers = sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes))
        return layers + (self.sizes[-1] if self.gaussian else 0)

    def layers(self, theta: Tensor, x: Tensor) -> list[Tensor]:
        """Every layer's output before its activation."""
        found, at = [], 0
        for inputs, outputs in pairwise(self.sizes):
            if found:
                x = torch.tanh(found[-1]) if self.tanh_layers else torch.relu(found[-1])
            weight = theta[at : at + inputs * outputs].view(inputs, outputs)
            at += inputs * outputs
            found.append(x @ weight + theta[at : at + outputs])
            at += outputs
        return found

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        return self.layers(theta, x)[-1]

    def distribution(self, theta: Tensor, x: Tensor) -> torch.distributions.Distribution:
        outputs = self.outputs(theta, x)
        if not self.gaussian:
            return torch.distributions.Categorical(logits=outputs)
        mean = torch.tanh(outputs) if self.squashed else outputs
        log_std = theta[self.parameters - self.sizes[-1] :]
        normal = torch.distributions.Normal(mean, torch.exp(log_std).expand_as(mean))
        return torch.distributions.Independent(normal, 1)

    def log_prob(self, theta: Tensor, x: Tensor, actions: Tensor) -> Tensor:
        found: Tensor = self.distribution(theta, x).log_prob(actions)  # type: ignore[no-untyped-call]
        return found

    def entropy(self, theta: Tensor, x: Tensor) -> Tensor:
        found: Tensor = self.distribution(theta, x).entropy()  # type: ignore[no-untyped-call]
        return found

    def divergence(self, theta_before: Tensor, theta: Tensor, x: Tensor) -> Tensor:
        """Mean of KL(before || now)."""
        kl: Tensor = torch.distributions.kl_divergence(self.distribution(theta_before, x), self.distribution(theta, x))
        return kl.mean()

    def clipped(
        self, theta: Tensor, x: Tensor, actions: Tensor, advantages: Tensor, log_prob: Tensor, clip: float
    ) -> Tensor:
        ratio = torch.exp(self.log_prob(theta, x, actions) - log_prob)
        return torch.min(ratio * advantages, torch.clamp(ratio, 1 - clip, 1 + clip) * advantages).mean()


def exact(array: NDArray[Any]) -> Tensor:
    """float64, or indices as they are."""
    return torch.from_numpy(np.array(array, np.int64 if np.issubdtype(array.dtype, np.integer) else np.float64))


def gradient(objective: Callable[[Tensor], Tensor], theta: NDArray[Any]) -> NDArray[np.float64]:
    leaf = exact(theta).requires_grad_()
    found: NDArray[np.float64] = torch.autograd.grad(objective(leaf), leaf)[0].numpy()
    return found


def fisher_product(net: Net, theta: NDArray[Any], x: Tensor, vector: NDArray[Any]) -> NDArray[np.float64]:
    """The second derivative of the mean KL divergence at its minimum, along `vector`."""
    leaf = exact(theta).requires_grad_()
    slope = torch.autograd.grad(net.divergence(leaf.detach(), leaf, x), leaf, create_graph=True)[0]
    found: NDArray[np.float64] = torch.autograd.grad(slope @ exact(vector), leaf)[0].numpy()
    return found


def random_theta(net: Net, generator: np.random.Generator) -> NDArray[np.float32]:
    """Weights as a trained network has them: outputs of order one from inputs of order one."""
    parts = []
    for inputs, outputs in pairwise(net.sizes):
        parts += [generator.normal(0, 1 / math.sqrt(inputs), inputs * outputs), generator.normal(0, 0.3, outputs)]
    if net.gaussian:
        parts.append(generator.normal(-0.5, 0.3, net.sizes[-1]))
    return np.concatenate(parts).astype(np.float32)
