"""run.db says what happened, once, while it happens."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afedpg import train
from afedpg.errors import AfedpgError
from afedpg.messages import Arrival, Evaluation, Stats, TaskId
from afedpg.record import database
from afedpg.record.database import Database, read_arrivals, read_evaluations, read_last, read_table, read_totals
from afedpg.runs.curve import Curve


def arrival(gradient: int, returns: tuple[float, ...] = (1.0, 2.0), **changes: Any) -> Arrival:
    settings: dict[str, Any] = {
        "gradient": gradient, "iteration": gradient - 1, "agent": gradient % 3, "task_id": TaskId(1, gradient),
        "version": gradient - 3, "delay": 2, "alpha": 0.1, "eta": 1e-2, "gradient_norm": 3.5, "step_length": 1e-2,
        "lookahead_length": 0.09, "stats": Stats(64, returns, tuple(10 for _ in returns)),
        "bytes_up": 44, "bytes_down": 48, "samples": 64 * gradient,
    }  # fmt: skip
    return Arrival(**(settings | changes))


def evaluate(base: Database, gradients: int, kind: str = "sampled", mean: float = 5.0) -> None:
    result = Evaluation(kind, mean, 1.0, 3.0, 7.0, 10, "moon")
    base.add_evaluation(result, gradients - 1, gradients, 64 * gradients, 0.5)


def test_the_columns_are_those_of_the_design(tmp_path: Path) -> None:
    Database(tmp_path / "run.db").close()
    names = (
        "gradient iteration agent task_id version delay alpha eta seconds steps episodes mean_return gradient_norm "
        "step_length lookahead_length bytes_up bytes_down samples"
    )
    assert list(read_arrivals(tmp_path / "run.db")) == names.split()


def test_a_database_without_samples_counts_what_was_applied_and_gets_the_column_when_the_run_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    base = Database(path)
    base.add_arrivals([arrival(1, samples=100), arrival(2, samples=200)], seconds=1.0)
    base.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE arrivals DROP COLUMN samples")
        connection.commit()
    assert read_arrivals(path)["samples"].tolist() == [64, 128]
    assert read_totals(path).samples == 128
    base = Database(path)
    base.add_arrivals([arrival(3, samples=400)], seconds=2.0)
    base.close()
    assert read_arrivals(path)["samples"].tolist() == [64, 128, 400]
    assert read_totals(path).samples == 400


def test_samples_are_also_those_of_what_was_dropped(tmp_path: Path) -> None:
    """A gradient of the quadratic is one sample; no two events are at the same time here."""
    out = tmp_path / "run"
    result = train(
        "quadratic", agents=6, iterations=30, timing="lognormal", aggregator="ringmaster:threshold=2", out=out
    )
    rows, dropped = read_arrivals(out / "run.db"), read_table(out / "run.db", "unused")["seconds"]
    before = (dropped[None, :] <= rows["seconds"][:, None]).sum(axis=1)
    assert before[-1] > 0
    assert rows["samples"].tolist() == (rows["gradient"] + before).tolist()
    assert result.samples == result.gradients + len(dropped)
    assert Curve.read(out / "run.db").training.points[-1][0] == rows["samples"][-1]


def test_every_value_lands_in_its_column(tmp_path: Path) -> None:
    base = Database(tmp_path / "run.db")
    base.add_arrivals([arrival(1), arrival(2, returns=(), alpha=None)], seconds=7.25)
    base.commit()
    columns = read_arrivals(tmp_path / "run.db")
    first = {name: column[0] for name, column in columns.items()}
    assert first == {
        "gradient": 1, "iteration": 0, "agent": 1, "task_id": "1-1", "version": -2, "delay": 2, "alpha": 0.1,
        "eta": 1e-2, "seconds": 7.25, "steps": 64, "episodes": 2, "mean_return": 1.5, "gradient_norm": 3.5,
        "step_length": 1e-2, "lookahead_length": 0.09, "bytes_up": 44, "bytes_down": 48, "samples": 64,
    }  # fmt: skip
    assert math.isnan(columns["mean_return"][1])
    assert math.isnan(columns["alpha"][1])
    assert columns["gradient"].dtype == np.int64
    episodes = read_table(tmp_path / "run.db", "episodes")
    assert [list(column) for column in episodes.values()] == [
        [1, 1], [0, 0], [1, 1], [7.25, 7.25], [1.0, 2.0], [10, 10],
    ]  # fmt: skip


def test_numbers_of_numpy_and_missing_lengths(tmp_path: Path) -> None:
    base = Database(tmp_path / "run.db")
    stats = Stats(np.int64(5), (np.float32(1.5), np.float64(2.5)), (np.int32(4),))  # type: ignore[arg-type]
    base.add_arrivals([arrival(1, stats=stats, gradient_norm=np.float64(2.0))], seconds=0.0)
    base.close()
    columns = read_arrivals(tmp_path / "run.db")
    assert (columns["steps"][0], columns["mean_return"][0], columns["gradient_norm"][0]) == (5, 2.0, 2.0)
    assert list(read_table(tmp_path / "run.db", "episodes")["length"]) == [4, 0]


def test_a_reader_sees_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0
    monkeypatch.setattr("afedpg.record.database.time.monotonic", lambda: clock)
    base = Database(tmp_path / "run.db")
    base.add_arrivals([arrival(1)], 0.0)
    assert read_last(tmp_path / "run.db") == (0, 0.0)  # waiting for company
    clock = 1.1
    base.add_arrivals([arrival(2)], 3.0)
    assert read_last(tmp_path / "run.db") == (2, 3.0)
    for number in range(3, 3 + database.COMMIT_ROWS):
        base.add_arrivals([arrival(number, returns=())], 4.0)
    assert read_last(tmp_path / "run.db")[0] == 2 + database.COMMIT_ROWS
    base.close()


def test_reading_changes_nothing(tmp_path: Path) -> None:
    Database(tmp_path / "run.db").close()
    before = (tmp_path / "run.db").read_bytes()
    read_arrivals(tmp_path / "run.db")
    assert (tmp_path / "run.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.db"]
    with pytest.raises(AfedpgError, match=r"cannot read .*other\.db"):
        read_arrivals(tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists()


def test_rewinding_and_running_again_gives_the_same_rows(tmp_path: Path) -> None:
    def run(base: Database, start: int, stop: int) -> None:
        for number in range(start, stop):
            base.add_arrivals([arrival(number + 1)], number / 8)
            base.add_event("rejected", 2 * number, number / 8, number, 1, "not finite")
            base.add_event("waits", 2 * number + 1, number / 8, number, 2)
            evaluate(base, number + 1)
            evaluate(base, number + 1, "deterministic")

    def rows(path: Path) -> Any:
        tables = ("arrivals", "episodes", "evaluations", "rejected", "waits")
        return {table: {key: list(value) for key, value in read_table(path, table).items()} for table in tables}

    whole, resumed = Database(tmp_path / "whole.db"), Database(tmp_path / "resumed.db")
    run(whole, 0, 30)
    whole.close()
    run(resumed, 0, 25)
    resumed.rewind(gradients=12, sequence=24)
    assert read_last(tmp_path / "resumed.db")[0] == 12
    assert max(read_table(tmp_path / "resumed.db", "rejected")["sequence"]) == 22
    run(resumed, 12, 30)
    resumed.close()
    assert rows(tmp_path / "resumed.db") == rows(tmp_path / "whole.db")


def test_evaluations_stay_as_far_as_the_journal_reaches(tmp_path: Path) -> None:
    base = Database(tmp_path / "run.db")
    for gradient in range(1, 9):
        base.add_arrivals([arrival(gradient)], 0.0)
        evaluate(base, gradient)
    base.rewind(gradients=2, sequence=0, reached=6)
    base.close()
    assert list(read_arrivals(tmp_path / "run.db")["gradient"]) == [1, 2]
    assert list(read_evaluations(tmp_path / "run.db")["gradients"]) == [1, 2, 3, 4, 5, 6]


def test_an_evaluation_made_again_replaces_the_first(tmp_path: Path) -> None:
    base = Database(tmp_path / "run.db")
    for mean in (5.0, 6.0):
        evaluate(base, 4, mean=mean)
    base.note("state", "running")
    base.note("state", "finished")
    base.close()
    rows = read_evaluations(tmp_path / "run.db")
    assert {name: list(column) for name, column in rows.items()} == {
        "iteration": [3], "gradients": [4], "samples": [256], "seconds": [0.5], "kind": ["sampled"],
        "environment": ["moon"], "mean": [6.0], "std": [1.0], "low": [3.0], "high": [7.0], "episodes": [10],
    }  # fmt: skip
    assert database.read_notes(tmp_path / "run.db") == {"state": "finished"}


def test_what_was_not_committed_is_all_that_a_crash_takes(tmp_path: Path) -> None:
    base = Database(tmp_path / "run.db")
    base.add_arrivals([arrival(1)], 0.0)
    base.commit()
    base.add_arrivals([arrival(2)], 0.0)
    del base  # neither committed nor closed
    again = Database(tmp_path / "run.db")
    again.add_arrivals([arrival(2)], 0.0)
    again.close()
    assert list(read_arrivals(tmp_path / "run.db")["gradient"]) == [1, 2]


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_bytes(b"not a database" * 100)
    with pytest.raises(AfedpgError, match="not a database"):
        Database(tmp_path / "run.db")


def test_a_full_disk_is_one_line_and_the_rows_wait(small_disk: Any) -> None:
    disk = small_disk(4096)
    base = Database(disk / "run.db")
    base.add_arrivals([arrival(1)], 0.0)
    base.commit()
    ballast = disk / "ballast"
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(8 << 20))
    with pytest.raises(AfedpgError) as caught:
        base.add_arrivals([arrival(number) for number in range(2, 3002)], 0.0)
    assert str(caught.value) == (
        f"disk full: cannot write {disk / 'run.db'}, free space and run `afedpg resume {disk}`"
    )
    assert list(read_arrivals(disk / "run.db")["gradient"]) == [1]
    ballast.unlink()
    base.rewind(2, 0)
    base.close()
    assert list(read_arrivals(disk / "run.db")["gradient"]) == [1, 2]
    assert sqlite3.connect(disk / "run.db").execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_disk_that_is_full_from_the_start(small_disk: Any) -> None:
    disk = small_disk(64)
    with pytest.raises(OSError, match="No space left"):
        (disk / "ballast").write_bytes(bytes(1 << 20))
    with pytest.raises(AfedpgError, match="disk full: cannot write"):
        Database(disk / "run.db")
