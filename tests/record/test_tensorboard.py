"""The curves that TensorBoard itself reads back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import curves

from afedpg.messages import Arrival, Evaluation, Stats, TaskId
from afedpg.record import tensorboard
from afedpg.record.tensorboard import TensorBoard


def arrival(gradient: int, value: float, returns: tuple[float, ...] = ()) -> Arrival:
    stats = Stats(10, returns, tuple(1 for _ in returns))
    return Arrival(
        gradient, gradient, 0, TaskId(0, gradient), 0, 3, 0.1, 0.1, value, 0.01, 0.1, stats, 40, 40, 10 * gradient
    )  # fmt: skip


def test_points_are_means_over_windows_against_samples(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path, every=2)
    board.add_arrivals([arrival(1, 1.0, (5.0,)), arrival(2, 3.0), arrival(3, 7.0)])
    board.add_evaluation(Evaluation("sampled", 8.5), 25)
    board.close()
    assert curves(tmp_path) == {
        "return/training": [(20, 5.0)],
        "delay": [(20, 3.0), (30, 3.0)],
        "gradient_norm": [(20, 2.0), (30, 7.0)],
        "step_length": [(20, 0.01), (30, 0.01)],
        "return/evaluation/sampled": [(25, 8.5)],
    }


def test_a_resume_purges_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.add_arrivals([arrival(number, float(number)) for number in range(1, 6)])
    board.flush()  # killed here
    resumed = TensorBoard(tmp_path, samples=20)
    resumed.add_arrivals([arrival(number, float(10 * number)) for number in range(3, 5)])
    resumed.close()
    assert curves(tmp_path)["gradient_norm"] == [(10, 1.0), (20, 2.0), (30, 30.0), (40, 40.0)]


def test_without_the_package_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "available", lambda: False)
    board = TensorBoard(tmp_path)
    board.add_arrivals([arrival(1, 1.0)])
    board.add_evaluation(Evaluation("sampled", 1.0), 1)
    board.flush()
    board.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not tensorboard.available(), reason="tensorboard is not installed")
def test_a_full_disk_stops_the_curves_and_not_the_run(small_disk: Any) -> None:
    disk = small_disk(32)
    warnings: list[str] = []
    board = TensorBoard(disk, warn=warnings.append)
    for number in range(1, 3000):
        board.add_arrivals([arrival(number, 1.0)])
    board.add_evaluation(Evaluation("sampled", 1.0), 1)
    board.close()
    assert warnings == ["no more TensorBoard curves are written: No space left on device"]
