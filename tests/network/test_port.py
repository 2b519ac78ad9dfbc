"""A port whose agent goes while something is on its way to it."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest
from grpc._cython import cygrpc

from afedpg.transport.grpc.port import AgentPort


class Gone:
    """What gRPC's context does once the peer is gone."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    async def write(self, data: bytes) -> None:
        self.asked += 1
        raise self.error


async def on_disk() -> None:
    pass


@pytest.mark.parametrize(
    "error",
    [
        cygrpc.ExecuteBatchError("Failed 'execute_batch': (<SendMessageOperation>,)"),
        grpc.aio.UsageError("RPC already finished."),
        asyncio.InvalidStateError("RPC already finished."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_write_to_an_agent_that_is_gone_is_its_readers_to_notice(error, caplog):
    """An exception that nobody takes would be a traceback in the server's log."""
    context = Gone(error)

    async def put() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: told.append(what))
        handler = asyncio.current_task()
        assert handler is not None
        port = AgentPort(context, "a", 0, None, on_disk, handler)  # type: ignore[arg-type]
        port.put(b"a Task")
        while port._helpers:
            await asyncio.sleep(0)
        assert told == []

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(put())
    assert context.asked == 1
    assert caplog.records == []
