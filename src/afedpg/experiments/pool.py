"""Many jobs at once: spawned processes, a pipe each, one job at a time; they end when this process does.

Jobs are independent and their results do not depend on who computes them, so several at once with one worker each use
the cores best. With fewer jobs than cores, every job gets several workers instead.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from afedpg.engine.process import Interrupted, Interruption, die_with_parent, dismiss, one_thread
from afedpg.errors import AfedpgError
from afedpg.experiments.jobs import Job
from afedpg.experiments.progress import Bar

POLL_SECONDS = 0.2  # how long Ctrl-C may go unnoticed
PATIENCE_SECONDS = 60.0  # for interrupted runs to store themselves
MOST_DEATHS = 2  # of processes at one and the same job


class Order(NamedTuple):
    job: Job
    workers: int


class News(NamedTuple):
    """From a process: how far it is; `seconds` and perhaps `error` when it is done."""

    fraction: float
    seconds: float | None = None
    error: str = ""


@dataclass
class _Hand:
    process: Any
    connection: Connection
    job: Job | None = None
    since: float = 0.0


@dataclass
class Pool:
    out: Path
    bar: Bar
    spent: Callable[[Job, float], None]  # real seconds that a job took, or took until it was interrupted
    workers: int

    def perform(self, jobs: Sequence[Job]) -> list[tuple[str, str]]:
        """All of them, the longest first; returns those that failed, as (name, reason). The others go on."""
        queue = sorted(jobs, key=lambda job: -job.cost)
        hands = min(self.workers, len(queue))
        if not hands:
            return []
        each = max(1, self.workers // len(queue))
        with Interruption().watched() as interruption:
            crew = _Crew(self, queue, [_hire(self.out) for _ in range(hands)], each)
            try:
                crew.work(interruption)
            except Interrupted as error:
                crew.wait_for_stored_runs()
                raise Interrupted("interrupted; the same command goes on where it stopped") from error
            finally:
                crew.close()
        return crew.failures


@dataclass
class _Crew:
    pool: Pool
    queue: list[Job]
    hands: list[_Hand]
    each: int  # worker processes per job
    failures: list[tuple[str, str]] = field(default_factory=list)  # (job, reason)
    deaths: dict[str, int] = field(default_factory=dict)
    stopping: bool = False

    def work(self, interruption: Interruption) -> None:
        for hand in self.hands:
            self._give(hand)
        while any(hand.job is not None for hand in self.hands):
            self._listen()
            interruption.check()

    def wait_for_stored_runs(self) -> None:
        """Each run that is told to stop writes its checkpoint first."""
        self.stopping = True
        for hand in self.hands:
            if hand.job is not None and hand.process.is_alive():
                hand.process.terminate()
        deadline = time.monotonic() + PATIENCE_SECONDS
        with contextlib.suppress(KeyboardInterrupt):  # asked twice: at once, then
            while any(hand.job is not None for hand in self.hands) and time.monotonic() < deadline:
                self._listen()

    def close(self) -> None:
        dismiss(self.hands)

    def _listen(self) -> None:
        by_connection = {hand.connection: hand for hand in self.hands if hand.job is not None}
        for connection in wait(list(by_connection), POLL_SECONDS):
            hand = by_connection[connection]  # type: ignore[index]
            try:
                news: News = hand.connection.recv()
            except (EOFError, OSError):
                self._died(hand)
                continue
            self._heard(hand, news)

    def _heard(self, hand: _Hand, news: News) -> None:
        job = hand.job
        assert job is not None
        if news.seconds is None:
            self.pool.bar.advance(job, news.fraction)
            return
        self.pool.spent(job, news.seconds)
        if news.error:
            self.failures.append((job.name, news.error))
        self.pool.bar.done(job)
        self._give(hand)

    def _died(self, hand: _Hand) -> None:
        """Killed, out of memory, or a crash in compiled code: once may be chance, twice is the job."""
        hand.process.join()
        job = hand.job
        assert job is not None
        self.pool.spent(job, time.monotonic() - hand.since)
        if self.stopping:
            hand.job = None
            return
        self.deaths[job.name] = self.deaths.get(job.name, 0) + 1
        hand.connection.close()
        fresh = _hire(self.pool.out)
        code, hand.process, hand.connection = hand.process.exitcode, fresh.process, fresh.connection
        if self.deaths[job.name] < MOST_DEATHS:
            self.queue.insert(0, job)
        else:
            self.failures.append((job.name, f"its process died twice (exit code {code}); is there enough memory?"))
            self.pool.bar.done(job)
        self._give(hand)

    def _give(self, hand: _Hand) -> None:
        hand.job = self.queue.pop(0) if self.queue and not self.stopping else None
        hand.since = time.monotonic()
        if hand.job is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # dead: `_listen` finds out
                hand.connection.send(Order(hand.job, self.each))


def _hire(out: Path) -> _Hand:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    # Not a daemon: those may have no children, and a run may have workers. The kernel ends it with its parent.
    process = context.Process(target=_serve, args=(theirs, out))
    process.start()
    theirs.close()
    return _Hand(process, mine)


def _serve(connection: Connection, out: Path) -> None:
    """A process's life: a job at a time until the pipe closes."""
    die_with_parent()
    os.setpgid(0, 0)  # Ctrl-C goes to the parent alone, which tells us: two signals would end a run before it is stored
    one_thread()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            order: Order = connection.recv()
            connection.send(_attempt(connection, out, order))


def _attempt(connection: Connection, out: Path, order: Order) -> News:
    started = time.monotonic()
    last = started

    def progress(fraction: float) -> None:
        nonlocal last
        if time.monotonic() - last > POLL_SECONDS:
            last = time.monotonic()
            connection.send(News(fraction))

    error = ""
    try:
        order.job.perform(out, order.workers, progress)
    except AfedpgError as problem:
        error = str(problem)
    except Exception:
        error = f"unexpected error:\n{traceback.format_exc()}"
    return News(1.0, time.monotonic() - started, error)
