"""The search over constants: every method gets the same effort, and what is cut off could not have won."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from afedpg.acceptance import search
from afedpg.acceptance.search import SPACES, Point, Space
from afedpg.config import flat
from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import RunJob

CHOICES = Choices("full", Path("nowhere"), 1, preset="paper")
AFEDPG = SPACES["afedpg"]


def pretend(monkeypatch: pytest.MonkeyPatch, space: Space, times: dict[Point, tuple[float, ...]]) -> None:
    """Runs that arrive at these seconds, by seed; a limit cuts them off as it would the real ones."""

    def seconds(run: RunJob, out: Path) -> float:
        config = run.settings.config
        values = flat(config.to_dict())
        first, second = (values[name] for name in space.names)
        arrived = times.get((first, second), (inf,) * 3)[config.seed - search.SEEDS[0]]
        limit = config.stop_at_seconds
        return arrived if limit is None or arrived <= limit else inf

    monkeypatch.setattr(search, "seconds_to_goal", seconds)
    monkeypatch.setattr(search, "final_evaluation", lambda run, out: run.settings.config.schedule.eta)


def names(runs: dict[Point, list[RunJob]]) -> list[str]:
    return [run.name for mine in runs.values() for run in mine]


@pytest.mark.parametrize("name", SPACES)
def test_every_method_gets_the_same_number_of_runs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    space = SPACES[name]
    pretend(monkeypatch, space, dict.fromkeys(space.grid, (1.0, inf, 2.0)))
    first, pairs, every = (names(of(CHOICES, space)) for of in (search.first_runs, search.pairs, search.all_runs))
    assert set(first) < set(pairs) < set(every)
    assert len(set(every)) == len(every) == 36
    assert (len(first), len(pairs)) == (6, 26)


def test_a_third_seed_runs_only_where_the_median_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {
        (0.1, 2e-2): (90.0, 100.0, 500.0),
        (0.2, 2e-2): (101.0, 80.0, 1.0),
        (0.2, 1e-2): (101.0, 102.0, 1.0),  # two beyond 100: out
    }
    pretend(monkeypatch, AFEDPG, times)
    seeds = {point: len(runs) for point, runs in search.all_runs(CHOICES, AFEDPG).items()}
    assert [point for point, count in seeds.items() if count == 3] == [*AFEDPG.first, (0.2, 2e-2)]
    assert seeds[0.2, 1e-2] == 2


def test_the_fastest_median_wins_and_slower_ones_are_cut_at_the_first_winners_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = {
        (0.1, 2e-2): (90.0, 100.0, 500.0),
        (0.5, 4e-2): (300.0, 300.0, 300.0),
        (0.2, 2e-2): (80.0, 95.0, inf),
        (0.2, 1e-2): (10.0, 101.0, 102.0),  # one lucky seed
    }
    pretend(monkeypatch, AFEDPG, times)
    assert search.best(CHOICES, AFEDPG) == (0.2, 2e-2)
    limits = {
        point: {run.settings.config.stop_at_seconds for run in runs}
        for point, runs in search.all_runs(CHOICES, AFEDPG).items()
    }
    assert limits.pop((0.1, 2e-2)) == limits.pop((0.5, 4e-2)) == {None}
    assert set(map(frozenset, limits.values())) == {frozenset({100.0})}


def test_where_nothing_arrives_nothing_is_cut_and_the_best_end_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    space = SPACES["a3c"]
    pretend(monkeypatch, space, {})
    assert search.best(CHOICES, space)[1] == 1.5e-3  # the pretended ends grow with eta
    runs = [run for runs in search.all_runs(CHOICES, space).values() for run in runs]
    assert {run.settings.config.stop_at_seconds for run in runs} == {None}


def test_a_best_value_at_the_end_of_what_was_tried_is_told() -> None:
    assert AFEDPG.at_the_edge((0.2, 2e-2)) == []
    assert AFEDPG.at_the_edge((0.1, 2e-2)) == ["alpha"]
    assert AFEDPG.at_the_edge((0.5, 5e-3)) == ["alpha", "eta"]


def test_fedpgs_constants_are_used_as_they_are_or_n_times() -> None:
    point = (0.1, 1e-2)
    alone, scaled = (search.race(CHOICES, SPACES[name], point, 100) for name in ("fedpg", "fedpg-scaled"))
    assert alone.settings.config.schedule.literal_constants
    assert not scaled.settings.config.schedule.literal_constants
    assert alone.settings.config.schedule.eta == scaled.settings.config.schedule.eta == 1e-2
