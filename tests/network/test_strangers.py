"""Whoever can reach the port, with or without a certificate, takes no file that the server needs, and keeps none."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from federations import site, wait_until
from served import Served

from afedpg.config import from_settings
from afedpg.record import checkpoint
from afedpg.runs.replay import replay
from afedpg.transport.grpc import descriptors
from afedpg.transport.grpc.descriptors import RESERVE, raise_limit, room_for_connections
from afedpg.transport.grpc.service import MOST_SILENT

STRANGERS, FILES = 1100, 1024


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = STRANGERS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this process may open only {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_strangers_do_not_end_the_server(tmp_path: Path, many_files: None) -> None:
    """More idle connections than it may have files: it stores what it must, works on, and lets new agents in."""
    settings = ("--iterations", 10**6, "--checkpoint-seconds", 0.5)
    with site(tmp_path, *settings, agents=2, tls=True) as federation, contextlib.ExitStack() as strangers:
        federation.files = FILES
        server = federation.server()
        federation.files = 0
        federation.agent(0, "--seconds-per-gradient", 0.01)
        wait_until(lambda: federation.gradients() > 5)
        for _ in range(STRANGERS):
            with contextlib.suppress(OSError):
                address = ("127.0.0.1", federation.port)
                strangers.enter_context(contextlib.closing(socket.create_connection(address, 5.0)))
        newest = checkpoint.names(federation.run / "checkpoints")[-1]
        for _ in range(3):
            newest, before = checkpoint.names(federation.run / "checkpoints")[-1], newest
            gradients = federation.gradients()
            wait_until(lambda gradients=gradients: federation.gradients() > gradients + 20)  # type: ignore[misc]
            wait_until(lambda newest=newest: checkpoint.names(federation.run / "checkpoints")[-1] != newest)  # type: ignore[misc]
            assert psutil.Process(server.pid).num_fds() <= FILES - RESERVE // 2
        assert newest != before
        federation.agent(1)  # comes in once strangers have been sent away for saying nothing
        wait_until(lambda: "(agent-1) joined" in federation.log(), 180.0)
        assert server.poll() is None
        server.terminate()
        assert server.wait(60) == 130
        assert replay(federation.run).agrees


def test_a_server_asks_for_the_files_it_may_have(many_files: None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        assert raise_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raise_limit() == min(hard, descriptors.MOST) > 512
        alone = room_for_connections("127.0.0.1")
        assert alone <= raise_limit() - RESERVE
        assert room_for_connections("no-such-host.invalid") == pytest.approx(alone, abs=20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Denied(Exception):
    pass


class Silent:
    """A stream that never says anything."""

    code: Any = None

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> bytes:
        await asyncio.sleep(3600)
        return b""

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        self.code = code
        raise Denied(text)


def test_streams_that_say_nothing_are_few(tmp_path: Path) -> None:
    config = from_settings({"task": "quadratic", "engine": "grpc", "lease": 0.5})

    async def knock() -> None:
        served = Served(config, tmp_path, recorded=False)
        for _ in range(2):  # who was sent away may come again
            streams = [Silent() for _ in range(MOST_SILENT + 3)]
            waiting = [asyncio.create_task(served.service.work(None, stream)) for stream in streams]
            for task in waiting:
                with pytest.raises(Denied):
                    await task
            codes = [stream.code for stream in streams]
            assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 3
            assert codes.count(grpc.StatusCode.INVALID_ARGUMENT) == MOST_SILENT
            assert not served.service._silent

    asyncio.run(knock())
