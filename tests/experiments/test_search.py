"""The search over constants: every method gets the same effort, and what is cut off could not have won."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from afedpg.experiments import search
from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import RunJob

CHOICES = Choices("full", Path("nowhere"), 1, preset="paper")
Times = dict[search.Point, tuple[float, ...]]


def pretend(monkeypatch: pytest.MonkeyPatch, method: str, times: Times) -> None:
    """Runs that arrive at these seconds, by seed; a limit cuts them off as it would the real ones."""

    def seconds(run: RunJob, out: Path) -> float:
        config = run.settings.config
        values = {"alpha": config.schedule.alpha, "eta": config.schedule.eta, "entropy": config.agent.entropy}
        first, second = (values[name] for name in search.names(method))
        arrived = times.get((first, second), (inf,) * 3)[config.seed - search.SEEDS[0]]
        limit = config.stop_at_seconds
        return arrived if limit is None or arrived <= limit else inf

    monkeypatch.setattr(search, "seconds_to_goal", seconds)
    monkeypatch.setattr(search, "final_evaluation", lambda run, out: run.settings.config.schedule.eta)


@pytest.mark.parametrize("method", search.METHODS)
def test_every_method_gets_the_same_number_of_runs(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    pretend(monkeypatch, method, {})
    runs = [run for runs in search.all_runs(CHOICES, method).values() for run in runs]
    assert len({run.name for run in runs}) == len(runs) == 36
    assert {run.name for run in search.first_runs(CHOICES, method)} <= {run.name for run in runs}


def test_the_fastest_median_wins_and_slower_ones_are_cut_at_the_first_winners_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times: Times = {
        (0.1, 2e-2): (90.0, 100.0, 500.0),
        (0.5, 4e-2): (300.0, 300.0, 300.0),
        (0.2, 2e-2): (80.0, 95.0, inf),
        (0.2, 1e-2): (10.0, 101.0, 102.0),  # one lucky seed
    }
    pretend(monkeypatch, "afedpg", times)
    assert search.best(CHOICES, "afedpg") == (0.2, 2e-2)
    limits = {
        point: {run.settings.config.stop_at_seconds for run in runs}
        for point, runs in search.all_runs(CHOICES, "afedpg").items()
    }
    assert limits.pop((0.1, 2e-2)) == limits.pop((0.5, 4e-2)) == {None}
    assert all(limit == {100.0} for limit in limits.values())


def test_where_nothing_arrives_nothing_is_cut_and_the_best_end_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "a3c", {})
    assert search.best(CHOICES, "a3c")[1] == 3e-3  # the pretended ends grow with eta
    runs = [run for runs in search.all_runs(CHOICES, "a3c").values() for run in runs]
    assert {run.settings.config.stop_at_seconds for run in runs} == {None}
