"""Policies: named tensors in one flat vector, and the log-probability that the gradient goes through.

    Gaussian       a ~ N(mean, exp(log_std)^2), in normalized actions; mean = tanh(MLP(s)), or MLP(s) where it is
                   linear; log_std is learned, one for all states
    categorical    a ~ softmax(MLP(s)); of several choices at once, each has logits of its own

The gradient sees a policy through torch (`log_prob`), the sampler through `actor`, free of torch for these two.
A policy of one's own is any torch.nn.Module with the three methods of `OwnModule`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import Floats, Vector
from afedpg.params import Layout, mlp_shapes
from afedpg.policy.acting import Actor, MlpActor

if TYPE_CHECKING:  # torch is imported where something is computed with it: native kernels do without
    import torch
    from torch import Tensor

Tensors: TypeAlias = "Mapping[str, Tensor]"
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Policy(Protocol):
    """What the agent needs of a policy. `theta` is one flat vector laid out as `layout` says."""

    @property
    def layout(self) -> Layout: ...

    def initial_theta(self, generator: np.random.Generator) -> Vector: ...

    def log_prob(self, tensors: Tensors, observations: Tensor, actions: Tensor) -> Tensor:
        """[T, obs], [T, act], [T] or [T, choices] -> [T], differentiable with respect to `tensors`."""

    def actor(self, theta: Floats) -> Actor:
        """The policy as the sampler uses it, for a theta that does not change meanwhile."""

    def describe(self) -> dict[str, Any]:
        """Plain data for a policy file."""


@dataclass(frozen=True)
class MlpPolicy:
    """Layers of ReLU or tanh; weights lie [in, out], so that a layer is x W + b.

    With `value_hidden` the vector goes on with a value network's layers after the policy's: what a3c shares.
    """

    observations: int
    actions: int  # dimensions of a continuous action, or number of discrete ones, of all choices together
    gaussian: bool
    hidden: tuple[int, ...]
    log_std: float = 0.0
    value_hidden: tuple[int, ...] | None = None
    activation: str = "relu"  # of all hidden layers; or "tanh"
    mean: str = "tanh"  # of the Gaussian; or "linear", which is unbounded until an action is clipped
    choices: tuple[int, ...] = ()  # of several discrete actions at once: how many each has, `actions` together

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.observations, *self.hidden, self.actions)

    @property
    def layers(self) -> int:
        return len(self.hidden) + 1

    @property
    def layout(self) -> Layout:
        shapes = mlp_shapes("layer", self.sizes)
        shapes += [("log_std", (self.actions,))] if self.gaussian else []
        if self.value_hidden is not None:
            shapes += mlp_shapes("value", (self.observations, *self.value_hidden, 1))
        return Layout(tuple(shapes))

    def initial_theta(self, generator: np.random.Generator) -> Vector:
        """Orthogonal layers of gain sqrt 2; the last one 0.01, so that all actions begin equally likely; values 1."""
        tensors = initial_mlp("layer", self.sizes, 0.01, generator)
        tensors["log_std"] = np.full(self.actions, self.log_std)
        if self.value_hidden is not None:
            tensors |= initial_mlp("value", (self.observations, *self.value_hidden, 1), 1.0, generator)
        theta: Vector = self.layout.flatten(tensors, np.float64)
        return theta

    def log_prob(self, tensors: Tensors, observations: Tensor, actions: Tensor) -> Tensor:
        import torch

        output = self._outputs(tensors, observations)
        if not self.gaussian:
            chosen = actions.reshape(len(actions), -1, 1)
            logits = enumerate(self._split(output))
            return sum_of(torch.log_softmax(part, 1).gather(1, chosen[:, i])[:, 0] for i, part in logits)
        log_std = tensors["log_std"]
        mean = torch.tanh(output) if self.mean == "tanh" else output
        z = (actions - mean) * torch.exp(-log_std)
        return -0.5 * (z * z).sum(1) - log_std.sum() - self.actions * HALF_LOG_TWO_PI

    def entropy(self, tensors: Tensors, observations: Tensor) -> Tensor:
        """[T, obs] -> [T]"""
        import torch

        if self.gaussian:  # the same in every state
            entropy = tensors["log_std"].sum() + self.actions * (HALF_LOG_TWO_PI + 0.5)
            return entropy.expand(len(observations))
        logs = [torch.log_softmax(part, 1) for part in self._split(self._outputs(tensors, observations))]
        return sum_of(-(log_p.exp() * log_p).sum(1) for log_p in logs)

    def fisher(self, tensors: Tensors, observations: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """What the distributions are made of [T, n], and u -> F_s u, the Fisher information of one action by these."""
        import torch

        output = self._outputs(tensors, observations)
        if not self.gaussian:
            shares = [torch.softmax(part, 1) for part in self._split(output.detach())]

            def covariance(u: Tensor) -> Tensor:
                pairs = zip(shares, self._split(u), strict=True)
                return torch.cat([p * (v - (p * v).sum(1, keepdim=True)) for p, v in pairs], 1)

            return output, covariance
        mean = torch.tanh(output) if self.mean == "tanh" else output
        log_std = tensors["log_std"].expand_as(mean)
        precision = torch.exp(-2 * log_std.detach())
        metric = torch.cat([precision, torch.full_like(precision, 2.0)], 1)
        return torch.cat([mean, log_std], 1), lambda u: metric * u

    def values(self, tensors: Tensors, observations: Tensor) -> Tensor:
        """a3c's shared value estimate: [T, obs] -> [T]"""
        assert self.value_hidden is not None
        return mlp(tensors, "value", len(self.value_hidden) + 1, observations, self.activation)[:, 0]

    def _split(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """By choices: [T, actions] -> [T, n] each."""
        import torch

        return torch.split(outputs, list(self.choices or (self.actions,)), 1)

    def _outputs(self, tensors: Tensors, observations: Tensor) -> Tensor:
        return mlp(tensors, "layer", self.layers, observations, self.activation)

    def actor(self, theta: Floats) -> Actor:
        return MlpActor(theta, self.sizes, self.gaussian, self.activation, self.mean, self.choices)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "mlp", "observations": self.observations, "actions": self.actions, "gaussian": self.gaussian,
            "hidden": list(self.hidden), "value_hidden": None if self.value_hidden is None else list(self.value_hidden),
            "activation": self.activation, "mean": self.mean,
        }  # fmt: skip


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    return reduce(operator.add, parts)


