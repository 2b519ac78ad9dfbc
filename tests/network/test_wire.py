"""What is sent is what arrives, bit for bit, and any protobuf library could have written it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afedpg.config import from_settings
from afedpg.messages import Moments, Report, Stats, Task, TaskId
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.terms import agree, terms
from afedpg.transport.grpc.wire import Expected, Refused

number = st.integers(0, 2**63 - 1)
vectors = arrays(np.float32, st.integers(1, 300), elements=st.floats(-(2.0**100), 2.0**100, width=32))
observed = arrays(np.float64, 4, elements=st.floats(0, 1e6))
moments = st.none() | st.builds(Moments, st.integers(1, 50).map(float), observed, observed)
finite = st.floats(-1e9, 1e9)
stats = st.builds(
    Stats, st.integers(0, 10**6), st.lists(finite, max_size=5).map(tuple),
    st.lists(st.integers(0, 1000), max_size=5).map(tuple),
    st.dictionaries(st.text(max_size=9).filter(str.isprintable), finite, max_size=3),
)  # fmt: skip


def same(one: Moments | None, other: Moments | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.count == other.count and np.array_equal(one.mean, other.mean) and np.array_equal(one.m2, other.m2)


@given(number, number, vectors, number, moments, stats)
def test_a_report_arrives_as_it_was_sent(
    epoch: int, counter: int, gradient: np.ndarray, version: int, shared: Moments | None, told: Stats
) -> None:
    report = Report(TaskId(epoch, counter), 7, gradient, version, shared, told)
    expected = Expected(gradient.size, None if shared is None else 4, 100)
    content = wire.from_agent(wire.encode_report(report)).report
    arrived = wire.decode_report(content, 7, expected)
    assert arrived.gradient.tobytes() == gradient.tobytes()
    assert (arrived.task_id, arrived.version, arrived.stats) == (report.task_id, version, told)
    assert same(arrived.moments, shared)
    by_the_library = pb.FromAgent.FromString(pb.FromAgent(report=content).SerializeToString())
    assert by_the_library.report == content


@given(number, vectors, moments)
def test_a_task_arrives_as_it_was_sent(version: int, theta: np.ndarray, shared: Moments | None) -> None:
    task = Task(TaskId(1, 2), 3, theta, version, shared)
    arrived = wire.decode_task(wire.from_server(wire.encode_task(task)).task, 3, theta.size, 4)
    assert arrived.theta.tobytes() == theta.tobytes()
    assert (arrived.task_id, arrived.version) == (task.task_id, version)
    assert same(arrived.statistics, shared)


@pytest.mark.parametrize("bad", [
    Moments(1e15, np.zeros(4), np.zeros(4)),
    Moments(0.0, np.zeros(4), np.zeros(4)),
    Moments(10.0, np.full(4, 1e300), np.zeros(4)),
    Moments(10.0, np.zeros(4), np.full(4, np.inf)),
    Moments(10.0, np.full(4, np.nan), np.zeros(4)),
    Moments(10.0, np.zeros(5), np.zeros(5)),
    Moments(10.0, np.zeros(4), np.zeros(3)),
    None,
])  # fmt: skip
def test_poisoned_moments_are_refused(bad: Moments | None) -> None:
    report = Report(TaskId(0, 1), 0, np.ones(3, np.float32), 0, bad)
    with pytest.raises(Refused, match="moments"):
        wire.decode_report(wire.from_agent(wire.encode_report(report)).report, 0, Expected(3, 4, 100))


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


def decoded(report: Report) -> Report:
    return wire.decode_report(wire.from_agent(wire.encode_report(report)).report, 0, Expected(3))


@pytest.mark.parametrize("stats", SPOILING.values(), ids=SPOILING)
def test_numbers_that_would_spoil_the_record_are_refused(stats: Stats) -> None:
    assert decoded(GOOD).stats == GOOD.stats
    with pytest.raises(Refused, match=r"^stats: "):
        decoded(replace(GOOD, stats=stats))


def test_another_precision_is_refused() -> None:
    content = wire.from_agent(wire.encode_report(GOOD)).report
    content.dtype = "<f8"
    with pytest.raises(Refused, match=r"^dtype: '<f8'"):
        wire.decode_report(content, 0, Expected(3))
