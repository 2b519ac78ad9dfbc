"""tanh of a whole array, the one that samplers, acting and native kernels share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afedpg.compiled import inner_jit

# tanh x = x P(x^2)/Q(x^2), a minimax fit on [-7.9, 7.9]; beyond, tanh is 1 to float32's last bits. Relative error 3e-7.
_END = np.float32(7.90531110763549805)
_P0, _P1, _P2 = np.float32(4.89352455891786e-03), np.float32(6.37261928875436e-04), np.float32(1.48572235717979e-05)
_P3, _P4 = np.float32(5.12229709037114e-08), np.float32(-8.60467152213735e-11)
_P5, _P6 = np.float32(2.00018790482477e-13), np.float32(-2.76076847742355e-16)
_Q0, _Q1 = np.float32(4.89352518554385e-03), np.float32(2.26843463243900e-03)
_Q2, _Q3 = np.float32(1.18534705686654e-04), np.float32(1.19825839466702e-06)


@inner_jit
def tanh(values: NDArray[np.float32]) -> None:
    """In place. NaN stays NaN."""
    for i in range(values.size):
        x = values[i]
        x = _END if x > _END else x
        x = -_END if x < -_END else x
        s = x * x
        p = _P0 + s * (_P1 + s * (_P2 + s * (_P3 + s * (_P4 + s * (_P5 + s * _P6)))))
        values[i] = x * p / (_Q0 + s * (_Q1 + s * (_Q2 + s * _Q3)))
