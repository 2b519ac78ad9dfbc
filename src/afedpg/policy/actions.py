"""What a policy of one's own must return for an action: numpy would spread or cut another shape without a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Wanted:
    """One action as `sample` and `mode` return it, for one observation with a first axis of 1."""

    space: Space[Any]
    shape: tuple[int, ...]
    choices: NDArray[np.int64] | None  # how many there are of each; None for a Box

    def fits(self, found: Any) -> bool:
        if not isinstance(found, Tensor) or not _plain(found):
            return False
        if found.shape != (1, *self.shape) or found.is_complex():
            return False
        if found.is_floating_point() != (self.choices is None):  # 0.9 would be index 0
            return False
        row = self.row(found)
        return bool(np.isfinite(row).all() if self.choices is None else ((row >= 0) & (row < self.choices)).all())

    def row(self, found: Tensor) -> NDArray[Any]:
        """In the type that is kept; numpy has none of some of torch's, such as bfloat16."""
        kept = found[0].detach().to(torch.float32 if self.choices is None else torch.int64)
        return np.array(kept.numpy())  # a copy, as the module may write to its own

    def __str__(self) -> str:
        if self.choices is None:
            return f"finite real numbers, [n, {self.shape[0]}], for {self.space}"
        axes = f"[n, {self.shape[0]}]" if self.shape else "[n]"
        return f"whole numbers, {axes}, that are indices from 0, for {self.space}"


def wanted_of(space: Space[Any]) -> Wanted:
    if isinstance(space, spaces.Discrete):
        return Wanted(space, (), np.array(space.n, np.int64))
    size = int(np.prod(space.shape or ()))
    if isinstance(space, spaces.Box):
        return Wanted(space, (size,), None)
    nvec = space.nvec.reshape(-1) if isinstance(space, spaces.MultiDiscrete) else np.full(size, 2)
    return Wanted(space, (size,), nvec.astype(np.int64))


def _plain(found: Tensor) -> bool:
    """numpy can have its numbers."""
    odd = found.is_nested or found.is_quantized
    return not odd and found.layout == torch.strided and found.device.type == "cpu"


def told(found: Any) -> str:
    """What came, in a few words."""
    if not isinstance(found, Tensor):
        return f"a {type(found).__name__}"
    kind = str(found.dtype).removeprefix("torch.")
    if not _plain(found):
        return f"a {kind} tensor that is not a dense one on the CPU"
    return f"{kind} {found.tolist()}" if found.numel() <= 4 else f"{kind} of shape {list(found.shape)}"
