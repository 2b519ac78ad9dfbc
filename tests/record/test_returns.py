"""The return of a run: what is read from run.db, what is kept while it goes on, and the definition, written slowly."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afedpg.config import from_settings
from afedpg.messages import Arrival, Evaluation, Stats, TaskId
from afedpg.record.database import Database
from afedpg.record.returns import LateReturns, Returns, read_returns
from afedpg.terminal.progress import Display


def arrival(gradient: int, returns: tuple[float, ...]) -> Arrival:
    stats = Stats(10, returns, tuple(1 for _ in returns))
    return Arrival(gradient, gradient, 0, TaskId(0, gradient), 0, 3, 0.1, 0.1, 1.0, 0.01, 0.1, stats, 40, 40, gradient)


def defined(run: list[Arrival], agents: int) -> float | None:
    ended = [a for a in run if a.stats.returns]
    late = [a for a in ended if a.gradient > 0.95 * len(run)]
    counted = late if len(late) >= 2 * agents else ended[-2 * agents :]
    episodes = [value for a in counted for value in a.stats.returns]
    return sum(episodes) / len(episodes) if episodes else None


@given(st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=150), st.integers(1, 4))
def test_the_last_twentieth_but_at_least_two_gradients_per_agent(played: list[list[int]], agents: int) -> None:
    run = [arrival(number, tuple(map(float, returns))) for number, returns in enumerate(played, 1)]
    late = LateReturns(agents)
    with tempfile.TemporaryDirectory() as folder:
        base = Database(Path(folder, "run.db"))
        for one in run:
            late.add(one)
            base.add_arrivals([one], 0.0)
        base.close()
        found = read_returns(Path(folder, "run.db"), agents)
    expected = defined(run, agents)
    assert found == Returns(None if expected is None else pytest.approx(expected))
    assert late.mean() == (None if expected is None else pytest.approx(expected))


def test_a_long_run_keeps_its_last_twentieth_alone() -> None:
    late = LateReturns(agents=3)
    for number in range(1, 10_001):
        late.add(arrival(number, (float(number),)))
    assert len(late._rows) == 500
    assert late.mean() == pytest.approx(9750.5)


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    late, base = LateReturns(agents=1), Database(tmp_path / "run.db")
    for one in (arrival(1, (2.0,)), arrival(2, (float("nan"),)), arrival(3, (4.0,))):
        late.add(one)
        base.add_arrivals([one], 0.0)
    base.close()
    assert late.mean() == read_returns(tmp_path / "run.db", 1).training == 3.0


def test_theta_is_its_last_evaluation_by_kind(tmp_path: Path) -> None:
    base = Database(tmp_path / "run.db")
    for gradients, kind, environment, mean in (
        (10, "sampled", "", 9.0), (20, "deterministic", "", 5.0), (20, "sampled", "a", 1.0), (20, "sampled", "b", 2.0),
    ):  # fmt: skip
        base.add_evaluation(Evaluation(kind, mean, environment=environment), 1, gradients, 9, 1.0)
    base.close()
    assert list(read_returns(tmp_path / "run.db", 1).theta.items()) == [("sampled", 1.5), ("deterministic", 5.0)]


def test_progress_shows_the_same_return() -> None:
    display = Display(from_settings({"task": "quadratic", "agents": 2}), quiet=True)
    theta: Any = None
    run = [arrival(number, (float(number),)) for number in range(1, 31)]
    for one in run:
        display(one, 0.0, theta)
    assert display._look().facts[0] == f"return {defined(run, 2):.4g}" == "return 28.5"
