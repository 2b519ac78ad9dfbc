"""An agent's part in a federation: what it was told, what it works with, and what outlives a connection."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from afedpg.config import Config
from afedpg.engine.members import LONGEST_PAUSE
from afedpg.messages import Task, Workload
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.keep import StateFile
from afedpg.transport.grpc.tls import Identity
from afedpg.transport.grpc.wire import Expected
from afedpg.transport.grpc.worker import Worker

FIRST_PAUSE = 0.2  # seconds between attempts to come back, which grow up to LONGEST_PAUSE


@dataclass(frozen=True)
class AgentOptions:
    connect: str  # HOST:PORT
    config: Config  # the agent's own: task, environment, device
    build: Callable[[Config], Workload]
    identity: Identity | None = None  # None: no TLS
    name: str = ""
    token: str = ""
    seconds_per_gradient: float = 0.0  # emulates a slower machine
    state: Path | None = None
    patience: float = 0.0  # seconds without a server after which it gives up; 0: never
    custom: Mapping[str, str] = field(default_factory=dict)  # parts that do not ship; see terms.custom_parts


class Pause:
    """Doubles from attempt to attempt, with jitter: a thousand agents must not come back in the same instant."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE

    def reset(self) -> None:
        self._next = FIRST_PAUSE

    def seconds(self) -> float:
        pause, self._next = self._next, min(2 * self._next, LONGEST_PAUSE)
        return pause * random.uniform(0.5, 1.0)


class Membership:
    def __init__(self, options: AgentOptions) -> None:
        self.options = options
        self.worker = Worker()
        self.pause = Pause()
        self.contact = time.monotonic()  # when the server was last heard
        self.settings = ""  # the terms the workload was built for
        self.expected = Expected(0)  # what the workload reads and reports
        self.agent_id = 0
        self.lease = 15.0
        self.misfits = 0  # times in a row that the server would not have it
        self.keep = StateFile(options.state)
        self.reports = 0

    @property
    def parameters(self) -> int:
        return self.expected.parameters

    def decode(self, task: pb.Task) -> Task:
        return wire.decode_task(task, self.agent_id, self.expected)
