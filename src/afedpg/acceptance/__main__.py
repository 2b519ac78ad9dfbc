"""`python -m afedpg.acceptance [ROW ...]`: what was promised, run again and stored with its commit.

Each row is a JSON file under results/acceptance: what was asked, what was measured, with which code, in how many hours;
a search leaves all its runs beside it, as CSV.
Rows take minutes to hours; they are restartable like `reproduce`, whose runs they share where they are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from afedpg import plotting
from afedpg.acceptance import published
from afedpg.acceptance.rows import ROWS, Found, Row
from afedpg.errors import AfedpgError, ConfigError
from afedpg.experiments import spent
from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import Job, RunJob
from afedpg.experiments.outcome import finite, write_outcome
from afedpg.experiments.reproduce import opened, perform, raise_first
from afedpg.record.disk import write_text
from afedpg.record.folder import current_versions


def check(row: Row, choices: Choices, store: Path) -> Found:
    """Runs one row and stores what came out."""
    used: dict[str, Job] = {}
    for stage in row.stages:  # a later stage may depend on what an earlier one found
        jobs = stage(choices)
        raise_first(perform(jobs, choices))
        used |= {job.name: job for job in jobs}
    found = row.measure(choices)
    took = spent.seconds(choices.out)
    document = {
        "row": row.name,
        "asked": row.asked,
        "passes": found.passes,
        "measured": finite(found.measured),
        "hours": round(sum(took.get(name, 0.0) for name in used) / 3600, 3),
        "runs": len(used),
        "made_with": spent.made_with(choices.out, used),
        "checked_with": current_versions(),
        "checked_on": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    store.mkdir(parents=True, exist_ok=True)
    write_text(store / f"{row.name}.json", json.dumps(document, indent=2) + "\n")
    for name, data in found.tables.items():
        data.write(store / f"{row.name}-{name}.csv")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="afedpg.acceptance", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="default: all of them")
    parser.add_argument("--list", action="store_true", help="name the rows and what they ask")
    parser.add_argument("--out", default="reproduced/full", help="where the runs lie (default: reproduced/full)")
    parser.add_argument("--store", default="results/acceptance", help="where the results go")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=int, metavar="W", default=cores, help="processes; default: one per core")
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
    if options.workers < 1:
        raise ConfigError(f"workers: {options.workers}; at least 1 is needed")
    choices = Choices("full", Path(options.out), options.workers, preset="paper")
    passed = True
    with opened(choices.out):
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
