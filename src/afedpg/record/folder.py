"""A run's folder: what lies where, run.toml, and who may write.

run.toml holds no time and not its own place, so two runs that differ in one setting differ in one line.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import itertools
import os
import platform
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import tomli_w

from afedpg.config import Config, from_dict
from afedpg.errors import AfedpgError, ConfigError
from afedpg.record import database
from afedpg.record.disk import beside, is_full, to_copy, write_error, write_text
from afedpg.record.lock import LOCK, BeingWritten, RunLock, is_locked
from afedpg.record.returns import Returns, read_returns
from afedpg.record.trust import remember
from afedpg.validation import validate
from afedpg.version import VERSION

PACKAGES = ("numpy", "torch", "mujoco", "gymnasium", "numba")
DEPTH = 5  # of folders in folders that are searched for runs: sweeps, seeds, reproductions
_VERSIONS = "versions"
T = TypeVar("T")

_TRIES = 100  # at a folder that somebody removes again, each time


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The names in a run folder, the same in every engine."""

    path: Path

    @property
    def toml(self) -> Path:
        return self.path / "run.toml"

    @property
    def database(self) -> Path:
        return self.path / "run.db"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def policy(self) -> Path:
        return self.path / "policy.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    def config(self) -> Config:
        document = self._document()
        made_by = dict(document.pop(_VERSIONS, {})).get("afedpg", "")
        try:
            return validate(from_dict(_of_0_1_0(document) if made_by == "0.1.0" else document))
        except ConfigError as error:
            raise ConfigError(f"{self.toml}: {error}") from error

    def versions(self) -> dict[str, str]:
        """Of everything, when the run was started."""
        return dict(self._document().get(_VERSIONS, {}))

    def changed_versions(self) -> list[str]:
        """'numpy 2.2.0 -> 2.3.1' for all that is not as it was: other versions may give other bits."""
        then, now = self.versions(), current_versions()
        return [
            f"{name} {then.get(name, 'absent')} -> {now.get(name, 'absent')}"
            for name in sorted(then.keys() | now.keys())
            if then.get(name) != now.get(name)
        ]

    def rewrite(self, **settings: Any) -> None:
        """run.toml with other settings: the whole of it, or after a crash what was there before."""
        write_text(self.toml, tomli_w.dumps({**self._document(), **settings}))

    def is_written(self) -> bool:
        """Somebody holds the lock: the run goes on."""
        return is_locked(self.path)

    def lock(self) -> RunLock:
        """`with folder.lock():` around everything that writes; freed when the process ends, however it ends."""
        with contextlib.ExitStack() as on_failure:
            try:
                lock = on_failure.enter_context(RunLock(self.path))
                lock.sign()
            except OSError as error:
                raise write_error(error, self.path / LOCK, self.path) from error
            on_failure.pop_all()
        return lock

    def _document(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.toml.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.toml} is not TOML: {error}") from error
        except OSError as error:
            raise AfedpgError(f"cannot read {self.toml}: {error.strerror}") from error


def _of_0_1_0(document: dict[str, Any]) -> dict[str, Any]:
    """As this version says the same: torch computed, the method a3c decided how agents estimate, and nobody else had
    segments."""
    agent = {**document.get("agent", {}), "compute": "torch"}
    agent |= {"estimator": "a3c"} if document.get("method") == "a3c" else {"segment": 0}
    return {**document, "agent": agent}


def create(path: Path, config: Config, files: Mapping[str, str] = MappingProxyType({})) -> RunFolder:
    """As `claim`, for whoever takes the lock later."""
    with claim(path, config, files) as lock:
        return RunFolder(lock.run)


def claim(
    path: Path, config: Config, files: Mapping[str, str] = MappingProxyType({}), numbered: bool = False
) -> RunLock:
    """A new run folder with its run.toml, and before that with these `files`, texts by name: a folder with a run.toml
    has them all. Its lock is taken before anything is written, so of any number of processes one has the folder.

    One that exists is refused and left as it is, but for what a process left that was killed in here; with `numbered`
    the run goes to the first of PATH-2, PATH-3, ... that is free instead.
    """
    document = {**config.to_dict(), _VERSIONS: current_versions()}
    texts = {**files, "run.toml": tomli_w.dumps(document)}
    for number in itertools.count(1):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            lock = _claim(place, texts, config)
        except OSError as error:
            if is_full(error):
                raise AfedpgError(f"disk full: cannot create {place}, free space or choose another --out") from error
            raise ConfigError(f"out: cannot create {place}: {error.strerror}; choose another --out") from error
        if lock is not None:
            return lock
        if not numbered:
            break
    how = "move it away"
    if (path / "run.toml").is_file():
        how = f"`{to_copy('resume', path)}`"
    elif is_locked(path):
        how = "wait for the process that is making it"
    raise ConfigError(f"out: {path} exists; choose another --out or {how}")


