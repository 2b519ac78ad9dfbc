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
import threading
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

# Where colorama happens to be installed, numba would end every command on a terminal with a control code.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
import numba as untyped_numba
from numba.core import ccallback as untyped_ccallback
from numba.core.event import Listener

# numba learns there of which type functions are that compiled ones are given; compiling, it would load that by itself.
from numba.experimental import function_type  # noqa: F401

numba: Any = untyped_numba  # its decorators and settings have no types to rely on
ccallback: Any = untyped_ccallback
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
    return _cached(function, numba.njit(**exact)(function))


def fast_jit(function: Callable[P, R]) -> Callable[P, R]:
    """Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning."""
    return _cached(function, numba.njit(**_FAST)(function))


def inner_jit(function: Callable[P, R]) -> Callable[P, R]:
    """As `fast_jit`, for compiled callers alone, and never allocating: it compiles in half the time."""
    bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    return _cached(function, numba.njit(**bare, **_FAST)(function))


def first_class(signature: Any, function: Callable[P, R]) -> Callable[P, R]:
    """Compiled for one signature, at once, and can be handed to compiled code; called from Python, it is Python."""
    exact = {"nopython": True, "error_model": "numpy"}
    types = numba.core.sigutils.normalize_signature(signature)
    compiled: Any = _cached(function, ccallback.CFunc(function, types, locals={}, options=exact))
    compiled.compile()
    return cast(Callable[P, R], compiled)


class _Cache(numba.core.caching.FunctionCache):  # type: ignore[misc]
    """Before it looks for a function, numba loads every implementation of its own, and scipy for some of them: 0.2 s
    and 30 MB of each process. They are needed to compile; what has been compiled runs without.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        numba.core.runtime.rtsys.initialize(target_context)
        found = self._load_overload(sig, target_context)
        return super().load_overload(sig, target_context) if found is None else found


def _cached(function: Callable[P, R], compiled: Any) -> Callable[P, R]:
    """Other people's functions may call what only numba's own way of loading knows, and are loaded in that way."""
    ours = function.__module__.startswith(f"{__package__}.")
    with _cache_folder():
        compiled._cache = (_Cache if ours else numba.core.caching.FunctionCache)(function)
    return cast(Callable[P, R], compiled)


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


class _ReleaseCompiler(Listener):
    """Listens to the lock that numba holds while it compiles a function or loads a compiled one.

    A thread that holds it may take it again, and a start is told before the lock is had. So when as many have ended as
    have started, no thread is in the compiler, and none waits for it.
    """

    def __init__(self) -> None:
        self._count, self._guard = 0, threading.Lock()

    def on_start(self, event: Any) -> None:
        with self._guard:
            self._count += 1

    def on_end(self, event: Any) -> None:
        with self._guard:
            self._count -= 1
            idle = self._count == 0
        if idle:
            release_compiler()


def release_compiler_after_use() -> None:
    """From now on LLVM's code is in this process's resident memory only while something is compiled or loaded."""
    release_compiler()  # numba's import has used it
    numba.core.event.register("numba:compiler_lock", _ReleaseCompiler())


def release_compiler() -> None:
    """Takes LLVM's code out of this process's resident memory.

    To load one compiled function touches some 50 MB of it. These pages are as the file has them (other parts of the
    library are written to, and stay), so Linux reads them again wherever the compiler is needed once more.
    """
    for start, end in _compiler_code():
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


@cache
def _compiler_code() -> tuple[tuple[int, int], ...]:
    """From where to where LLVM's code lies in this process; nowhere on systems other than Linux."""
    if sys.platform != "linux":
        return ()
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access, *_, name = line.split(maxsplit=5)
        if access == "r-xp" and name.endswith("/libllvmlite.so"):
            start, end = (int(address, 16) for address in place.split("-"))
            found.append((start, end))
    return tuple(found)


@cache
def say_if_compiling(function: Any) -> None:
    """Where `function` is not on the disk yet, one line; only one in a process, however much it compiles."""
    if not is_cached(function):
        _say_compiling()


@cache
def _say_compiling() -> None:
    print("compiling native code, once on this machine (about 15 s)", file=sys.stderr, flush=True)


def is_cached(function: Any) -> bool:
    """Whether an earlier process left `function` compiled."""
    name = f"*{function.py_func.__module__.rpartition('.')[2]}.{function.py_func.__name__}-*.nbi"
    return any(cache_folder().rglob(name))
