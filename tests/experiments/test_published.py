"""Our curves beside published returns: read at the same number of samples, by seeds, and never beyond the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from afedpg.acceptance.published import PUBLISHED, by_curve, comparison, draw, return_at
from afedpg.errors import AfedpgError
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.curves import Curve, Key
from afedpg.experiments.jobs import Plan, RunJob

KEY = Key("hopper", Method("afedpg"), 4)


def straight(seed: int, slope: float, points: int = 200, last: float = 500_000.0) -> Curve:
    """A run of 2M samples by four agents whose return grows by `slope` per part."""
    samples = np.linspace(last / points, last, points)
    returns = slope * np.arange(1, points + 1)
    return Curve(KEY, seed, samples, samples, returns, np.ones(points, np.int64))


def test_the_return_is_that_of_the_last_twentieth_before_so_many_samples():
    """1M of 2M samples is part 100 of 200; a twentieth are the ten parts up to it."""
    found = return_at([straight(0, 1.0), straight(1, 3.0)], 1e6)
    assert found is not None
    assert found.value == pytest.approx(2 * np.mean(np.arange(91, 101)))
    assert found.low < found.value < found.high


def test_a_run_says_nothing_about_more_samples_than_it_has():
    curves = [straight(0, 1.0)]
    assert return_at(curves, 2e6) is not None
    assert return_at(curves, 2.1e6) is None
    rows = list(comparison({KEY: curves}).records())
    assert {row["published"] for row in rows} == {p.method for p in PUBLISHED if p.samples <= 2e6}
    assert all(row["samples"] <= 2_000_000 for row in rows)


def test_parts_without_an_ended_episode_are_left_out():
    curve = straight(0, 1.0)
    curve.returns[90:99] = np.nan
    found = return_at([curve], 1e6)
    assert found is not None
    assert found.value == 100.0


def test_every_task_gets_a_panel():
    other = Key("swimmer", Method("afedpg"), 4)
    figure = draw({KEY: [straight(0, 1.0)], other: [straight(0, 2.0), straight(1, 2.0)]})
    assert [axes.get_title() for axes in figure.axes] == ["hopper, 1 seed", "swimmer, 2 seeds"]


def test_a_panel_counts_the_seeds_of_all_its_methods():
    other = Key("hopper", Method("afedpg-vanilla"), 4)
    figure = draw({KEY: [straight(seed, 1.0) for seed in range(5)], other: [straight(seed, 2.0) for seed in range(3)]})
    assert figure.axes[0].get_title() == "hopper, 3 to 5 seeds"


def test_two_presets_of_one_task_are_not_averaged_as_seeds():
    paper, tuned = (Plan(Choices("full", Path(), 1), preset) for preset in ("paper", "tuned"))
    mine = [RunJob(paper.settings("swimmer", Method("afedpg"), 8, seed)) for seed in range(3)]
    vanilla = RunJob(paper.settings("swimmer", Method("afedpg-vanilla"), 8, 0))
    assert [len(runs) for runs in by_curve([*mine, vanilla]).values()] == [3, 1]
    with pytest.raises(AfedpgError, match="differ in more than the seed"):
        by_curve([*mine, RunJob(tuned.settings("swimmer", Method("afedpg"), 8, 3))])
