"""Who may take part, and as which number: an agent's name is its certificate's, its number is for ever.

The allow-list is a text file with a name per line. It is read again whenever it changes: a name that is gone is
revoked at once, a new one is welcome. Numbers and the count of starts are kept in the run folder.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from pathlib import Path

from afedpg.errors import AfedpgError, ConfigError
from afedpg.record.disk import write_text

_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}")  # . and .. are folders of everybody
_log = logging.getLogger("afedpg")


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name: '{name[:64]}' is not 1 to 64 letters, digits, dots, dashes or underscores, or is . or .."
        )
    return name


def read_list(file: Path) -> list[str]:
    """The names of an allow-list; everything after # is a comment."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"allow: cannot read {file}: {error}") from error
    names = [line.partition("#")[0].strip() for line in lines]
    return [check_name(name) for name in names if name]


class Roster:
    """Without an allow-list anyone who gets as far as asking is let in: on loopback, and in tests."""

    def __init__(self, store: Path, allow: Path | None = None, names: Iterable[str] = ()) -> None:
        self._store = store
        self._allow = allow
        self._stamp: tuple[int, int] | None = None  # of the list in force
        self._seen: tuple[int, int] | None = None  # at the last look
        self._allowed: frozenset[str] | None = None
        self._numbers: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        if store.exists():
            self._load()
        for name in names:
            self._number(name)
        if allow is not None:
            self._stamp = self._seen = _stamp(allow)  # first: a change while it is read must not go unnoticed
            self._accept(read_list(allow))
        self._save()

    def refresh(self) -> bool:
        """Reads the allow-list again if the file changed. One that cannot be read changes nothing, but is logged.

        It is believed once it looks the same twice: half of a list that is just being written would revoke the others.
        """
        if self._allow is None or (stamp := _stamp(self._allow)) == self._stamp:
            return False
        if stamp != self._seen:
            self._seen = stamp
            return False
        self._stamp = stamp
        try:
            self._accept(read_list(self._allow))
        except ConfigError as error:
            _log.warning("%s; the list as it was stays in force", error)
            return False
        self._save()
        _log.info("allow-list: %d names", len(self._allowed or ()))
        return True

    def allows(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None and (self._allowed is None or name in self._allowed)

    def number(self, name: str) -> int:
        """The agent's number; a new name gets the next."""
        if name not in self._numbers:
            self._number(name)
            self._save()
        return self._numbers[name]

    def count_start(self, name: str) -> int:
        """How often this agent was started before."""
        self._number(name)
        before = self._starts.get(name, 0)
        self._starts[name] = before + 1
        self._save()
        return before

    def names(self) -> dict[int, str]:
        return {number: name for name, number in self._numbers.items()}

    def _accept(self, names: list[str]) -> None:
        self._allowed = frozenset(names)
        for name in names:
            self._number(name)

    def _number(self, name: str) -> None:
        self._numbers.setdefault(name, len(self._numbers))

    def _load(self) -> None:
        try:
            document = json.loads(self._store.read_text(encoding="utf-8"))
            self._numbers = {str(name): int(entry["agent"]) for name, entry in document.items()}
            self._starts = {str(name): int(entry["starts"]) for name, entry in document.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AfedpgError(f"cannot read {self._store}: {error}; restore it, it says which agent is who") from error

    def _save(self) -> None:
        rows = {name: {"agent": number, "starts": self._starts.get(name, 0)} for name, number in self._numbers.items()}
        write_text(self._store, json.dumps(rows, indent=1))


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
