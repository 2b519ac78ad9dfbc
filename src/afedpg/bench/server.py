"""What one gradient costs the server, against one float64 copy of the same length.

fold      the server's step alone: mix, normalize, step, look ahead, and the Task's theta~
recorded  the same with the journal and run.db
clipped   the fold with the aggregator clip-centred, against the fold
"""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from afedpg.bench.rows import check_tasks, compared, processor_seconds
from afedpg.config import from_settings
from afedpg.engine.federation import Federation
from afedpg.messages import Join, Report, Stats
from afedpg.record import folder
from afedpg.record.recorder import Recorder
from afedpg.server.defences import ClipCentred
from afedpg.server.rules import ServerRule, afedpg
from afedpg.server.schedules import Constant
from afedpg.server.state import initial_state

SIZES = {"Swimmer": 4_868, "Hopper": 69_638, "Walker2d": 274_956, "Humanoid": 727_074}
COPY = "one float64 copy"
RULE = afedpg(Constant(0.1), Constant(0.01))


def run(tasks: Sequence[str] = tuple(SIZES), rounds: int = 15) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    check_tasks(tasks, SIZES)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        size = SIZES[task]
        copy, fold, recorded, clipped = _measure(size, rounds)
        rows += [
            compared("server", task, "fold", COPY, fold, copy, "us"),
            compared("server", task, "fold, journal and run.db", COPY, recorded, copy, "us"),
            compared("server", task, "bytes allocated by the fold", COPY, [_allocated(size)], [8 * size], "bytes"),
            compared("server", task, "fold with centred clipping", "fold", clipped, fold, "us"),
        ]
    return rows


def _measure(size: int, rounds: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """Microseconds of each, one entry per round, taken in turns."""
    repeat = max(10, 2_000_000 // size)
    source, target = np.ones(size), np.zeros(size)
    with tempfile.TemporaryDirectory() as place:
        config = from_settings({"task": "quadratic", "dimension": size, "agents": 1})
        recorder = Recorder(folder.create(Path(place) / "run", config), config)
        bare, kept = _gradients(size, RULE), _gradients(size, RULE, recorder)
        clipped = _gradients(size, replace(RULE, aggregator=ClipCentred(reach=0.5)))  # clips every gradient
        times: tuple[list[float], list[float], list[float], list[float]] = ([], [], [], [])
        for _ in range(rounds):
            for entry, work in zip(times, (lambda: np.copyto(target, source), bare, kept, clipped), strict=True):
                entry.append(1e6 * processor_seconds(work, repeat))
        recorder.close(finished=False)
    return times


def _gradients(size: int, rule: ServerRule, recorder: Recorder | None = None) -> Callable[[], None]:
    """A federation of one agent; each call applies one gradient."""
    federation = Federation(rule, initial_state(rule, np.zeros(size)), recorder)
    gradient = np.random.default_rng(0).standard_normal(size, np.float32)
    tasks = federation.apply(Join(0), 0.0).tasks

    def work() -> None:
        nonlocal tasks
        [task] = tasks
        tasks = federation.apply(Report(task.task_id, 0, gradient, task.version, stats=Stats(1)), 0.0).tasks
        if recorder is not None:
            recorder.journal.forget(recorder.journal.next_sequence)  # as checkpoints do: segments are reused

    return work


def _allocated(size: int) -> int:
    """The most memory one gradient takes beyond what the server has."""
    work = _gradients(size, RULE)
    work()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before
