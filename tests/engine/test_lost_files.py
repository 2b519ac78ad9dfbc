"""What a run folder has lost is said in one line, and nothing more of it goes without the user's word.

kill -9 and a power cut lose nothing of the kind: a run goes on from what they leave without a question.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import afedpg
from afedpg.cli import main
from afedpg.errors import AfedpgError
from afedpg.messages import CloseRound, Event, Join, Leave
from afedpg.record import database
from afedpg.record import folder as folders
from afedpg.record import journal as journals
from afedpg.record.database import Database, read_arrivals
from afedpg.record.journal import Journal
from afedpg.runs.live_session import Parts, keep_record, new_parts, restored_parts
from afedpg.runs.parts import Own, configure
from afedpg.runs.requests import StoredRun
from afedpg.server.state import to_tree

AGENTS = 3


class Run:
    """A federation in real time without its sockets; a copy of its folder is what kill -9 leaves of it."""

    def __init__(self, out: Path, method: str = "afedpg") -> None:
        settings = {"engine": "local", "agents": AGENTS, "method": method, "dimension": 20, "iterations": 10**6}
        self.parts: Parts = new_parts(configure("quadratic", None, settings), Own(), None)
        keep_record(self.parts, out)
        assert self.parts.federation.recorder is not None
        self.recorder, self.seconds, self.tasks = self.parts.federation.recorder, 0.0, {}
        self.states = [self.parts.workload.start(agent) for agent in range(AGENTS)]
        self.random = random.Random(1)
        self.checkpoint()
        for agent in range(AGENTS):
            self.apply(Join(agent))

    def apply(self, event: Event) -> None:
        self.seconds += 0.01
        self.tasks |= {task.agent_id: task for task in self.parts.federation.apply(event, self.seconds).tasks}

    def go(self, events: int) -> None:
        for _ in range(events):
            agent = self.random.choice(sorted(self.parts.federation.server.outstanding) or [-1])
            if agent < 0:
                self.apply(CloseRound())
            elif self.random.random() < 0.05:
                self.apply(Leave(agent))
                self.apply(Join(agent))
            else:
                self.states[agent], report = self.parts.workload.work(self.states[agent], self.tasks[agent])
                self.apply(report)

    def checkpoint(self) -> None:
        server = self.parts.federation.server
        if not self.parts.federation.open_round:
            tree = {"server": to_tree(server), "engine": {"seconds": self.seconds}, "evaluated": 0, "recent": []}
            self.recorder.checkpoint(tree)

    @property
    def reached(self) -> tuple[int, bytes]:
        return self.parts.federation.server.gradients, self.parts.federation.server.theta.tobytes()


def go_on(run: Path, **how: Any) -> tuple[tuple[int, bytes], list[str]]:
    """Where a resumed server stands, and what it was warned of."""
    folder, told = folders.open_run(run), []
    parts = restored_parts(StoredRun(folder, warn=told.append, **how), folder.config())
    parts.federation.close()
    return (parts.federation.server.gradients, parts.federation.server.theta.tobytes()), told


def refused(run: Path) -> str:
    before = contents(run)
    with pytest.raises(AfedpgError) as caught:
        go_on(run)
    assert contents(run) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def contents(run: Path) -> dict[Path, bytes]:
    passing = ("lock", "run.db-shm")  # who holds it, and SQLite's shared memory
    return {file: file.read_bytes() for file in run.rglob("*") if file.is_file() and file.name not in passing}


def killed(run: Path, to: Path) -> Path:
    shutil.copytree(run, to)
    return to


@pytest.fixture(params=["afedpg", "fedpg"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(tmp_path / "run", request.param)


def test_kill_9_at_any_moment_is_no_loss(running: Run, tmp_path: Path) -> None:
    for turn in range(12):
        running.go(running.random.randrange(1, 60))
        if turn % 3 == 1:
            running.recorder.database.commit()
        if turn % 4 == 2:
            running.checkpoint()
        assert go_on(killed(tmp_path / "run", tmp_path / f"killed-{turn}")) == (running.reached, [])


def test_an_incomplete_last_record_is_no_loss(running: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "COMMIT_SECONDS", 1e9)  # run.db knows nothing of the record, however long it took
    running.go(50)
    running.recorder.database.commit()
    before = running.reached
    segment = next((tmp_path / "run" / "journal").iterdir())
    (_, stop), whole = ends(segment)[-1], segment.read_bytes()
    running.go(1)
    running.go(1)
    data = segment.read_bytes()
    for cut in (1, 4, 20, 43, 45, 100):  # within the header, the JSON and the gradient of the next record
        run = killed(tmp_path / "run", tmp_path / f"cut-{cut}")
        (run / "journal" / segment.name).write_bytes(data[: stop + cut] + whole[stop + cut :])
        assert go_on(run) == (before, [])


def ends(segment: Path) -> list[tuple[int, int]]:
    """Number and last byte of every record."""
    return [(record.sequence, record.stop) for record in journals._records(journals._load(segment), int(segment.stem))]


def test_a_power_cut_takes_no_event_that_run_db_tells_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the journal only what was synced is left, of run.db everything: the worst order the disk could choose."""
    disk = tmp_path / "disk"
    real = Journal._sync

    def sync(self: Journal) -> None:
        real(self)
        shutil.rmtree(disk, ignore_errors=True)
        shutil.copytree(tmp_path / "run" / "journal", disk)

    monkeypatch.setattr(Journal, "_sync", sync)
    running = Run(tmp_path / "run")
    for turn in range(8):
        running.go(40)
        if turn % 3 == 0:
            running.recorder.database.commit()
        if turn % 3 == 1:
            running.checkpoint()
        run = killed(tmp_path / "run", tmp_path / f"cut-{turn}")
        shutil.rmtree(run / "journal")
        shutil.copytree(disk, run / "journal")
        _, told = go_on(run)
        assert told == []


