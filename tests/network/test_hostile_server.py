"""A server that lies. Whatever it sends is looked at before anything is computed with it; then the agent leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest

from afedpg.config import Config, from_settings
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Moments, Task, TaskId
from afedpg.protocol import federation_pb2 as pb
from afedpg.protocol.encoding import checksum
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.client import run_agent
from afedpg.transport.grpc.membership import AgentOptions
from afedpg.transport.grpc.terms import agree, terms
from afedpg.transport.grpc.wire import Damaged, Refused
from afedpg.validation import validate

CONFIG = from_settings({"task": "CartPole-v1", "hidden": (4,), "steps": 16})
SIZE = 4 * 4 + 4 + 4 * 2 + 2
GOOD = Moments(50.0, np.zeros(4), np.ones(4))


def task(theta: np.ndarray | None = None, statistics: Moments = GOOD, **more: Moments) -> Task:
    theta = np.zeros(SIZE, np.float32) if theta is None else theta
    return Task(TaskId(1, 1), 0, theta, 0, {**more, "observations": statistics})


def one(value: float) -> np.ndarray:
    return np.array([0.0, 0.0, value, 0.0])


LIES = {
    "theta short": task(np.zeros(SIZE - 1, np.float32)),
    "theta long": task(np.zeros(SIZE + 1, np.float32)),
    "theta NaN": task(np.full(SIZE, np.nan, np.float32)),
    "theta infinite": task(np.full(SIZE, np.inf, np.float32)),
    "statistics short": task(statistics=Moments(50.0, np.zeros(1), np.ones(1))),
    "statistics long": task(statistics=Moments(50.0, np.zeros(5), np.ones(5))),
    "statistics empty": task(statistics=Moments(50.0, np.zeros(0), np.zeros(0))),
    "m2 short": task(statistics=Moments(50.0, np.zeros(4), np.ones(3))),
    "m2 negative": task(statistics=Moments(50.0, np.zeros(4), one(-1e-3))),
    "m2 NaN": task(statistics=Moments(50.0, np.zeros(4), one(np.nan))),
    "m2 infinite": task(statistics=Moments(50.0, np.zeros(4), one(np.inf))),
    "m2 huge": task(statistics=Moments(50.0, np.zeros(4), one(1e30))),
    "mean NaN": task(statistics=Moments(50.0, one(np.nan), np.ones(4))),
    "mean infinite": task(statistics=Moments(50.0, one(-np.inf), np.ones(4))),
    "mean huge": task(statistics=Moments(50.0, one(1e12), np.ones(4))),
    "count zero": task(statistics=Moments(0.0, np.zeros(4), np.ones(4))),
    "count negative": task(statistics=Moments(-5.0, np.zeros(4), np.ones(4))),
    "count NaN": task(statistics=Moments(np.nan, np.zeros(4), np.ones(4))),
    "count infinite": task(statistics=Moments(np.inf, np.zeros(4), np.ones(4))),
}


EXPECTED = wire.Expected(SIZE, {"observations": 4})


def decoded(sent: Task, expected: wire.Expected = EXPECTED) -> Task:
    return wire.decode_task(wire.from_server(wire.encode_task(sent)).task, 0, expected)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_task_that_could_not_be_computed_with_is_refused(lie: Task) -> None:
    assert decoded(task()).statistics.keys() == {"observations"}
    with pytest.raises(Refused, match=r"^(theta|statistics): ") as refusal:
        decoded(lie)
    assert not isinstance(refusal.value, Damaged)  # it would be sent again


def test_an_agent_that_does_not_scale_sees_no_statistics() -> None:
    assert decoded(LIES["statistics short"], wire.Expected(SIZE)).statistics == {}


def test_statistics_of_other_names_are_not_looked_at() -> None:
    """A name that no estimator of this agent's reads, however many there are and whatever they hold."""
    others = {f"other {number}": Moments(np.nan, np.zeros(number), np.ones(1)) for number in range(100)}
    assert decoded(task(**others)).statistics.keys() == {"observations"}
    with pytest.raises(Refused, match=r"^statistics: "):
        decoded(task(statistics=Moments(50.0, np.zeros(3), np.ones(3)), **others))


@pytest.mark.parametrize("order", [1, -1])
def test_statistics_of_one_name_come_once(order: int) -> None:
    """Or it would depend on their order which of them was looked at."""
    one = wire.from_server(wire.encode_task(task())).task
    other = wire.from_server(wire.encode_task(LIES["mean NaN"])).task
    both = [*one.statistics, *other.statistics][::order]
    del one.statistics[:]
    one.statistics.extend(both)
    one.checksum = checksum(one.theta, both)
    with pytest.raises(Refused, match=r"^statistics: observations came twice"):
        wire.decode_task(one, 0, EXPECTED)


def test_a_damaged_task_is_told_from_a_lie() -> None:
    data = wire.encode_task(task())
    with pytest.raises(Damaged):
        wire.decode_task(wire.from_server(data[:-1] + bytes((data[-1] ^ 1,))).task, 0, EXPECTED)
    with pytest.raises(Damaged):
        wire.from_server(b"\xff" * 9)


