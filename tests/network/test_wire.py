"""What is sent is what arrives, bit for bit, and any protobuf library could have written it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afedpg.config import from_settings
from afedpg.messages import Moments, Report, Statistics, Stats, Task, TaskId
from afedpg.protocol import federation_pb2 as pb
from afedpg.runs.parts import configure
from afedpg.sampling.environments import Environments
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.terms import agree, terms
from afedpg.transport.grpc.wire import Expected, Refused

number = st.integers(0, 2**63 - 1)
vectors = arrays(np.float32, st.integers(1, 300), elements=st.floats(-(2.0**100), 2.0**100, width=32))
observed = arrays(np.float64, 4, elements=st.floats(0, 1e6))
moments = st.builds(Moments, st.integers(1, 50).map(float), observed, observed)
statistics = st.dictionaries(st.text(max_size=9), moments, max_size=3)
payloads = vectors | arrays(np.uint8, st.integers(1, 300))
finite = st.floats(-1e9, 1e9)
stats = st.builds(
    Stats, st.integers(0, 10**6), st.lists(finite, max_size=5).map(tuple),
    st.lists(st.integers(0, 1000), max_size=5).map(tuple),
    st.dictionaries(st.text(max_size=9).filter(str.isprintable), finite, max_size=3),
)  # fmt: skip


def plain(statistics: Statistics) -> list[tuple[str, float, bytes, bytes]]:
    return [(name, part.count, part.mean.tobytes(), part.m2.tobytes()) for name, part in statistics.items()]


def sizes(statistics: Statistics) -> dict[str, int]:
    return {name: part.mean.size for name, part in statistics.items()}


@given(number, number, payloads, number, statistics, stats, st.dictionaries(st.text(max_size=9), finite, max_size=3))
def test_a_report_arrives_as_it_was_sent(
    epoch: int,
    counter: int,
    payload: np.ndarray,
    version: int,
    shared: Statistics,
    told: Stats,
    scalars: dict[str, float],
) -> None:
    report = Report(TaskId(epoch, counter), 7, payload, version, shared, told, scalars)
    expected = Expected(payload.size, sizes(shared), 100, frozenset(scalars))
    content = wire.from_agent(wire.encode_report(report)).report
    arrived = wire.decode_report(content, 7, expected)
    assert (arrived.payload.dtype, arrived.payload.tobytes()) == (payload.dtype, payload.tobytes())
    assert (arrived.task_id, arrived.version, arrived.stats) == (report.task_id, version, told)
    assert (plain(arrived.moments), arrived.scalars) == (plain(shared), scalars)
    by_the_library = pb.FromAgent.FromString(pb.FromAgent(report=content).SerializeToString())
    assert by_the_library.report == content


@given(number, vectors, statistics)
def test_a_task_arrives_as_it_was_sent(version: int, theta: np.ndarray, shared: Statistics) -> None:
    task = Task(TaskId(1, 2), 3, theta, version, shared)
    arrived = wire.decode_task(wire.from_server(wire.encode_task(task)).task, 3, Expected(theta.size, sizes(shared)))
    assert arrived.theta.tobytes() == theta.tobytes()
    assert (arrived.task_id, arrived.version) == (task.task_id, version)
    assert plain(arrived.statistics) == plain(shared)


@pytest.mark.parametrize("bad", [
    Moments(1e15, np.zeros(4), np.zeros(4)),
    Moments(0.0, np.zeros(4), np.zeros(4)),
    Moments(10.0, np.full(4, 1e300), np.zeros(4)),
    Moments(10.0, np.zeros(4), np.full(4, np.inf)),
    Moments(10.0, np.full(4, np.nan), np.zeros(4)),
    Moments(10.0, np.zeros(5), np.zeros(5)),
    Moments(10.0, np.zeros(4), np.zeros(3)),
    Moments(math.nan, np.zeros(4), np.zeros(4)),
])  # fmt: skip
@pytest.mark.parametrize("place", ["observations", "rewards"])
def test_poisoned_moments_are_refused(bad: Moments, place: str) -> None:
    """Whichever of several they are."""
    refuse_moments({**SOUND, place: bad})


SOUND = {name: Moments(10.0, np.zeros(4), np.ones(4)) for name in ("observations", "rewards")}


def report_with(moments: Statistics) -> pb.Report:
    return wire.from_agent(wire.encode_report(GOOD._replace(moments=moments))).report


def refuse_moments(moments: Statistics) -> None:
    wanted = Expected(3, sizes(SOUND), 100)
    assert wire.decode_report(report_with(SOUND), 0, wanted).moments.keys() == SOUND.keys()
    with pytest.raises(Refused, match=r"^moments: ") as refusal:
        wire.decode_report(report_with(moments), 0, wanted)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("names", [
    (), ("observations",), ("observations", "other"), ("", "rewards"), ("observations", "x" * 10**5),
    ("observations", "\x1b[2J"), ("observations", "rewards", "other"), tuple(map(str, range(1000))),
], ids=["none", "one", "unknown", "no name", "long", "control", "another", "many"])  # fmt: skip
def test_moments_of_other_names_are_refused(names: tuple[str, ...]) -> None:
    refuse_moments(dict.fromkeys(names, SOUND["rewards"]))


def test_moments_of_one_name_come_once() -> None:
    content = report_with(SOUND)
    content.moments[1].name = "observations"
    with pytest.raises(Refused, match=r"^moments: observations came twice"):
        wire.decode_report(content, 0, Expected(3, sizes(SOUND), 100))


def test_moments_are_whole_numbers_of_floats() -> None:
    content = report_with(SOUND)
    content.moments[1].mean = content.moments[1].mean[:-1]
    with pytest.raises(Refused, match=r"^moments: no whole number"):
        wire.decode_report(content, 0, Expected(3, sizes(SOUND), 100))


@pytest.mark.parametrize("scalars", [{}, {"lag": 1.0, "more": 1.0}, {"other": 1.0}, {"\x1b[2J" * 1000: 1.0}])
def test_scalars_of_other_names_are_refused(scalars: dict[str, float]) -> None:
    wanted = Expected(3, scalars=frozenset({"lag"}))
    assert decoded(GOOD._replace(scalars={"lag": 1.0}), wanted).scalars == {"lag": 1.0}
    with pytest.raises(Refused, match=r"^scalars: expected lag$"):
        decoded(GOOD._replace(scalars=scalars), wanted)
    if scalars:
        with pytest.raises(Refused, match=r"^scalars: expected none$"):
            decoded(GOOD._replace(scalars=scalars))


def test_the_servers_terms_leave_an_agents_own_settings_alone() -> None:
    server = from_settings({"task": "hopper", "hidden": (32,), "gamma": 0.9, "device": "cuda", "env_kwargs": {"a": 1}})
    own = from_settings({"task": "hopper", "agents": 1, "env_kwargs": {"gravity": -3.7}})
    agreed = agree(own, terms(server), agent_id=4, starts=0)
    assert (agreed.agent.hidden, agreed.agent.gamma) == ((32,), 0.9)
    assert (agreed.agent.device, agreed.agent.env_kwargs) == ("cpu", {"gravity": -3.7})
    assert agree(own, terms(server), 4, starts=1).seed != agreed.seed  # another life, another stream
    for wrong in ("[]", "{", '{"task": "evil"}', terms(server).replace("0.9", '"x"')):
        with pytest.raises(Refused):
            agree(own, wrong, 0, 0)


def test_an_agents_site_is_the_servers_to_say_by_a_shipped_name_alone() -> None:
    server = configure("hopper", None, {"agents": 3, "sites": "gravity", "scaling": "local"})
    own = from_settings({"task": "hopper", "agents": 1})
    agreed = agree(own, terms(server), agent_id=2, starts=0)
    assert (agreed.agent.sites, agreed.agent.scaling) == ("gravity:count=3", "local")
    model = Environments(agreed).of(2).env.unwrapped.model  # type: ignore[attr-defined]
    assert model.opt.gravity[2] == pytest.approx(1.5 * -9.81)
    assert agree(own, terms(from_settings({"task": "hopper"})), 0, 0).agent.sites == ""
    for evil in ("evil.py:Site", "gravity:low=-1", "moon", "custom:evil.Site", 3):
        text = json.dumps(json.loads(terms(server)) | {"sites": evil})
        with pytest.raises(Refused, match=r"^settings: sites"):
            agree(own, text, 0, 0)


GOOD = Report(TaskId(0, 1), 0, np.ones(3, np.float32), 0, stats=Stats(1, (1.0,), (1,), {"loss": 0.5}))
SPOILING = {
    "steps": Stats(2**41),
    "length": Stats(1, (), (2**41,)),
    "NaN": Stats(1, (math.nan,)),
    "infinite": Stats(1, (-math.inf,)),
    "return": Stats(1, (2e12,)),
    "returns": Stats(1, (0.0,) * (2**16 + 1)),
    "lengths": Stats(1, (), (1,) * (2**16 + 1)),
    "extra NaN": Stats(1, extra={"x": math.nan}),
    "extra name": Stats(1, extra={"x" * 65: 1.0}),
    "extras": Stats(1, extra={str(number): 0.0 for number in range(65)}),
}


def decoded(report: Report, expected: Expected = Expected(3)) -> Report:
    return wire.decode_report(wire.from_agent(wire.encode_report(report)).report, 0, expected)


@pytest.mark.parametrize("stats", SPOILING.values(), ids=SPOILING)
def test_numbers_that_would_spoil_the_record_are_refused(stats: Stats) -> None:
    assert decoded(GOOD).stats == GOOD.stats
    with pytest.raises(Refused, match=r"^stats: "):
        decoded(GOOD._replace(stats=stats))


@pytest.mark.parametrize("dtype", ["<f8", ">f4", "", "O", "\x1b[2J", "<f4" * 1000])
def test_another_precision_is_refused(dtype: str) -> None:
    content = wire.from_agent(wire.encode_report(GOOD)).report
    content.dtype = dtype
    with pytest.raises(Refused, match=r"^dtype: '") as refusal:
        wire.decode_report(content, 0, Expected(3))
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 100


def test_half_a_number_is_refused() -> None:
    content = wire.from_agent(wire.encode_report(GOOD)).report
    content.payload = content.payload[:-1]
    with pytest.raises(Refused, match=r"^payload: 11 bytes are no whole number of 32 bit floats"):
        wire.decode_report(content, 0, Expected(3))
