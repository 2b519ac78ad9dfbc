"""`afedpg reproduce sites`: the same samples for everybody, and verdicts by their written rule."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from afedpg.cli import make_parser
from afedpg.commands.reproduce import read_choices
from afedpg.experiments import sites
from afedpg.experiments.choices import Choices
from afedpg.experiments.reproduce import reproduce
from afedpg.experiments.tables import read

LABELS = ["afedpg", "afedpg, newest", "malenia", "fedpg"]


def test_everybody_has_the_same_samples_sites_and_speeds() -> None:
    for task, who, run in sites.runs(Choices("full", Path(), 1)):
        config = run.settings.config
        assert config.timing.speeds == sites.SPEEDS, (task, who)
        if task != sites.EXACT:
            samples = config.iterations * config.agents * config.agent.steps
            assert samples == pytest.approx(5 * 1024 * sites.ITERATIONS[task]["full"], rel=0.01)
            assert config.agent.sites == sites.SETTINGS[task]["sites"]
    labels = [who.label for who in sites.contestants(Choices("full", Path(), 1), "hopper")]
    assert labels == [*LABELS, "afedppo"]


def test_without_a_preset_everybody_has_one_that_suits() -> None:
    """`paper` has constants for runs a hundred times as long, and none for asynchronous PPO."""
    choices = read_choices(make_parser().parse_args(["reproduce", "sites", "--scale", "full"]))[1]
    of = {who.label: run.settings.config for task, who, run in sites.runs(choices) if task == "hopper"}
    assert (of["afedpg"].schedule.eta, of["afedppo"].agent.estimator) == (0.01, "clipped:last_gamma=0.999")


def row(label: str, returns: list[list[float]], task: str = "hopper", places: tuple[float, ...] = ()) -> sites.Row:
    found = np.array(returns)
    names = tuple(f"gravity={number}" for number in range(found.shape[1]))
    return sites.Row(task, label, tuple(range(len(found))), names, found, np.ones(len(found)), np.array(places))


def test_the_cure_must_raise_the_worst_site_beyond_the_seeds_noise() -> None:
    biased = [[9.0, 9.0, 9.0, 4.0, 3.0 + 0.1 * seed] for seed in range(5)]
    fair = [[7.0, 7.0, 7.0, 6.0, 6.0 + 0.1 * seed] for seed in range(5)]
    (slow, worst) = sites.judge([row("afedpg", biased), row(sites.CURE, fair), row("fedpg", fair)])
    assert (slow.verdict, worst.verdict) == ("holds", "holds")
    assert worst.value == pytest.approx(np.mean([6.0 - 3.0 - 0.1 * seed for seed in range(5)]))
    (none,) = sites.judge([row("afedpg", fair), row(sites.CURE, biased)])
    assert none.verdict == "does not hold"
    wide = [[7.0, 7.0, 7.0, 7.0, 3.2 + 6 * (seed % 2)] for seed in range(5)]
    (open_,) = sites.judge([row("afedpg", biased), row(sites.CURE, wide)])
    assert open_.verdict == "not enough data"
    (few,) = sites.judge([row("afedpg", biased[:4]), row(sites.CURE, fair[:4])])
    assert few.verdict == "not enough data"


@pytest.mark.parametrize(("label", "place", "verdict"), [
    ("afedpg", 0.99, "holds"), ("afedpg", 0.5, "does not hold"), (sites.CURE, 0.01, "holds"),
    (sites.CURE, 0.03, "does not hold"), ("malenia", -0.01, "holds"), ("mine (own.py)", 0.0, "not enough data"),
])  # fmt: skip
def test_where_a_method_ends_is_judged_against_the_closed_forms(label: str, place: float, verdict: str) -> None:
    (found,) = sites.judge([row(label, [[0.0] * 5] * 5, sites.EXACT, (place,) * 5)])
    assert found.verdict == verdict
    assert (found.value is not None and math.isnan(found.value)) == ("mine" in label)


def test_the_figure_from_beginning_to_end(tmp_path: Path) -> None:
    choices = Choices("smoke", tmp_path, 1, tasks=("quadratic", "CartPole-v1"), seeds=(0, 1))
    for job in sites.jobs(choices):
        job.perform(tmp_path, 1, lambda done: None)
    reproduce(["sites"], choices, quiet=True)
    folder = tmp_path / "sites"
    assert {path.suffix for path in folder.iterdir()} >= {".csv", ".png", ".svg", ".json"}
    rows = list(read(folder / "sites.csv").records())
    places = {r["method"]: r["value"] for r in rows if r["where"] == "place between the means"}
    assert list(places) == LABELS
    assert abs(float(places["afedpg"]) - 1) < 0.1
    assert all(abs(float(places[label])) < 0.1 for label in LABELS[1:])
    poles = [r for r in rows if (r["task"], r["method"]) == ("CartPole-v1", "afedppo")]
    wanted = ["length=0.5", "length=1", "length=2", "length=4", "length=8", "slow sites", "worst site", "mean of sites"]
    assert [r["where"] for r in poles] == wanted
    document = json.loads((folder / "verdict.json").read_text())
    assert {verdict["verdict"] for verdict in document["verdicts"]} == {"not enough data"}
