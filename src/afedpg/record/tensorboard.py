"""events.*: the run's curves for TensorBoard, against samples. Without the `tensorboard` package nothing is written.

Arrivals are averaged over windows: a curve of 100,000 points costs more to write than a small run, and shows no more.
The package's record writer is used without its thread, which would print a traceback of its own on a full disk.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from afedpg.messages import Arrival, Evaluation

FLUSH_SECONDS = 5.0
_log = logging.getLogger("afedpg")


def available() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


class TensorBoard:
    """One point per `every` applied gradients. In a folder with curves already, those past `samples` are purged."""

    def __init__(
        self, folder: Path, samples: int = 0, every: int = 1, warn: Callable[[str], None] = _log.warning
    ) -> None:
        self._samples = samples
        self._every = every
        self._warn = warn
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._arrivals = 0
        self._flushed_at = time.monotonic()
        self._writer: Any = None
        if available():
            self._protocol: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self._summary: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
            self._guarded(lambda: self._open(folder))

    def add_arrivals(self, arrivals: Iterable[Arrival]) -> None:
        if self._writer is None:
            return
        for arrival in arrivals:
            self._samples += arrival.stats.steps
            self._add("return/training", arrival.stats.mean_return)
            self._add("delay", arrival.delay)
            self._add("gradient_norm", arrival.gradient_norm)
            self._add("step_length", arrival.step_length)
            self._arrivals += 1
            if self._arrivals == self._every:
                self._write_window()

    def add_evaluation(self, evaluation: Evaluation, samples: int) -> None:
        where = f"/{evaluation.environment}" if evaluation.environment else ""
        self._write_scalars(samples, {f"return/evaluation/{evaluation.kind}{where}": evaluation.mean})

    def flush(self) -> None:
        if self._writer is not None:
            self._guarded(self._writer.flush)

    def close(self) -> None:
        if self._arrivals:
            self._write_window()
        if self._writer is not None:
            self._guarded(self._writer.close)
            self._writer = None

    def _open(self, folder: Path) -> None:
        resumed = any(folder.glob("events.*"))
        now = time.time_ns()  # files are read in the order of their names
        file = folder / f"events.out.tfevents.{now // 10**9:010d}.{now % 10**9:09d}"
        record_writer = importlib.import_module("tensorboard.summary.writer.record_writer")
        self._writer = record_writer.RecordWriter(file.open("wb"))
        self._write_event(0, file_version="brain.Event:2")
        if resumed:  # a session that starts at a step tells TensorBoard to drop the points there were from it on
            start = self._protocol.SessionLog(status=self._protocol.SessionLog.START)
            self._write_event(self._samples + 1, session_log=start)
        self._writer.flush()

    def _add(self, tag: str, value: float | None) -> None:
        if value is not None:
            self._sums[tag] = self._sums.get(tag, 0.0) + value
            self._counts[tag] = self._counts.get(tag, 0) + 1

    def _write_window(self) -> None:
        self._write_scalars(self._samples, {tag: total / self._counts[tag] for tag, total in self._sums.items()})
        self._sums.clear()
        self._counts.clear()
        self._arrivals = 0

    def _write_scalars(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is None:
            return
        values = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._guarded(lambda: self._write_event(step, summary=self._summary.Summary(value=values)))
        if time.monotonic() - self._flushed_at > FLUSH_SECONDS:
            self._flushed_at = time.monotonic()
            self.flush()

    def _write_event(self, step: int, **content: Any) -> None:
        event = self._protocol.Event(wall_time=time.time(), step=step, **content)
        self._writer.write(event.SerializeToString())

    def _guarded(self, action: Callable[[], None]) -> None:
        """Curves are a convenience: where they cannot be written, the run goes on without."""
        try:
            action()
        except OSError as error:
            self._writer = None
            self._warn(f"no more TensorBoard curves are written: {error.strerror or error}")
