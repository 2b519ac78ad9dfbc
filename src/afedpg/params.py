"""A flat vector and the named tensors in it. The server sees the vector, policies and critics the tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """Names and shapes in the order they lie in the vector."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for _, shape in self.shapes)

    def views(self, flat: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The tensors as views into `flat`: writing to one writes to the vector."""
        tensors, start = {}, 0
        for name, shape in self.shapes:
            stop = start + math.prod(shape)
            tensors[name] = flat[start:stop].reshape(shape)
            start = stop
        if start != flat.size:
            raise ValueError(f"a vector of {flat.size} numbers does not hold the {start} of this layout")
        return tensors

    def flatten(self, tensors: Mapping[str, NDArray[Any]], dtype: Any = np.float32) -> NDArray[Any]:
        for name, shape in self.shapes:  # numpy would stretch a tensor that is too small
            if tensors[name].shape != shape:
                raise ValueError(f"{name} has shape {tensors[name].shape}, not {shape}")
        flat = np.empty(self.size, dtype)
        for name, view in self.views(flat).items():
            view[...] = tensors[name]
        return flat


Shapes = list[tuple[str, tuple[int, ...]]]


def mlp_shapes(name: str, widths: tuple[int, ...]) -> Shapes:
    shapes: Shapes = []
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        shapes += [(f"{name}{index}.weight", (inputs, outputs)), (f"{name}{index}.bias", (outputs,))]
    return shapes


def orthogonal(rows: int, columns: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Uniformly random with orthonormal rows or columns, whichever are fewer."""
    tall = generator.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # without it QR's sign convention would make the draw non-uniform
    return np.ascontiguousarray(q if rows >= columns else q.T)
