"""An agent without manners: sends whatever bytes it is told to, over the real protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc

from afedpg.config import Config
from afedpg.messages import Task
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.terms import terms


class RawAgent:
    def __init__(
        self, channel: grpc.Channel, config: Config, parameters: int, name: str = "", wrong: Any = None
    ) -> None:
        self.parameters = parameters
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._inbox = channel.stream_stream(f"/{wire.SERVICE}/Work")(iter(self._outbox.get, None), timeout=60)
        standard = {
            "protocol": wire.PROTOCOL,
            "name": name,
            "parameters": parameters,
            "fingerprint": wire.fingerprint(config.environment, parameters, terms(config)),
        }
        self.send(pb.FromAgent(join=pb.Join(**(standard | (wrong or {})))).SerializeToString())

    def send(self, data: bytes) -> None:
        self._outbox.put(data)

    def next(self) -> pb.FromServer:
        return pb.FromServer.FromString(next(self._inbox))

    def task(self) -> Task:
        """The next Task; whatever comes before it is passed over."""
        while (message := self.next()).WhichOneof("content") != "task":
            pass
        return wire.decode_task(message.task, 0, wire.Expected(self.parameters))

    def refusal(self) -> str:
        while (message := self.next()).WhichOneof("content") != "refusal":
            pass
        return message.refusal.reason

    def close(self) -> None:
        self._outbox.put(None)
        self._inbox.cancel()


@contextmanager
def raw_agent(port: int, config: Config, parameters: int, name: str, wrong: Any = None) -> Iterator[RawAgent]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        agent = RawAgent(channel, config, parameters, name, wrong)
        try:
            yield agent
        finally:
            agent.close()
