"""The journal: every event, with the seconds it arrived at, written before it is applied.

A folder of preallocated segments, each named after the sequence number of its first event. Events are numbered
0, 1, 2, ... over the whole run. A segment whose events are all forgotten is renamed and written over: its pages are
already there, so a report costs one copy. What it held before has lower numbers than its name and is thereby known
to be old. Opening for appending removes what lay after the point of resumption, so numbers never come twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice, zip_longest
from pathlib import Path

from afedpg.errors import AfedpgError
from afedpg.messages import Event
from afedpg.record.disk import sync_folder, to_copy, write_error
from afedpg.record.events import MARK, Record, decode, encode, peek

SEGMENT_BYTES = 16 << 20
_SUFFIX = ".journal"


class Damaged(AfedpgError):
    """Events that were there are not there any more."""


class Journal:
    """Appends events; `sync` makes all since the last one survive a power cut."""

    def __init__(
        self,
        folder: Path,
        next_sequence: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
        keep_all: bool = False,
    ) -> None:
        self._folder = folder
        self._next = self._synced = next_sequence
        self._segment_bytes = segment_bytes
        self._keep_all = keep_all
        self._bytes_written = 0
        self._handle = -1  # of the segment being written; -1 until the first event
        self._offset = 0
        self._capacity = 0
        self._unsynced: set[Path] = set()
        self._free = 0  # how many of the oldest segments may be written over
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._segments = self._discard_from(next_sequence)
            # What a killed process wrote may be in memory alone: the first sync brings that to the disk, too.
            self._unsynced = {path for _, path in self._segments}
            self._synced = -1 if self._segments else next_sequence
        except OSError as error:
            raise write_error(error, folder, folder.parent) from error

    @property
    def next_sequence(self) -> int:
        return self._next

    @property
    def bytes_written(self) -> int:
        """Since this object was made."""
        return self._bytes_written

    def append(self, event: Event, seconds: float) -> int:
        """Writes the event and returns its sequence number; after an error the journal is as it was before."""
        pieces, total = encode(event, self._next, seconds)
        try:
            if self._offset + total > self._capacity:
                self._make_room(total)
            written = os.pwritev(self._handle, pieces, self._offset)
            if written != total:
                self._write_rest(pieces, written)
        except OSError as error:
            raise write_error(error, self._folder, self._folder.parent) from error
        self._offset += total
        self._bytes_written += total
        self._next += 1
        return self._next - 1

    def forget(self, before: int) -> None:
        """Events before that sequence number may be written over."""
        if not self._keep_all:
            starts = [start for start, _ in self._segments[1:]]
            self._free = sum(start <= before for start in starts)

    def sync(self) -> None:
        """Returns when everything appended so far is on the disk."""
        if self._synced == self._next:
            return
        try:
            self._sync()
            self._synced = self._next
        except OSError as error:
            raise write_error(error, self._folder, self._folder.parent) from error

    def close(self) -> None:
        """Gives back what the last segment has not used. A later append opens a new one."""
        if self._handle < 0:
            return
        try:
            os.ftruncate(self._handle, self._offset)
        finally:
            os.close(self._handle)
            self._handle, self._capacity = -1, 0
            if self._offset == 0:  # a segment that never got its first event
                self._segments.pop()[1].unlink()

    def _sync(self) -> None:
        for path in self._unsynced:
            handle = os.open(path, os.O_RDWR)
            try:
                os.fdatasync(handle)
            finally:
                os.close(handle)
        if self._unsynced:
            sync_folder(self._folder)
        self._unsynced.clear()
        if self._handle >= 0:
            os.fdatasync(self._handle)

    def _write_rest(self, pieces: list[bytes | memoryview], written: int) -> None:
        """A write that was cut short, as a full disk or a limit does: the next one says why."""
        rest = memoryview(b"".join(bytes(piece) for piece in pieces))[written:]
        while rest:
            count = os.pwrite(self._handle, rest, self._offset + written)
            rest, written = rest[count:], written + count

    def _make_room(self, total: int) -> None:
        """A segment with room for that many bytes: the present one while it is empty, an old one, or a new one."""
        size = max(total, self._segment_bytes)
        if self._handle >= 0 and self._offset == 0:
            os.posix_fallocate(self._handle, 0, size)
            self._capacity = size
            return
        path = self._folder / f"{self._next:016d}{_SUFFIX}"
        source = self._segments[0][1] if self._free else path
        handle = os.open(source, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.posix_fallocate(handle, 0, size)  # before the renaming: a full disk leaves the folder as it was
            capacity = os.fstat(handle).st_size
            os.rename(source, path)
        except OSError:
            os.close(handle)
            if not self._free:
                path.unlink(missing_ok=True)
            raise
        if self._free:
            self._free -= 1
            self._unsynced.discard(self._segments.pop(0)[1])
        self._switch_to(handle, path, capacity)

    def _switch_to(self, handle: int, path: Path, capacity: int) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._unsynced.add(self._segments[-1][1])
        self._segments.append((self._next, path))
        self._unsynced.add(path)
        self._handle, self._offset, self._capacity = handle, 0, capacity

    def _discard_from(self, sequence: int) -> list[tuple[int, Path]]:
        """Removes the events from `sequence` on, the newest first, so that a crash meanwhile leaves no hole."""
        segments = _segments(self._folder)
        while segments and segments[-1][0] >= sequence:
            segments.pop()[1].unlink()
        if segments:
            start, path = segments[-1]
            stops = [record.stop for record in islice(_records(_load(path), start), sequence - start)]
            os.truncate(path, stops[-1] if stops else 0)
        return segments


def read(
    folder: Path, start: int = 0, damaged: Callable[[str], None] | None = None
) -> Iterator[tuple[int, float, Event]]:
    """Sequence number, seconds and event, from number `start` to the end.

    A record that was being written when the process died is the end. Anything else that is missing is an error, or the
    end as well, where `damaged` wants to hear of it.
    """
    try:
        yield from _read(folder, start)
    except Damaged as error:
        if damaged is None:
            raise
        damaged(str(error))


def end(folder: Path) -> int:
    """The number that follows the last whole record's."""
    segments = _segments(folder)
    if not segments:
        return 0
    expected, path = segments[-1]
    return expected + sum(1 for _ in _records(_load(path), expected))


