"""An agent that can never take part says why, in one line, and ends for good; one whose server is down waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from federations import Site, site, wait_until

from afedpg.config import Config, from_settings
from afedpg.engine.workloads import BuildWorkload
from afedpg.messages import Task, TaskId, Workload
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc.certs import Pair, issue, make_certificates, new_authority
from afedpg.transport.grpc.client import Agent
from afedpg.transport.grpc.membership import FIRST_PAUSE, AgentOptions, Pause
from afedpg.transport.grpc.probe import misfit
from afedpg.transport.grpc.terms import terms
from afedpg.transport.grpc.wire import encode_task

Spoil = Callable[[Path, Site], None]


def other_authority(mine: Path, federation: Site) -> None:
    """It trusts somebody else than who signed the server's certificate."""
    (mine / "authority.crt").write_bytes(new_authority().certificate_pem)


def other_signature(mine: Path, federation: Site) -> None:
    store(mine, issue(new_authority(), "agent-0", 1))


def expired(mine: Path, federation: Site) -> None:
    folder = federation.certs / "authority"
    key: Any = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
    authority = Pair(x509.load_pem_x509_certificate((folder / "authority.crt").read_bytes()), key)
    store(mine, issue(authority, "agent-0", -1))


def of_a_server(mine: Path, federation: Site) -> None:
    for file in ("own.crt", "own.key"):
        shutil.copy(federation.certs / "server" / file, mine)


def of_another_key(mine: Path, federation: Site) -> None:
    shutil.copy(federation.certs / "operator" / "own.key", mine)


def store(mine: Path, pair: Pair) -> None:
    (mine / "own.crt").write_bytes(pair.certificate_pem)
    (mine / "own.key").write_bytes(pair.key_pem)


def nothing(mine: Path, federation: Site) -> None:
    pass


MISFITS: dict[str, tuple[Spoil, str, str]] = {
    "another authority": (other_authority, "127.0.0.1", "the server's certificate is not good: "),
    "another host": (nothing, "localhost", "the server's certificate does not name localhost; "),
    "signed by another": (other_signature, "127.0.0.1", ": it is not signed by the authority in "),
    "expired": (expired, "127.0.0.1", ": it expired on "),
    "a server's": (of_a_server, "127.0.0.1", ": it is not for an agent"),
    "another key": (of_another_key, "127.0.0.1", "cannot be used: key values mismatch"),
}


def test_a_certificate_that_does_not_fit_is_named_and_not_tried_again(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 10**6, agents=1, tls=True) as federation:
        federation.server()
        for name, (spoil, host, said) in MISFITS.items():
            mine = tmp_path / name
            shutil.copytree(federation.certs / "agents" / "agent-0", mine)
            spoil(mine, federation)
            address = f"{host}:{federation.port}"
            agent = federation.command("agent", "quadratic", "--connect", address, "--cert", mine, log=f"{name}.log")
            assert agent.wait(60) == 3, federation.log(name)
            *_, last = federation.log(name).splitlines()
            assert last.startswith(f"afedpg: cannot work for {address}: ")
            assert said in last
            assert "trying again" not in federation.log(name)
        federation.agent(0)  # whose certificate fits
        wait_until(lambda: federation.gradients() > 0)


def test_a_server_that_is_not_up_yet_is_waited_for(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 10**6, agents=1, tls=True) as federation:
        agent = federation.agent(0)
        wait_until(lambda: "trying again" in federation.log("agent-0"))
        federation.server()
        wait_until(lambda: federation.gradients() > 0)
        assert agent.poll() is None


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, ["127.0.0.1"], ["a"], 1)
    return folder


