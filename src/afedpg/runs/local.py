"""The local engine: the same server on this machine's loopback, with an agent process per agent, started and watched.

Agents that die are started again; all of them end with this process, however it ends.
"""

from __future__ import annotations

import logging
import secrets
import signal
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from afedpg.config import Config
from afedpg.engine import spawn
from afedpg.engine.process import die_with_parent, leave_stops_to_parent, one_thread
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Workload
from afedpg.runs.requests import NewRun, StoredRun
from afedpg.runs.result import Result
from afedpg.runs.serve import Place, resume_server, run_server

MOST_DEATHS = 5  # of one agent in a row, each within QUICK_SECONDS of its start
QUICK_SECONDS = 10.0
_log = logging.getLogger("afedpg")


def run_local(new: NewRun) -> Result:
    if new.config.engine != "local":
        raise ConfigError(f"engine: a {new.config.engine} federation has agents of its own; use `afedpg server`")
    with closing(Processes(new.own.workload(new.config))) as agents:
        return run_server(new, agents.place, agents.start, [agents.watch])


def resume_live(stored: StoredRun) -> Result:
    """`afedpg resume` of a local run, or of a federation that listens where it listened before."""
    if stored.config.engine == "grpc":
        return resume_server(stored, Place.stored(stored.folder.path))
    with closing(Processes(stored.own.workload(stored.config))) as agents:
        return resume_server(stored, agents.place, agents.start, [agents.watch], "local")


@dataclass
class _Agent:
    process: Any
    started: float
    deaths: int = 0  # in a row, soon after the start


@dataclass
class Processes:
    """The agent processes."""

    build: BuildWorkload
    place: Place = field(init=False)
    _port: int = 0
    _agents: list[_Agent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.build.check_portable()
        # Other users of this machine can reach loopback, too: only who knows the token is let in.
        names = tuple(f"agent-{number}" for number in range(self.build.config.agents))
        self.place = Place("127.0.0.1:0", token=secrets.token_hex(16), names=names)

    def start(self, port: int) -> None:
        self._port = port
        self._agents = [_Agent(self._spawn(number), time.monotonic()) for number in range(self.build.config.agents)]

    def watch(self) -> None:
        for number, agent in enumerate(self._agents):
            if agent.process.exitcode is None:
                continue
            quick = time.monotonic() - agent.started < QUICK_SECONDS
            deaths = agent.deaths + 1 if quick else 1
            code = agent.process.exitcode
            spawn.check_exit(code)
            if deaths >= MOST_DEATHS and code != -signal.SIGKILL:
                raise AfedpgError(f"agent {number} ended {deaths} times soon after its start (exit code {code})")
            _log.warning("agent %d ended (exit code %s); starting it again", number, code)
            self._agents[number] = _Agent(self._spawn(number), time.monotonic(), deaths)

    def close(self) -> None:
        deadline = time.monotonic() + 1.0
        for agent in self._agents:
            agent.process.join(max(0.0, deadline - time.monotonic()))
            if agent.process.exitcode is None:
                agent.process.kill()
                agent.process.join()

    def _spawn(self, number: int) -> Any:
        return spawn.start(_agent, self.build, self._port, self.place.names[number], self.place.token)


def _agent(build: BuildWorkload, port: int, name: str, token: str) -> None:
    """An agent process's life."""
    leave_stops_to_parent()
    die_with_parent()
    one_thread()
    from afedpg.transport.grpc.client import agent_main
    from afedpg.transport.grpc.membership import AgentOptions
    from afedpg.transport.grpc.terms import custom_parts

    config = build.config
    own = Config(task=config.task, agents=config.agents, agent=config.agent, codec=config.codec)

    def build_agreed(agreed: Config) -> Workload:
        return replace(build, config=agreed)()

    options = AgentOptions(f"127.0.0.1:{port}", own, build_agreed, name=name, token=token, custom=custom_parts(build))
    agent_main(options, lambda reports: "")
