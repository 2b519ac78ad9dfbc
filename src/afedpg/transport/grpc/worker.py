"""The thread in which an agent computes, so that its heartbeat goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from afedpg.config import Config
from afedpg.engine.process import one_thread
from afedpg.messages import AgentState, Report, Task, Workload
from afedpg.transport.grpc.terms import expected
from afedpg.transport.grpc.wire import Expected

T = TypeVar("T")
_Job = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class Worker:
    """A daemon: an agent that is told to go does not wait for its rollout."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._workload: Workload | None = None
        self.state: AgentState = {}
        self._thread = threading.Thread(target=self._run, name="afedpg-work", daemon=True)
        self._thread.start()

    async def build(
        self, build: Callable[[Config], Workload], config: Config, agent_id: int, kept: AgentState | None
    ) -> Expected:
        """Makes the workload and the agent's state, kept or new; returns the sizes of what it reads and reports."""

        def job() -> Expected:
            one_thread()
            self._workload = build(config)
            self.state = self._workload.start(agent_id) if kept is None else kept
            return expected(self._workload)

        return await self._submit(job)

    async def work(self, task: Task) -> Report:
        def job() -> Report:
            assert self._workload is not None
            self.state, report = self._workload.work(self.state, task)
            return report

        return await self._submit(job)

    @property
    def fetches_late(self) -> bool:
        return self._workload is not None and self._workload.exchange.late_fetch

    async def prepare(self, agent_id: int) -> None:
        """What an agent that fetches late does before it asks for a Task."""

        def job() -> None:
            assert self._workload is not None
            self.state = self._workload.prepare(self.state, agent_id)

        await self._submit(job)

    def close(self) -> None:
        self._jobs.put(None)

    async def _submit(self, job: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put((job, future, loop))
        return await future

    def _run(self) -> None:
        while (entry := self._jobs.get()) is not None:
            job, future, loop = entry
            try:
                result, error = job(), None
            except Exception as raised:
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:  # the loop is closed: nobody is waiting any more
                return


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
