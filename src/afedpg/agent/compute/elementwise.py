"""What happens to every number alike: activations, their slopes, Adam. Loops that the compiler turns into vectors."""

from __future__ import annotations

import numpy as np

from afedpg.agent.compute.products import Flat
from afedpg.compiled import inner_jit

_0, _1 = np.float32(0), np.float32(1)
# tanh x = x P(x^2)/Q(x^2), a minimax fit on [-7.9, 7.9]; beyond, tanh is 1 to float32's last bits. Relative error 3e-7.
_END = np.float32(7.90531110763549805)
_P0, _P1, _P2 = np.float32(4.89352455891786e-03), np.float32(6.37261928875436e-04), np.float32(1.48572235717979e-05)
_P3, _P4 = np.float32(5.12229709037114e-08), np.float32(-8.60467152213735e-11)
_P5, _P6 = np.float32(2.00018790482477e-13), np.float32(-2.76076847742355e-16)
_Q0, _Q1 = np.float32(4.89352518554385e-03), np.float32(2.26843463243900e-03)
_Q2, _Q3 = np.float32(1.18534705686654e-04), np.float32(1.19825839466702e-06)


@inner_jit
def tanh(values: Flat) -> None:
    """In place. NaN stays NaN."""
    for i in range(values.size):
        x = values[i]
        x = _END if x > _END else x
        x = -_END if x < -_END else x
        s = x * x
        p = _P0 + s * (_P1 + s * (_P2 + s * (_P3 + s * (_P4 + s * (_P5 + s * _P6)))))
        values[i] = x * p / (_Q0 + s * (_Q1 + s * (_Q2 + s * _Q3)))


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
    theta: Flat, gradient: Flat, first: Flat, second: Flat, steps: int, factor: float, rate: float,
    decay: float, square_decay: float, epsilon: float,
) -> None:  # fmt: skip
    """Step number `steps` (from 1) downhill along factor * gradient; `first` and `second` are the moments."""
    d, e, scale = np.float32(decay), np.float32(square_decay), np.float32(factor)
    new, new_square, small = np.float32(1 - decay), np.float32(1 - square_decay), np.float32(epsilon)
    size = np.float32(rate / (1 - decay**steps))
    stretch = np.float32(1 / np.sqrt(1 - square_decay**steps))
    for i in range(theta.size):
        g = scale * gradient[i]
        first[i] = d * first[i] + new * g
        second[i] = e * second[i] + new_square * (g * g)
        theta[i] -= size * first[i] / (np.sqrt(second[i]) * stretch + small)