def _claim(path: Path, texts: Mapping[str, str], config: Config) -> RunLock | None:
    """None where it exists."""
    for _ in range(_TRIES):
        made = _make_folder(path)
        try:
            if not _is_unfinished(path, texts):
                return None
            lock = RunLock(path)
        except BeingWritten:
            return None
        except FileNotFoundError:  # whoever made it failed, and took it away
            continue
        except OSError:
            if made:
                _remove(path)
            raise
        try:
            if lock.removed:
                lock.release()
                continue
            if not _is_unfinished(path, texts):
                lock.release()
                return None
            lock.sign()
            for name, text in texts.items():
                write_text(path / name, text)
            remember(config)
        except BaseException:
            with contextlib.suppress(OSError):
                for name in (*texts, LOCK):
                    (path / name).unlink(missing_ok=True)
            if made:
                _remove(path)
            lock.release()
            raise
        return lock
    raise OSError(errno.EBUSY, "somebody removes it again and again")


def _make_folder(path: Path) -> bool:
    """Whether this call made it."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # somebody else is in it already
        path.rmdir()


def _is_unfinished(path: Path, texts: Mapping[str, str]) -> bool:
    """It holds no more than a process may have left that was killed while it made this folder."""
    if not path.is_dir() and os.path.lexists(path):
        return False
    left = {LOCK, *texts, *(beside(path / name).name for name in texts)} - {"run.toml"}
    return all(entry.name in left for entry in path.iterdir())


def open_run(path: Path, setting: str = "run") -> RunFolder:
    """An existing run folder, which `setting` names."""
    if os.path.isfile(path):  # Path.is_file raises where a name is too long
        raise ConfigError(f"{setting}: {path} is a file; name a run folder (load_policy in Python reads a policy file)")
    if not os.path.isdir(path):
        raise ConfigError(f"{setting}: there is no folder {path}")
    if not (path / "run.toml").is_file():
        raise ConfigError(f"{setting}: {path} is no run folder: there is no run.toml in it")
    return RunFolder(path)


def default_path(runs: Path, config: Config) -> Path:
    """runs/TASK-METHOD-seedS"""
    return runs / re.sub(r"[^A-Za-z0-9._-]", "_", f"{config.task}-{config.method}-seed{config.seed}")


def current_versions() -> dict[str, str]:
    """Of Python and the packages that decide the bits, without importing them; and the commit, in a checkout."""
    versions = {"python": platform.python_version(), "afedpg": VERSION}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "absent"
    commit = commit_of(Path(__file__).resolve().parents[3])  # of src/afedpg/record/folder.py
    return {**versions, "commit": commit} if commit else versions


def commit_of(root: Path) -> str | None:
    """What a checkout's code is: its commit, with -dirty where src has changed since. Results may have."""
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "HEAD")
    if head is None or head.returncode != 0:
        return None
    code = _git(root, "diff", "--quiet", "HEAD", "--", "src")
    return head.stdout.strip() + ("" if code is not None and code.returncode == 0 else "-dirty")


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # looking must not touch the checkout
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=quiet)
    except (OSError, subprocess.TimeoutExpired):
        return None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of `afedpg runs`."""

    path: Path
    task: str
    method: str
    agents: int
    seed: int
    gradients: int  # applied so far
    total: int  # where the run ends
    last_return: float | None  # in training; `returns` says what that is
    seconds: float  # of the newest arrival, virtual in virtual time
    state: str  # finished, running, interrupted or damaged
    theta: dict[str, float | None] = field(default_factory=dict)  # its last evaluation, by kind
    unused: int = 0  # reports that were believed and not used


def find_runs(*roots: Path) -> list[RunFolder]:
    """Those of `roots` that are run folders, and every run folder below the others, by name and each but once."""
    found = {path for root in roots for path in _search(root, DEPTH)}
    homes: dict[Path, Path] = {}
    for path in sorted(found, key=lambda path: (path.resolve() != path.absolute(), path)):  # links last
        homes.setdefault(path.resolve(), path)
    return [RunFolder(path) for path in sorted(homes.values())]


def _search(root: Path, depth: int) -> Iterator[Path]:
    """What lies within a run folder is not looked at."""
    if not (root.is_dir() and os.access(root, os.R_OK | os.X_OK)):
        return
    if (root / "run.toml").is_file():
        yield root
    elif depth:
        for path in root.iterdir():
            yield from _search(path, depth - 1)


def read_each(runs: Iterable[RunFolder], read: Callable[[RunFolder], T], warn: Callable[[str], None]) -> list[T]:
    """What `read` says of each; those that it cannot read are left out, and named."""
    found = []
    for run in runs:
        try:
            found.append(read(run))
        except AfedpgError as error:
            warn(f"left out: {error}")
    return found


def summarize(run: RunFolder) -> RunSummary:
    config = run.config()
    gradients, seconds, unused, state, found = 0, 0.0, 0, "", Returns()
    written = run.is_written()  # before its notes are read: the last thing a run does is to say that it is finished
    try:
        gradients, seconds = database.read_last(run.database)
        unused = database.read_unused(run.database)
        found = read_returns(run.database, config.agents)
        state = database.read_notes(run.database).get("state", "")
    except AfedpgError as error:  # killed before its first row: the run counts as interrupted at the start
        gone = not run.database.exists() and any(run.checkpoints.glob("*"))
        gradients, state = 0, "damaged" if gone or database.is_damage(error) else ""
    if state not in ("finished", "damaged"):
        state = "running" if written else "interrupted"
    return RunSummary(
        run.path, config.task, config.method, config.agents, config.seed,
        gradients, config.gradients, found.training, seconds, state, found.theta, unused,
    )  # fmt: skip