def test_a_power_cut_takes_no_row_that_a_checkpoint_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other worst order: of run.db only what was synced is left, of the journal and the checkpoints everything."""
    disk, real = tmp_path / "disk", Database.sync

    def sync(self: Database) -> None:
        real(self)
        shutil.rmtree(disk, ignore_errors=True)
        disk.mkdir()
        for file in (tmp_path / "run").glob("run.db*"):
            shutil.copy(file, disk)

    monkeypatch.setattr(Database, "sync", sync)
    running = Run(tmp_path / "run")
    for turn in range(6):
        running.go(40)
        if turn % 2:
            running.checkpoint()
        run = killed(tmp_path / "run", tmp_path / f"cut-{turn}")
        for file in run.glob("run.db*"):
            file.unlink()
        for file in disk.iterdir():
            shutil.copy(file, run)
        assert go_on(run) == (running.reached, [])


def cut(segment: Path, keep: int) -> None:
    segment.write_bytes(segment.read_bytes()[: ends(segment)[keep][1]])


def zero(segment: Path, keep: int) -> None:
    data, stop = segment.read_bytes(), ends(segment)[keep][1]
    segment.write_bytes(data[:stop] + bytes(len(data) - stop))


@pytest.mark.parametrize("harm", [cut, zero])
def test_a_journal_without_its_tail(running: Run, tmp_path: Path, harm: Callable[[Path, int], None]) -> None:
    running.go(300)
    running.recorder.database.commit()
    reached, _ = running.reached
    run = killed(tmp_path / "run", tmp_path / "killed")
    harm(next((run / "journal").iterdir()), 100)
    line = refused(run)
    assert f"{run}: the journal ends after 101 events and " in line
    assert f" and {reached:,}: " in line
    assert line.endswith("are missing; put the files back from a copy, or go on without them with --accept-loss")
    (gradients, _), told = go_on(run, accept_loss=True)
    assert f"{reached - gradients:,} gradients are missing; going on without them" in told[0]
    assert 0 < gradients < reached
    assert read_arrivals(run / "run.db")["gradient"].tolist() == list(range(1, gradients + 1))
    assert go_on(run)[1] == []  # accepted once is accepted


def test_a_deleted_journal(running: Run, tmp_path: Path) -> None:
    running.go(200)
    running.recorder.database.commit()
    events, (reached, _) = running.recorder.journal.next_sequence, running.reached
    run = killed(tmp_path / "run", tmp_path / "killed")
    shutil.rmtree(run / "journal")
    tells = f"run.db tells of {events} and {reached}: {reached} gradients are missing"
    assert f"the journal ends after 0 events and 0 gradients, {tells}" in refused(run)
    assert go_on(run, accept_loss=True)[0][0] == 0


def test_a_journal_deleted_after_its_last_checkpoint_loses_no_gradient_and_is_named(tmp_path: Path) -> None:
    running = Run(tmp_path / "run")
    running.go(100)
    running.checkpoint()
    run = killed(tmp_path / "run", tmp_path / "killed")
    shutil.rmtree(run / "journal")
    reached, told = go_on(run)
    assert reached == running.reached
    assert told == [f"{run}/journal ends before the checkpoint: theta is whole, its past cannot be replayed"]


def test_a_hole_in_the_journal_is_given_up_only_on_demand(tmp_path: Path) -> None:
    running = Run(tmp_path / "run")
    running.go(100)
    running.recorder.database.commit()
    run = killed(tmp_path / "run", tmp_path / "killed")
    segment = next((run / "journal").iterdir())
    data, (_, stop) = bytearray(segment.read_bytes()), ends(segment)[50]
    data[stop + 10] ^= 1
    segment.write_bytes(data)
    assert f"event 51 at byte {stop} is damaged" in refused(run)
    assert f"`afedpg resume {run} --accept-loss`" in refused(run)
    _, told = go_on(run, accept_loss=True)
    assert ["event 51" in told[0], "going on without them" in told[1]] == [True, True]
    assert go_on(run)[1] == []


def lose_database(run: Path) -> None:
    for file in run.glob("run.db*"):
        file.unlink()


def lose_rows(run: Path) -> None:
    with sqlite3.connect(run / "run.db") as connection:
        connection.execute("DELETE FROM arrivals WHERE gradient <= 10")
    connection.close()


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (lose_database, "run.db is gone: 20 of 20 arrivals up to the checkpoint are missing"),
        (lose_rows, "rows of run.db are gone: 10 of 20 arrivals up to the checkpoint are missing"),
    ],
)
def test_a_virtual_run_without_its_rows(
    tmp_path: Path, harm: Callable[[Path], None], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    afedpg.train("quadratic", agents=2, iterations=50, stop_at_seconds=15.0, out=run)
    with sqlite3.connect(run / "run.db") as connection:
        (reached,) = connection.execute("SELECT count(*) FROM arrivals").fetchone()
    connection.close()
    line = line.replace("20 of 20", f"{reached} of {reached}").replace("10 of 20", f"10 of {reached}")
    harm(run)
    before = contents(run)
    assert main(["resume", str(run)]) == 1
    assert contents(run) == before
    ending = "; put the files back from a copy, or go on without them with --accept-loss"
    assert capsys.readouterr().err == f"afedpg: {run}: {line}{ending}\n"
    assert main(["resume", str(run), "--accept-loss"]) == 0
    assert f"warning: {run}: {line}; going on without them" in capsys.readouterr().err
    assert main(["resume", str(run)]) == 0  # accepted once is accepted
    lose_database(run)
    assert main(["resume", str(run)]) == 1  # which says nothing of what is lost later


def test_a_virtual_run_without_its_checkpoints_does_not_start_over_unasked(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = afedpg.train("quadratic", agents=2, iterations=50, out=run)
    shutil.rmtree(run / "checkpoints")
    before = contents(run)
    with pytest.raises(AfedpgError, match=r"its checkpoints are gone, run.db tells of 100 gradients; put"):
        afedpg.resume(run)
    assert contents(run) == before
    assert afedpg.resume(run, accept_loss=True).sha256 == done.sha256


def test_every_segment_of_a3c_has_a_row_that_is_missed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings: dict[str, Any] = {
        "method": "a3c", "agents": 3, "iterations": 4, "steps": 64, "segment": 16, "hidden": (4,),
        "evaluate_episodes": 1, "evaluate_kind": "sampled",
    }  # fmt: skip
    afedpg.train("CartPole-v1", **settings, stop_at_seconds=2.4, out=run)
    afedpg.resume(run)
    lose_database(run)
    with pytest.raises(AfedpgError, match=r"run.db is gone: (\d+) of \1 arrivals"):
        afedpg.resume(run)
