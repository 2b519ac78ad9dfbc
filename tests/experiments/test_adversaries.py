"""`afedpg reproduce adversaries`: what a trial measures, what it is compared with, and verdicts by written rules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from afedpg import train
from afedpg.experiments import adversaries, trials
from afedpg.experiments.adversaries import Score
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.reproduce import reproduce
from afedpg.experiments.tables import read, table
from afedpg.experiments.trials import Case
from afedpg.problems import LQBandit
from afedpg.runs.train import run

SMOKE, FULL = Choices("smoke", Path(), 1), Choices("full", Path(), 1)


def test_the_whole_grid_is_asked_for() -> None:
    every = adversaries.cases(FULL)
    assert len(set(every)) == len(every)
    for task, count in (("lq-bandit", 12), ("softmax-mdp", 12), ("CartPole-v1", 14)):
        mine = [case for case in every if case.task == task and case.attack]
        assert len(mine) == count * 3 * 3 * 2
    assert {case.pace for case in every} == {10.0, 1.0, 0.1}
    assert not set(range(100, 103)) & set(FULL.pick_seeds(*adversaries.SEEDS))


def test_liars_are_the_last_and_the_honest_alone_are_the_others() -> None:
    lied = adversaries.trials(FULL)[Case("lq-bandit", "ipm", "slots", 0.1, 3)][0].settings.config
    alone = adversaries.trials(FULL)[Case("lq-bandit", "", "each", 1.0, 3)][0].settings.config
    assert (lied.agents, lied.attackers, lied.timing.speeds) == (10, (7, 8, 9), (1.0,) * 7 + (0.1,) * 3)
    assert (alone.agents, alone.attackers, alone.timing.speeds) == (7, (), (1.0,) * 7)
    assert (lied.iterations, alone.iterations) == (lied.stop_at_seconds,) * 2  # a flood is not planned for
    assert lied.stop_at_seconds == alone.stop_at_seconds


@pytest.mark.parametrize("attack", ["sign-flip", "alie"])
def test_a_trial_is_a_training(attack: str) -> None:
    [trial] = adversaries.trials(SMOKE)[Case("lq-bandit", attack, "slots", 0.1, 2)]
    config, problem = trial.settings.config, LQBandit()
    result = train(
        "lq-bandit", agents=10, iterations=config.iterations, seed=0, timing="list", speeds=config.timing.speeds,
        aggregator="slots", eta=config.schedule.eta, stop_at_seconds=config.stop_at_seconds, attack=attack,
        attackers=(8, 9),
    )  # fmt: skip
    seed, start, value = trial.measure()
    assert seed == 0
    assert (start, value) == pytest.approx((problem.value(np.zeros(4)), problem.value(result.theta)))


@pytest.mark.parametrize(("defence", "seconds"), [("each", "54 of the 200"), ("slots", "166 with `slots`")])
def test_a_flood_ends_a_run_as_early_as_the_docs_say(defence: str, seconds: str) -> None:
    [first, *_] = adversaries.trials(FULL)[Case("lq-bandit", "sign-flip", defence, 0.1, 3)]
    with np.errstate(all="ignore"):  # undefended theta diverges
        ended = run(first.settings.config, first.settings.own(), workers=1).seconds
    assert round(ended) == int(seconds.split()[0])
    text = (Path(__file__).parents[2] / "docs" / "adversaries.md").read_text()
    assert f"after {seconds}" in " ".join(text.split())


def test_the_outcome_says_that_fast_liars_shorten_a_run(tmp_path: Path) -> None:
    told = adversaries.outcome(Choices("smoke", tmp_path, 1, finished_only=True)).text
    assert "faster liars use them up sooner" in told
    assert "faster liars use these up sooner" in " ".join((adversaries.__doc__ or "").split()).lower()


def test_cosines_of_what_is_known() -> None:
    east, north = np.array([2.0, 0.0, 9.0]), np.array([0.0, 3.0, 9.0])
    sent = [(0, east), (1, north), (2, east), (0, east), (1, north), (2, east)]
    [(single, together)] = trials.alike(sent, slice(0, 2), 3)
    assert single == pytest.approx(1 / 3)  # of three pairs one is parallel
    assert together == pytest.approx(1 / 3)
    assert trials._mean_cosine({0: np.zeros(2), 1: east}) == 0.0


def grid(score: float, worst: float, task: str = "lq-bandit", seeds: int = 5) -> list[Score]:
    found = []
    for case in adversaries.cases(replace(FULL, tasks=(task,))):
        lied = score if case.attack and case.defence == "slots" else 0.0 if case.attack else 1.0
        found.append(Score(case, (lied,) * seeds, (lied,) * seeds, tuple(range(seeds))))
    first = next(place for place, s in enumerate(found) if s.case.attack and s.case.defence == "slots")
    found[first] = replace(found[first], scores=(worst,) * seeds)
    return found


@pytest.mark.parametrize(
    ("score", "worst", "seeds", "verdict"),
    [
        (0.95, 0.8, 5, "holds"),
        (0.95, 0.6, 5, "does not hold"),
        (0.85, 0.8, 5, "does not hold"),
        (0.95, 0.8, 3, "not enough data"),
    ],
)
def test_verdicts(score: float, worst: float, seeds: int, verdict: str) -> None:
    found = adversaries.judge(grid(score, worst, seeds=seeds), replace(FULL, tasks=("lq-bandit",)))
    assert found[0].verdict == verdict
    assert len(found) == 3
    if seeds == 5:
        assert [one.verdict for one in found][1:] == ["holds", "holds"]


def test_a_grid_with_holes_is_not_judged() -> None:
    found = adversaries.judge(grid(0.95, 0.8)[:-40] + grid(0.95, 0.8)[-36:], replace(FULL, tasks=("lq-bandit",)))
    whole = adversaries.judge(
        [s for s in grid(0.95, 0.8) if s.case.defence != "slots" or s.case.attack != "ipm"],
        replace(FULL, tasks=("lq-bandit",)),
    )
    assert found[0].verdict == "holds"  # what is missing is another defence's
    assert whole[0].verdict == "not enough data"


def test_attacks_that_are_enough_need_no_further_cells() -> None:
    whole = grid(0.95, 0.8)
    undefended = [s for s in whole if s.case.attack and s.case.defence == "each"]
    names = sorted({s.case.attack for s in undefended})

    def judged(attacks: int) -> str:
        left = [s for s in undefended if s.case.pace == 0.1 and s.case.attack in names[:attacks]]
        found = adversaries.judge(left, replace(FULL, tasks=("lq-bandit",)))
        return found[0].verdict

    assert [judged(4), judged(5)] == ["not enough data", "holds"]
    learned = [replace(s, scores=(0.9,) * 5) for s in undefended]
    assert adversaries.judge(learned, replace(FULL, tasks=("lq-bandit",)))[0].verdict == "does not hold"
    fewer = [replace(s, scores=s.scores[:3]) for s in undefended]
    assert adversaries.judge(fewer, replace(FULL, tasks=("lq-bandit",)))[0].verdict == "not enough data"


def test_hopper_has_a_smaller_grid_of_its_own() -> None:
    choices = replace(FULL, tasks=("hopper",))
    lied = {case: mine for case, mine in adversaries.trials(choices).items() if case.attack}
    assert len(lied) == 7 * 2 * 2
    assert {(case.defence, case.liars) for case in lied} == {("slots", 2), ("slots", 4)}
    assert {case.pace for case in lied} == {1.0, 0.1}
    assert {len(mine) for mine in lied.values()} == {3}
    alone = [mine for case, mine in adversaries.trials(choices).items() if not case.attack]
    assert [len(mine) for mine in alone] == [5, 5, 5, 5]  # honest: eight, six, ten, and ten defended
    config = alone[-1][0].settings.config
    assert config.agents * config.iterations * config.agent.steps == pytest.approx(500_000, rel=0.05)


@pytest.mark.parametrize(
    ("score", "unattacked", "verdicts"),
    [
        (0.81, (0.7, 1.0, 1.0, 1.0, 0.9), ["holds", "holds"]),
        (0.79, (0.7, 1.0, 1.0, 1.0, 0.7), ["does not hold", "does not hold"]),
    ],
)
def test_hopper_is_judged_by_its_own_rules(score: float, unattacked: tuple[float, ...], verdicts: list[str]) -> None:
    choices = replace(FULL, tasks=("hopper",))
    found = []
    for case in adversaries.cases(choices):
        scores = (score if case.liars == 2 else 0.0,) * 3 if case.attack else (1.0,) * 5  # nothing is asked of four
        scores = unattacked if (case.attack, case.defence) == ("", "slots") else scores
        found.append(Score(case, scores, scores, tuple(range(len(scores)))))
    assert [one.verdict for one in adversaries.judge(found, choices)] == verdicts


def test_the_cost_of_the_defence_is_as_uncertain_as_both_of_its_sides() -> None:
    case = Case("hopper", "", "slots", 1.0, 0)
    defended, plain = Score(case, (1.0,) * 4, (1.0,) * 4, (0, 1, 2, 3)), (1.0, 0.5, 1.0, 0.7, 9.0)
    cost, seeds = adversaries._cost(defended, Score(case, plain, plain, (0, 1, 2, 3, 4)))
    assert seeds == 4
    assert cost.value == pytest.approx(1 / 0.8)
    assert cost.low < 1.05 < 1.6 < cost.high
    other = Score(case, plain, plain, (5, 6, 7, 8, 9))
    assert adversaries._judge_cost("hopper", defended, other).verdict == "not enough data"


def test_what_is_finished_is_concluded_from(tmp_path: Path) -> None:
    choices = Choices("smoke", tmp_path, 1, seeds=(0, 1))
    left_out, partly = (Case("lq-bandit", "alie", "slots", pace, 2) for pace in (0.1, 1.0))
    for case, mine in adversaries.trials(choices).items():
        for trial in mine:
            if case != left_out and (case, trial.seed) != (partly, 0):
                trial.perform(tmp_path, 1, lambda done: None)
    outcome = reproduce(["adversaries"], replace(choices, finished_only=True), quiet=True)["adversaries"]
    assert len(outcome.tables["adversaries"].rows) == 1 + 3 + 2 * 3 * 3 - 1
    assert outcome.verdicts[0].verdict == "not enough data"
    assert "of 5 of 6 cells" in outcome.verdicts[0].statistic
    told = [row for row in outcome.tables["adversaries-runs"].records() if row["attack"] == "alie"]
    assert [row["seed"] for row in told if (row["defence"], row["seconds_of_a_liar"]) == ("slots", 1.0)] == [1]
    assert not any(score.case in (left_out, partly) for score in adversaries.scores(choices))


@pytest.mark.parametrize(("end", "learned"), [(-2.0, False), (-1.0, False), (0.0, True)])
def test_where_the_honest_learned_nothing_there_is_no_score(end: float, learned: bool, tmp_path: Path) -> None:
    choices = Choices("smoke", tmp_path, 1)
    for case, [trial] in adversaries.trials(choices).items():
        alone = (case.attack, case.liars) == ("", 2)
        table(trial.columns, [(trial.seed, -1.0, end if alone else 5.0)]).write(trial.path(tmp_path))
    outcome = reproduce(["adversaries"], replace(choices, finished_only=True), quiet=True)["adversaries"]
    lied = [row for row in outcome.tables["adversaries-runs"].records() if row["attack"]]
    assert {row["value"] for row in lied} == {5.0}
    assert {row["score"] for row in lied} == {6.0} if learned else all(np.isnan(row["score"]) for row in lied)
    assert [verdict.verdict for verdict in outcome.verdicts] == ["not enough data"] * 3  # of one seed
    told = [verdict.statistic == "the honest agents learned nothing" for verdict in outcome.verdicts]
    assert told == [not learned] * 3
    assert all(learned == (verdict.value is not None) for verdict in outcome.verdicts)


def test_five_seeds_of_which_none_learned_decide_nothing() -> None:
    found = [replace(score, scores=(np.nan,) * 5, learned=False) for score in grid(0.95, 0.8)]
    verdicts = adversaries.judge(found, replace(FULL, tasks=("lq-bandit",)))
    assert [verdict.verdict for verdict in verdicts] == ["not enough data"] * 3


def test_other_methods_have_no_such_figure() -> None:
    assert not adversaries.jobs(Choices("smoke", Path(), 1, methods=(Method("a3c"),)))


def test_the_figure_from_beginning_to_end(tmp_path: Path) -> None:
    choices = Choices("smoke", tmp_path, 1)
    for job in adversaries.jobs(choices):
        job.perform(tmp_path, 1, lambda done: None)
    outcome = reproduce(["adversaries"], choices, quiet=True)["adversaries"]
    folder = tmp_path / "adversaries"
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".png", ".svg", ".pdf", ".json"}
    rows = list(read(folder / "adversaries.csv").records())
    assert len(rows) == 1 + 3 + 2 * 3 * 3
    assert rows[0]["score"] == 1.0  # the honest agents alone
    document = json.loads((folder / "verdict.json").read_text())
    assert (
        {verdict["verdict"] for verdict in document["verdicts"]}
        == {"not enough data"}
        == {verdict.verdict for verdict in outcome.verdicts}
    )
    assert -1 <= next(read(folder / "adversaries-likeness.csv").records())["cosine"] <= 1
