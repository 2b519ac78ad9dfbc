"""The local engine: the same server on this machine's loopback, with an agent process per agent, started and watched.

Agents that die are started again, unless their settings or a part of the user's own are to blame, which would bring the
same again. All of them end with this process, however it ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import secrets
import signal
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from afedpg.config import Config
from afedpg.engine import spawn
from afedpg.engine.crew import Failure
from afedpg.engine.process import die_with_parent, leave_stops_to_parent, one_thread
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import AfedpgError, BrokenPart, ConfigError, FailedPart
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
    last_word: Connection  # brings a Failure, where the agent ended of one that will not heal
    deaths: int = 0  # of those before it, in a row, soon after the start
    started: float = field(default_factory=time.monotonic)

    def failure(self) -> Failure | None:
        with suppress(EOFError):  # it ended without a word
            if self.last_word.poll():
                failure: Failure = self.last_word.recv()
                return failure
        return None


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
        self._agents = [self._spawn(number) for number in range(self.build.config.agents)]

    def watch(self) -> None:
        for number, agent in enumerate(self._agents):
            if agent.process.exitcode is None:
                continue
            if (failure := agent.failure()) is not None:
                self.close(patience=0.0)  # or the others would say, too, that the server is gone
                raise failure.exception()
            quick = time.monotonic() - agent.started < QUICK_SECONDS
            deaths = agent.deaths + 1 if quick else 1
            code = agent.process.exitcode
            spawn.check_exit(code)
            if deaths >= MOST_DEATHS and code != -signal.SIGKILL:
                raise AfedpgError(f"agent {number} ended {deaths} times soon after its start (exit code {code})")
            _log.warning("agent %d ended (exit code %s); starting it again", number, code)
            agent.last_word.close()
            self._agents[number] = self._spawn(number, deaths)

    def close(self, patience: float = 1.0) -> None:
        deadline = time.monotonic() + patience
        for agent in self._agents:
            agent.process.join(max(0.0, deadline - time.monotonic()))
            if agent.process.exitcode is None:
                agent.process.kill()
                agent.process.join()
            agent.last_word.close()

    def _spawn(self, number: int, deaths: int = 0) -> _Agent:
        mine, theirs = multiprocessing.Pipe(duplex=False)
        process = spawn.start(_agent, self.build, self._port, self.place.names[number], self.place.token, theirs)
        theirs.close()
        return _Agent(process, mine, deaths)


def _agent(build: BuildWorkload, port: int, name: str, token: str, last_word: Connection) -> None:
    """An agent process's life."""
    leave_stops_to_parent()
    die_with_parent()
    one_thread()
    from afedpg.transport.grpc.client import agent_main, tell
    from afedpg.transport.grpc.membership import AgentOptions
    from afedpg.transport.grpc.terms import custom_parts

    config = build.config
    own = Config(task=config.task, agents=config.agents, agent=config.agent, codec=config.codec)

    def build_agreed(agreed: Config) -> Workload:
        lies = replace(agreed, attack=config.attack, attackers=config.attackers)  # no server tells agents to lie
        return replace(build, config=lies)()

    def failed(error: AfedpgError) -> None:
        if isinstance(error, ConfigError | BrokenPart) and not isinstance(error, FailedPart):
            last_word.send(Failure.of(error))
        else:
            tell(error)

    options = AgentOptions(f"127.0.0.1:{port}", own, build_agreed, name=name, token=token, custom=custom_parts(build))
    agent_main(options, lambda reports: "", failed)
