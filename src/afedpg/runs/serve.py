"""The server of a federation: a run that is served over gRPC."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from afedpg.engine.cost import check_memory
from afedpg.engine.live import LiveEngine, Transport
from afedpg.engine.process import Interruption
from afedpg.errors import ConfigError
from afedpg.record.disk import to_copy, write_error, write_text
from afedpg.runs.live_session import Parts, keep_record, new_parts, restored_parts, run_live
from afedpg.runs.parts import check_own, warn_of_versions
from afedpg.runs.requests import NewRun, StoredRun
from afedpg.runs.result import Result
from afedpg.transport.grpc.listener import Listener, listening
from afedpg.transport.grpc.roster import Roster, read_list
from afedpg.transport.grpc.service import Service, Terms
from afedpg.transport.grpc.terms import custom_parts, expected, terms
from afedpg.transport.grpc.tls import Identity, require_loopback, split_address
from afedpg.transport.grpc.wire import fingerprint

ROSTER, PLACE = "agents.json", "listen.json"


@dataclass(frozen=True)
class Place:
    """Where a server listens, and whom it lets in."""

    address: str  # HOST:PORT; port 0 takes a free one
    cert: Path | None = None  # None: no TLS, loopback only
    allow: Path | None = None
    token: str = ""  # without TLS: a secret that every caller must know
    names: tuple[str, ...] = ()  # agents that get the first numbers, in this order

    def check(self) -> None:
        host, _ = split_address(self.address, "listen")
        if self.cert is None:
            require_loopback(host)
        elif self.allow is None:
            raise ConfigError("allow: name the list of agents that may take part; `afedpg certs` writes allowed.txt")
        else:
            Identity.read(self.cert)
        if self.allow is not None:
            read_list(self.allow)

    def listening(self, parts: Parts) -> AbstractContextManager[Listener]:
        credentials = None if self.cert is None else Identity.read(self.cert).for_server()
        return listening(self.address, credentials, parts.workload.parameters, parts.config.network.lease)

    def to_json(self, port: int) -> str:
        """For the run folder, so that `afedpg resume` listens where the agents will look."""
        host, _ = split_address(self.address, "listen")
        return json.dumps({
            "address": f"{host}:{port}",
            "cert": None if self.cert is None else str(self.cert.absolute()),
            "allow": None if self.allow is None else str(self.allow.absolute()),
        })  # fmt: skip

    @classmethod
    def stored(cls, folder: Path) -> Place:
        try:
            document = json.loads((folder / PLACE).read_text())
            cert, allow = (None if document[key] is None else Path(document[key]) for key in ("cert", "allow"))
            return cls(document["address"], cert, allow)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"run: {folder} does not say where it listened; use `afedpg server --resume`") from error


OnPort = Callable[[int], None]
Watchers = Iterable[Callable[[], None]]


def run_server(new: NewRun, place: Place, on_port: OnPort = lambda port: None, watchers: Watchers = ()) -> Result:
    """A new run, until it is done."""
    place.check()
    parts = new_parts(new.config, new.own, new.on_arrival)
    cost = check_memory(new.config, parts.workload, parts.federation.rule, 1)

    def begin(port: int) -> None:
        keep_record(parts, new.out, {PLACE: place.to_json(port)}, new.numbered)
        new.announce(cost)

    return _serve(parts, place, begin, on_port, watchers)


def resume_server(
    stored: StoredRun, place: Place, on_port: OnPort = lambda port: None, watchers: Watchers = (), engine: str = "grpc"
) -> Result:
    """Goes on with the bits the server had when it ended, however it ended. Runs of another `engine` are refused."""
    place.check()
    config, folder = stored.config, stored.folder
    if config.engine != engine:
        how = f"go on with `{to_copy('resume', folder.path)}`"
        raise ConfigError(f"out: {folder.path} is a run of --engine {config.engine}, not of a server; {how}")
    check_own(config, stored.own)
    warn_of_versions(folder, stored.warn)
    parts = restored_parts(stored, config)

    def begin(port: int) -> None:
        try:
            write_text(folder.path / PLACE, place.to_json(port))
        except OSError as error:
            raise write_error(error, folder.path / PLACE, folder.path) from error
        cost = check_memory(config, parts.workload, parts.federation.rule, 1)
        stored.announce(replace(cost, done=parts.federation.server.gradients))

    return _serve(parts, place, begin, on_port, watchers)


def _serve(parts: Parts, place: Place, begin: OnPort, on_port: OnPort, watchers: Watchers) -> Result:
    """`begin` comes once the port is taken, `on_port` once somebody answers there."""
    with (
        Interruption().watched() as interruption,
        contextlib.closing(parts.federation),
        tempfile.TemporaryDirectory() as nowhere,
        place.listening(parts) as listener,
    ):
        begin(listener.port)
        recorder = parts.federation.recorder
        folder = Path(nowhere) if recorder is None else recorder.folder.path
        roster = Roster(folder / ROSTER, place.allow, place.names)
        transport = _transport(parts, place, listener, roster, on_port)
        return run_live(parts, transport, interruption, list(watchers), drive=listener.drive)


def _transport(parts: Parts, place: Place, listener: Listener, roster: Roster, on_port: OnPort) -> Transport:
    config, workload, recorder = parts.config, parts.workload, parts.federation.recorder
    build = parts.own.workload(config)
    text = terms(config, parts.federation.rule.contributions(config.agents), custom_parts(build))
    agreed = Terms(text, fingerprint(config.environment, workload.parameters, text), expected(workload))
    sync = recorder.journal.sync if config.network.durable and recorder is not None else None

    @contextlib.asynccontextmanager
    async def transport(engine: LiveEngine) -> AsyncIterator[None]:
        service = Service(engine, roster, agreed, place.cert is not None, place.token, sync)
        engine.watchers.append(service.revoke)
        async with listener.serve(service):
            on_port(listener.port)
            yield

    return transport
