"""How functions are compiled here: without the GIL, and kept on disk.

numba notices when the file of a cached function changes, not when a function it calls does. So the cache lies in a
folder named after the content of every file that holds compiled code: whatever changes, nothing stale is ever loaded.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba as untyped_numba

numba: Any = untyped_numba  # its decorators and settings have no types to rely on
P = ParamSpec("P")
R = TypeVar("R")

# Never full fastmath: it would let the compiler assume that nothing is NaN, and isnan(nan) would be False.
_REORDERED = {"reassoc", "contract", "arcp", "nsz"}


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Every floating-point operation exactly as written."""
    with _cache_folder():
        return cast(Callable[P, R], numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def fast_jit(function: Callable[P, R]) -> Callable[P, R]:
    """Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _REORDERED}
    with _cache_folder():
        return cast(Callable[P, R], numba.njit(cache=True, **options)(function))


def first_class(signature: Any, function: Callable[P, R]) -> Callable[P, R]:
    """Compiled for one signature, at once, and can be handed to compiled code; called from Python, it is Python."""
    with _cache_folder():
        return cast(Callable[P, R], numba.cfunc(signature, nopython=True, cache=True, error_model="numpy")(function))


@cache
def cache_folder() -> Path:
    """NUMBA_CACHE_DIR or the user's cache folder, and in it one folder per state of the compiled code."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *here.glob("tasks/*.py")]):
        source = path.read_bytes()
        if b"compiling import" in source or b"forward import" in source or path.parent.name == "tasks":
            digest.update(path.name.encode() + source)
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for folder in (Path(base), Path(tempfile.gettempdir()) / f"cache-{os.getuid() if hasattr(os, 'getuid') else 0}"):
        mine = folder / "afedpg" / digest.hexdigest()[:16]
        try:
            mine.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(mine, os.W_OK):
            return mine
    return Path(tempfile.mkdtemp(prefix="afedpg-"))


@contextmanager
def _cache_folder() -> Any:
    """numba asks where to cache when a function is decorated; other people's functions keep their own place."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def is_cached(function: Any) -> bool:
    """Whether an earlier process left `function` compiled."""
    name = f"*{function.py_func.__module__.rpartition('.')[2]}.{function.py_func.__name__}-*.nbi"
    return any(cache_folder().rglob(name))