@dataclass
class Liar:
    """Serves terms and one Task, and keeps what agents send."""

    settings: str
    task: Task
    lease: float = 15.0
    agent: int = 0
    visits: int = 0
    heard: list[str] = field(default_factory=list)

    def settings_of(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return pb.SettingsReply(agent=self.agent, settings=self.settings).SerializeToString()

    def work(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self.visits += 1
        next(requests)
        yield pb.FromServer(welcome=pb.Welcome(agent=0, lease_seconds=self.lease)).SerializeToString()
        yield wire.encode_task(self.task)
        for request in requests:
            self.heard.append(pb.FromAgent.FromString(request).WhichOneof("content") or "")


@contextmanager
def served(liar: Liar) -> Iterator[AgentOptions]:
    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {
        "Settings": grpc.unary_unary_rpc_method_handler(liar.settings_of),
        "Work": grpc.stream_stream_rpc_method_handler(liar.work),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    own = Config(task="CartPole-v1")
    try:
        yield AgentOptions(f"127.0.0.1:{port}", own, lambda agreed: BuildWorkload(agreed)(), name="me", patience=5.0)
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize("liar", [
    Liar(terms(CONFIG), LIES["statistics short"]),
    Liar(terms(CONFIG), LIES["theta NaN"]),
    Liar(terms(CONFIG), task(), lease=float("nan")),
], ids=["statistics", "theta", "lease"])  # fmt: skip
def test_an_agent_leaves_for_good_and_sends_nothing(liar: Liar) -> None:
    with served(liar) as options:
        with pytest.raises(AfedpgError, match=r"sent something else than the protocol says: .*leaves for good") as line:
            run_agent(options)
        assert "\n" not in str(line.value)
    assert liar.visits == 1
    assert "report" not in liar.heard


NO_PARTS = (  # of which a server may not name any
    "", ":", "\x1b[2J", 3, None, [], "evil.py:Part", "/tmp/evil.py:Part:power=1", "custom:evil.Part", "custom:",
    "float32:power=1", "gae:power=1", "gae:power=" + "1" * 5000, "gae:" + "power=[" * 3000, "gae:x=1979-05-27,=",
)  # fmt: skip
UNSOUND = {
    "seed": (-1, 2**64, 10**400), "dimension": (0, 2**40), "batch": (0, 2**40), "noise": (-1, 1e300, float("nan")),
    "steps": (0, 2**40),
    "optima": ([1e300], [None], "12", 1.0),
    "log_std": (-1e3, 1e3), "hidden": ([0], [2**40], [1] * 1000, [2**16] * 3, "64"), "baseline_hidden": ([2**17],),
    "gamma": (0, 1.5, 10**400), "gae_lambda": (-1, 2), "baseline_rate": (0, 1e9), "baseline_epochs": (0, 10**9),
    "segment": (-1, 5, 2**40), "entropy": (-1, 1e300), "value_weight": (-1, float("inf")),
    "scale_observations": (1, None),
    "estimator": ("x" * 10**5, *NO_PARTS), "codec": ("fastest", *NO_PARTS), "baseline": (None,),
    "scale_advantages": ("no",), "scale_rewards": ("no",), "max_episode_steps": (-1, 2**40, "9"),
    "activation": ("gelu", None, ["relu"]), "mean": ("relu", 0), "horizon": (-1, 1.5),
    "scaling": ("", "mine", None), "sites": ("gravity:power=1", *(part for part in NO_PARTS if part != "")),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSOUND)
def test_terms_no_agent_agrees_to_are_refused_in_one_short_line(name: str) -> None:
    own, document = Config(task="CartPole-v1"), json.loads(terms(CONFIG))
    assert set(document) == set(UNSOUND)  # every term is tried
    assert agree(own, json.dumps(document), 0, 0).agent.hidden == (4,)
    for value in UNSOUND[name]:
        with pytest.raises(Refused, match=r"^settings: ") as refusal:
            agree(own, json.dumps(document | {name: value}), 0, 0)
        assert len(str(refusal.value)) < 300
        assert str(refusal.value).isprintable()


@pytest.mark.parametrize("kind", ["estimator", "codec"])
def test_no_file_that_a_server_names_is_run(tmp_path: Path, kind: str) -> None:
    """Though it is there."""
    file = tmp_path / "part.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Part: pass\n")
    answers = {
        f"{file}:Part": "a server names no file",
        f"{file}:Part:": "'.*' is not like ",
        f"custom:{file}:Part": "the federation has ",
    }
    for text, said in answers.items():
        document = json.loads(terms(CONFIG)) | {kind: text}
        with pytest.raises(Refused, match=f"^settings: {kind}: {said}"):
            agree(Config(task="CartPole-v1"), json.dumps(document), 0, 0)
    assert not (tmp_path / "ran").exists()


def test_terms_that_are_no_terms_are_refused() -> None:
    for text in ("[" * 10**5, "", "null", "[]", "{}", "1" * 5000):
        with pytest.raises(Refused, match=r"^settings: "):
            agree(Config(task="CartPole-v1"), text, 0, 0)
    with pytest.raises(Refused, match=r"^agent: "):
        agree(Config(task="CartPole-v1"), terms(CONFIG), 2**32 - 1, 0)


def test_a_server_does_not_start_with_terms_that_every_agent_refuses() -> None:
    settings = {"task": "CartPole-v1", "engine": "grpc"}
    validate(from_settings(settings))
    for wrong in ({"steps": 2**25}, {"hidden": (2**16,) * 3}, {"seed": 2**64}):
        with pytest.raises(ConfigError, match=f"^{next(iter(wrong))}: "):
            validate(from_settings(settings | wrong))
