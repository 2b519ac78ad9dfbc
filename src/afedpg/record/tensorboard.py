"""events.*: the run's curves for TensorBoard, against samples. Without the `tensorboard` package nothing is written.

The package's record writer is used without its thread, which would print a traceback of its own on a full disk.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from afedpg.messages import Arrival, Evaluation
from afedpg.record.windows import Windows, evaluation_tag

FLUSH_SECONDS = 5.0
_log = logging.getLogger("afedpg")


def available() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


class TensorBoard:
    """One point per `every` applied gradients. In a folder with curves already, those past `samples` are purged."""

    def __init__(
        self, folder: Path, samples: int = 0, every: int = 1, warn: Callable[[str], None] = _log.warning
    ) -> None:
        self._windows = Windows(samples, every)
        self._warn = warn
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
            if full := self._windows.add(arrival):
                self.write(self._windows.samples, full)

    def add_evaluation(self, evaluation: Evaluation, samples: int) -> None:
        self.write(samples, {evaluation_tag(evaluation): evaluation.mean})

    def add_settings(self, settings: Mapping[str, bool | float | str]) -> None:
        """For the HParams of TensorBoard, where runs are sorted and filtered by their settings."""
        if self._writer is None:
            return
        hparams: Any = importlib.import_module("tensorboard.plugins.hparams.summary_v2")
        self._guarded(lambda: self._write_event(0, summary=hparams.hparams_pb(dict(settings))))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        if self._writer is None:
            return
        values = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._guarded(lambda: self._write_event(step, summary=self._summary.Summary(value=values)))
        if time.monotonic() - self._flushed_at > FLUSH_SECONDS:
            self._flushed_at = time.monotonic()
            self.flush()

    def flush(self) -> None:
        if self._writer is not None:
            self._guarded(self._writer.flush)

    def close(self) -> None:
        if rest := self._windows.rest():
            self.write(self._windows.samples, rest)
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
            self._write_event(self._windows.samples + 1, session_log=start)
        self._writer.flush()

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
