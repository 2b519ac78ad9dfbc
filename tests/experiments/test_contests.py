"""`afedpg reproduce rivals`: equal effort for everybody, times that are right, and verdicts by their written rule."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afedpg import train
from afedpg.errors import ConfigError
from afedpg.experiments import contests, rivals
from afedpg.experiments.choices import Choices, Method, OwnPart
from afedpg.experiments.reproduce import reproduce
from afedpg.experiments.statistics import Interval
from afedpg.experiments.tables import read
from afedpg.problems import LQBandit
from afedpg.runs.train import run

CHOICES = Choices("smoke", Path(), 1, tasks=("lq-bandit",), seeds=(0, 1))


def test_everybody_searches_the_same_pairs_and_every_value_of_its_own_as_often() -> None:
    for who in rivals.contestants(CHOICES):
        for course in (contests.EXACT, contests.course_to(300.0, 1_000, 64)):
            every = contests.points(who, course)
            assert len(set(every)) == len(every) == len(course.alphas) * len(course.etas)
            assert {(p.alpha, p.eta) for p in every} == {(a, e) for a in course.alphas for e in course.etas}
            assert {[p.aggregator for p in every].count(p.aggregator) for p in every} == {len(every) // len(who.values)}


def test_the_seeds_of_the_search_are_not_those_of_the_contest() -> None:
    full = Choices("full", Path(), 1)
    for problem in rivals.PROBLEMS:
        searched = range(contests.SEARCH_SEED, contests.SEARCH_SEED + rivals.searched(full, problem))
        assert not set(searched) & set(full.pick_seeds(*rivals.SEEDS))


@pytest.mark.parametrize(
    ("aggregator", "timing", "alpha", "eta"),
    [
        ("each", "equal", 0.2, 0.03),
        ("rennala:batch=5", "equal", 0.2, 0.03),
        ("all", "straggler", 0.2, 1.0),  # a step every 20 seconds; theta leaves the level at the step after
    ],
)
def test_the_first_passage_is_that_of_the_recorded_thetas(
    aggregator: str, timing: str, alpha: float, eta: float
) -> None:
    """Against a whole training, looked at step by step."""
    contest = next(job for job in rivals.jobs(CHOICES) if dict(job.law)["timing"] == timing)
    settings = contest.run_settings(contests.Point(aggregator, alpha, eta), 3)
    passage, problem, seen = contests.first_passage(settings), LQBandit(), []
    config = settings.config
    train(
        "lq-bandit", agents=10, iterations=300, seed=3, **dict(contest.law), schedule="constant", alpha=alpha, eta=eta,
        literal_constants=True, aggregator=aggregator,
        on_arrival=lambda arrival, seconds, theta: seen.append((seconds, problem.value(theta))),
    )  # fmt: skip
    assert (config.agents, config.timing.timing) == (10, timing)
    level = problem.optimum - contests.LEVEL * (problem.optimum - problem.value(np.zeros(4)))
    times, values = np.array(seen).T
    starts = [
        t for t, value in seen if value >= level and np.all(values[(times >= t) & (times < t + contests.HOLD)] >= level)
    ]
    assert passage.seconds == (starts[0] if starts else math.inf)


@pytest.mark.parametrize(("goal", "aggregator"), [(30.0, "rennala:batch=5"), (30.0, "each"), (1e6, "fedbuff:size=9")])
def test_the_first_passage_to_a_return_is_that_of_a_whole_training(goal: float, aggregator: str) -> None:
    """Which ends where five evaluations of theta have this mean, and knows nothing of contests."""
    course = contests.course_to(goal, 1_000 if goal == 30 else 250, 64)
    contest = replace(rivals.jobs(replace(CHOICES, tasks=("CartPole-v1",)))[0], course=course)
    settings = contest.run_settings(contests.Point(aggregator, 0.2, 0.04), 3)
    assert not settings.config.schedule.literal_constants
    record = replace(settings.config.record, evaluate_every=contests.EVERY)
    result = run(replace(settings.config, record=record, stop_at_evaluation=goal), workers=1)
    passage = contests.first_passage(settings, math.inf, course)
    if goal == 1e6:
        assert passage.seconds == math.inf
    else:
        assert (passage.seconds, passage.gradients) == (result.seconds, result.gradients)
        assert passage.gradients + passage.unused < 1_000


def test_an_environment_without_a_goal_is_refused() -> None:
    with pytest.raises(ConfigError, match="tasks: rivals has no goal for 'walker2d'; choose from quadratic, lq-bandit"):
        rivals.jobs(replace(CHOICES, tasks=("walker2d",)))


def test_a_point_that_takes_too_long_is_given_up() -> None:
    settings = rivals.jobs(CHOICES)[0].run_settings(contests.Point("each", 0.2, 0.01), 0)
    assert contests.first_passage(settings, limit=1.0).seconds == math.inf


def quick_contest(out: Path, **more: Any) -> contests.Contest:
    """Of afedpg on CartPole, with two points and a goal that is soon reached."""
    course = replace(contests.course_to(15.0, 600, 64), alphas=(0.2,), etas=(0.02, 0.04))
    choices = replace(CHOICES, tasks=("CartPole-v1",), out=out, seeds=(0, 1))
    return replace(rivals.jobs(choices)[0], course=course, **more)


def test_the_winner_of_the_search_also_runs_under_the_other_clock(tmp_path: Path) -> None:
    contest = quick_contest(tmp_path)
    assert contest.phases == ["contest", "straggler"]
    contest.perform(tmp_path, 1, lambda done: None)
    data = contest.read(tmp_path)
    assert data.column("phase") == ["search"] * 2 + ["contest"] * 2 + ["straggler"] * 2
    searched = {row["eta"]: row["seconds"] for row in data.records() if row["phase"] == "search"}
    best = min(searched, key=lambda eta: searched[eta])
    assert {row["eta"] for row in data.records() if row["phase"] != "search"} == {best}
    point = contests.Point("each", 0.2, float(best))
    clocks = {phase: contest.run_settings(point, 0, phase).config.timing for phase in contest.phases}
    assert clocks["contest"].timing == "sqrt"
    assert (clocks["straggler"].timing, clocks["straggler"].spread) == ("straggler", 20.0)
    alone = contests.first_passage(contest.run_settings(point, 1, "straggler"), course=contest.course)
    assert contests.times(data, "straggler")[1] == alone
    assert contests.times(data, "straggler") != contests.times(data)


def test_an_interrupted_search_goes_on_after_its_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contest = quick_contest(tmp_path, also=())
    contest.perform(tmp_path / "whole", 1, lambda done: None)
    runs = []
    first_passage = contests.first_passage

    def counted(*arguments: Any) -> contests.Passage:
        if len(runs) == 3:
            raise KeyboardInterrupt
        runs.append(arguments)
        return first_passage(*arguments)

    monkeypatch.setattr(contests, "first_passage", counted)
    with pytest.raises(KeyboardInterrupt):
        contest.perform(tmp_path / "cut", 1, lambda done: None)
    assert not contest.finished(tmp_path / "cut")
    runs = [None, None]  # one more run is left
    contest.perform(tmp_path / "cut", 1, lambda done: None)
    assert contest.read(tmp_path / "cut") == contest.read(tmp_path / "whole")
    assert [path.name for path in (tmp_path / "cut" / "contests").iterdir()] == [f"{contest.name}.csv"]


def test_asynchronous_ppo_has_its_own_constants_no_search_and_the_same_seconds_per_sample(tmp_path: Path) -> None:
    *others, contest = rivals.jobs(replace(CHOICES, tasks=("CartPole-v1",)))
    assert contest.contestant == rivals.PPO
    config, usual = (job.run_settings(job.points[0], 0).config for job in (contest, others[0]))
    assert (config.method, config.agent.estimator, config.agent.steps) == ("afedppo", "clipped", 102)
    assert config.timing.fastest / config.agent.steps == usual.timing.fastest / usual.agent.steps
    for contributions in ("most", "every"):
        mine, theirs = (getattr(job.course, contributions) for job in (contest, others[0]))
        assert mine * config.agent.steps == pytest.approx(theirs * usual.agent.steps, rel=0.25)
    assert config.record.evaluate_episodes == usual.record.evaluate_episodes == 5
    contest.perform(tmp_path, 1, lambda done: None)
    assert contest.read(tmp_path).column("phase") == ["contest"] * 2 + ["straggler"] * 2
    assert rivals.PPO not in [job.contestant for job in rivals.jobs(CHOICES)]


def standing(
    label: str, ratio: Interval, law: str = "sqrt", seeds: int = 24, problem: str = "lq-bandit"
) -> rivals.Standing:
    return rivals.Standing(problem, law, label, "", 0.1, 0.1, Interval(1, 1, 1), ratio, seeds, 100, 0.5, seeds)


def test_asynchronous_ppo_is_no_rival_among_the_aggregators() -> None:
    sides = [("afedpg", 1.0), ("fedbuff", 2.0), ("afedppo", 0.2)]
    found = [standing(label, Interval(at, 0.9 * at, 1.1 * at), problem="hopper") for label, at in sides]
    claims = {verdict.claim: verdict.verdict for verdict in rivals.judge(found)}
    assert claims == {
        "Asynchronous PPO reaches the return sooner than AFedPG (hopper, t_i = sqrt(i))": "holds",
        "No other aggregator reaches the return sooner than AFedPG's (hopper, t_i = sqrt(i))": "holds",
    }


def test_problems_and_environments_stand_in_one_picture() -> None:
    """Which have neither the same contestants nor the same clocks."""
    one = Interval(1, 1, 1)
    exact = [standing(label, one, law) for law in ("equal", "sqrt") for label in ("afedpg", "fedbuff")]
    figure = rivals.draw([*exact, *(standing(label, one, problem="hopper") for label in ("afedpg", "afedppo"))])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["lq-bandit\nequal speeds", "lq-bandit\nt_i = sqrt(i)", "", "hopper\nt_i = sqrt(i)"]
    names = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    everybody = ["afedpg", "fedbuff", "afedppo"]
    assert [names[0], names[1], names[3]] == [everybody, [""] * 3, everybody], "of the first panel that a row has"
    below = [axes.get_xlabel() for axes in figure.axes]
    assert below == ["time / time of afedpg", "", "", "time / time of afedpg"], "of the last panel that a column has"


def test_a_time_that_may_never_end_goes_to_the_edge_of_the_picture() -> None:
    found = [standing("afedpg", Interval(1, 1, 1)), standing("fedpg", Interval(2, 1.5, math.inf))]
    [panel] = rivals.draw(found).axes
    ends = [line.get_xdata() for line in panel.lines if len(line.get_xdata()) == 2]
    assert any(tuple(xs) == (1.5, panel.get_xlim()[1]) for xs in ends)
    nobody = Interval(math.nan, math.nan, math.nan)
    [panel] = rivals.draw([standing("afedpg", nobody), standing("fedpg", nobody)]).axes
    assert [text.get_text() for text in panel.texts] == [" not reached"] * 2


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
    monkeypatch.setattr(rivals, "EXACT", contests.Course(etas=(0.03,)))
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
