"""The bar of `afedpg reproduce learners`: its runs, what they leave, the verdict; also without Stable-Baselines3."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from reproducing import reproduce, rows_of

from afedpg.errors import ConfigError
from afedpg.experiments import bar, bar_runs, learner_runs, learners
from afedpg.experiments.bar_runs import PPO, RANDOM, STEPS, BarRun, PpoRun, RandomRun, cut
from afedpg.experiments.choices import Choices
from afedpg.experiments.curves import Curve, Key
from afedpg.experiments.learner_runs import BAR, MILLION, TASKS, Cell
from afedpg.experiments.statistics import interquartile_mean

BAR_COMMAND = ("learners", "--scale", "smoke", "--studies", "bar", "--tasks", "hopper", "--workers", "1")
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("stable_baselines3") is None, reason="needs the extra 'bench'"
)


def ppo_run(seed: int = 0, samples: int = 2 * STEPS) -> PpoRun:
    return PpoRun("hopper", Key("hopper", PPO, 1), seed, samples)


class Counted(gymnasium.Wrapper):
    """Adds up what the task itself gives, in its own way."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self.steps = 0
        self.open = 0.0
        self.ended: list[tuple[int, float]] = []  # samples so far, return

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.open += float(reward)
        if terminated or truncated:
            self.ended.append((self.steps, self.open))
            self.open = 0.0
        return observation, reward, terminated, truncated, info


@needs_package
def test_a_curve_has_the_tasks_own_returns_and_a_seed_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Counted] = []
    make = bar_runs.make_environment
    monkeypatch.setattr(
        bar_runs, "make_environment", lambda task, kwargs: made.append(Counted(make(task, kwargs))) or made[-1]
    )
    first, second = tmp_path / "first", tmp_path / "second"
    fractions: list[float] = []
    ppo_run().perform(first, 1, fractions.append)
    ppo_run().perform(second, 1, lambda done: None)
    assert fractions[-1] == 1.0
    assert ppo_run().finished(first)
    assert ppo_run().path(first).read_bytes() == ppo_run().path(second).read_bytes()
    curve = ppo_run().curve(first)
    assert curve.returns[0] != ppo_run(seed=1, samples=STEPS).train().returns[0]
    assert made[0].steps == 2 * STEPS
    assert curve.samples.tolist() == [STEPS, 2 * STEPS]
    for part in range(2):
        mine = [value for at, value in made[0].ended if part * STEPS < at <= (part + 1) * STEPS]
        assert curve.episodes[part] == len(mine) > 10
        assert curve.returns[part] == pytest.approx(np.mean(mine))


@needs_package
def test_a_curve_of_the_bar_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is the package needed where the curves are: another machine may have computed them."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert reproduce(*BAR_COMMAND, "--out", str(first)) == 0
    rows = rows_of(first / "learners" / "learners-returns.csv")
    assert {row["study"] for row in rows} == {"bar"}
    ppo = "PPO of Stable-Baselines3"
    assert [(row["variant"], row["seed"]) for row in rows] == [(ppo, "0"), (ppo, "1"), ("random actions", "0")]
    assert {row["method"] for row in rows_of(first / "learners" / "learners.csv")} == {"sb3-ppo", "random"}
    assert len((first / "spent.csv").read_text().splitlines()) == 3
    assert (first / "spent.csv").read_text().count("stable-baselines3") == 2
    shutil.copytree(first / "curves", second / "curves")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    kept = {path: path.stat().st_mtime_ns for path in (second / "curves").iterdir()}
    assert reproduce(*BAR_COMMAND, "--out", str(second)) == 0
    assert {path: path.stat().st_mtime_ns for path in (second / "curves").iterdir()} == kept
    next((second / "curves").glob("*sb3-ppo*")).unlink()
    assert reproduce(*BAR_COMMAND, "--out", str(second), "--finished-only") == 0
    capsys.readouterr()
    assert reproduce(*BAR_COMMAND, "--out", str(second)) == 2
    assert capsys.readouterr().err == (
        "afedpg: studies: bar needs Stable-Baselines3, which is not installed; "
        "install it with: pip install 'afedpg[bench]', or name the other studies\n"
    )


def test_the_bar_is_looked_for_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever does not name it needs no package."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert {job.key.method for job in learner_runs.jobs(Choices("smoke", tmp_path, 1))} == {learner_runs.METHOD}
    for scale in ("short", "full"):
        every = Choices(scale, tmp_path, 1)
        assert not any(isinstance(job, BarRun) for job in learner_runs.jobs(every))
        with pytest.raises(ConfigError, match="bar needs Stable-Baselines3"):
            learner_runs.jobs(replace(every, studies=("bar",)))


def test_the_bar_has_the_samples_of_ours() -> None:
    for scale, updates, samples in (("smoke", 1, 10_000), ("short", 25, 10_000), ("full", 489, 100_000)):
        choices = Choices(scale, Path(), 1, studies=("bar",))
        found = [run for _, run in learner_runs.runs(choices)]
        assert {run.updates for run in found if isinstance(run, PpoRun)} == {updates}
        assert {run.samples for run in found if isinstance(run, RandomRun)} == {samples}
    assert len({run.name for run in found}) == len(found) == 6 * (5 + 1)


def test_a_run_of_other_settings_has_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ppo_run().name
    monkeypatch.setitem(bar_runs.FIXED, "gamma", 0.9)
    assert ppo_run().name != before


