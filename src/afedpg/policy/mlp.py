"""Policies: named tensors in one flat vector, and the log-probability that the gradient goes through.

    Gaussian       a ~ N(mean, exp(log_std)^2), in normalized actions; mean = tanh(MLP(s)), or MLP(s) where it is
                   linear; log_std is learned, one for all states
    categorical    a ~ softmax(MLP(s)); of several choices at once, each has logits of its own

The gradient sees a policy through torch (`log_prob`), the sampler through `actor`, free of torch for these two unless
observations are pictures.
A policy of one's own is any torch.nn.Module with the three methods of `OwnModule`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import Floats, Vector
from afedpg.params import Layout, Shapes, mlp_shapes, orthogonal
from afedpg.policy.acting import Actor, MlpActor
from afedpg.policy.image import Image, ImageActor

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
class Layers:
    """A network: layers of ReLU or tanh, whose weights lie [in, out], so that a layer is x W + b; pictures go through
    convolutions first.
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    activation: str = "relu"  # of all hidden layers; or "tanh"
    image: Image | None = None  # of observations that are pictures
    name: str = "layer"  # of its tensors

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the layers after the convolutions."""
        return (self.inputs if self.image is None else self.image.features, *self.hidden, self.outputs)

    @property
    def shapes(self) -> Shapes:
        convolutions = [] if self.image is None else self.image.shapes(self.name)
        return convolutions + mlp_shapes(self.name, self.widths)

    @property
    def layout(self) -> Layout:
        return Layout(tuple(self.shapes))

    def initial(self, last_gain: float, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Orthogonal layers of gain sqrt 2, but for the last one; biases 0."""
        tensors = {} if self.image is None else self.image.initial(self.name, generator)
        for index, (inputs, outputs) in enumerate(pairwise(self.widths)):
            gain = last_gain if index == len(self.hidden) else math.sqrt(2)
            tensors[f"{self.name}{index}.weight"] = gain * orthogonal(inputs, outputs, generator)
            tensors[f"{self.name}{index}.bias"] = np.zeros(outputs)
        return tensors

    def __call__(self, tensors: Tensors, x: Tensor) -> Tensor:
        """[n, inputs] -> [n, outputs]"""
        import torch

        if self.image is not None:
            x = self.image(tensors, self.name, x)
        for index in range(len(self.hidden) + 1):
            x = torch.addmm(tensors[f"{self.name}{index}.bias"], x, tensors[f"{self.name}{index}.weight"])
            if index < len(self.hidden):
                x = torch.tanh(x) if self.activation == "tanh" else torch.relu(x)
        return x


@dataclass(frozen=True)
class MlpPolicy:
    """The policies that ship: a network whose outputs are a Gaussian's mean or the logits of categoricals.

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
    image: Image | None = None  # of observations that are pictures

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the layers, after the convolutions."""
        return self._layers.widths

    @property
    def layers(self) -> int:
        return len(self.hidden) + 1

    @property
    def _layers(self) -> Layers:
        return Layers(self.observations, self.hidden, self.actions, self.activation, self.image)

    @property
    def _values(self) -> Layers:
        assert self.value_hidden is not None
        return Layers(self.observations, self.value_hidden, 1, self.activation, self.image, "value")

    @property
    def layout(self) -> Layout:
        shapes = self._layers.shapes
        shapes += [("log_std", (self.actions,))] if self.gaussian else []
        shapes += self._values.shapes if self.value_hidden is not None else []
        return Layout(tuple(shapes))

    def initial_theta(self, generator: np.random.Generator) -> Vector:
        """Orthogonal layers of gain sqrt 2; the last one 0.01, so that all actions begin equally likely; values 1."""
        tensors = self._layers.initial(0.01, generator)
        tensors["log_std"] = np.full(self.actions, self.log_std)
        if self.value_hidden is not None:
            tensors |= self._values.initial(1.0, generator)
        theta: Vector = self.layout.flatten(tensors, np.float64)
        return theta

    def log_prob(self, tensors: Tensors, observations: Tensor, actions: Tensor) -> Tensor:
        import torch

        output = self._layers(tensors, observations)
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
        logs = [torch.log_softmax(part, 1) for part in self._split(self._layers(tensors, observations))]
        return sum_of(-(log_p.exp() * log_p).sum(1) for log_p in logs)

    def fisher(self, tensors: Tensors, observations: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """What the distributions are made of [T, n], and u -> F_s u, the Fisher information of one action by these."""
        import torch

        output = self._layers(tensors, observations)
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
        return self._values(tensors, observations)[:, 0]

    def _split(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """By choices: [T, actions] -> [T, n] each."""
        import torch

        return torch.split(outputs, list(self.choices or (self.actions,)), 1)

    def actor(self, theta: Floats) -> Actor:
        network = (self.sizes, self.gaussian, self.activation, self.mean, self.choices)
        return MlpActor(theta, *network) if self.image is None else ImageActor(self.image, theta, *network)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "mlp", "observations": self.observations, "actions": self.actions, "gaussian": self.gaussian,
            "hidden": list(self.hidden), "value_hidden": None if self.value_hidden is None else list(self.value_hidden),
            "activation": self.activation, "mean": self.mean,
        }  # fmt: skip


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    return reduce(operator.add, parts)


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


def joined(parts: Sequence[Tensor | None], tensors: dict[str, Tensor]) -> Tensor:
    """A derivative by each tensor, as theta's vector; zero where there is none."""
    import torch

    return torch.cat([
        (torch.zeros_like(tensor) if part is None else part).reshape(-1)
        for tensor, part in zip(tensors.values(), parts, strict=True)
    ])  # fmt: skip


def gradient_of(objective: Tensor, tensors: dict[str, Tensor]) -> Tensor:
    import torch

    return joined(torch.autograd.grad(objective, list(tensors.values()), allow_unused=True), tensors)
