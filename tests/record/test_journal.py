"""The journal yields a gapless prefix of what was written, bit for bit, or one clear error; never anything else."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from afedpg.errors import AfedpgError
from afedpg.messages import (
    CloseRound,
    Event,
    Fetch,
    Join,
    Leave,
    Moments,
    Rejected,
    Report,
    Restart,
    Revoke,
    Stats,
    TaskId,
)
from afedpg.record.events import decode, encode
from afedpg.record.journal import Journal, read

floats = st.floats(width=64)
ids = st.integers(0, 2**53)
agents = st.integers(0, 2**32 - 1)  # as many as the protocol can name
moments = st.integers(1, 4).flatmap(
    lambda size: st.builds(Moments, floats, hnp.arrays(np.float64, size), hnp.arrays(np.float64, size))
)
stats = st.builds(
    Stats,
    ids,
    st.lists(floats, max_size=3).map(tuple),
    st.lists(ids, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=5), floats, max_size=2),
)
reports = st.builds(
    Report,
    st.builds(TaskId, ids, ids),
    agents,
    hnp.arrays(np.float32, st.integers(0, 20)) | hnp.arrays(np.uint8, st.integers(0, 20)),
    ids,
    st.dictionaries(st.text(max_size=5), moments, max_size=2),
    stats,
    st.dictionaries(st.text(max_size=5), floats, max_size=2),
)
events = st.one_of(
    reports,
    st.builds(Join, agents),
    st.builds(Fetch, agents),
    st.builds(Leave, agents),
    st.builds(Revoke, agents),
    st.builds(Rejected, agents, st.text(max_size=20), st.booleans()),
    st.just(CloseRound()),
    st.builds(Restart, st.booleans()),
)


def bits(value: Any) -> Any:
    """Equal exactly where the values are the same bit for bit, NaN included."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value):
        return type(value), [bits(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, float):
        return np.float64(value).tobytes() if value == value else "nan"
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    return (type(value), [bits(entry) for entry in value]) if isinstance(value, tuple) else value


def report(number: int, size: int = 4) -> Report:
    gradient = np.full(size, number, np.float32)
    return Report(TaskId(0, number), number % 3, gradient, number, stats=Stats(1, (float(number),), (1,)))


def write(folder: Path, events: list[Event], segment_bytes: int = 260) -> None:
    journal = Journal(folder, segment_bytes=segment_bytes)
    for number, event in enumerate(events):
        assert journal.append(event, number / 8) == number
    journal.close()


def everything(folder: Path, start: int = 0) -> list[Any]:
    return [(number, seconds, bits(event)) for number, seconds, event in read(folder, start)]


def wanted(events: list[Event]) -> list[Any]:
    return [(number, number / 8, bits(event)) for number, event in enumerate(events)]


@given(st.lists(events, max_size=12), st.integers(1, 2000), st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_what_is_read_is_what_was_written(tmp_path_factory: Any, events: list[Event], segment: int, start: int) -> None:
    folder = tmp_path_factory.mktemp("run") / "journal"
    write(folder, events, segment)
    assert everything(folder) == wanted(events)
    assert everything(folder, min(start, len(events))) == wanted(events)[start:]


def test_a_restart_of_0_1_0_waits_for_nobody() -> None:
    """Its server closed a round with the first that came back, and its journals must fold to the same again."""
    [record], _ = encode(Restart(), 7, 1.5)
    prefix = b"\xafPG1" + bytes(record[4:36])
    body = bytes(record[44:])
    old = prefix + xxhash.xxh3_64(prefix + body).digest()[::-1] + body
    found = decode(memoryview(old), 0)
    assert found is not None
    assert (found.sequence, found.seconds, found.event) == (7, 1.5, Restart(awaits=False))


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert everything(tmp_path / "journal") == []


def test_another_precision_is_refused(tmp_path: Path) -> None:
    double = Report(TaskId(0, 0), 0, np.zeros(3), 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a payload of float64; float32 and uint8 travel"):
        Journal(tmp_path).append(double, 0.0)


def test_arrays_that_are_not_contiguous(tmp_path: Path) -> None:
    gradient = np.arange(10, dtype=np.float32)[::-2]
    write(tmp_path, [Report(TaskId(0, 0), 0, gradient, 0)])
    ((_, _, event),) = read(tmp_path)
    assert isinstance(event, Report)
    assert np.array_equal(event.payload, gradient)


# cut off, damaged, torn


def copy_of(segments: dict[Path, bytes], folder: Path) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    for path, data in segments.items():
        (folder / path.name).write_bytes(data)
    return {path.name: folder / path.name for path in segments}


def outcome(folder: Path) -> list[Any] | None:
    """What is read; None for an error in one line."""
    try:
        return everything(folder)
    except AfedpgError as error:
        message = str(error)
    assert "\n" not in message
    assert str(folder) in message
    return None


def test_a_cut_at_any_byte_leaves_a_prefix_or_an_error(tmp_path: Path) -> None:
    written: list[Event] = [report(number) for number in range(7)]
    write(tmp_path / "whole", written)
    segments = {path: path.read_bytes() for path in sorted((tmp_path / "whole").iterdir())}
    assert len(segments) > 2
    copies = copy_of(segments, tmp_path / "cut")
    for path, data in segments.items():
        last = path == max(segments)
        for length in reversed(range(len(data))):
            os.truncate(copies[path.name], length)
            got = outcome(tmp_path / "cut")
            if last:
                assert got is not None
                assert got == wanted(written)[: len(got)]
                assert len(got) < len(written)
            elif length < len(data.rstrip(b"\0")):
                assert got is None  # later events are there: something is missing, and that is said
            else:
                assert got in (None, wanted(written))  # cut in what a segment had left over
        copies[path.name].write_bytes(data)


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    written: list[Event] = [report(0), Join(1), Rejected(2, "stale"), report(3)]
    write(tmp_path / "whole", written, segment_bytes=10_000)
    (path,) = (tmp_path / "whole").iterdir()
    data = path.read_bytes()
    allowed = (None, wanted(written)[:-1])  # an error, or the last record taken for one that was being written
    errors = 0
    for position in range(len(data)):
        damaged = data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :]
        copy_of({path: damaged}, tmp_path / "damaged")
        got = outcome(tmp_path / "damaged")
        assert got in allowed
        errors += got is None
    assert errors > len(data) / 2


def test_a_torn_record_over_old_ones_is_the_end(tmp_path: Path) -> None:
    """What kill -9 leaves in a reused segment: the beginning of a record, and behind it older ones, still whole."""
    journal = Journal(tmp_path, segment_bytes=800)  # nine records: their lengths repeat every three
    for number in range(22):
        journal.append(report(number + 10), 0.0)
        journal.forget(number)
    newest = max(tmp_path.iterdir())
    first, data, offset = int(newest.stem), newest.read_bytes(), 0
    for number in range(first, 22):
        record = decode(memoryview(data), offset)
        assert record is not None
        assert record.sequence == number
        offset = record.stop
    older = decode(memoryview(data), offset)
    assert older is not None
    assert older.sequence < first
    torn = b"".join(encode(report(32), 22, 0.0)[0])
    for length in range(len(torn)):
        newest.write_bytes(data[:offset] + torn[:length] + data[offset + length :])
        assert [number for number, _, _ in read(tmp_path, first)] == list(range(first, 22))


def test_a_missing_segment_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, [report(number) for number in range(9)])
    middle = sorted(tmp_path.iterdir())[1]
    middle.unlink()
    with pytest.raises(AfedpgError, match="is damaged or missing, though event"):
        list(read(tmp_path))


# reuse of segments


def test_segments_are_reused_and_the_journal_stays_small(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=1000)
    inodes: set[int] = set()
    for number in range(500):
        journal.append(report(number), number / 8)
        journal.forget(number - 10)
        inodes |= {path.stat().st_ino for path in tmp_path.iterdir()}
        if number % 50 == 49:
            assert [found for found, _, _ in read(tmp_path, number - 10)] == list(range(number - 10, number + 1))
    assert len(inodes) <= 5
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 5000
    assert journal.next_sequence == 500
    with pytest.raises(AfedpgError, match=r"event 0 is gone .* --keep-reports"):
        list(read(tmp_path))


def test_keep_all_keeps_all(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=1000, keep_all=True)
    for number in range(100):
        journal.append(report(number), number / 8)
        journal.forget(number)
    assert everything(tmp_path) == wanted([report(number) for number in range(100)])


def test_nothing_needed_is_ever_overwritten(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    journal = Journal(tmp_path, segment_bytes=700)
    oldest = 0
    for number in range(300):
        journal.append(report(number, size=int(generator.integers(1, 60))), number / 8)
        if generator.random() < 0.2:
            oldest = int(generator.integers(oldest, number + 1))
            journal.forget(oldest)
        assert next(iter(read(tmp_path, oldest)))[0] == oldest
    assert [number for number, _, _ in read(tmp_path, oldest)] == list(range(oldest, 300))


@pytest.mark.parametrize("before", range(12))
def test_the_event_not_yet_forgotten_stays(tmp_path: Path, before: int) -> None:
    journal = Journal(tmp_path, segment_bytes=400)
    for number in range(12):
        journal.append(report(number), number / 8)
    journal.forget(before)
    for number in range(12, 40):
        journal.append(report(number), number / 8)
    assert everything(tmp_path, before) == wanted([report(number) for number in range(40)])[before:]


def test_an_event_larger_than_a_segment(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=300)
    sizes = [4, 5000, 4, 9000, 20_000, 4]
    for number, size in enumerate(sizes):
        journal.append(report(number, size), number / 8)
        journal.forget(number - 1)
    written: list[Event] = [report(number, size) for number, size in enumerate(sizes)]
    assert everything(tmp_path, 4) == wanted(written)[4:]


# resuming


@pytest.mark.parametrize("segment_bytes", [200, 400, 10_000])
@pytest.mark.parametrize("point", [0, 1, 4, 9, 10])
def test_a_resumed_journal_never_shows_the_past_it_left(tmp_path: Path, segment_bytes: int, point: int) -> None:
    """The events of both lives are equally long, so an old record would fit in right behind a new one."""
    first: list[Event] = [report(number) for number in range(10)]
    write(tmp_path, first, segment_bytes)
    second: list[Event] = [report(number + 10) for number in range(point, 10)]
    for count in range(len(second) + 1):
        journal = Journal(tmp_path, next_sequence=point, segment_bytes=segment_bytes)
        for event in second[:count]:
            journal.append(event, journal.next_sequence / 8)
        assert everything(tmp_path) == wanted([*first[:point], *second[:count]])


def test_a_crash_while_discarding_leaves_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [report(number) for number in range(12)])
    unlink, allowed = Path.unlink, 0

    def some(self: Path, missing_ok: bool = False) -> None:
        nonlocal allowed
        allowed -= 1
        if allowed < 0:
            raise KeyboardInterrupt
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", some)
    with pytest.raises(KeyboardInterrupt):
        Journal(tmp_path, next_sequence=2)
    allowed = 2
    with pytest.raises(KeyboardInterrupt):
        Journal(tmp_path, next_sequence=2)
    got = everything(tmp_path)
    assert 2 < len(got) < 12
    assert got == wanted([report(number) for number in range(len(got))])


def test_resuming_past_a_lost_tail(tmp_path: Path) -> None:
    """After a power cut the checkpoint may know more than the journal: what follows it is what matters."""
    write(tmp_path, [report(number) for number in range(5)], segment_bytes=10_000)
    journal = Journal(tmp_path, next_sequence=8)
    journal.append(report(8), 1.0)
    assert everything(tmp_path, 8) == [(8, 1.0, bits(report(8)))]
    with pytest.raises(AfedpgError, match=r"event 5 .* is damaged or missing"):
        list(read(tmp_path))


def test_appending_goes_on_after_close(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(report(0), 0.0)
    journal.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == journal.bytes_written  # the rest is given back
    journal.append(report(1), 1 / 8)
    journal.close()
    journal.close()
    assert everything(tmp_path) == wanted([report(0), report(1)])


def test_kill_9_while_writing(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys, numpy as np
        from pathlib import Path
        from afedpg.messages import Report, TaskId
        from afedpg.record.journal import Journal
        journal, number = Journal(Path(sys.argv[1]), segment_bytes=3_000_000), 0
        while True:
            journal.append(Report(TaskId(0, number), 0, np.full(250_000, number, np.float32), number), 0.0)
            journal.forget(number - 4)
            number += 1
            print(number, flush=True)
    """)
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        process = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(5 + 7 * attempt):
            done = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        done = max(done, *(int(line) for line in process.stdout), 0)
        process.wait()
        got = list(read(folder, done - 4))
        assert [number for number, _, _ in got] == list(range(done - 4, done - 4 + len(got)))
        assert len(got) >= 4  # whatever was acknowledged is there
        for number, _, event in got:
            assert isinstance(event, Report)
            assert np.all(event.payload == number)


# the disk


def fill(journal: Journal) -> None:
    while True:
        number = journal.next_sequence
        journal.append(report(number, 1000), number / 8)


def test_a_full_disk_is_one_line_and_nothing_is_lost(small_disk: Any) -> None:
    folder = small_disk(256) / "journal"
    journal = Journal(folder, segment_bytes=64 << 10, keep_all=True)
    with pytest.raises(AfedpgError) as caught:
        fill(journal)
    number = journal.next_sequence
    assert str(caught.value) == (
        f"disk full: cannot write {folder}, free space and run `afedpg resume {folder.parent}`"
    )
    assert number > 10
    assert all(int(path.stem) < number for path in folder.iterdir())  # the segment that found no room is not there
    assert everything(folder) == wanted([report(each, 1000) for each in range(number)])


def test_after_the_disk_has_room_again_the_journal_goes_on(small_disk: Any) -> None:
    disk = small_disk(256)
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(160 << 10))
    journal = Journal(disk / "journal", segment_bytes=64 << 10)
    with pytest.raises(AfedpgError, match="disk full"):
        fill(journal)
    number = journal.next_sequence
    ballast.unlink()
    assert journal.append(report(number, 1000), number / 8) == number
    assert everything(disk / "journal") == wanted([report(each, 1000) for each in range(number + 1)])


def test_room_is_taken_before_it_is_needed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=1 << 20)
    journal.append(report(0), 0.0)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_blocks * 512 >= 1 << 20


def test_a_segment_that_never_got_an_event_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    journal = Journal(tmp_path, segment_bytes=100)
    journal.append(report(0), 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail)
        with pytest.raises(AfedpgError, match=r"cannot write .*: Input/output error; .* `afedpg resume"):
            journal.append(report(1), 1 / 8)
    journal.close()
    assert len(list(tmp_path.iterdir())) == 1
    journal.append(report(1), 1 / 8)
    assert everything(tmp_path) == wanted([report(0), report(1)])


def test_a_write_that_is_cut_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", lambda handle, pieces, offset: os.pwrite(handle, bytes(pieces[0])[:7], offset))
    write(tmp_path, [report(0), report(1)])
    assert everything(tmp_path) == wanted([report(0), report(1)])


def test_what_is_synced_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fdatasync = os.fdatasync

    def noted(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        fdatasync(handle)

    monkeypatch.setattr(os, "fdatasync", noted)
    journal = Journal(tmp_path, segment_bytes=400)
    for number in range(6):
        journal.append(report(number), 0.0)
    assert not synced
    journal.sync()
    assert set(synced) == {path.stat().st_ino for path in tmp_path.iterdir()}


def test_a_large_report_is_not_copied(tmp_path: Path) -> None:
    big = report(0, 1_000_000)
    journal = Journal(tmp_path)
    tracemalloc.start()
    journal.append(big, 0.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert journal.bytes_written > big.payload.nbytes