def test_random_actions_are_the_same_ones_every_time() -> None:
    run = RandomRun("hopper", Key("hopper", RANDOM, 1), 0, 1000)
    curve = run.train()
    assert (curve.samples.tolist(), len(curve.returns)) == ([1000.0], 1)
    assert curve.returns[0] == run.train().returns[0] != replace(run, seed=1).train().returns[0]
    assert 10 < curve.episodes[0] < 100
    assert 5 < curve.returns[0] < 50


def test_an_episode_belongs_to_the_part_it_ends_in() -> None:
    curve = cut(ppo_run(), 30, [4, 6, 1, 12, 7], [1.0, 3.0, 5.0, 7.0, 9.0], parts=3)  # ends at 4, 10, 11, 23, 30
    assert curve.samples.tolist() == [10.0, 20.0, 30.0]
    assert curve.episodes.tolist() == [2, 1, 2]
    assert curve.returns.tolist() == [2.0, 5.0, 8.0]
    empty = cut(ppo_run(), 30, [21], [1.0], parts=3)
    assert np.isnan(empty.returns).tolist() == [True, True, False]


def contest(task: str = "hopper", ours: float = 1.0, seeds: int = 5, theirs: float = 1.0) -> bar.Contest:
    """So much of what PPO has over random actions, 110 over 10, with a little noise."""
    noise = np.linspace(-0.01, 0.01, seeds)
    return bar.Contest(task, 10 + 100 * (ours + noise), 10 + 100 * (theirs + noise), 10.0)


def test_a_share_by_hand() -> None:
    found = bar.Contest("hopper", np.array([60.0, 110.0]), np.array([100.0, 120.0]), 10.0)
    assert bar.scores(found.ours, found.theirs, found.random).tolist() == [0.5, 1.0]
    assert found.share == 0.75


@pytest.mark.parametrize(("ours", "ruling"), [
    ([1.0] * 6, "holds"),
    ([0.96] * 6, "holds"),
    ([0.94] * 6, "does not hold"),
    ([1.2] * 5 + [0.81], "holds"),
    ([1.2] * 5 + [0.79], "does not hold"),  # an interquartile mean does not see one task
])  # fmt: skip
def test_six_tasks_are_ruled_together(ours: list[float], ruling: str) -> None:
    contests = [contest(task, share) for task, share in zip(TASKS, ours, strict=True)]
    found = bar.judge(contests, TASKS)
    assert found.verdict == ruling
    every = np.concatenate([bar.scores(c.ours, c.theirs, c.random) for c in contests])
    assert found.value == interquartile_mean(every)
    assert found.low <= found.value <= found.high
    for task, share in zip(TASKS, ours, strict=True):
        assert f"{task} {share:.2f} (" in found.statistic


@pytest.mark.parametrize("contests", [
    [],
    [contest(task) for task in TASKS[:5]],
    [contest(task, seeds=4 if task == "ant" else 5) for task in TASKS],
    [contest(task, theirs=0.0 if task == "ant" else 1.0) for task in TASKS],  # PPO is as random actions are
    [contest(task, ours=np.nan if task == "ant" else 1.0) for task in TASKS],  # no episode ended
])  # fmt: skip
def test_fewer_tasks_or_seeds_say_how_each_stands_and_rule_nothing(contests: list[bar.Contest]) -> None:
    found = bar.judge(contests, TASKS)
    assert found.verdict == "not enough data"
    assert all(f"{one.task} {one.share:.2f}" in found.statistic for one in contests)


def row(study: str, variant: str, returns: list[float], first: int = 0) -> learners.Row:
    agents, seeds = (1 if study == "bar" else 8), tuple(range(first, first + len(returns)))
    cell = Cell(study, "hopper", agents, 4.0, MILLION, seeds, variant)
    samples = np.linspace(5000, MILLION, 200) / agents
    curves = tuple(
        Curve(Key(cell.label, cell.method, agents), seed, samples, samples, np.full(200, end), np.ones(200, np.int64))
        for seed, end in zip(seeds, returns, strict=True)
    )
    return learners.Row(cell, tuple(returns), curves)


def test_ours_is_compared_on_the_seeds_of_the_bar() -> None:
    ours = row("tasks", "", [100.0, 200.0, 300.0, 900.0, 900.0])
    theirs, random = (row("bar", name, returns) for name, returns in zip(BAR, ([400.0] * 3, [0.0]), strict=True))
    (found,) = (verdict for verdict in learners.judge([ours, theirs, random]) if "Baselines3" in verdict.claim)
    assert found.verdict == "not enough data"
    assert "hopper 0.50 (200 against 400, random 0; 3 seeds)" in found.statistic
    assert not [verdict for verdict in learners.judge([ours]) if "Baselines3" in verdict.claim]
    (alone,) = learners.judge([theirs, random])
    assert alone.statistic == "no task has both, and random actions"


def test_ppo_is_drawn_beside_ours_over_the_samples_of_all() -> None:
    ours, theirs = row("tasks", "", [100.0] * 3), row("bar", next(iter(BAR)), [200.0] * 3)
    figure = learners.draw([ours, theirs])
    panel = figure.axes[0]
    assert panel.get_title() == "hopper, 1M"
    assert [line.get_label() for line in panel.get_lines()] == ["afedppo", "PPO of Stable-Baselines3"]
    assert [line.get_xdata()[-1] for line in panel.get_lines()] == [MILLION, MILLION]