@pytest.fixture
def hangs_up() -> Iterator[int]:
    """A port behind which somebody takes connections and closes them, as a proxy without its server does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_who_is_not_there_or_hangs_up_is_no_misfit(certificates: Path, hangs_up: int, tmp_path: Path) -> None:
    """Nor is anybody who hangs up before there was a handshake, whatever may be wrong with our certificate."""
    mine = shutil.copytree(certificates / "agents" / "a", tmp_path / "faulty")
    store(mine, issue(new_authority(), "a", 1))
    assert misfit(f"127.0.0.1:{hangs_up}", mine) == ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert misfit(f"127.0.0.1:{free.getsockname()[1]}", mine) == ""
    assert misfit("no-such-host.invalid:1", mine) == ""


def test_a_line_that_breaks_after_every_handshake_is_no_misfit(certificates: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server" / "own.crt", certificates / "server" / "own.key")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                with contextlib.suppress(OSError):
                    context.wrap_socket(server.accept()[0], server_side=True).close()

        served = threading.Thread(target=serve, daemon=True)
        served.start()
        assert misfit(f"127.0.0.1:{server.getsockname()[1]}", certificates / "agents" / "a") == ""
        served.join(60)
        assert not served.is_alive()  # it was tried twice


def test_a_server_without_tls_is_named(certificates: Path) -> None:
    async def serve() -> str:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            return await asyncio.to_thread(misfit, f"127.0.0.1:{port}", certificates / "agents" / "a")
        finally:
            await server.stop(None)

    assert asyncio.run(serve()).startswith("whoever answers there does not speak TLS: ")


# Pauses.

CONFIG = from_settings({"task": "quadratic", "dimension": 3})


class Fickle(grpc.GenericRpcHandler):
    """Welcomes an agent, takes so many reports, and hangs up."""

    def __init__(self, reports: int) -> None:
        self.reports = reports

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(self.work)

    async def work(self, requests: object, context: Any) -> None:
        await context.read()
        await context.write(pb.FromServer(welcome=pb.Welcome(agent=0, lease_seconds=15)).SerializeToString())
        for counter in range(self.reports + 1):
            await context.write(encode_task(Task(TaskId(0, counter), 0, np.zeros(3, np.float32), 0)))
            if counter < self.reports:
                await context.read()


class Sparse(grpc.GenericRpcHandler):
    """Tells its terms, hangs up on who then comes, and is finished when it comes again."""

    visits = 0

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        if call.method.endswith("Settings"):
            return grpc.unary_unary_rpc_method_handler(self.settings)
        return grpc.stream_stream_rpc_method_handler(self.work)

    async def settings(self, data: bytes, context: Any) -> bytes:
        return pb.SettingsReply(settings=terms(CONFIG)).SerializeToString()

    async def work(self, requests: object, context: Any) -> None:
        self.visits += 1
        if self.visits > 1:
            await context.write(pb.FromServer(finished=pb.Finished()).SerializeToString())


def test_what_an_agent_builds_is_no_silence_of_its_server() -> None:
    """It may compile for longer than it is patient."""

    async def visits() -> None:
        server, handler = grpc.aio.server(), Sparse()
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()

        def build(config: Config) -> Workload:
            agent.contact -= 1000
            return BuildWorkload(config)()

        agent = Agent(AgentOptions(f"127.0.0.1:{port}", CONFIG, build, patience=100.0))
        try:
            await agent.run()
        finally:
            agent.close()
            await server.stop(None)
        assert handler.visits == 2

    asyncio.run(visits())


@pytest.mark.parametrize(("reports", "grows"), [(0, True), (1, False)])
def test_pauses_grow_until_there_was_useful_work(reports: int, grows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A welcome alone is none: who is let go right after it must not come back at once, for ever."""
    pauses: list[float] = []

    class Enough(Exception):
        pass

    def seconds(pause: Pause) -> float:
        pauses.append(pause._next)
        if len(pauses) == 5:
            raise Enough
        pause._next *= 2
        return 0.0

    async def visits() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Fickle(reports),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        agent = Agent(AgentOptions(f"127.0.0.1:{port}", CONFIG, lambda config: BuildWorkload(config)()))
        agent.expected = await agent.worker.build(agent.options.build, CONFIG, 0, None)
        agent.settings = "agreed"
        try:
            with pytest.raises(Enough):
                await agent.run()
        finally:
            agent.close()
            await server.stop(None)

    monkeypatch.setattr(Pause, "seconds", seconds)
    asyncio.run(visits())
    assert pauses == [FIRST_PAUSE * (2**attempt if grows else 1) for attempt in range(5)]
