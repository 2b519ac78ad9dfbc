"""How far all jobs of a reproduction are."""

from __future__ import annotations

from collections.abc import Sequence

from afedpg.experiments.jobs import Job
from afedpg.terminal.text import Look, Progress

PLAIN_SECONDS = 15.0


class Bar:
    """Counts what jobs may cost, so that a long run weighs more than a short one."""

    def __init__(self, jobs: Sequence[Job], quiet: bool) -> None:
        self._total = sum(job.cost for job in jobs)
        self._jobs, self._finished = len(jobs), 0
        self._fractions: dict[str, float] = {}
        self._sizes = {job.name: job.cost for job in jobs}
        self._progress = Progress(self._look, quiet or not jobs, PLAIN_SECONDS)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def advance(self, job: Job, fraction: float) -> None:
        self._fractions[job.name] = fraction
        self._progress.moved()

    def done(self, job: Job) -> None:
        self._finished += 1
        self._fractions[job.name] = 1.0
        self._progress.moved(last=self._finished == self._jobs)

    def _look(self) -> Look:
        done = sum(self._sizes[name] * fraction for name, fraction in tuple(self._fractions.items()))
        return Look("", f"{self._finished}/{self._jobs} runs", done, self._total)
