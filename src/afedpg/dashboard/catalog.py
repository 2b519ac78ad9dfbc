"""Which runs there are: every run folder below the folders given, found again every few seconds."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from afedpg.config import Config, flat
from afedpg.errors import AfedpgError
from afedpg.record.folder import RunFolder, RunSummary, find_runs, summarize
from afedpg.record.returns import finite

SCAN_SECONDS = 2.0
NO_TEXT = re.compile("[\udc80-\udcff]")  # bytes of a name that are no UTF-8
VIDEOS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}


@dataclass(frozen=True)
class Entry:
    """A run as the page knows it."""

    id: str  # made here; the only name of a run that a request can carry
    name: str  # where it lies, below its root: whatever someone called a folder, so never markup
    folder: RunFolder
    config: Config
    group: str  # the same for runs that differ in their seed alone


class Catalog:
    """Thread-safe."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.absolute() for root in roots]
        self._entries: dict[str, Entry] = {}
        self._configs: dict[Path, tuple[tuple[int, int], Config]] = {}  # by the run.toml's inode and change
        self._summaries: dict[str, tuple[object, RunSummary]] = {}
        self._scanned = -SCAN_SECONDS
        self._lock = Lock()
        self.trouble = ""  # why the last search found nothing new

    def entries(self) -> dict[str, Entry]:
        with self._lock:
            if time.monotonic() - self._scanned >= SCAN_SECONDS:
                try:
                    self._scan()
                    self.trouble = ""
                except FileNotFoundError:  # a folder went away while it was searched: as it was, until the next look
                    pass
                except OSError as error:
                    self.trouble = f"cannot search {error.filename}: {error.strerror}"
                self._scanned = time.monotonic()
            return self._entries

    def _scan(self) -> None:
        found = [self._entry(folder) for folder in find_runs(*self._roots)]
        self._entries = {entry.id: entry for entry in found if entry is not None}
        there = {entry.folder.path for entry in self._entries.values()}
        self._configs = {path: known for path, known in self._configs.items() if path in there}
        self._summaries = {run: known for run, known in self._summaries.items() if run in self._entries}

    def describe(self) -> list[dict[str, Any]]:
        """A line per run, by name."""
        known = self.entries().values()
        lines = [self._line(entry) for entry in sorted(known, key=lambda entry: _natural(entry.name))]
        return [line for line in lines if line is not None]

    def _entry(self, folder: RunFolder) -> Entry | None:
        path = folder.path
        try:
            stat = folder.toml.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns)
            known = self._configs.get(path)
            config = known[1] if known is not None and known[0] == stamp else folder.config()
        except (OSError, AfedpgError):  # being written, or not ours to read: not shown, and looked at again
            return None
        self._configs[path] = (stamp, config)
        root = next(root for root in self._roots if path.is_relative_to(root))
        below = path.relative_to(root).as_posix()
        name = root.name if below == "." else below if len(self._roots) == 1 else f"{root.name}/{below}"
        return Entry(_digest(str(path)), name, folder, config, _group(config))

    def _line(self, entry: Entry) -> dict[str, Any] | None:
        config = entry.config
        try:
            summary = self._summary(entry)
        except AfedpgError:
            return None
        return {
            "id": entry.id, "name": entry.name, "group": entry.group, "task": config.task, "method": config.method,
            "agents": config.agents, "seed": config.seed, "engine": config.engine, "state": summary.state,
            "gradients": summary.gradients, "total": summary.total, "return": _short(summary.last_return),
            "theta": {kind: _short(value) for kind, value in summary.theta.items()},
            "seconds": _short(summary.seconds), "changed": _changed(entry.folder.database),
        }  # fmt: skip

    def _summary(self, entry: Entry) -> RunSummary:
        """Read again only when run.db has changed or somebody was writing it: a sweep has hundreds of runs."""
        stamp = tuple(_stamp(Path(f"{entry.folder.database}{suffix}")) for suffix in ("", "-wal"))
        known = self._summaries.get(entry.id)
        if known is not None and known[0] == stamp and known[1].state != "running":
            return known[1]
        summary = summarize(entry.folder)
        with self._lock:  # a search may be going over them
            self._summaries[entry.id] = (stamp, summary)
        return summary


def videos_of(folder: RunFolder) -> list[Path]:
    """Films of the policy that lie in the run folder, newest first; those whose name an address can carry."""
    try:
        found = [path for path in folder.path.iterdir() if path.suffix in VIDEOS and not path.is_symlink()]
        found = [path for path in found if not NO_TEXT.search(path.name)]
        return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:  # the run is gone
        return []


def settings_of(config: Config) -> dict[str, str]:
    """Every setting by its name, as text: JSON has no word for infinity, and a run.toml may hold dates."""
    return {name: _text(value) for name, value in flat(config.to_dict()).items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _group(config: Config) -> str:
    """Of everything that was set, except the seed."""
    settings = {name: value for name, value in config.to_dict().items() if name != "seed"}
    return _digest(json.dumps(settings, sort_keys=True, default=str))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _changed(path: Path) -> int:
    """When something was last written, in whole seconds."""
    stamps = (_stamp(Path(f"{path}{suffix}")) for suffix in ("", "-wal"))
    return max((stamp[1] // 10**9 for stamp in stamps if stamp is not None), default=0)


def _short(value: float | None) -> float | None:
    return None if finite(value) is None else float(f"{value:.6g}")


def _natural(name: str) -> list[str | int]:
    """seed2 before seed10."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", name))]