def initial_mlp(
    name: str, widths: tuple[int, ...], last_gain: float, generator: np.random.Generator
) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {}
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        gain = last_gain if index == len(widths) - 2 else math.sqrt(2)
        tensors[f"{name}{index}.weight"] = gain * orthogonal(inputs, outputs, generator)
        tensors[f"{name}{index}.bias"] = np.zeros(outputs)
    return tensors


def orthogonal(rows: int, columns: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Uniformly random with orthonormal rows or columns, whichever are fewer."""
    tall = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # without it QR's sign convention would make the draw non-uniform
    return np.ascontiguousarray(q if rows >= columns else q.T)


def mlp(tensors: Tensors, name: str, layers: int, x: Tensor, activation: str = "relu") -> Tensor:
    import torch

    for index in range(layers):
        x = torch.addmm(tensors[f"{name}{index}.bias"], x, tensors[f"{name}{index}.weight"])
        if index < layers - 1:
            x = torch.tanh(x) if activation == "tanh" else torch.relu(x)
    return x


def leaves(layout: Layout, flat: Tensor) -> dict[str, Tensor]:
    """The vector's tensors as views, each a leaf of its own: gradients then cost no scatter into the whole vector."""
    tensors, start = {}, 0
    for name, shape in layout.shapes:
        size = math.prod(shape)
        tensors[name] = flat[start : start + size].view(shape).requires_grad_()
        start += size
    return tensors


def to_torch(array: NDArray[Any], dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """A copy in torch's own memory: the alignment of a caller's array could change last bits of a product."""
    import torch

    copy = torch.empty(array.shape, dtype=dtype)
    copy.numpy()[...] = array
    return copy.to(device)
