"""Starting processes, whatever started this one: a script with or without a `__main__` guard, stdin, a notebook cell.

Python's own way runs the main script again in every process. Here that happens only where the script's own functions
are needed, and it ends at the script's first call of `train`: what stands above is then defined.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import types
from collections.abc import Callable, Iterator
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from afedpg.errors import AfedpgError, ConfigError

NOT_DEFINED = 71  # exit code of a process that did not find what it needs in the script
_GUARD = 'put the call of train under `if __name__ == "__main__":`, below all functions'


class _Reached(BaseException):
    """The script that a process runs again has come to its call of `train`."""


_running_again = False


def reached() -> None:
    """Called first of all by `train`: in a process that runs the script again, it ends there."""
    if _running_again:
        raise _Reached


def childless() -> bool:
    """Whether this process may start no others, as those of multiprocessing.Pool."""
    return bool(current_process().daemon)


def start(target: Callable[..., None], build: Any, *arguments: Any) -> Any:
    """target(build, *arguments) in a process of its own, which ends with this one."""
    packed, main = pickle.dumps(build), sys.modules["__main__"]
    needed = needs_script(packed) or _registered_by_script(build)
    script = (_main_file(), getattr(main, "__package__", None)) if needed else ("", None)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_begin, args=(script, packed, target, arguments), daemon=True)
    with _without_main(), _terminal_signals_blocked():
        process.start()
    return process


def check_importable(name: str, part: Any) -> None:
    """What a notebook cell or stdin defines cannot be run again elsewhere."""
    packed = pickle.dumps(part)
    if needs_script(packed) and not _main_file():
        raise ConfigError(
            f"{name}: other processes cannot import what a notebook cell or stdin defines; "
            "put it into a module of its own, or use the virtual engine with workers=1"
        )


def check_exit(code: int | None) -> None:
    if code == NOT_DEFINED:
        raise AfedpgError(f"other processes run {_main_file()} again for its functions and did not find them; {_GUARD}")


def needs_script(packed: bytes) -> bool:
    return b"__main__" in packed


def _main_file() -> str:
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    return os.path.abspath(file) if os.path.isfile(file) else ""


def _registered_by_script(build: Any) -> bool:
    """Whether Gymnasium knows the task from elsewhere than itself or a MODULE:ID; that may be the script."""
    gymnasium, config = sys.modules.get("gymnasium"), getattr(build, "config", None)
    spec = gymnasium.registry.get(config.environment) if gymnasium and config else None
    return spec is not None and not str(spec.entry_point).startswith("gymnasium.")


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """multiprocessing looks at the main module to have it imported again; it finds an empty one."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """A new process inherits what is blocked. A terminal's signals reach the whole group, and would end it with a
    traceback while it still imports what it needs, before it can leave them to its parent.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(
    script: tuple[str, str | None], packed: bytes, target: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    if script[0]:
        _run_again(*script)
    try:
        build = pickle.loads(packed)
    except AttributeError:
        sys.exit(NOT_DEFINED)
    target(build, *arguments)


def _run_again(script: str, package: str | None) -> None:
    global _running_again
    module = types.ModuleType("__mp_main__")
    module.__file__, module.__package__ = script, package
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    _running_again = True
    try:
        exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)
    except _Reached:
        pass
    finally:
        _running_again = False
