"""Pictures as observations: the convolutions that come before an MLP's layers, computed by torch.

x [n, size] bytes, flat -> planes [n, channels, height, width] from 0 to 1 -> convolutions, ReLU -> [n, features]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.params import Layout, Shapes, orthogonal
from afedpg.policy.acting import MlpActor

if TYPE_CHECKING:
    from torch import Tensor

    from afedpg.messages import Floats


class Convolution(NamedTuple):
    channels: int
    kernel: int  # its width and height
    stride: int
    padding: int = 0


SMALLEST = 36  # pixels of the shorter side that LARGE needs
LARGE = (Convolution(32, 8, 4), Convolution(64, 4, 2), Convolution(64, 3, 1))  # Mnih et al., 2015
SMALL = (Convolution(16, 3, 1, 1), Convolution(32, 3, 2, 1), Convolution(32, 3, 2, 1))


@dataclass(frozen=True)
class Image:
    """A picture H x W, H x W x C or C x H x W, or a stack of several, whose channels then are planes side by side.

    The channels are where height and width are equal without them, otherwise where there are fewer.
    """

    shape: tuple[int, ...]  # as the observation space has it
    brightest: float = 255.0

    @cached_property
    def _picture(self) -> tuple[tuple[int, ...], bool]:
        """One picture's shape, and whether its channels come first."""
        if len(self.shape) == 2:
            return (1, *self.shape), True
        a, b, c = self.shape[-3:]
        return (a, b, c), b == c or (a != b and a < c)

    @cached_property
    def planes(self) -> tuple[int, int, int]:
        """Channels of all pictures, height and width."""
        (a, b, c), first = self._picture
        channels, height, width = (a, b, c) if first else (c, a, b)
        return math.prod(self.shape[:-3]) * channels, height, width

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        return LARGE if min(self.planes[1:]) >= SMALLEST else SMALL

    @cached_property
    def features(self) -> int:
        _, height, width = self.planes
        for _, kernel, stride, padding in self.convolutions:
            height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        return self.convolutions[-1].channels * height * width

    def shapes(self, name: str) -> Shapes:
        shapes: Shapes = []
        inputs = self.planes[0]
        for index, layer in enumerate(self.convolutions):
            shapes.append((f"{name}_conv{index}.weight", (layer.channels, inputs, layer.kernel, layer.kernel)))
            shapes.append((f"{name}_conv{index}.bias", (layer.channels,)))
            inputs = layer.channels
        return shapes

    def initial(self, name: str, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Orthogonal, of gain sqrt 2; biases 0."""
        return {
            key: np.zeros(shape) if len(shape) == 1
            else math.sqrt(2) * orthogonal(shape[0], math.prod(shape[1:]), generator).reshape(shape)
            for key, shape in self.shapes(name)
        }  # fmt: skip

    @property
    def steps(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """From flat rows to planes: a shape, less the rows, and the order of the axes after it, if another."""
        shape, first = self._picture
        return (shape, () if first else (0, 3, 1, 2)), (self.planes, ())

    def pictures(self, rows: Tensor) -> Tensor:
        """[n, size] as the environment gave them -> [n, channels, height, width] from 0 to 1."""
        for shape, order in self.steps:
            rows = rows.reshape(-1, *shape)
            rows = rows.permute(order) if order else rows
        return rows / self.brightest

    def __call__(self, tensors: Mapping[str, Tensor], name: str, rows: Tensor) -> Tensor:
        """The features: [n, size] -> [n, features]"""
        import torch

        x = self.pictures(rows)
        if len(rows) > 1:  # faster by a fifth: of many pictures, not of one
            x = x.contiguous(memory_format=torch.channels_last)
        for index, layer in enumerate(self.convolutions):
            weight, bias = (tensors[f"{name}_conv{index}.{part}"] for part in ("weight", "bias"))
            x = torch.relu(torch.nn.functional.conv2d(x, weight, bias, layer.stride, layer.padding))
        return x.flatten(1)


class ImageActor:
    """The features by torch, what comes after them by the compiled forward pass."""

    def __init__(self, image: Image, theta: Floats, *network: Any) -> None:
        import torch

        layout = Layout(tuple(image.shapes("layer")))
        views = layout.views(theta[: layout.size])
        self._tensors = {name: torch.tensor(view, dtype=torch.float32) for name, view in views.items()}
        self._image, self._actor = image, MlpActor(theta[layout.size :], *network)

    def sample(self, observation: Floats, generator: np.random.Generator) -> Any:
        return self._actor.sample(self._features(observation), generator)

    def mode(self, observation: Floats) -> Any:
        return self._actor.mode(self._features(observation))

    def _features(self, observation: Floats) -> Floats:
        import torch

        with torch.no_grad():
            row = torch.tensor(observation[None], dtype=torch.float32)
            features: Floats = self._image(self._tensors, "layer", row)[0].numpy()
        return features
