"""Who may write a run folder: one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from afedpg.errors import AfedpgError

LOCK = "lock"
PATIENCE = 0.3  # seconds; `is_locked` holds the lock for microseconds to see whether it is free


class BeingWritten(AfedpgError):
    """Another process holds the lock."""


class RunLock:
    """Two processes writing one run would destroy it: the second is told so."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._handle = os.open(run / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + PATIENCE
        while not _try_lock(self._handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                owner = os.pread(self._handle, 20, 0).decode(errors="replace").strip() or "unknown"
                os.close(self._handle)
                raise BeingWritten(f"{run} is being written by another process ({owner}); wait for it or stop it first")
            time.sleep(0.01)

    def sign(self) -> None:
        """For those who wait: who holds it."""
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, str(os.getpid()).encode(), 0)

    @property
    def removed(self) -> bool:
        """Whoever held it before gave the folder up: another process may make it anew, with a lock of its own."""
        return os.fstat(self._handle).st_nlink == 0

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(run: Path) -> bool:
    try:
        handle = os.open(run / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)
