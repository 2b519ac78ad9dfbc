"""Names and numbers: an agent keeps its number for ever, and the list can be edited while the server runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from afedpg.errors import AfedpgError, ConfigError
from afedpg.transport.grpc import roster as rosters
from afedpg.transport.grpc.roster import Roster, read_list


def edit(file: Path, text: str) -> None:
    file.write_text(text)
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))  # two edits within a clock tick


def refreshed(roster: Roster) -> bool:
    """A change is believed at the second look."""
    return [roster.refresh(), roster.refresh()] == [False, True]


def test_numbers_follow_the_list_and_stay(tmp_path: Path) -> None:
    allow, store = tmp_path / "allowed.txt", tmp_path / "agents.json"
    allow.write_text("# the clinics\na\nb  # north\n\nc\n")
    roster = Roster(store, allow)
    assert [roster.number(name) for name in "cab"] == [2, 0, 1]
    edit(allow, "c\nd\n")
    assert refreshed(roster)
    assert not roster.refresh()
    assert [roster.allows(name) for name in "abcd"] == [False, False, True, True]
    assert roster.number("d") == 3
    again = Roster(store, allow)
    assert again.names() == {0: "a", 1: "b", 2: "c", 3: "d"}


def test_starts_are_counted_across_restarts_of_the_server(tmp_path: Path) -> None:
    store = tmp_path / "agents.json"
    assert [Roster(store).count_start("a") for _ in range(3)] == [0, 1, 2]


def test_a_list_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    allow = tmp_path / "allowed.txt"
    allow.write_text("a\n")
    roster = Roster(tmp_path / "agents.json", allow)
    edit(allow, "not a name!\n")
    assert not refreshed(roster)
    assert roster.allows("a")
    allow.unlink()
    assert not refreshed(roster)
    assert roster.allows("a")


def test_a_list_that_is_just_being_written_revokes_nobody(tmp_path: Path) -> None:
    allow = tmp_path / "allowed.txt"
    allow.write_text("a\nb\n")
    roster = Roster(tmp_path / "agents.json", allow)
    for half in ("", "a\n", "a\nb\nc\n"):  # as an editor empties it and writes it again
        edit(allow, half)
        assert not roster.refresh()
        assert roster.allows("b")
    assert roster.refresh()
    assert roster.allows("c")


def test_a_change_while_the_list_is_first_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow = tmp_path / "allowed.txt"
    allow.write_text("a\nb\n")

    def slow(file: Path) -> list[str]:
        names = read_list(file)
        edit(file, "a\n")
        return names

    with monkeypatch.context() as patch:
        patch.setattr(rosters, "read_list", slow)
        roster = Roster(tmp_path / "agents.json", allow)
    assert refreshed(roster)
    assert not roster.allows("b")


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="allow"):
        Roster(tmp_path / "agents.json", tmp_path / "nowhere.txt")
    (tmp_path / "agents.json").write_text("[]")
    with pytest.raises(AfedpgError, match="restore it"):
        Roster(tmp_path / "agents.json")
