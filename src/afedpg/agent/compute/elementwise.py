"""What happens to every number alike: activations, their slopes, Adam. Loops that the compiler turns into vectors."""

from __future__ import annotations

import numpy as np

from afedpg.agent.compute.products import Flat
from afedpg.compiled import inner_jit

_0, _1 = np.float32(0), np.float32(1)


@inner_jit
def relu(values: Flat) -> None:
    """In place. NaN stays NaN."""
    for i in range(values.size):
        x = values[i]
        values[i] = _0 if x <= _0 else x


@inner_jit
def times_tanh_slope(delta: Flat, outputs: Flat) -> None:
    """delta tanh'(x), from the outputs tanh(x)."""
    for i in range(delta.size):
        delta[i] *= _1 - outputs[i] * outputs[i]


@inner_jit
def times_relu_slope(delta: Flat, outputs: Flat) -> None:
    for i in range(delta.size):
        delta[i] = _0 if outputs[i] <= _0 else delta[i]


@inner_jit
def norm(vector: Flat) -> float:
    """In float64, as squares of large gradients leave float32."""
    total = 0.0
    for i in range(vector.size):
        value = np.float64(vector[i])
        total += value * value
    return float(np.sqrt(total))


@inner_jit
def adam(
    theta: Flat, gradient: Flat, first: Flat, second: Flat, steps: int, first_steps: int, factor: float, rate: float,
    decay: float, square_decay: float, epsilon: float,
) -> None:  # fmt: skip
    """A step downhill along factor * gradient; `first` and `second` are the moments, and the two counts how many steps
    each is made of, this one included.
    """
    d, e, scale = np.float32(decay), np.float32(square_decay), np.float32(factor)
    new, new_square, small = np.float32(1 - decay), np.float32(1 - square_decay), np.float32(epsilon)
    size = np.float32(rate / (1 - decay**first_steps))
    stretch = np.float32(1 / np.sqrt(1 - square_decay**steps))
    for i in range(theta.size):
        g = scale * gradient[i]
        first[i] = d * first[i] + new * g
        second[i] = e * second[i] + new_square * (g * g)
        theta[i] -= size * first[i] / (np.sqrt(second[i]) * stretch + small)
