"""How far all jobs of a reproduction are: a bar on a terminal, a plain line now and then elsewhere, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as LiveProgress

from afedpg.experiments.jobs import Job

PLAIN_SECONDS = 15.0


class Bar:
    """Counts what jobs may cost, so that a long run weighs more than a short one."""

    def __init__(self, jobs: Sequence[Job], quiet: bool) -> None:
        self._total = sum(job.cost for job in jobs)
        self._jobs, self._finished = len(jobs), 0
        self._fractions: dict[str, float] = {}
        self._sizes = {job.name: job.cost for job in jobs}
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._live: LiveProgress | None = None
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> Bar:
        if self._console.is_terminal and not self._quiet and self._jobs:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._live = LiveProgress(*columns, console=self._console)
            self._task = self._live.add_task(self._describe(), total=self._total)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def advance(self, job: Job, fraction: float) -> None:
        self._fractions[job.name] = fraction
        self._show(force=False)

    def done(self, job: Job) -> None:
        self._finished += 1
        self._fractions[job.name] = 1.0
        self._show(force=self._finished == self._jobs)

    def _describe(self) -> str:
        return f"{self._finished}/{self._jobs} runs"

    def _show(self, force: bool) -> None:
        done = sum(self._sizes[name] * fraction for name, fraction in self._fractions.items())
        if self._live is not None:
            self._live.update(self._task, completed=done, description=self._describe())
            return
        now = time.monotonic()
        if self._quiet or (now - self._shown < PLAIN_SECONDS and not force):
            return
        self._shown = now
        left = (now - self._started) * (self._total - done) / done if done else float("nan")
        print(f"{self._describe()}  {done / self._total:.0%}  about {left:.0f} s left", file=sys.stderr, flush=True)
