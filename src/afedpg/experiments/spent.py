"""What each job took and what it was made with: OUT/spent.csv gets a line every time one has run."""

from __future__ import annotations

import csv
import importlib.metadata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from afedpg.experiments.jobs import Job
from afedpg.record.folder import RunFolder, current_versions

FILE = "spent.csv"


@contextmanager
def noting(out: Path) -> Iterator[Callable[[Job, float], None]]:
    """Gives what writes a line: the job, the real seconds it took or took until it was interrupted, the versions."""
    usual = current_versions()
    with (out / FILE).open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")

        def note(job: Job, seconds: float) -> None:
            # A job may need what runs do without, and what only it was made with is told of it alone.
            more = {name: importlib.metadata.version(name) for name in getattr(job, "packages", ())}
            writer.writerow((job.name, f"{seconds:.2f}", _words(usual | more)))
            file.flush()

        yield note


def seconds(out: Path) -> dict[str, float]:
    """Per job, all its attempts together."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, took, *_ in _lines(out):
        with suppress(ValueError):  # cut off by a crash: that attempt is lost
            found[name] += float(took)
    return dict(found)


def made_with(out: Path, names: Iterable[str]) -> list[str]:
    """The versions the jobs ran with, which may be older than what reads them now: as run.toml says, or the lines."""
    noted = {name: words for name, _, words in (line for line in _lines(out) if len(line) == 3)}
    found = set()
    for name in names:
        folder = RunFolder(out / "runs" / name)
        found.add(_words(folder.versions()) if folder.toml.is_file() else noted.get(name, "not recorded"))
    return sorted(found)


def _words(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _lines(out: Path) -> list[list[str]]:
    if not (out / FILE).is_file():
        return []
    with (out / FILE).open(newline="") as file:
        return [row for row in csv.reader(file) if len(row) >= 2]
