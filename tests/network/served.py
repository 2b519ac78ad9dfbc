"""A live engine and its service without a socket: bytes go in by hand, what would be sent is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from afedpg.config import Config
from afedpg.engine.federation import Federation
from afedpg.engine.live import LiveEngine
from afedpg.messages import Event, Task
from afedpg.protocol import federation_pb2 as pb
from afedpg.record import folder as folders
from afedpg.record.recorder import Recorder
from afedpg.runs.parts import Own, prepare
from afedpg.server.admission import Limits
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.port import AgentPort
from afedpg.transport.grpc.rates import Bucket
from afedpg.transport.grpc.roster import Roster
from afedpg.transport.grpc.service import Service, Terms
from afedpg.transport.grpc.terms import expected, terms


class Line:
    """Stands in for gRPC's context: keeps what was written."""

    def __init__(self) -> None:
        self.sent: list[pb.FromServer] = []

    async def write(self, data: bytes) -> None:
        self.sent.append(pb.FromServer.FromString(data))

    def newest(self, kind: str) -> Any:
        return next(getattr(message, kind) for message in reversed(self.sent) if message.WhichOneof("content") == kind)


class Served:
    """Only inside a running event loop."""

    def __init__(self, config: Config, folder: Path, recorded: bool = True) -> None:
        self.workload, rule, server = prepare(config, Own())
        recorder = None
        if recorded:
            recorder = Recorder(folders.create(folder / "run", config), config)
        self.federation = Federation(rule, server, recorder, None, Limits.of(config))
        self.events: list[Event] = []  # that were applied
        self.engine = LiveEngine(self.federation, config.network, transport=lambda engine: None)  # type: ignore[arg-type, return-value]
        self.engine._done = asyncio.Event()
        self.engine._finished = lambda: server.gradients >= config.gradients
        text = terms(config)
        agreed = Terms(text, wire.fingerprint(config.task, self.workload.parameters, text), expected(self.workload))
        self.service = Service(self.engine, Roster(folder / "agents.json"), agreed, False, "", None)
        self.config = config

    def connect(self, agent_id: int, line: Any = None) -> AgentPort:
        handler = asyncio.current_task()
        assert handler is not None
        rate = self.config.network.max_rate
        context = line or Line()
        port = AgentPort(context, f"agent-{agent_id}", agent_id, Bucket(rate, rate), self.service.on_disk, handler)
        self.engine.join(agent_id, port.name, port)
        return port

    async def send(self, port: AgentPort, data: bytes) -> None:
        with port.handling():
            self.service._handle(port, data, too_many=False)
        await port.flush()

    def task_of(self, port: AgentPort) -> Task:
        expected = self.service.terms.expected
        return wire.decode_task(port.context.newest("task"), port.agent_id, expected)

    def close(self) -> None:
        if self.federation.recorder is not None:
            self.federation.recorder.close(finished=True)


def in_loop(test: Callable[[], Any]) -> None:
    asyncio.run(test())
