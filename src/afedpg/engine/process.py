"""What every process of a run needs: one thread, an end when its parent ends, and an orderly answer to Ctrl-C."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Protocol

import threadpoolctl

from afedpg.errors import FOR_GOOD, AfedpgError

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_PR_SET_PDEATHSIG = 1
STOPS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class WorkerHandle(Protocol):
    """A spawned process and the pipe to it."""

    process: Any
    connection: Connection


class Interrupted(AfedpgError):
    """Ctrl-C, SIGTERM or SIGHUP: a run with a folder is stored, and `resume` goes on with it.

        try:
            train("CartPole-v1", out="runs/pole")
        except Interrupted as error:
            print(error)  # says how far it came, and what goes on with it

    It is an Exception, not a KeyboardInterrupt: `except Exception` around `train` catches it, too.
    """

    exit_code = 130


class DeadEnd(AfedpgError):
    """Resuming would only bring the same again: nothing is gained by offering it."""

    exit_code = FOR_GOOD


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


def dismiss(workers: Sequence[WorkerHandle]) -> None:
    """Ends worker processes: an idle one by itself when its pipe closes, any other by force."""
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        worker.process.join(timeout=1.0)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def stopping_signals() -> list[signal.Signals]:
    """Those that ask this process to stop; SIGHUP does not under nohup, which has it ignored. The others always do: a
    script that starts a run in the background has SIGINT ignored as well, and means nothing by it.
    """
    always = (signal.SIGINT, signal.SIGTERM)
    return [number for number in STOPS if number in always or signal.getsignal(number) != signal.SIG_IGN]


def leave_stops_to_parent() -> None:
    """A terminal's signals reach the whole group; the parent decides, and ends this process when it does."""
    for number in STOPS:
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)


def mute_lost_terminal() -> None:
    """What is written to a terminal that has hung up fails, and would end a process that has things to store."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or no file
            handle = stream.fileno()
            if stat.S_ISCHR(os.fstat(handle).st_mode) and not os.isatty(handle):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, handle)
                os.close(nowhere)


class Interruption:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a flag that is looked at between events; the second ends at once.

    But for SIGHUP: a shell that loses its terminal may send it after the system has.
    """

    def __init__(self) -> None:
        self.requested = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[Interruption]:
        def note(number: int, frame: FrameType | None) -> None:
            if number not in (signal.SIGINT, signal.SIGTERM):
                mute_lost_terminal()
            elif self.requested:
                raise KeyboardInterrupt
            self.requested = True

        try:
            before = {number: signal.signal(number, note) for number in stopping_signals()}
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
