"""What a run folder has lost: a journal that ends before what run.db tells of, or rows and checkpoints that are gone.

However a run ends, by kill -9 or by a power cut, an ordinary end loses none of it: run.db is committed only once the
events behind its rows are on the disk, and a checkpoint is written only once its rows are. The journal may be ahead of
run.db, by whole records and a last incomplete one, and never behind. So what is told of and not there was taken away
afterwards, and nothing that proves it is removed without the user's word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from afedpg.errors import AfedpgError
from afedpg.record.database import EVENTS, GIVEN_UP, read_last, reading
from afedpg.record.disk import to_copy
from afedpg.record.folder import RunFolder

Warn = Callable[[str], None]
_log = logging.getLogger("afedpg")


class _Told(NamedTuple):
    """What run.db says of the run."""

    events: int = 0  # in the journal when it was last committed; 0 in virtual time, which needs no journal to go on
    gradients: int = 0  # applied
    rows: int = 0  # of `arrivals`, up to the checkpoint
    given_up: int = 0  # rows that are missing with the user's word


def warn_of_beginning(folder: RunFolder, iteration: int) -> None:
    """Of a theta that is taken after that iteration: until its first checkpoint in training a run has none but the one
    that it began with.
    """
    try:
        reached, _ = (0, 0.0) if iteration else read_last(folder.database)
    except AfedpgError:
        return
    if reached:
        how = (
            "is still to come"
            if folder.is_written()
            else f"was never written; go on with: {to_copy('resume', folder.path)}"
        )
        _log.warning(
            "%s: this is the theta that the run began with, before its %s gradients: a later checkpoint %s",
            folder.path, f"{reached:,}", how,
        )  # fmt: skip


def check_start(folder: RunFolder, accept: bool, warn: Warn) -> None:
    """A run without a checkpoint starts over: only where nothing was reached yet, or with the user's word."""
    told = _told(folder, 0)
    if told.gradients:
        _settle(folder, f"its checkpoints are gone, run.db tells of {told.gradients:,} gradients", accept, warn)


def check_rows(folder: RunFolder, gradients: int, never: int, accept: bool, warn: Warn) -> int:
    """run.db must hold a row for every gradient of the checkpoint, but for those `never` written; returns how many are
    given up.
    """
    told = _told(folder, gradients)
    missing = gradients - told.rows
    if missing > max(told.given_up, never):
        gone = "run.db is gone" if not folder.database.exists() else "rows of run.db are gone"
        _settle(folder, f"{gone}: {missing:,} of {gradients:,} arrivals up to the checkpoint are missing", accept, warn)
    return max(0, missing)


def never_written(tree: Mapping[str, Any], gradients: int, reports: int) -> int:
    """Rows that a run of 0.1.0 does not have: it put that many `reports` of an agent of a3c into one."""
    if "pending" not in tree:
        return 0
    waiting = sum(int(entry[0]) for entry in tree["pending"].values())  # reports that had no row yet
    return gradients - (gradients - waiting) // reports


def check_events(folder: RunFolder, events: int, gradients: int, accept: bool, warn: Warn) -> None:
    """A journal that brings the server to so many events and gradients must not end before what run.db tells of."""
    told = _told(folder, 0)
    if told.events > events or told.gradients > gradients:
        lost = told.gradients - gradients
        missing = f"{lost:,} gradients" if lost > 0 else f"{told.events - events:,} events"
        ends = f"the journal ends after {events:,} events and {gradients:,} gradients"
        tells = f"run.db tells of {max(told.events, events):,} and {max(told.gradients, gradients):,}"
        _settle(folder, f"{ends}, {tells}: {missing} are missing", accept, warn)


def _settle(folder: RunFolder, loss: str, accept: bool, warn: Warn) -> None:
    line = f"{folder.path}: {loss}"
    if not accept:
        raise AfedpgError(f"{line}; put the files back from a copy, or go on without them with --accept-loss")
    warn(f"{line}; going on without them")


def _told(folder: RunFolder, up_to: int) -> _Told:
    if not folder.database.exists():
        return _Told()
    with reading(folder.database) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not {"arrivals", "evaluations", "notes"} <= tables:  # killed before they were made
            return _Told()
        notes = dict(connection.execute("SELECT key, value FROM notes"))
        (arrived,) = connection.execute("SELECT coalesce(max(gradient), 0) FROM arrivals").fetchone()
        (evaluated,) = connection.execute("SELECT coalesce(max(gradients), 0) FROM evaluations").fetchone()
        (rows,) = connection.execute("SELECT count(*) FROM arrivals WHERE gradient <= ?", (up_to,)).fetchone()
    return _Told(int(notes.get(EVENTS, 0)), max(arrived, evaluated), rows, int(notes.get(GIVEN_UP, 0)))
