"""One run seed gives a stream per purpose and agent; a stream is an array, so it can be stored and moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Purpose = Literal[
    "theta", "agent", "environment", "timing", "evaluation", "baseline", "verdict", "attack", "second look"
]
_PURPOSES: dict[Purpose, int] = {
    "theta": 0, "agent": 1, "environment": 2, "timing": 3, "evaluation": 4, "baseline": 5, "verdict": 6,
    "attack": 7, "second look": 8,
}  # fmt: skip
_WORD = (1 << 64) - 1


def stream(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """The same arguments give the same stream, others an independent one; `key` is an agent, or agent and count."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_PURPOSES[purpose], *key))))


def freeze(generator: np.random.Generator) -> NDArray[np.uint64]:
    """A PCG64 generator as six words."""
    state: Mapping[str, Any] = generator.bit_generator.state
    number, increment = state["state"]["state"], state["state"]["inc"]
    return np.array(
        [number & _WORD, number >> 64, increment & _WORD, increment >> 64, state["has_uint32"], state["uinteger"]],
        dtype=np.uint64,
    )


def branch(words: NDArray[np.uint64], life: int) -> NDArray[np.uint64]:
    """Another stream for every place in a stream and every `life`, independent of it and of each other."""
    seed = np.random.SeedSequence([int(word) for word in words], spawn_key=(life,))
    return freeze(np.random.Generator(np.random.PCG64(seed)))


def thaw(words: NDArray[np.uint64], into: np.random.Generator | None = None) -> np.random.Generator:
    """The generator those six words describe; `into` is overwritten instead of making a new one."""
    low, high, increment_low, increment_high, has_uint32, uinteger = (int(word) for word in words)
    generator = np.random.Generator(np.random.PCG64(0)) if into is None else into
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": low | high << 64, "inc": increment_low | increment_high << 64},
        "has_uint32": has_uint32,
        "uinteger": uinteger,
    }
    return generator
