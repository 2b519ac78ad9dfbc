"""The server's end of one agent's Work stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from afedpg.messages import Task
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.rates import Bucket

FRAME_BYTES = 5  # gRPC's own, before every message
GOODBYE_SECONDS = 1.0  # what a last word may take


@dataclass(eq=False)
class AgentPort:
    """An open Work stream. Messages to the agent wait in the outbox until they are on their way."""

    context: Any
    name: str
    agent_id: int
    bucket: Bucket
    on_disk: Callable[[], Awaitable[None]]
    handler: asyncio.Task[Any]
    outbox: deque[bytes] = field(default_factory=deque)
    bytes_up: int = 0
    bytes_down: int = 0
    closed: str = ""  # why the server ended it
    _handling: bool = False  # the reader itself sends what its message brought about
    _line: asyncio.Lock = field(default_factory=asyncio.Lock)  # gRPC allows one writer at a time
    _helpers: set[asyncio.Task[None]] = field(default_factory=set)

    def give(self, task: Task) -> None:
        self.put(wire.encode_task(task))

    def refuse(self, reason: str) -> None:
        self.put(pb.FromServer(refusal=pb.Refusal(reason=reason)).SerializeToString())

    def close(self, reason: str, final: bool = False) -> None:
        self.closed = reason
        self.end(pb.FromServer(refusal=pb.Refusal(reason=reason, final=final)).SerializeToString())

    def end(self, last_word: bytes) -> asyncio.Task[None]:
        self.outbox.clear()
        self.outbox.append(last_word)
        return self._aside(self._end())

    def put(self, data: bytes) -> None:
        self.outbox.append(data)
        if not self._handling and not self._line.locked():
            self._aside(self.flush())

    async def flush(self) -> None:
        if not self._line.locked():  # else whoever is at it takes these along
            await self._send()

    @contextlib.contextmanager
    def handling(self) -> Iterator[None]:
        self._handling = True
        try:
            yield
        finally:
            self._handling = False

    async def _send(self) -> None:
        async with self._line:
            while self.outbox:
                together, self.outbox = self.outbox, deque()
                await self.on_disk()  # for each lot: what was put while another was written has events of its own
                for data in together:
                    self.bytes_down += len(data) + FRAME_BYTES
                    await self.context.write(data)

    async def _end(self) -> None:
        """Waits for whoever is sending: that may be the very handler, and the last word would go with it."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._send()
        self.handler.cancel()

    def _aside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        helper = asyncio.ensure_future(_quietly(work))
        self._helpers.add(helper)
        helper.add_done_callback(self._helpers.discard)
        return helper


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """A connection that breaks while somebody else writes to it is noticed by its reader.

    gRPC's errors have two families: a write to a peer that is gone raises an InternalError, one of BaseError.
    """
    with contextlib.suppress(grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
        await work
