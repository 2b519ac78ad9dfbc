"""Mutated messages: no crash, no wrong step, no growing memory. AFEDPG_FUZZ sets how many."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from served import Served

from afedpg.config import from_settings
from afedpg.messages import Event, Exchange, Moments, Outcome, Report, Scalar, Stats, Task
from afedpg.protocol import federation_pb2 as pb
from afedpg.protocol.encoding import checksum
from afedpg.runs.replay import replay
from afedpg.server.state import to_tree
from afedpg.transport.grpc.wire import encode_report

COUNT = int(os.environ.get("AFEDPG_FUZZ", "4000"))
SIZE = 16
FLAT_BYTES = 24 << 20  # what memory may grow by, whatever the count: run.db's cache, mostly
SHARED = {"observations": 3, "rewards": 1}  # quantities, by name
GRADIENT = np.linspace(-1, 1, SIZE, dtype=np.float32)


def report(task: Task, generator: random.Random, shared: bool) -> Report:
    stats = Stats(1, (generator.random(),), (1,), {"loss": generator.random()})
    moments = {name: Moments(2.0, np.zeros(size), np.ones(size)) for name, size in SHARED.items()} if shared else {}
    scalars = {"weight": generator.random()} if shared else {}
    return Report(task.task_id, task.agent_id, GRADIENT, task.version, moments, stats, scalars)


def flip(data: bytearray, generator: random.Random) -> None:
    for _ in range(generator.randrange(1, 4)):
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)


def cut(data: bytearray, generator: random.Random) -> None:
    del data[generator.randrange(len(data)) :]


def grow(data: bytearray, generator: random.Random) -> None:
    data.extend(generator.randbytes(generator.randrange(1, 40)))


def splice(data: bytearray, generator: random.Random) -> None:
    start, length = generator.randrange(len(data)), generator.randrange(1, 30)
    data[start : start + length] = generator.randbytes(generator.randrange(1, 30))


def overwrite(data: bytearray, generator: random.Random) -> None:
    """Extreme values where a number may be."""
    start = generator.randrange(len(data))
    extreme = generator.choice([b"\xff" * 10, b"\0" * 8, b"\x7f\xf0" * 4, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"])
    data[start : start + len(extreme)] = extreme


def shuffle_fields(data: bytearray, generator: random.Random) -> None:
    """A whole other message, well-formed but nonsense."""
    message = pb.FromAgent()
    message.report.task_id.epoch = generator.getrandbits(64)
    message.report.version = generator.getrandbits(64)
    message.report.payload = generator.randbytes(generator.randrange(0, 8 * SIZE))
    message.report.dtype = generator.choice(["<f4", "<f8", "", "\u00e9" * 9])
    message.report.steps = generator.getrandbits(64)
    message.report.returns.extend([generator.choice(EXTREMES)])
    for _ in range(generator.randrange(4)):
        name = generator.choice([*SHARED, "", "other", "\u00e9" * 99])
        mean, m2 = (generator.randbytes(8 * generator.randrange(4)) for _ in range(2))
        message.report.moments.add(name=name, count=generator.choice(EXTREMES), mean=mean, m2=m2)
        message.report.scalars[generator.choice(["weight", "", "other"])] = generator.choice(EXTREMES)
    data[:] = message.SerializeToString()


def lie(data: bytearray, generator: random.Random) -> None:
    """One field of the message is another, and its checksum is right."""
    message = pb.FromAgent.FromString(bytes(data))
    generator.choice(LIES)(message.report, generator)
    message.report.checksum = checksum(message.report.payload, message.report.moments)
    data[:] = message.SerializeToString()


def _lie_type(report: pb.Report, generator: random.Random) -> None:
    report.dtype = generator.choice(["|u1", "<f8", ">f4", "", "O", "\x1b[2J"])


def _lie_payload(report: pb.Report, generator: random.Random) -> None:
    report.payload = report.payload[generator.randrange(1, 4 * SIZE + 1) :]


def _lie_twice(report: pb.Report, generator: random.Random) -> None:
    if report.moments:
        report.moments.add().CopyFrom(generator.choice(report.moments))


def _lie_name(report: pb.Report, generator: random.Random) -> None:
    others = ["", "observations", "rewards", "other"]
    for moments in report.moments:
        moments.name = generator.choice([name for name in others if name != moments.name])
    report.scalars[generator.choice(["", "other", "x" * 999])] = generator.random()


def _lie_moments(report: pb.Report, generator: random.Random) -> None:
    for moments in report.moments:
        numbers = np.full(SHARED.get(moments.name, 1), generator.choice(EXTREMES)).tobytes()
        setattr(moments, generator.choice(["mean", "m2"]), numbers)
        moments.count = generator.choice([moments.count, *EXTREMES])


def _lie_scalar(report: pb.Report, generator: random.Random) -> None:
    report.scalars["weight"] = generator.choice(EXTREMES)


def fetch(data: bytearray, generator: random.Random) -> None:
    data[:] = pb.FromAgent(fetch=pb.Fetch()).SerializeToString()


EXTREMES = [float("nan"), float("inf"), -float("inf"), 1e308, -1e308]
LIES = (_lie_type, _lie_payload, _lie_twice, _lie_name, _lie_moments, _lie_scalar)
MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip, cut, grow, splice, overwrite, shuffle_fields,
)  # fmt: skip
WHOLE = (lie, lie, fetch)  # of an intact message, and the only mutation of it


def mutate(data: bytes, generator: random.Random) -> bytes:
    changed = bytearray(data)
    if generator.random() < 0.2:
        generator.choice(WHOLE)(changed, generator)
        return bytes(changed)
    for _ in range(generator.randrange(1, 3)):
        generator.choice(MUTATIONS)(changed, generator)
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "with moments"])
def test_mutated_messages_do_nothing_wrong(tmp_path: Path, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    served = asyncio.run(_fuzz(tmp_path, shared))
    monkeypatch.setattr("afedpg.runs.replay.parts_of", lambda *_: (served.workload, served.federation.rule))
    assert replay(tmp_path / "run").agrees


async def _fuzz(folder: Path, shared: bool) -> Served:
    generator = random.Random(7)
    settings = {"task": "quadratic", "dimension": SIZE, "iterations": 10**9, "agents": 1, "max_rate": 1e9}
    served = Served(from_settings(settings), folder)
    if shared:
        agreed, rule = served.service.terms, served.federation.rule
        expected = replace(agreed.expected, statistics=SHARED, samples=100, scalars=frozenset({"weight"}))
        served.service.terms = replace(agreed, expected=expected)
        exchange = Exchange(scalars=(Scalar("weight", 0.0, 1.0),), statistics=SHARED)
        served.federation.rule = replace(rule, exchange=exchange)
    applied = _watch(served)
    port = served.connect(0)
    await port.flush()
    process, half = psutil.Process(), 0
    for count in range(COUNT):
        if count == COUNT // 2:
            half = process.memory_info().rss
        data = encode_report(report(served.task_of(port), generator, shared))
        before = served.federation.server.gradients
        await served.send(port, mutate(data, generator) if count % 20 else data)
        if served.federation.server.gradients > before:
            # Whatever else was mutated, a gradient that was applied is the one that was sent.
            assert applied[-1].payload.dtype == np.float32
            assert np.array_equal(applied[-1].payload, GRADIENT)
            assert all(0 <= value <= 1 for value in applied[-1].scalars.values())
        port.context.sent[:-4] = []
        applied[:-1] = []
        assert served.engine._failure is None
    assert process.memory_info().rss - half < FLAT_BYTES
    server = served.federation.server
    assert server.gradients > COUNT // 25
    assert np.isfinite(server.theta).all()
    assert server.statistics.keys() == (SHARED.keys() if shared else set())
    for moments in server.statistics.values():
        assert np.isfinite(moments.mean).all()
        assert moments.count <= 100 * server.gradients
    assert served.engine.members[0].rejected > COUNT // 2
    served.federation.recorder.checkpoint({"server": to_tree(server)})  # type: ignore[union-attr]
    served.close()
    return served


def _watch(served: Served) -> list[Report]:
    """The reports that were applied, in order."""
    applied: list[Report] = []
    apply = served.federation.apply

    def watched(event: Event, seconds: float) -> Outcome:
        outcome = apply(event, seconds)
        if isinstance(event, Report) and outcome.rejected is None:
            applied.append(event._replace())
        return outcome

    served.federation.apply = watched  # type: ignore[method-assign]
    return applied
