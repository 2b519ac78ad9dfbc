"""The two ways a loop is compiled here, with types that survive the decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")

# Never full fastmath: it would let the compiler assume that nothing is NaN, and isnan(nan) would be False.
_REORDERED = {"reassoc", "contract", "arcp", "nsz"}


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Compiled without the GIL, cached on disk, every floating-point operation exactly as written."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def fast_jit(function: Callable[P, R]) -> Callable[P, R]:
    """As `jit`, but sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=_REORDERED)(function))