def _read(folder: Path, start: int) -> Iterator[tuple[int, float, Event]]:
    segments = _segments(folder)
    if segments and segments[0][0] > start:
        raise Damaged(
            f"{folder} begins with event {segments[0][0]}, event {start} is gone (written over or deleted); "
            "begin at a later checkpoint, or run with --keep-reports to keep all"
        )
    after = [first for first, _ in segments[1:]]
    for (first, path), following in zip_longest(segments, after):
        if following is not None and following <= start:
            continue
        buffer, offset, expected = _load(path), 0, first
        for record in _records(buffer, first):
            if record.sequence >= start:
                yield record.sequence, record.seconds, record.event
            offset, expected = record.stop, record.sequence + 1
        _check_end(buffer, offset, expected, path, following)


def _records(buffer: memoryview, first: int) -> Iterator[Record]:
    """The whole records from the beginning of a segment, as long as their numbers follow each other."""
    offset, expected = 0, first
    while (record := decode(buffer, offset)) is not None and record.sequence == expected:
        yield record
        offset, expected = record.stop, expected + 1


def _check_end(buffer: memoryview, offset: int, expected: int, path: Path, following: int | None) -> None:
    """Where the good records of a segment end, nothing newer may follow."""
    later = _later_record(buffer, offset, expected)
    if later is None and following is not None and following != expected:
        later = following
    if later is not None:
        give_up = to_copy("resume", path.parents[1], "--accept-loss")
        raise Damaged(
            f"{path}: event {expected} at byte {offset} is damaged or missing, though event {later} follows; restore "
            f"the file from a copy, or give up what follows with `{give_up}`"
        )


def _later_record(buffer: memoryview, offset: int, expected: int) -> int | None:
    """A whole record after `offset` that is newer than the one expected there, if there is one."""
    data = bytes(buffer.obj)  # the same object: buffers here are of bytes
    while (offset := data.find(MARK, offset)) >= 0:
        sequence = peek(buffer, offset)
        if sequence is not None and sequence > expected and decode(buffer, offset) is not None:
            return sequence
        offset += 1
    return None


def _load(path: Path) -> memoryview:
    """Read rather than mapped: a mapped file that its writer truncates would kill the reader."""
    try:
        return memoryview(path.read_bytes())
    except OSError as error:
        raise AfedpgError(f"cannot read {path}: {error.strerror}") from error


def _segments(folder: Path) -> list[tuple[int, Path]]:
    """First sequence number and file of every segment, the oldest first."""
    paths = folder.glob(f"*{_SUFFIX}") if folder.is_dir() else ()
    return sorted((int(path.stem), path) for path in paths if path.stem.isdecimal())
