"""The server of a federation: a run that is served over gRPC."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from afedpg.config import Config
from afedpg.engine.federation import OnArrival
from afedpg.engine.grpc.roster import Roster
from afedpg.engine.grpc.service import Service, Terms, serve
from afedpg.engine.grpc.terms import expected, terms
from afedpg.engine.grpc.tls import Identity, require_loopback, split_address
from afedpg.engine.grpc.wire import fingerprint
from afedpg.engine.live import LiveEngine, Transport
from afedpg.engine.live_session import Parts, keep_record, new_parts, restored_parts, run_live
from afedpg.engine.process import Interruption
from afedpg.engine.session import Result
from afedpg.engine.training import Cost, Own, check_memory, check_own
from afedpg.errors import ConfigError
from afedpg.record import folder as folders
from afedpg.record.disk import write_text

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

    def store(self, folder: Path, port: int) -> None:
        """So that `afedpg resume` listens where the agents will look."""
        host, _ = split_address(self.address, "listen")
        document = {
            "address": f"{host}:{port}",
            "cert": None if self.cert is None else str(self.cert.absolute()),
            "allow": None if self.allow is None else str(self.allow.absolute()),
        }
        write_text(folder / PLACE, json.dumps(document))

    @classmethod
    def stored(cls, folder: Path) -> Place:
        try:
            document = json.loads((folder / PLACE).read_text())
            cert, allow = (None if document[key] is None else Path(document[key]) for key in ("cert", "allow"))
            return cls(document["address"], cert, allow)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"run: {folder} does not say where it listened; use `afedpg server --resume`") from error


def run_server(
    config: Config,
    place: Place,
    out: Path | None,
    own: Own = Own(),
    on_arrival: OnArrival | None = None,
    announce: Callable[[Cost], None] = lambda cost: None,
    on_port: Callable[[int], None] = lambda port: None,
    watchers: Iterable[Callable[[], None]] = (),
) -> Result:
    """A new run, until it is done."""
    place.check()
    parts = new_parts(config, own, on_arrival)
    announce(check_memory(config, parts.workload, 1))
    keep_record(parts, out)
    return _serve(parts, place, on_port, list(watchers))


def resume_server(
    folder: folders.RunFolder,
    place: Place,
    own: Own = Own(),
    on_arrival: OnArrival | None = None,
    warn: Callable[[str], None] = lambda text: None,
    announce: Callable[[Cost], None] = lambda cost: None,
    on_port: Callable[[int], None] = lambda port: None,
    watchers: Iterable[Callable[[], None]] = (),
) -> Result:
    """Goes on with the bits the server had when it ended, however it ended."""
    place.check()
    config = folder.config()
    check_own(config, own)
    parts = restored_parts(folder, config, own, on_arrival, warn)
    announce(replace(check_memory(config, parts.workload, 1), done=parts.federation.server.gradients))
    return _serve(parts, place, on_port, list(watchers))


def _serve(parts: Parts, place: Place, on_port: Callable[[int], None], watchers: list[Callable[[], None]]) -> Result:
    interruption = Interruption()
    closing = contextlib.closing(parts.federation)
    with interruption.watched(), closing, tempfile.TemporaryDirectory() as nowhere:
        recorder = parts.federation.recorder
        folder = Path(nowhere) if recorder is None else recorder.folder.path

        def opened(port: int) -> None:
            place.store(folder, port)
            on_port(port)

        roster = Roster(folder / ROSTER, place.allow, place.names)
        return run_live(parts, _transport(parts, place, roster, opened), interruption, watchers)


def _transport(parts: Parts, place: Place, roster: Roster, on_port: Callable[[int], None]) -> Transport:
    config, workload, recorder = parts.config, parts.workload, parts.federation.recorder
    text = terms(config)
    agreed = Terms(text, fingerprint(config.environment, workload.parameters, text), expected(config, workload))
    sync = recorder.journal.sync if config.network.durable and recorder is not None else None
    credentials = None if place.cert is None else Identity.read(place.cert).for_server()

    @contextlib.asynccontextmanager
    async def transport(engine: LiveEngine) -> AsyncIterator[None]:
        service = Service(engine, roster, agreed, credentials is not None, place.token, sync)
        engine.watchers.append(service.revoke)
        async with serve(service, place.address, credentials, on_port):
            yield

    return transport
