"""From the experiments asked for to their data, figures, verdicts and the report; what is done already stays done."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from afedpg import plotting
from afedpg.errors import AfedpgError, ConfigError
from afedpg.experiments import spent
from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import Job
from afedpg.experiments.outcome import Experiment, Outcome, write_outcome
from afedpg.experiments.pool import Pool
from afedpg.experiments.progress import Bar
from afedpg.experiments.report import write_report
from afedpg.experiments.tables import table
from afedpg.record.folder import RunFolder


def experiment(id: str) -> Experiment:
    return cast(Experiment, importlib.import_module(f"afedpg.experiments.{id.replace('-', '_')}"))


def reproduce(ids: Sequence[str], choices: Choices, quiet: bool = False) -> dict[str, Outcome]:
    """The outcome of every experiment, written under OUT/ID; OUT/report.html shows all that are there."""
    out = choices.out
    if choices.finished_only and not out.is_dir():
        raise ConfigError(f"out: there is no folder {out} that --finished-only could conclude from")
    needed = {id: list(experiment(id).jobs(choices)) for id in ids}
    if not choices.finished_only and not any(needed.values()):
        raise ConfigError(f"id: these choices leave no run of {', '.join(ids)}; name fewer of them")
    with opened(out):
        if choices.finished_only:
            failures = [missing for id, jobs in needed.items() if (missing := _missing(id, jobs, out))]
        else:
            failures = perform([job for jobs in needed.values() for job in jobs], choices, quiet)
        outcomes = {id: _conclude(id, jobs, choices) for id, jobs in needed.items() if _complete(jobs, out)}
        write_report(out)
    raise_first(failures)
    return outcomes


@contextmanager
def opened(out: Path) -> Iterator[None]:
    """The folder that runs are made in: there, and nobody else's."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: cannot create {out}: {error.strerror}; choose another --out") from error
    with RunFolder(out).lock():
        yield


def raise_first(failures: Sequence[tuple[str, str]]) -> None:
    if failures:
        name, reason = failures[0]
        others = f" (and {len(failures) - 1} more failed)" if len(failures) > 1 else ""
        raise AfedpgError(f"{name}: {reason}{others}")


def perform(jobs: Sequence[Job], choices: Choices, quiet: bool = False) -> list[tuple[str, str]]:
    """All that are not done yet; returns those that failed, as (name, reason)."""
    every = {job.name: job for job in jobs}  # experiments may share a run
    pending = [job for job in every.values() if not job.finished(choices.out)]
    if not quiet:
        gradients = sum(job.gradients for job in pending)
        done = len(every) - len(pending)
        print(
            f"{len(every)} runs, {done} done already; {gradients:,} gradients to compute with {choices.workers} "
            f"processes, into {choices.out}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    with Bar(pending, quiet) as bar, spent.noting(choices.out) as note:
        return Pool(choices.out, bar, note, choices.workers).perform(pending)


def _missing(id: str, jobs: Sequence[Job], out: Path) -> tuple[str, str] | None:
    """Why an experiment cannot be concluded without computing. `learners` and `adversaries` ask for their
    finished runs alone."""
    missing = sum(not job.finished(out) for job in jobs)
    if jobs and not missing:
        return None
    which = f"{missing} of {len(jobs)} runs are not" if jobs else "no run is"
    return id, f"{which} finished in {out}; leave --finished-only out to compute them"


def _complete(jobs: Sequence[Job], out: Path) -> bool:
    """Of nothing nothing can be concluded: what is there from before stays."""
    return bool(jobs) and all(job.finished(out) for job in jobs)


def _conclude(id: str, jobs: Sequence[Job], choices: Choices) -> Outcome:
    outcome = experiment(id).outcome(choices)
    folder = choices.out / id
    made_with = spent.made_with(choices.out, [job.name for job in jobs])
    write_outcome(outcome, folder, choices.scale, plotting.save, command=choices.command(id), made_with=made_with)
    table("job gradients", sorted({(job.name, job.gradients) for job in jobs})).write(folder / "jobs.csv")
    return outcome
