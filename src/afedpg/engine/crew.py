"""Who computes the agents' work: this process, or worker processes that compute ahead.

An agent's work depends only on its state and its Task, so it does not matter who computes it, when, or how often: a
worker that dies is replaced and its job done again, with the same bits.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol, TypeVar

from afedpg.engine import spawn
from afedpg.engine.process import die_with_parent, dismiss, leave_stops_to_parent, one_thread
from afedpg.errors import AfedpgError, BrokenPart, ConfigError, FailedPart
from afedpg.messages import AgentState, Report, Task, Workload

MOST_DEATHS = 3  # of one worker after another without a result, before their job or their start is to blame
POLL_SECONDS = 0.2  # how long Ctrl-C may go unnoticed


class Job(NamedTuple):
    """What an agent does next: with a Task its work, without one what it does before it asks for a Task."""

    agent_id: int
    number: int  # of the Tasks it was handed out before
    state: AgentState
    task: Task | None = None

    @property
    def key(self) -> tuple[int, int, bool]:
        return self.agent_id, self.number, self.task is None


T = TypeVar("T")
Key = tuple[int, int, bool]
Result = tuple[AgentState, Report | None]
Build = Callable[[], Workload]  # picklable: every worker builds its own


class Crew(Protocol):
    @property
    def ahead(self) -> int:
        """How many jobs it is worth to name in advance."""

    def prefetch(self, jobs: Sequence[Job]) -> None:
        """Jobs that will be collected soon, the most urgent first."""

    def collect(self, job: Job) -> Result: ...

    def close(self) -> None: ...


@dataclass
class Alone:
    """Everything in this process, when it is asked for."""

    workload: Workload
    ahead: int = 0

    def prefetch(self, jobs: Sequence[Job]) -> None:
        pass

    def collect(self, job: Job) -> Result:
        return _done(self.workload, job)

    def close(self) -> None:
        pass


@dataclass
class _Worker:
    process: Any
    connection: Connection
    job: Job | None = None
    deaths: int = 0  # of those it took the place of, since the last result


@dataclass
class Pool:
    """Spawned processes with a pipe each; they end when this process does, however it ends."""

    build: Build
    workers: int
    check: Callable[[], None] = lambda: None  # called while waiting; may raise to stop
    _crew: list[_Worker] = field(default_factory=list)
    _done: dict[Key, Result | Failure] = field(default_factory=dict)
    _homes: dict[int, int] = field(default_factory=dict)  # agent -> the worker that has its environment at hand

    def __post_init__(self) -> None:
        self._crew = [self._hire() for _ in range(self.workers)]

    @property
    def ahead(self) -> int:
        return 3 * self.workers

    def prefetch(self, jobs: Sequence[Job]) -> None:
        open_jobs = {job.key: job for job in jobs if not self._known(job.key)}
        for index, worker in enumerate(self._crew):
            if worker.job is None and open_jobs:
                # An agent's own worker has its environment in mid-episode; elsewhere the episode is replayed first.
                near = (key for key, job in open_jobs.items() if self._homes.get(job.agent_id, index) == index)
                self._assign(index, open_jobs.pop(next(near, next(iter(open_jobs)))))

    def collect(self, job: Job) -> Result:
        while job.key not in self._done:
            self.prefetch([job])
            self._receive()
        result = self._done.pop(job.key)
        if isinstance(result, Failure):
            raise result.exception()
        return result

    def close(self) -> None:
        dismiss(self._crew)

    def _known(self, key: Key) -> bool:
        return key in self._done or any(worker.job is not None and worker.job.key == key for worker in self._crew)

    def _hire(self) -> _Worker:
        mine, theirs = multiprocessing.Pipe()
        process = spawn.start(_serve, self.build, theirs)
        theirs.close()
        return _Worker(process, mine)

    def _assign(self, index: int, job: Job) -> None:
        worker = self._crew[index]
        worker.job = job
        self._homes[job.agent_id] = index
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # dead: `_receive` finds out and starts over
            worker.connection.send(job)

    def _receive(self) -> None:
        """Takes in at least one result, or replaces a worker that died, or lets `check` stop the wait."""
        by_connection = {worker.connection: worker for worker in self._crew}
        for connection in wait(list(by_connection), POLL_SECONDS):
            worker = by_connection[connection]  # type: ignore[index]
            try:
                result = worker.connection.recv()
            except (EOFError, OSError):
                result = None
            if result is None:  # it died
                self._replace(worker)
                continue
            if worker.job is not None:
                self._done[worker.job.key] = result
            worker.job, worker.deaths = None, 0
        self.check()

    def _replace(self, worker: _Worker) -> None:
        worker.process.join()
        index, job, code = self._crew.index(worker), worker.job, worker.process.exitcode
        worker.connection.close()
        spawn.check_exit(code)
        deaths = worker.deaths + 1
        if deaths >= MOST_DEATHS:
            who, when = ("", "without any") if job is None else (f"agent {job.agent_id}: ", "at its")
            raise AfedpgError(f"{who}{deaths} worker processes died {when} work (exit code {code}); {_advice(code)}")
        self._crew[index] = self._hire()
        self._crew[index].deaths = deaths
        if job is not None:
            self._assign(index, job)


def _advice(code: int) -> str:
    if code == 1:  # Python's own, for an exception: workers report theirs, so this one came before they began
        return "they could not start; what they said is above"
    return "is there enough memory? try fewer --workers"


@dataclass(frozen=True)
class Failure:
    """An exception on its way from a worker: the text, for what was raised may not travel."""

    message: str
    kind: type[Exception]  # one that is sure to take a message alone
    cause: str = ""  # the traceback of what it was raised from

    @staticmethod
    def of(error: AfedpgError) -> Failure:
        """It says all there is to say."""
        kinds = (kind for kind in (ConfigError, FailedPart, BrokenPart) if isinstance(error, kind))
        cause = "".join(traceback.format_exception(error.__cause__)) if error.__cause__ else ""
        return Failure(str(error), next(kinds, AfedpgError), cause)

    def exception(self) -> Exception:
        told = self.kind(self.message)
        told.__cause__ = InWorker(f"in a worker process:\n{self.cause}") if self.cause else None
        return told


class InWorker(Exception):
    """What was raised in another process, as its traceback."""


def _serve(build: Build, connection: Connection) -> None:
    """A worker's life: build the workload, then a job at a time until the pipe closes."""
    leave_stops_to_parent()
    die_with_parent()
    one_thread()
    workload = _attempt(build)  # a failure answers every job
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        while True:
            job: Job = connection.recv()
            connection.send(workload if isinstance(workload, Failure) else _attempt(partial(_done, workload, job)))


def _done(workload: Workload, job: Job) -> Result:
    if job.task is None:
        return workload.prepare(job.state, job.agent_id), None
    return workload.work(job.state, job.task)


def _attempt(compute: Callable[[], T]) -> T | Failure:
    try:
        return compute()
    except AfedpgError as error:
        return Failure.of(error)
    except Exception:
        return Failure(f"in a worker process:\n{traceback.format_exc()}", RuntimeError)
