"""How functions are compiled here: without the GIL, and kept on disk.

numba notices when the file of a cached function changes, not when a function it calls does. So the cache lies in a
folder named after the content of every file that holds compiled code: whatever changes, nothing stale is ever loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

# Where colorama happens to be installed, numba would end every command on a terminal with a control code.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
import numba as untyped_numba

numba: Any = untyped_numba  # its decorators and settings have no types to rely on
P = ParamSpec("P")
R = TypeVar("R")

# Never full fastmath: it would let the compiler assume that nothing is NaN, and isnan(nan) would be False.
_REORDERED = {"reassoc", "contract", "arcp", "nsz"}
_MADV_DONTNEED = 4
_FAST: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": _REORDERED}


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Every floating-point operation exactly as written, whoever calls it.

    numba hands a caller's options down to what it compiles for it; said here, `fastmath` is not among them.
    """
    exact: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False}
    with _cache_folder():
        return cast(Callable[P, R], numba.njit(cache=True, **exact)(function))


def fast_jit(function: Callable[P, R]) -> Callable[P, R]:
    """Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning."""
    with _cache_folder():
        return cast(Callable[P, R], numba.njit(cache=True, **_FAST)(function))


def inner_jit(function: Callable[P, R]) -> Callable[P, R]:
    """As `fast_jit`, for compiled callers alone, and never allocating: it compiles in half the time."""
    bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    with _cache_folder():
        return cast(Callable[P, R], numba.njit(cache=True, **bare, **_FAST)(function))


def first_class(signature: Any, function: Callable[P, R]) -> Callable[P, R]:
    """Compiled for one signature, at once, and can be handed to compiled code; called from Python, it is Python."""
    with _cache_folder():
        return cast(Callable[P, R], numba.cfunc(signature, nopython=True, cache=True, error_model="numpy")(function))


@cache
def cache_folder() -> Path:
    """In NUMBA_CACHE_DIR or the user's cache folder, one folder per state of the compiled code."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "afedpg" / _fingerprint()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    # what lies in a cache is code: never a shared place, where anybody could have put it
    return folder if writable else Path(tempfile.mkdtemp(prefix="afedpg-"))


def _fingerprint() -> str:
    """Of every file with compiled code."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    folders = ("agent", "policy", "sampling", "server")
    for path in [Path(__file__), *(path for folder in folders for path in sorted((here / folder).rglob("*.py")))]:
        source = path.read_bytes()
        if any(mark in source for mark in (b"jit\n", b"first_class", b"intrinsic(", b"ExternalFunction", b"@task.")):
            digest.update(path.name.encode() + source)
    return digest.hexdigest()[:16]


@contextmanager
def _cache_folder() -> Any:
    """numba asks where to cache when a function is decorated; other people's functions keep their own place."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(cache_folder())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def release_compiler() -> None:
    """Takes LLVM's code out of this process's resident memory, for a server that has all it needs compiled.

    To load one compiled function touches some 50 MB of it. These pages are as the file has them (other parts of the
    library are written to, and stay), so Linux reads them again wherever the compiler is needed once more.
    """
    if sys.platform != "linux":
        return
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access, *_, name = line.split(maxsplit=5)
        if access == "r-xp" and name.endswith("/libllvmlite.so"):
            start, end = (int(address, 16) for address in place.split("-"))
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def is_cached(function: Any) -> bool:
    """Whether an earlier process left `function` compiled."""
    name = f"*{function.py_func.__module__.rpartition('.')[2]}.{function.py_func.__name__}-*.nbi"
    return any(cache_folder().rglob(name))
