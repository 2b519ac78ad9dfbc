"""What a peer says is shown, logged and kept as one line of bounded length, in which nothing is obeyed."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from federations import Site, site, wait_until
from hypothesis import given
from hypothesis import strategies as st
from raw_agent import raw_agent

from afedpg.commands.network import _log_to_stderr
from afedpg.config import from_settings
from afedpg.dashboard.tail import status_of
from afedpg.engine.live import worth_a_line
from afedpg.errors import AfedpgError
from afedpg.messages import Moments, Report, Stats
from afedpg.printable import MOST_SAID, of_peer
from afedpg.protocol import federation_pb2 as pb
from afedpg.terminal.status import table
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.rates import Repeats
from afedpg.transport.grpc.terms import agree, terms
from afedpg.transport.grpc.tls import Identity
from afedpg.transport.grpc.wire import Refused

SIZE = 20
CONFIG = from_settings({"task": "quadratic", "dimension": SIZE, "agents": 2})
EVIL = "EVIL\x1b[2J\x1b]0;owned\x07\r\n2026-01-01 00:00:00,000 INFO FORGED\x00\x9b\u202e" + 10_000 * "A"


def harmless(text: str) -> None:
    """Of a whole log: its own line ends are all the control codes there are, and no line was forged."""
    assert re.search("EVIL|FORGED", text)  # of a long text the beginning may be left out
    assert [letter for letter in text.replace("\n", "") if not letter.isprintable()] == []
    assert not re.search(r"^\S+ \S+ INFO FORGED", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) < 600


@given(st.text(), st.integers(1, 50))
def test_what_a_peer_says_is_one_line_of_bounded_length(text: str, most: int) -> None:
    said = of_peer(text, most)
    assert said.isprintable()
    assert len(said) <= most + 3
    if text.isprintable() and len(text) <= most:
        assert said == text


def test_every_text_of_a_message_is_cleaned_where_it_is_parsed() -> None:
    name = wire.from_agent(pb.FromAgent(join=pb.Join(name=EVIL)).SerializeToString()).join.name
    asked = wire.settings_request(pb.SettingsRequest(name=EVIL).SerializeToString()).name
    reason = wire.from_server(pb.FromServer(refusal=pb.Refusal(reason=EVIL)).SerializeToString()).refusal.reason
    for text in (name, asked, reason, str(Refused(EVIL))):
        assert text.startswith("EVIL\\x1b[2J")
        assert text.isprintable()
        assert len(text) <= MOST_SAID + 3
    with pytest.raises(Refused, match="settings: 65537 characters"):
        wire.settings_reply(pb.SettingsReply(settings=" " * 65537).SerializeToString())
    report = GOOD._replace(stats=Stats(1, extra={"EVIL\n": 1.0}))
    with pytest.raises(Refused, match="cannot be printed"):
        wire.decode_report(wire.from_agent(wire.encode_report(report)).report, 0, wire.Expected(SIZE))
    moments = {EVIL: Moments(1.0, np.zeros(1), np.zeros(1))}
    report = GOOD._replace(moments=moments)
    with pytest.raises(Refused, match="EVIL") as refused:
        wire.decode_report(wire.from_agent(wire.encode_report(report)).report, 0, wire.Expected(SIZE, {"rewards": 1}))
    assert str(refused.value).isprintable()
    for name, value in (
        ("estimator", EVIL),
        ("codec", EVIL),
        ("codec", f"custom:{EVIL}"),
        ("estimator", "custom:EVIL"),
    ):
        with pytest.raises(Refused, match=r"EVIL|FORGED") as refused:
            agree(CONFIG, json.dumps(json.loads(terms(CONFIG)) | {name: value}), 0, 0)
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 300


GOOD = Report(wire.TaskId(0, 1), 0, np.ones(SIZE, np.float32), 0, stats=Stats(1))


def test_no_control_byte_of_an_agent_reaches_the_servers_log_or_its_record(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 10**6, "--dimension", SIZE, agents=1) as federation:
        server = federation.server()
        for wrong in ({"name": EVIL}, {"fingerprint": EVIL}, {"protocol": 7, "name": "EVIL"}):
            with raw_agent(federation.port, CONFIG, SIZE, "agent-0", wrong) as liar, pytest.raises(grpc.RpcError):
                liar.next()
        request = pb.SettingsRequest(protocol=wire.PROTOCOL, name=EVIL).SerializeToString()
        with grpc.insecure_channel(f"127.0.0.1:{federation.port}") as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary(f"/{wire.SERVICE}/Settings")(request, timeout=60)
        with raw_agent(federation.port, CONFIG, SIZE, "liar") as liar:
            message = pb.FromAgent.FromString(wire.encode_report(GOOD._replace(task_id=liar.task().task_id)))
            message.report.dtype = "E\x1b\n\x00" + EVIL
            liar.send(message.SerializeToString())
            assert liar.refusal().startswith("dtype: 'E\\x1b\\n")
            message.report.dtype, message.report.extra[EVIL] = "<f4", 1.0
            liar.send(message.SerializeToString())
            assert liar.refusal().startswith("stats: ")
            message.report.scalars[EVIL] = 1.0
            liar.send(message.SerializeToString())
            assert liar.refusal().startswith("scalars: ")
            message.report.moments.add(name=EVIL, count=1.0)
            liar.send(message.SerializeToString())
            assert liar.refusal().startswith("moments: ")
        wait_until(lambda: len(federation.query("SELECT reason FROM rejected")) == 4)
        server.terminate()
        assert server.wait(60) == 130
        harmless(federation.log())
        kept = federation.query("SELECT reason FROM rejected") + federation.query("SELECT value FROM notes")
        assert all(text.isprintable() for (text,) in kept)


class HostileServer(grpc.GenericRpcHandler):
    """Answers as its mood is."""

    mood = "details"
    terms = terms(CONFIG)

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        if call.method.endswith("Work"):
            return grpc.stream_stream_rpc_method_handler(self.work)
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        if self.mood == "details":
            context.abort(grpc.StatusCode.PERMISSION_DENIED, EVIL)
        if self.mood == "status":
            agent = {"agent": 0, "name": EVIL, "state": EVIL, "gradients": 1, "delay": 0.0, "rejected": 0}
            rest = {"seconds_per_gradient": 1.0, "bytes_up": 0, "bytes_down": 0, "last_seen": 0.0}
            head = {"time": 0.0, "seconds": 1.0, "iteration": EVIL, "gradients": 1, "samples": 1, "epoch": 0}
            document = {**head, "gradients_per_second": 1.0, "rejected": 0, "agents": [{**agent, **rest}]}
            return pb.StatusReply(status=json.dumps(document)).SerializeToString()
        if self.mood == "no status":
            return pb.StatusReply(status=json.dumps({EVIL: EVIL})).SerializeToString()
        if self.mood == "settings":
            return pb.SettingsReply(settings=json.dumps(json.loads(self.terms) | {"codec": EVIL})).SerializeToString()
        return pb.SettingsReply(settings=self.terms).SerializeToString()

    def work(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        yield pb.FromServer(welcome=pb.Welcome(agent=0, lease_seconds=15)).SerializeToString()
        yield pb.FromServer(refusal=pb.Refusal(reason=EVIL)).SerializeToString()
        yield pb.FromServer(refusal=pb.Refusal(reason=EVIL, final=True)).SerializeToString()


@contextmanager
def hostile_server() -> Iterator[tuple[HostileServer, int]]:
    server, hostile = grpc.server(ThreadPoolExecutor(4)), HostileServer()
    server.add_generic_rpc_handlers((hostile,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield hostile, port
    finally:
        server.stop(0).wait()


def test_no_control_byte_of_a_server_reaches_an_agents_log_or_an_operators_terminal(tmp_path: Path) -> None:
    with site(tmp_path, agents=1) as federation, hostile_server() as (hostile, port):
        for number, hostile.mood in enumerate(("details", "settings", "refusal")):
            code = federation.agent(number, "--patience", 30, port=port).wait(60)
            assert 0 < code < 128, federation.log(f"agent-{number}")
            harmless(federation.log(f"agent-{number}"))
        for hostile.mood, end in (("status", 0), ("no status", 1), ("details", 1)):
            assert federation.command("status", f"127.0.0.1:{port}", "--insecure").wait(60) == end
        hostile.mood = "status"
        assert federation.command("status", f"127.0.0.1:{port}", "--insecure", "--json").wait(60) == 0
        *text, machine = federation.log("status").splitlines()
        assert json.loads(machine)["agents"][0]["name"] == EVIL
        assert machine.isprintable()
        lines = "\n".join(text)
        assert "EVIL" in lines
        assert lines.replace("\n", "").isprintable()
        assert "Traceback" not in lines


def test_a_status_shows_no_control_byte_on_the_page_either() -> None:
    agent = {"agent": 0, "name": EVIL, "state": EVIL, "rejected": 0, "seconds_per_gradient": 1.0, "last_seen": 0.0}
    document = {"time": 0.0, "seconds": 0.0, "gradients_per_second": 0.0, "agents": [agent]}
    told = status_of({"status": json.dumps(document)}).agents[0]
    assert (told.name + told.state).isprintable()
    assert max(len(told.name), len(told.state)) <= 83
    with pytest.raises(AfedpgError, match="no status of this version"):
        table(document)


NUMBERS = {"gradients": 1, "delay": 0.0, "bytes_up": 0, "bytes_down": 0}
AGENT = {"agent": 0, "name": "a", "state": "", "rejected": 0, "seconds_per_gradient": 1.0, "last_seen": 0.0, **NUMBERS}
STATUS = {
    "time": 0.0, "seconds": 0.0, "gradients_per_second": 0.0, "iteration": 0, "gradients": 0, "rejected": 0, "epoch": 0,
}  # fmt: skip


@pytest.mark.parametrize("lie", [
    {"agents": [AGENT | {"unused": float("inf")}]}, {"agents": [AGENT | {"unused": EVIL}]},
    {"agents": [AGENT | {"unused": [1]}]}, {"agents": ["agent"]}, {"time": 1e300, "state": "stopped"},
], ids=["infinite", "text", "list", "no agent", "time"])  # fmt: skip
def test_a_status_that_makes_no_sense_is_one_line(lie: dict[str, Any]) -> None:
    assert table(STATUS | {"agents": [AGENT]})
    with pytest.raises(AfedpgError, match="no status of this version") as error:
        table(STATUS | {"agents": [AGENT]} | lie)
    assert str(error.value).isprintable()


def test_a_record_is_one_line_whatever_is_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of libraries that log what they were sent."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    _log_to_stderr()
    logging.getLogger("somebody").error("they said %s", EVIL[:60])
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said[:-1].isprintable()
    try:
        raise ValueError
    except ValueError:
        logging.getLogger("somebody").exception("it failed")
    assert capsys.readouterr().err.count("\n") > 2


def test_who_is_refused_again_and_again_does_not_fill_the_log(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 10**6, "--dimension", SIZE, agents=2, tls=True) as federation:
        (federation.certs / "allowed.txt").write_text("agent-0\n")  # agent-1 is revoked
        federation.server()
        knock(federation, 1, 300)
        federation.agent(0)
        wait_until(lambda: "joined" in federation.log())
        lines = federation.log().count("'agent-1' is not on the allow-list")
        assert 5 <= lines <= 5 + 6  # the first five, then 8, 16, ... 256


def knock(federation: Site, number: int, times: int) -> None:
    credentials = Identity.read(federation.certs / "agents" / f"agent-{number}").for_client()
    with grpc.secure_channel(f"127.0.0.1:{federation.port}", credentials) as channel:
        request = pb.SettingsRequest(protocol=wire.PROTOCOL).SerializeToString()
        for _ in range(times):
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(f"/{wire.SERVICE}/Settings")(request, timeout=60, wait_for_ready=True)
            assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED


def test_repeats_are_forgotten_and_bounded() -> None:
    repeats = Repeats(forget=60.0, most=2)
    assert [repeats.count("a", now) for now in (0.0, 1.0, 60.0)] == [1, 2, 3]
    assert repeats.count("a", 120.0) == 1  # a minute without it
    assert [repeats.count(who, 120.0) for who in "bca"] == [1, 1, 1]  # a was forgotten for c
    assert [count for count in range(1, 70) if worth_a_line(count)] == [1, 2, 3, 4, 5, 8, 16, 32, 64]


def test_what_a_ray_actor_raises_is_one_line() -> None:
    exceptions = pytest.importorskip("ray.exceptions")
    from afedpg.transport.ray.pool import _first_line, _last_line

    error = exceptions.RayError("\x1b[2J" + "A" * 1000 + "\nTraceback\nValueError: EVIL\x1b[2J\x00" + "A" * 1000)
    assert _first_line(error).startswith("RayError: \\x1b[2JAAA")
    assert _last_line(error).startswith("ValueError: EVIL\\x1b[2J\\x00")
    for said in (_first_line(error), _last_line(error)):
        assert said.isprintable()
        assert len(said) <= MOST_SAID + 3
