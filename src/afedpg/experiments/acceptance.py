"""`python -m afedpg.experiments.acceptance [ROW ...]`: what was promised, run again and stored with its commit.

Each row is a JSON file under results/acceptance: what was asked, what was measured, with which code, in how many hours;
a search leaves all its runs beside it, as CSV.
Rows take minutes to hours; they are restartable like `reproduce`, whose runs they share where they are the same.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from afedpg.errors import AfedpgError, ConfigError
from afedpg.experiments import plotting, published
from afedpg.experiments.acceptance_rows import ROWS, Found, Row
from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import Job, RunJob
from afedpg.experiments.outcome import write_outcome
from afedpg.experiments.pool import Pool
from afedpg.experiments.progress import Bar
from afedpg.experiments.report import read_spent
from afedpg.record.disk import write_text
from afedpg.record.folder import RunFolder, current_versions


def perform(jobs: Sequence[Job], choices: Choices) -> None:
    """All jobs that are not done yet; a failure is raised when the others are through."""
    pending = [job for job in jobs if not job.finished(choices.out)]
    with Bar(pending, quiet=False) as bar, (choices.out / "spent.csv").open("a", newline="") as file:

        def spent(job: Job, seconds: float) -> None:
            csv.writer(file, lineterminator="\n").writerow((job.name, f"{seconds:.2f}"))
            file.flush()

        failures = Pool(choices.out, bar, spent, choices.workers).perform(pending)
    if failures:
        name, reason = failures[0]
        raise AfedpgError(f"{name}: {reason}")


def check(row: Row, choices: Choices, store: Path) -> Found:
    """Runs one row and stores what came out."""
    used: list[Job] = []
    for stage in row.stages:  # a later stage may depend on what an earlier one found
        jobs = stage(choices)
        perform(jobs, choices)
        used += jobs
    found = row.measure(choices)
    spent = read_spent(choices.out)
    document = {
        "row": row.name,
        "asked": row.asked,
        "passes": found.passes,
        "measured": {name: _finite(value) for name, value in found.measured.items()},
        "hours": round(sum(spent.get(job.name, 0.0) for job in used) / 3600, 3),
        "runs": len(used),
        "made_with": _made_with(used, choices),
        "checked_with": current_versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    store.mkdir(parents=True, exist_ok=True)
    write_text(store / f"{row.name}.json", json.dumps(document, indent=2) + "\n")
    for name, data in found.tables.items():
        data.write(store / f"{row.name}-{name}.csv")
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _made_with(jobs: Sequence[Job], choices: Choices) -> list[str]:
    """The commits of the runs themselves, which may be older than this check."""
    folders = (RunFolder(choices.out / "runs" / job.name) for job in jobs)
    return sorted({folder.versions().get("commit", "unknown") for folder in folders if folder.toml.is_file()})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="afedpg.experiments.acceptance", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all of them")
    parser.add_argument("--list", action="store_true", help="name the rows and what they ask")
    parser.add_argument("--out", default="reproduced/full", help="where the runs lie (default: reproduced/full)")
    parser.add_argument("--store", default="results/acceptance", help="where the results go")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.list:
        for row in ROWS.values():
            print(f"{row.name}: {row.asked}")
        return 0
    try:
        return _check_all(options)
    except AfedpgError as error:
        print(f"acceptance: {error}", file=sys.stderr)
        return error.exit_code


def _check_all(options: argparse.Namespace) -> int:
    for name in options.rows:
        if name not in ROWS:
            raise ConfigError(f"row: unknown '{name}'; choose from {', '.join(ROWS)}")
    choices = Choices("full", Path(options.out), options.workers, preset="paper")
    choices.out.mkdir(parents=True, exist_ok=True)
    passed = True
    with RunFolder(choices.out).lock():
        for name in options.rows or ROWS:
            found = check(ROWS[name], choices, Path(options.store))
            passed &= found.passes
            print(f"{name}: {'passes' if found.passes else 'FALLS SHORT'}: {json.dumps(found.measured)}", flush=True)
        _show_learning(choices, Path(options.store))
    return 0 if passed else 1


def _show_learning(choices: Choices, store: Path) -> None:
    """Curves of all learning rows that have been run so far, whichever were asked for this time."""
    jobs = [job for row in ROWS.values() if row.learns for stage in row.stages for job in stage(choices)]
    runs = [job for job in jobs if isinstance(job, RunJob) and job.finished(choices.out)]
    if runs:
        write_outcome(published.outcome(runs, choices.out), store / "learning", "full", plotting.save)


if __name__ == "__main__":
    sys.exit(main())
