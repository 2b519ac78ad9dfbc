"""Who is let in: the authority's own, on the list, speaking for themselves. Everybody else is refused, with a line."""

from __future__ import annotations

import json
import stat
import time
from ipaddress import ip_address
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from federations import Site, site, wait_until
from raw_agent import RawAgent, raw_agent

from afedpg.config import from_settings
from afedpg.errors import ConfigError
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import certs
from afedpg.transport.grpc.certs import Pair, issue, make_certificates, new_authority
from afedpg.transport.grpc.tls import Identity

SIZE = 20
CONFIG = from_settings({"task": "quadratic", "dimension": SIZE})


def certificate(authority: Pair, trusted: bytes, name: str, days: float = 1.0, server: bool = False) -> Identity:
    pair = issue(authority, name, days, [x509.IPAddress(ip_address("127.0.0.1"))] if server else [])
    return Identity(trusted, pair.certificate_pem, pair.key_pem)


def authority_of(federation: Site) -> Pair:
    folder = federation.certs / "authority"
    key = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Pair(x509.load_pem_x509_certificate((folder / "authority.crt").read_bytes()), key)


def refused(federation: Site, credentials: grpc.ChannelCredentials, name: str = "") -> str:
    """What the caller is told."""
    with grpc.secure_channel(f"127.0.0.1:{federation.port}", credentials) as channel:
        agent = RawAgent(channel, CONFIG, SIZE, name)
        with pytest.raises(grpc.RpcError) as error:
            agent.next()
        agent.close()
        return str(error.value.details())


def logged(federation: Site, text: str) -> None:
    wait_until(lambda: text in federation.log(), what=text)


def test_only_the_right_certificate_gets_in(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 10**6, "--dimension", SIZE, agents=2, tls=True) as federation:
        authority = authority_of(federation)
        trusted = authority.certificate_pem
        federation.server()

        refused(federation, grpc.ssl_channel_credentials(trusted))
        logged(federation, "PEER_DID_NOT_RETURN_A_CERTIFICATE")
        refused(federation, certificate(new_authority(), trusted, "agent-0").for_client())
        logged(federation, "certificate signature failure")
        refused(federation, certificate(authority, trusted, "agent-0", days=-1).for_client())
        logged(federation, "certificate has expired")
        refused(federation, certificate(authority, trusted, "agent-0", server=True).for_client())
        logged(federation, "unsupported certificate purpose")
        assert "not on the allow-list" in refused(federation, certificate(authority, trusted, "stranger").for_client())
        logged(federation, "'stranger' is not on the allow-list")
        mine = Identity.read(federation.certs / "agents" / "agent-1")
        assert "speaks as" in refused(federation, mine.for_client(), name="agent-0")
        logged(federation, "'agent-1' speaks as 'agent-0'")

        with grpc.secure_channel(f"127.0.0.1:{federation.port}", mine.for_client()) as channel:
            agent = RawAgent(channel, CONFIG, SIZE)
            assert agent.task().version == 0
            time.sleep(0.01)  # so that the file's time differs
            (federation.certs / "allowed.txt").write_text("agent-0\n")  # agent-1 is revoked
            assert agent.refusal() == "removed from the allow-list"
            agent.close()
        logged(federation, "agent 1 (agent-1) dropped: removed from the allow-list")
        assert "not on the allow-list" in refused(federation, mine.for_client())


ODD_NAMES = {
    "two": ["agent-0", "agent-1"],
    "the same twice": ["agent-0", "agent-0"],
    "NUL": ["agent-0\0.example"],
    "NUL at the end": ["agent-0\0"],
    "none": [],
}


def test_a_certificate_with_an_odd_name_speaks_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with site(tmp_path, "--iterations", 10**6, "--dimension", SIZE, agents=2, tls=True) as federation:
        authority = authority_of(federation)
        federation.server()
        for names in ODD_NAMES.values():
            parts = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
            with monkeypatch.context() as patch:
                patch.setattr(certs, "_name", lambda text, parts=parts: x509.Name(parts))
                odd = certificate(authority, authority.certificate_pem, "")
            assert "is not on the allow-list" in refused(federation, odd.for_client()), names
        assert "joined" not in federation.log()
        assert "\0" not in federation.log()


def test_an_agent_does_not_trust_another_agent_as_its_server(tmp_path: Path) -> None:
    """A server that shows a client's certificate is no server."""
    make_certificates(tmp_path, ["127.0.0.1"], ["a", "b"], 1)
    server = grpc.server(__import__("concurrent.futures").futures.ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", Identity.read(tmp_path / "agents" / "b").for_server())
    server.start()
    try:
        with grpc.secure_channel(f"127.0.0.1:{port}", Identity.read(tmp_path / "agents" / "a").for_client()) as channel:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary("/afedpg.v1.Federation/Settings")(b"", timeout=60)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    finally:
        server.stop(0)


def test_certs_adds_agents_and_keeps_what_is_there(tmp_path: Path) -> None:
    first = make_certificates(tmp_path, ["localhost"], ["a"], 30)
    authority = (tmp_path / "authority" / "authority.key").read_bytes()
    assert {folder.name for folder in first} == {"server", "operator", "a"}
    assert make_certificates(tmp_path, ["localhost"], ["a", "b"], 30) == [tmp_path / "agents" / "b"]
    assert (tmp_path / "authority" / "authority.key").read_bytes() == authority
    assert (tmp_path / "allowed.txt").read_text() == "a\nb\n"
    for key in tmp_path.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for wrong in ("operator", "a b", "../x", "", ".", ".."):
        with pytest.raises(ConfigError, match=r"operator|name"):
            make_certificates(tmp_path, [], [wrong], 30)


def test_only_the_operator_may_ask_for_the_status(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 10**6, "--dimension", SIZE, agents=1, tls=True) as federation:
        federation.server()

        def ask(who: str) -> bytes:
            credentials = Identity.read(federation.certs / who).for_client()
            with grpc.secure_channel(f"127.0.0.1:{federation.port}", credentials) as channel:
                return bytes(channel.unary_unary("/afedpg.v1.Federation/Status")(b"", timeout=60))

        assert pb.StatusReply.FromString(ask("operator")).status
        with pytest.raises(grpc.RpcError) as error:
            ask("agents/agent-0")
        assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_who_does_not_know_the_token_of_a_local_run_is_refused(tmp_path: Path) -> None:
    with site(tmp_path) as federation:
        settings = ("--engine", "local", "--agents", 1, "--iterations", 10**6, "--dimension", SIZE)
        federation.command("train", "quadratic", *settings, "--out", federation.run)
        wait_until(lambda: federation.gradients() > 5)
        port = int(json.loads((federation.run / "listen.json").read_text())["address"].rpartition(":")[2])
        with raw_agent(port, CONFIG, SIZE, "agent-0") as stranger, pytest.raises(grpc.RpcError) as error:
            stranger.next()
        assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
