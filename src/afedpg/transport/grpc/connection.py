"""One connection of an agent to its server: the life of a Work stream, from Join to whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from typing import Any

import grpc

from afedpg.config import LONGEST_LEASE, SHORTEST_LEASE
from afedpg.errors import Unwelcome
from afedpg.messages import Task
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.calls import EOF
from afedpg.transport.grpc.membership import Membership
from afedpg.transport.grpc.wire import PROTOCOL, Refused

DIAL_SECONDS = 10.0
BEATS_PER_LEASE = 4
_HEARTBEAT = pb.FromAgent(heartbeat=pb.Heartbeat()).SerializeToString()
_FETCH = pb.FromAgent(fetch=pb.Fetch()).SerializeToString()
_LEAVE = pb.FromAgent(leave=pb.Leave()).SerializeToString()
_log = logging.getLogger("afedpg")


class Lost(Exception):
    """The server is not there, or not answering: try again."""


class Connection:
    """The life of one Work stream."""

    def __init__(self, agent: Membership, call: Any) -> None:
        self._agent = agent
        self._call = call
        self._write_lock = asyncio.Lock()  # gRPC allows one writer at a time
        self._newest: Task | None = None
        self._working: asyncio.Task[None] | None = None
        self._failure: Exception | None = None  # of the work itself
        self._answered = False

    async def run(self) -> bool:
        agent = self._agent
        task, options = agent.options.config.environment, agent.options
        join = pb.Join(
            protocol=PROTOCOL, name=options.name, parameters=agent.parameters,
            fingerprint=wire.fingerprint(task, agent.parameters, agent.settings),
        )  # fmt: skip
        await self._within(self._write(pb.FromAgent(join=join).SerializeToString()), DIAL_SECONDS)
        beating = asyncio.ensure_future(self._beat())
        try:
            return await self._listen()
        except asyncio.CancelledError:
            await self._say_goodbye()
            raise
        except (grpc.RpcError, Lost) as error:
            raise self._failure or error from None
        finally:
            beating.cancel()
            if self._working is not None:
                self._working.cancel()

    async def _listen(self) -> bool:
        while True:
            data = await self._within(self._call.read(), max(self._agent.lease, DIAL_SECONDS))
            if data is EOF:
                raise Lost(f"{self._agent.options.connect} hung up")
            self._agent.contact = time.monotonic()
            message = wire.from_server(data)
            kind = message.WhichOneof("content")
            if kind == "task":
                if self._answered:  # there was work for it, and is more: from now on a lost line is an accident
                    self._agent.pause.reset()
                self._newest = self._agent.decode(message.task)
                if self._working is None or self._working.done():
                    self._working = asyncio.ensure_future(self._work_or_fail())
            elif kind == "welcome":
                self._welcome(message.welcome)
            elif kind == "refusal":
                self._refused(message.refusal)
            elif kind == "finished":
                return True

    async def _within(self, step: Awaitable[Any], seconds: float) -> Any:
        """The server answers every heartbeat: silence means that the line is dead, whatever the socket says."""
        try:
            async with asyncio.timeout(seconds):  # not wait_for, which may swallow a cancellation before Python 3.12
                return await step
        except TimeoutError as error:
            raise Lost(f"{self._agent.options.connect} is silent") from error
        except asyncio.CancelledError:
            if self._failure is not None:  # cancelled from within, because the work failed
                raise Lost("the work failed") from None
            raise

    def _welcome(self, welcome: pb.Welcome) -> None:
        if not SHORTEST_LEASE <= welcome.lease_seconds <= LONGEST_LEASE:
            raise Refused(f"a lease of {welcome.lease_seconds} s")
        self._agent.lease, self._agent.misfits = welcome.lease_seconds, 0
        _log.info("joined %s as agent %d", self._agent.options.connect, welcome.agent)

    def _refused(self, refusal: pb.Refusal) -> None:
        if refusal.final:
            raise Unwelcome(f"dismissed by {self._agent.options.connect}: {refusal.reason}")
        _log.warning("refused by the server: %s", refusal.reason)

    async def _work_or_fail(self) -> None:
        try:
            await self._work()
        except Exception as error:
            self._failure = error
            self._call.cancel()

    async def _work(self) -> None:
        """The newest Task; if another came meanwhile, the finished one is void and the newer is next."""
        agent = self._agent
        while (task := self._newest) is not None:
            self._newest = None
            started = time.monotonic()
            report = await agent.worker.work(task)
            rest = agent.options.seconds_per_gradient - (time.monotonic() - started)
            if rest > 0:
                await asyncio.sleep(rest)
            if self._newest is None:
                agent.reports += 1
                # Kept before it is sent: samples that may have been used are never used again.
                agent.keep.save(agent.agent_id, agent.settings, agent.worker.state)
                with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # the listener notices
                    await self._write(wire.encode_report(report))
                    self._answered = True
                if agent.worker.fetches_late:
                    await agent.worker.prepare(agent.agent_id)
                    if self._newest is None:  # a refused report brings a Task of its own
                        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                            await self._write(_FETCH)

    async def _beat(self) -> None:
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while True:
                await asyncio.sleep(self._agent.lease / BEATS_PER_LEASE)
                await self._write(_HEARTBEAT)

    async def _write(self, data: bytes) -> None:
        async with self._write_lock:
            await self._call.write(data)

    async def _say_goodbye(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2.0):
                await self._write(_LEAVE)
                await self._call.done_writing()
