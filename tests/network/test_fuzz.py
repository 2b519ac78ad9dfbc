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
from afedpg.messages import Event, Moments, Report, Stats, Task
from afedpg.protocol import federation_pb2 as pb
from afedpg.runs.replay import replay
from afedpg.server.state import to_tree
from afedpg.transport.grpc.wire import encode_report

COUNT = int(os.environ.get("AFEDPG_FUZZ", "4000"))
SIZE = 16
FLAT_BYTES = 24 << 20  # what memory may grow by, whatever the count: run.db's cache, mostly
GRADIENT = np.linspace(-1, 1, SIZE, dtype=np.float32)


def report(task: Task, generator: random.Random, shared: bool) -> Report:
    stats = Stats(1, (generator.random(),), (1,), {"loss": generator.random()})
    moments = Moments(2.0, np.zeros(3), np.ones(3)) if shared else None
    return Report(task.task_id, task.agent_id, GRADIENT, task.version, moments, stats)


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
    message.report.returns.extend([generator.choice([float("nan"), float("inf"), 1e308])])
    data[:] = message.SerializeToString()


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip, cut, grow, splice, overwrite, shuffle_fields,
)  # fmt: skip


def mutate(data: bytes, generator: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(generator.randrange(1, 3)):
        generator.choice(MUTATIONS)(changed, generator)
        if not changed:
            break
    return bytes(changed)


@pytest.mark.parametrize("shared", [False, True], ids=["plain", "with moments"])
def test_mutated_messages_do_nothing_wrong(tmp_path: Path, shared: bool) -> None:
    asyncio.run(_fuzz(tmp_path, shared))


async def _fuzz(folder: Path, shared: bool) -> None:
    generator = random.Random(7)
    settings = {"task": "quadratic", "dimension": SIZE, "iterations": 10**9, "agents": 1, "max_rate": 1e9}
    served = Served(from_settings(settings), folder)
    if shared:
        agreed = served.service.terms
        served.service.terms = replace(agreed, expected=replace(agreed.expected, observations=3, samples=100))
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
            assert np.array_equal(applied[-1].gradient, GRADIENT)
        port.context.sent[:-4] = []
        applied[:-1] = []
        assert served.engine._failure is None
    assert process.memory_info().rss - half < FLAT_BYTES
    server = served.federation.server
    assert server.gradients > COUNT // 25
    assert np.isfinite(server.theta).all()
    if server.statistics is not None:
        assert np.isfinite(server.statistics.mean).all()
        assert server.statistics.count <= 100 * server.gradients
    assert served.engine.members[0].rejected > COUNT // 2
    served.federation.recorder.checkpoint({"server": to_tree(server)})  # type: ignore[union-attr]
    served.close()
    assert replay(folder / "run").agrees


def _watch(served: Served) -> list[Report]:
    """The reports that were applied, in order."""
    applied: list[Report] = []
    apply = served.federation.apply

    def watched(event: Event, seconds: float) -> list[Task]:
        tasks = apply(event, seconds)
        if isinstance(event, Report) and served.federation.server.rejected is None:
            applied.append(replace(event))
        return tasks

    served.federation.apply = watched  # type: ignore[method-assign]
    return applied
