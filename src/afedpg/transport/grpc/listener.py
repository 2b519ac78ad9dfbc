"""The port that agents dial: taken before anything of a run is written, served once the run is ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import grpc

from afedpg.engine.live import Drive
from afedpg.errors import ConfigError
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.descriptors import room_for_connections
from afedpg.transport.grpc.service import Service
from afedpg.transport.grpc.tls import split_address

HANDSHAKE_MS = 20_000  # after which a connection that has not said who it is goes
IDLE_MS = 60_000  # likewise, one without a call


@contextlib.contextmanager
def listening(
    address: str, credentials: grpc.ServerCredentials | None, parameters: int, lease: float
) -> Iterator[Listener]:
    """Who dials in meanwhile waits to be served."""
    options = _options(parameters, lease)
    options.append(("grpc.max_allowed_incoming_connections", room_for_connections(split_address(address, "listen")[0])))
    with asyncio.Runner() as runner:  # a gRPC server belongs to the loop it was made in
        listener = runner.run(_bind(runner.run, address, credentials, options))
        try:
            yield listener
        finally:
            runner.run(listener.close())


@dataclass
class Listener:
    drive: Drive  # runs a coroutine in the loop of this listener
    port: int
    _server: grpc.aio.Server
    _served: bool = False

    @contextlib.asynccontextmanager
    async def serve(self, service: Service) -> AsyncIterator[None]:
        self._served = True
        self._server.add_generic_rpc_handlers((service.handler(),))
        await self._server.start()
        try:
            yield
            await service.dismiss()
        finally:
            await self._server.stop(grace=0.5)

    async def close(self) -> None:
        if not self._served:
            await self._server.start()  # gRPC gives back no port that it has not served
            await self._server.stop(grace=None)


async def _bind(
    drive: Drive, address: str, credentials: grpc.ServerCredentials | None, options: list[tuple[str, int]]
) -> Listener:
    server = grpc.aio.server(options=options)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigError(f"listen: cannot listen on {address}; is the port taken?") from error
    return Listener(drive, port, server)


def _options(parameters: int, lease: float) -> list[tuple[str, int]]:
    most, lease_ms = wire.message_bytes(parameters), int(lease * 1000)
    return [
        ("grpc.max_receive_message_length", most),
        ("grpc.max_send_message_length", most),
        # A frozen peer answers no ping; keepalive alone would wait for the operating system's time-out. Both wait for
        # longer than the lease, whose end says that the agent was silent; theirs would say that it hung up.
        ("grpc.keepalive_time_ms", lease_ms),
        ("grpc.keepalive_timeout_ms", 2 * lease_ms),
        ("grpc.http2.ping_timeout_ms", 2 * lease_ms),
        ("grpc.http2.min_ping_interval_without_data_ms", lease_ms // 4),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake
    ]
