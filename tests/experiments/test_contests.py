"""`afedpg reproduce rivals`: equal effort for everybody, times that are right, and verdicts by their written rule."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from afedpg import train
from afedpg.experiments import contests, rivals
from afedpg.experiments.choices import Choices, Method, OwnPart
from afedpg.experiments.reproduce import reproduce
from afedpg.experiments.statistics import Interval
from afedpg.experiments.tables import read
from afedpg.problems import LQBandit

CHOICES = Choices("smoke", Path(), 1, tasks=("lq-bandit",), seeds=(0, 1))


def test_everybody_searches_the_same_pairs_and_every_value_of_its_own_as_often() -> None:
    for who in rivals.contestants(CHOICES):
        every = contests.points(who)
        assert len(set(every)) == len(every) == 12
        assert {(p.alpha, p.eta) for p in every} == {(a, e) for a in contests.ALPHAS for e in contests.ETAS}
        assert {[p.aggregator for p in every].count(p.aggregator) for p in every} == {12 // len(who.values)}


def test_the_seeds_of_the_search_are_not_those_of_the_contest() -> None:
    full = Choices("full", Path(), 1)
    searched = range(contests.SEARCH_SEED, contests.SEARCH_SEED + rivals.SEARCHED["full"])
    assert not set(searched) & set(full.pick_seeds(*rivals.SEEDS))


@pytest.mark.parametrize("aggregator", ["each", "rennala:batch=5"])
def test_the_first_passage_is_that_of_the_recorded_thetas(aggregator: str) -> None:
    """Against a whole training, looked at step by step."""
    contest = rivals.jobs(CHOICES)[0]
    settings = contest.run_settings(contests.Point(aggregator, 0.2, 0.03), 3)
    passage, problem, seen = contests.first_passage(settings), LQBandit(), []
    config = settings.config
    train(
        "lq-bandit", agents=10, iterations=300, seed=3, timing="equal", schedule="constant", alpha=0.2, eta=0.03,
        literal_constants=True, aggregator=aggregator,
        on_arrival=lambda arrival, seconds, theta: seen.append((seconds, problem.value(theta))),
    )  # fmt: skip
    assert (config.agents, config.timing.timing) == (10, "equal")
    level = problem.optimum - contests.LEVEL * (problem.optimum - problem.value(np.zeros(4)))
    times, values = np.array(seen).T
    starts = [
        t for t, value in seen if value >= level and np.all(values[(times >= t) & (times < t + contests.HOLD)] >= level)
    ]
    assert passage.seconds == (starts[0] if starts else math.inf)


def test_a_point_that_takes_too_long_is_given_up() -> None:
    settings = rivals.jobs(CHOICES)[0].run_settings(contests.Point("each", 0.2, 0.01), 0)
    assert contests.first_passage(settings, limit=1.0).seconds == math.inf


def standing(label: str, ratio: Interval, law: str = "sqrt", seeds: int = 24) -> rivals.Standing:
    return rivals.Standing("lq-bandit", law, label, "", 0.1, 0.1, Interval(1, 1, 1), ratio, seeds, 100, 0.5, seeds)


@pytest.mark.parametrize(
    ("law", "ratio", "seeds", "sooner", "unbeaten"),
    [
        ("sqrt", (0.5, 0.4, 0.6), 24, "holds", "does not hold"),
        ("sqrt", (2.0, 1.5, 2.5), 24, "does not hold", "holds"),
        ("sqrt", (1.0, 0.9, 1.1), 24, "not enough data", "holds"),
        ("sqrt", (0.5, 0.4, 0.6), 4, "not enough data", "not enough data"),
        ("sqrt", (math.inf, 3.0, math.inf), 24, "does not hold", "holds"),
        ("equal", (1.0, 0.9, 1.1), 24, "holds", "holds"),
        ("equal", (2.0, 1.5, 2.5), 24, "does not hold", "holds"),
    ],
)
def test_verdicts(law: str, ratio: tuple[float, ...], seeds: int, sooner: str, unbeaten: str) -> None:
    us = standing("afedpg", Interval(1, 1, 1), law, seeds)
    found = rivals.judge([us, standing("rennala", Interval(*ratio), law, seeds)])
    assert [verdict.verdict for verdict in found] == [sooner, unbeaten]


def test_medians_know_never() -> None:
    never = np.array([1.0, 2.0, math.inf, math.inf])
    assert rivals._median(never) == 2.0
    assert rivals._ratio(np.stack([np.full(4, math.inf), never], axis=1)) == math.inf
    assert math.isnan(rivals._ratio(np.full((3, 2), math.inf)))


def test_own_methods_stand_beside_the_rivals() -> None:
    own = Method("own-rule", OwnPart("my_file.py", "rule", "0"))
    labels = [who.label for who in rivals.contestants(Choices("smoke", Path(), 1, methods=(own,)))]
    assert labels == ["afedpg", "fedpg", "rennala", "malenia", "fedbuff", "fedasync", "ringmaster", "rule (my_file.py)"]


def test_the_figure_from_beginning_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "LEVEL", 0.5)
    monkeypatch.setattr(contests, "ETAS", (0.03,))
    choices = Choices("smoke", tmp_path, 1, tasks=("lq-bandit",), seeds=(0, 1), timing="sqrt")
    for job in rivals.jobs(choices):
        job.perform(tmp_path, 1, lambda done: None)
    outcome = reproduce(["rivals"], choices, quiet=True)["rivals"]
    folder = tmp_path / "rivals"
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".png", ".svg", ".pdf", ".json"}
    rows = list(read(folder / "rivals.csv").records())
    assert [row["method"] for row in rows][:3] == ["afedpg", "fedpg", "rennala"]
    assert {row["reached"] for row in rows} == {2}
    document = json.loads((folder / "verdict.json").read_text())
    assert (
        {verdict["verdict"] for verdict in document["verdicts"]}
        == {"not enough data"}
        == {verdict.verdict for verdict in outcome.verdicts}
    )
