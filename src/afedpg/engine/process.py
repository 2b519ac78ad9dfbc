"""What every process of a run needs: one thread, an end when its parent ends, and an orderly answer to Ctrl-C."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Protocol

import threadpoolctl

from afedpg.errors import AfedpgError

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_PR_SET_PDEATHSIG = 1


class Hand(Protocol):
    """A spawned process and the pipe to it."""

    process: Any
    connection: Connection


class Interrupted(AfedpgError):
    """Ctrl-C or SIGTERM: the run is stored and can go on."""

    exit_code = 130


class DeadEnd(AfedpgError):
    """Resuming would only bring the same again: nothing is gained by offering it."""


def one_thread() -> None:
    """The last bits of a BLAS product change with the number of threads, and workers must not fight over cores."""
    for variable in _THREAD_VARIABLES:
        os.environ[variable] = "1"  # for processes started from here
    threadpoolctl.threadpool_limits(1)


def die_with_parent() -> None:
    """Linux ends this process with its parent, even in the middle of a rollout; elsewhere the closed pipe ends it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        parent = multiprocessing.parent_process()
        if parent is None or os.getppid() != parent.pid:  # it was gone before the request
            os._exit(1)


def dismiss(hands: Sequence[Hand]) -> None:
    """Ends worker processes: an idle one by itself when its pipe closes, any other by force."""
    for hand in hands:
        hand.connection.close()
    for hand in hands:
        hand.process.join(timeout=1.0)
        if hand.process.is_alive():
            hand.process.kill()
            hand.process.join()


class Interruption:
    """Turns the first Ctrl-C or SIGTERM into a flag that is looked at between events; the second ends at once."""

    def __init__(self) -> None:
        self.requested = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[Interruption]:
        def note(number: int, frame: FrameType | None) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True

        try:
            before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: signals are somebody else's
            before = {}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        if self.requested:
            raise Interrupted("interrupted")
