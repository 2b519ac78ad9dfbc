"""Every verdict of every experiment is reachable: data that holds, that does not, and that is too little."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from afedpg.experiments import (
    communication,
    complexity,
    complexity_figure,
    global_time,
    heterogeneity,
    learners,
    sample_speedup,
    timeline,
)  # fmt: skip
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.curves import Curve, KeptRun, Key, Mean
from afedpg.experiments.learner_runs import CONSTANT, Cell
from afedpg.experiments.outcome import Verdict, rule, settle
from afedpg.experiments.statistics import Interval
from afedpg.experiments.studies import STUDIES, Curves, fit_range
from afedpg.experiments.tables import Table, table

POINTS = 200


def test_too_little_data_never_speaks() -> None:
    assert rule(enough=False, holds=True) == "not enough data"
    assert rule(enough=True, holds=True) == "holds"
    assert rule(enough=True, holds=False) == "does not hold"


@pytest.mark.parametrize(("there", "long", "short"), [
    (range(10), range(10), range(3)), ((0, 1, 2, 3, 7), range(4), range(3)), ((0, 1, 7), None, None),
])  # fmt: skip
def test_learners_are_judged_by_their_first_seeds(there, long, short, monkeypatch, tmp_path) -> None:
    """Never by those that happen to be there."""
    monkeypatch.setattr(KeptRun, "finished", lambda job, out: job.settings.config.seed in there)
    monkeypatch.setattr(learners, "_row", lambda cell, mine, _: (cell, [job.settings.config.seed for job in mine]))
    found = learners.rows(Choices("full", tmp_path, 1, tasks=("hopper",)))
    seeds = {study: next((mine for cell, mine in found if cell.study == study), None) for study in ("tasks", "teams")}
    assert seeds == {"tasks": long and list(long), "teams": short and list(short)}


def test_learners_without_curves_to_show_have_their_tables_alone(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(learners, "rows", lambda choices: [])
    assert not learners.outcome(Choices("full", tmp_path, 1, tasks=("CartPole-v1",))).pictures


def learners_row(
    study: str, agents: int, end: float, rising: int, per_second: float, variant: str = "", task: str = "hopper"
) -> learners.Row:
    """Three seeds that rise to `end` until so many samples of all agents, and stay there until 1,000."""
    cell = Cell(study, task, agents, 4.0, 1000, (0, 1, 2), variant, planned=3)
    samples = np.linspace(5, 1000, POINTS)
    returns = end * np.minimum(1, samples / rising)
    each = (samples / agents, samples / per_second, returns, np.ones(POINTS, np.int64))
    curves = tuple(Curve(Key("hopper", Method("afedppo"), agents), seed, *each) for seed in range(3))
    return learners.Row(cell, (end,) * 3, curves)


@pytest.mark.parametrize(("rising", "ratio", "rulings"), [
    (400, 1.0, ["holds", "holds"]), (600, 1.5, ["does not hold", "does not hold"]),
])  # fmt: skip
def test_what_asynchrony_costs(rising: int, ratio: float, rulings: list[str]) -> None:
    """One agent makes a rollout of 8 T a second, the fastest of eight one of T, and all of them 3.9 times as many."""
    alone, team = learners_row("alone", 1, 100, 400, 80), learners_row("tasks", 8, 100, rising, 3.9 * 10)
    samples, time = learners._cost(alone, team)
    assert samples.value == pytest.approx(ratio, rel=0.05)
    assert time.value == pytest.approx(3.9 / ratio, rel=0.05)
    assert [samples.verdict, time.verdict] == rulings


@pytest.mark.parametrize(("end", "ruling"), [(81, "holds"), (79, "does not hold")])
def test_a_liar_among_eight(end: float, ruling: str) -> None:
    honest = learners_row("parts", 8, 100, 400, 39, CONSTANT)
    others = [learners_row("parts", 8, 10, 400, 39, *what) for what in (("values taken over",), (CONSTANT, "walker2d"))]
    lied = learners_row("liars", 8, end, 400, 39, "random values")
    (found,) = learners.judge([*others, honest, lied])
    assert (found.verdict, found.value) == (ruling, end / 100)
    assert learners.judge([*others, lied]) == []


@pytest.mark.parametrize(("scale", "seeds", "ends", "ruling"), [
    ("full", (), (2500,) * 5, "holds"), ("full", (), (2500,) * 4, "not enough data"),
    ("full", (), (2300,) * 5, "does not hold"), ("full", (), (*(2500,) * 4, math.nan), "not enough data"),
    ("full", (3,), (2500,), "not enough data"), ("short", (), (60, 70), "not enough data"),
])  # fmt: skip
def test_a_return_is_asked_of_the_seeds_that_were_planned(
    scale: str, seeds: tuple[int, ...], ends: tuple[float, ...], ruling: str, tmp_path: Path
) -> None:
    choices = Choices(scale, tmp_path, 1, tasks=("hopper",), seeds=seeds, studies=("tasks",))
    (cell,) = {cell for cell, _ in learners.runs(choices)}
    assert learners._reaches(learners.Row(cell, ends, ()), 2400).verdict == ruling


@pytest.mark.parametrize(("answers", "ruling"), [
    ((True, True), "holds"),
    ((True, False), "does not hold"),
    ((None, False), "does not hold"),  # one that is wrong is enough
    ((True, None), "not enough data"),
])  # fmt: skip
def test_intervals_settle_a_claim(answers: tuple[bool | None, ...], ruling: str) -> None:
    assert settle(True, *answers) == ruling
    assert settle(False, *answers) == "not enough data"


def test_what_is_infinite_is_null_in_json() -> None:
    assert Verdict("c", "holds", "s", value=math.inf).to_dict()["value"] is None


# sample-speedup


def learning(agents: int, speed: float, seeds: int = 5, noise: float = 0.01) -> tuple[Key, Mean]:
    """Returns that rise from 0 towards 1 with samples per agent, `speed` times as fast as N = 1."""
    x = np.linspace(1, 1000, POINTS)
    mean = 1 - np.exp(-speed * x / 500)
    values = mean + noise * np.linspace(-1, 1, seeds)[:, None]
    return Key("quadratic", Method("afedpg"), agents), Mean(x, values)


@pytest.mark.parametrize(
    ("speeds", "seeds", "noise", "verdict"),
    [
        ((1, 2, 4, 8), 5, 0.01, "holds"),
        ((1, 1.2, 1.5, 2), 5, 0.01, "does not hold"),
        ((1, 2, 4, 8), 2, 0.01, "not enough data"),
        ((1, 2, 4, 8), 5, 10.0, "not enough data"),  # N = 1 did not visibly learn
    ],
)
def test_sample_speedup(speeds: tuple[float, ...], seeds: int, noise: float, verdict: str) -> None:
    means = dict(learning(n, speed, seeds, noise) for n, speed in zip((1, 2, 4, 8), speeds, strict=True))
    (found,) = sample_speedup.judge(sample_speedup.speedups(means))
    assert found.verdict == verdict


def test_a_team_that_never_gets_there_does_not_hold() -> None:
    means = dict(learning(n, n) for n in (1, 2, 4))
    key, good = learning(8, 8)
    means[key] = Mean(good.x, good.values * 0.5)
    found = sample_speedup.speedups(means)
    assert found[-1].ratio.value == math.inf
    assert sample_speedup.judge(found)[0].verdict == "does not hold"


def test_the_ratio_of_samples_has_an_interval_over_pairs_of_seeds() -> None:
    """A seed that is slow with one agent and with N alike says nothing about their ratio; one that differs does."""
    x, speeds = np.linspace(1, 1000, 1000), np.array([0.5, 1.0, 1.5, 2.0, 2.5])[:, None]
    alone = {Key("quadratic", Method("afedpg"), 1): Mean(x, speeds * x)}
    paired, apart = (
        sample_speedup.speedups(alone | {Key("quadratic", Method("afedpg"), 2): Mean(x, 2 * rates * x)})[1].ratio
        for rates in (speeds, speeds[::-1])
    )
    assert paired.value == apart.value == pytest.approx(0.5, abs=0.02)
    assert paired.high - paired.low < 0.01
    assert apart.low < 0.4
    assert apart.high > 0.6


# global-time


def timed(method: str, seconds: float, end: float, seed: int) -> Curve:
    x = np.linspace(1 / POINTS, 1, POINTS)
    returns = end * (1 - np.exp(-5 * x)) + 0.01 * np.random.default_rng(seed).standard_normal(POINTS)
    key = Key("quadratic", Method(method), 8)
    return Curve(key, seed, 1000 * x, seconds * x, returns, np.ones(POINTS, np.int64))


@pytest.mark.parametrize(
    ("fedpg_seconds", "fedpg_seeds", "verdict"),
    [(2.0, 5, "holds"), (0.9, 5, "does not hold"), (2.0, 2, "not enough data")],
)
def test_global_time_against_fedpg(fedpg_seconds: float, fedpg_seeds: int, verdict: str) -> None:
    curves = [timed("afedpg", 1.0, 1.0, seed) for seed in range(fedpg_seeds)]
    curves += [timed("fedpg", fedpg_seconds, 1.0, seed) for seed in range(fedpg_seeds)]
    (found,) = global_time.compare(curves, {c.key: float(c.seconds[-1]) for c in curves})
    assert found.ratio.value == pytest.approx(fedpg_seconds, rel=0.1)
    assert found.pure == pytest.approx(fedpg_seconds)
    assert global_time.judge([found])[0].verdict == verdict


def against_fedpg(ours: list[Curve], theirs: list[Curve]) -> tuple[global_time.Comparison, str]:
    (found,) = global_time.compare([*ours, *theirs], {c.key: float(c.seconds[-1]) for c in (*ours, *theirs)})
    return found, global_time.judge([found])[0].verdict


@pytest.mark.parametrize(("ours", "theirs"), [(-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (0.0, 0.0), (1.0, 0.0)])
def test_who_did_not_learn_is_at_no_return_earlier(ours: float, theirs: float) -> None:
    mine, others = (
        [timed(m, t, end, s) for s in range(5)] for m, t, end in (("afedpg", 1, ours), ("fedpg", 2, theirs))
    )
    found, verdict = against_fedpg(mine, others)
    assert not found.learned
    assert verdict == "not enough data"


def test_fedpg_that_never_arrives_took_at_least_its_whole_time() -> None:
    """Two seeds that stay low: with them the seeds' mean is at a level the others reach."""
    ours = [timed("afedpg", 1.0, 1.0, seed) for seed in range(8)]
    theirs = [timed("fedpg", 4.0, 0.4 if seed < 2 else 1.0, seed) for seed in range(8)]
    found, verdict = against_fedpg(ours, theirs)
    assert (found.ours_reached, found.other_reached) == (8, 6)
    first = [global_time._reached(c, found.level) for c in (*ours, *theirs)]
    bounds = [min(second, 4.0) / first[place] for place, second in enumerate(first[8:])]
    assert found.ratio.value == pytest.approx(math.exp(np.mean(np.log(bounds))))
    assert verdict == "holds"


@pytest.mark.parametrize(("fedpg_seconds", "verdict"), [(4.0, "not enough data"), (0.1, "does not hold")])
def test_afedpg_must_arrive_in_every_seed(fedpg_seconds: float, verdict: str) -> None:
    ours = [timed("afedpg", 1.0, 0.4 if seed < 2 else 1.0, seed) for seed in range(8)]
    found, ruling = against_fedpg(ours, [timed("fedpg", fedpg_seconds, 1.0, seed) for seed in range(8)])
    assert (found.ours_reached, found.other_reached, found.seeds) == (6, 8, 8)
    assert found.ratio.above(1) is (fedpg_seconds > 1)
    assert ruling == verdict


def test_a_time_ratio_on_both_sides_of_one_is_open() -> None:
    seconds = (0.5, 2.0, 0.6, 1.8, 1.1)
    theirs = [timed("fedpg", second, 1.0, seed) for seed, second in enumerate(seconds)]
    assert against_fedpg([timed("afedpg", 1.0, 1.0, seed) for seed in range(5)], theirs)[1] == "not enough data"


def test_a_lucky_first_part_is_not_yet_a_mean() -> None:
    curve = timed("afedpg", 1.0, 1.0, 0)
    usual = global_time._reached(curve, 0.7)
    curve.returns[0] = 2.0
    assert global_time._reached(curve, 0.7) == usual
    assert usual > 0.05


def test_a_seed_without_an_ended_episode_decides_nothing() -> None:
    curves = [timed(m, 1.0, e, s) for m, e in (("afedpg", 1.0), ("a3c", 0.5), ("fedpg", 0.9)) for s in range(5)]
    curves[0].returns[-POINTS // 10 :] = np.nan
    found = global_time.compare(curves, {c.key: 1.0 for c in curves})
    assert math.isnan(found[0].difference.value)
    assert [verdict.verdict for verdict in global_time.judge(found)] == ["not enough data"] * 2


@pytest.mark.parametrize(
    ("end", "seeds", "verdict"),
    [(0.5, 5, "holds"), (1.5, 5, "does not hold"), (0.5, 2, "not enough data")],
)
def test_global_time_against_the_others(end: float, seeds: int, verdict: str) -> None:
    curves = [timed(m, 1.0, e, s) for m, e in (("afedpg", 1.0), ("afedpg-vanilla", end)) for s in range(seeds)]
    (found,) = global_time.compare(curves, {c.key: 1.0 for c in curves})
    assert found.difference.value == pytest.approx(1.0 - end, abs=0.05)
    assert global_time.judge([found])[0].verdict == verdict


# heterogeneity, timeline, communication


def clocked(error: float, agents: tuple[int, ...] = (2, 8), model: str = "straggler") -> Table:
    rows = [(model, "afedpg", n, 4, 100 * n, 1.0, 1.0, 1.0, 1.0, error, 0.01) for n in agents]
    names = "timing method agents spread gradients fedpg_seconds seconds speedup formula error allowed"
    return table(names, rows)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (clocked(0.005), "holds"),
        (clocked(0.02), "does not hold"),
        (clocked(0.005, agents=(2,)), "not enough data"),
    ],
)
def test_heterogeneity(data: Table, verdict: str) -> None:
    assert heterogeneity.judge(data)[0].verdict == verdict


def test_a_timing_of_ones_own_has_no_spread_to_tell() -> None:
    assert "(N = 2, r = 4)" in heterogeneity.judge(clocked(0.005))[0].statistic
    assert "(N = 2)" in heterogeneity.judge(clocked(0.005, model="own"))[0].statistic


def test_the_formula_is_the_time_models() -> None:
    for agents, spread in ((2, 3.0), (8, 4.0), (100, 50.0)):
        straggler = [1.0] * (agents - 1) + [spread]
        leader = [1.0] + [spread] * (agents - 1)
        for model, seconds in (("straggler", straggler), ("leader", leader)):
            ratio = max(seconds) / agents * sum(1 / t for t in seconds)
            assert heterogeneity.formula(model, agents, spread) == pytest.approx(ratio)


def test_heterogeneity_measures_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fedpg: 100 rounds of 4 s; afedpg: 200 gradients at 1 + 1/4 per second."""
    monkeypatch.setattr(heterogeneity, "AGENTS", {"smoke": (2,)})
    monkeypatch.setattr(heterogeneity, "SPREADS", {"smoke": (4,)})
    choices = Choices("smoke", tmp_path, 1)
    for job in heterogeneity.jobs(choices):
        job.perform(tmp_path, 1, lambda fraction: None)
    for row in heterogeneity.measured(choices).records():
        assert (row["fedpg_seconds"], row["seconds"], row["speedup"], row["formula"]) == (400, 160, 2.5, 2.5)
        assert (row["error"], row["allowed"]) == (0.0, 0.01)
    monkeypatch.setattr(heterogeneity, "formula", lambda model, agents, spread: 2.0)
    assert {v.value for v in heterogeneity.judge(heterogeneity.measured(choices))} == {0.25}


def test_timeline() -> None:
    waiting = timeline.pieces("fedpg", [0, 1, 0, 1], [2.0, 2.0, 4.0, 4.0], [0, 0, 1, 1], lambda agent, n: 1.0 + agent)
    busy = timeline.pieces("afedpg", [0, 0, 1, 0], [1.0, 2.0, 2.0, 3.0], [0, 1, 2, 3], lambda agent, n: 1.0 + agent)
    assert timeline.idle_share(waiting) == pytest.approx(0.25)  # agent 0 waits for half of its time
    assert timeline.idle_share(busy) == 0.0
    assert timeline.judge([*waiting, *busy]).verdict == "holds"
    late = timeline.pieces("afedpg", [0], [3.0], [0], lambda agent, n: 1.0)
    assert timeline.judge([*waiting, *late]).verdict == "does not hold"
    assert timeline.judge(busy).verdict == "not enough data"


def sent(label: str, seconds: np.ndarray, bytes_each: float = 10.0) -> communication.Traffic:
    agents, size = np.arange(len(seconds)) % 8, np.full(len(seconds), bytes_each)
    return communication.Traffic(label, agents, seconds, size, size, len(seconds) // 8)


def bursts(rounds: int) -> np.ndarray:
    """Eight messages at the end of every four seconds."""
    return np.repeat(4.0 * np.arange(1, rounds + 1), 8)


@pytest.mark.parametrize(
    ("rounds", "seconds", "verdict"),
    [
        (100, np.linspace(0.01, 400, 800), "holds"),
        (100, bursts(100) + 0.01, "does not hold"),
        (10, np.linspace(0.01, 40, 80), "not enough data"),
    ],
)
def test_communication_peaks(rounds: int, seconds: np.ndarray, verdict: str) -> None:
    traffic = {"fedpg": sent("fedpg", bursts(rounds)), "afedpg": sent("afedpg", seconds)}
    totals, peaks = communication.judge(traffic, 4.0)
    assert totals.verdict == "holds"
    assert peaks.verdict == verdict


def test_communication_totals() -> None:
    traffic = {"fedpg": sent("fedpg", bursts(100)), "afedpg": sent("afedpg", bursts(100), bytes_each=11.0)}
    assert communication.judge(traffic, 4.0)[0].verdict == "does not hold"
    few = {"fedpg": sent("fedpg", bursts(1)[:4]), "afedpg": sent("afedpg", bursts(1)[:4])}
    assert communication.judge(few, 4.0)[0].verdict == "not enough data"


def test_a_windows_bins_hold_every_byte() -> None:
    seconds = np.sort(np.random.default_rng(0).uniform(0, 400, 3000))
    traffic = sent("afedpg", seconds)
    starts = np.linspace(0.0, seconds[-1] - 4.0, 50)
    by_hand = [10.0 * np.sum((seconds >= start) & (seconds < start + 4.0)) for start in starts]
    assert communication.windows(traffic, 4.0, count=50).sum(axis=1) == pytest.approx(by_hand)


# complexity


def fitted(slope: Interval, seeds: int = 24, last: float = 1e6) -> complexity.Slope:
    return complexity.Slope(STUDIES["gap"], Method("afedpg"), "gap", -2 / 5, slope, last / 100, last, seeds)


@pytest.mark.parametrize(
    ("slope", "seeds", "last", "verdict"),
    [
        (Interval(-0.77, -0.81, -0.71), 24, 1e6, "holds"),
        (Interval(-0.2, -0.3, -0.1), 24, 1e6, "does not hold"),
        (Interval(-0.4, -0.5, -0.3), 24, 1e6, "not enough data"),  # the interval lies on both sides
        (Interval(-0.77, -0.81, -0.71), 4, 1e6, "not enough data"),
        (Interval(-0.77, -0.81, -0.71), 24, 1e4, "not enough data"),
    ],
)
def test_slopes(slope: Interval, seeds: int, last: float, verdict: str) -> None:
    assert complexity.judge_slope(fitted(slope, seeds, last)).verdict == verdict


@pytest.mark.parametrize(("name", "slope"), [("gap", -0.9), ("norm", -0.6)])
def test_slopes_are_of_the_studys_measure_over_its_last_decades(name: str, slope: float) -> None:
    first, last = fit_range(STUDIES[name], "full")
    x = np.geomspace(100, last, 121)
    late = np.maximum(1.0, x / first)  # flat before
    gap, norm, time = (np.tile(y, (8, 1)) for y in (late**-0.9, late**-0.6, x))
    curves = dict.fromkeys((Method("afedpg"), Method("pg-plain")), Curves(x, gap, norm, time, time))
    ours, plain = complexity.slopes(Choices("full", Path(), 1), {name: curves})
    assert ours.slope.value == pytest.approx(slope, rel=0.01)
    assert (ours.exponent, plain.exponent) == {"gap": (-2 / 5, -1 / 3), "norm": (-2 / 7, -1 / 4)}[name]


@pytest.mark.parametrize(("stretch", "verdict"), [(1.0, "holds"), (1.01, "does not hold")])
def test_the_time_for_k_gradients(stretch: float, verdict: str) -> None:
    x, seconds, flat = np.array([100.0, 1e5]), np.linspace(1, 4, 8), np.ones((8, 2))
    rounds, arrivals = (
        Curves(x, flat, flat, np.tile(x * each, (8, 1)), flat) for each in (stretch / 2, 1 / np.sum(1 / seconds))
    )
    found = complexity.judge_time(Choices("full", Path(), 1), {Method("fedpg"): rounds, Method("afedpg"): arrivals})
    assert found.verdict == verdict


def falling(gap: float, seeds: int = 10, last: float = 1e5, rate: float = -1.0) -> Curves:
    x = np.geomspace(100, last, 61)
    curve = np.tile(gap * (x / x[-1]) ** rate, (seeds, 1))
    return Curves(x, curve, curve, np.tile(x / 4, (seeds, 1)), np.tile(7 * x, (seeds, 1)))


@pytest.mark.parametrize(("without", "seeds", "verdict"), [
    (4.3, 10, "holds"), (2.0, 10, "does not hold"), (4.3, 3, "not enough data"),
])  # fmt: skip
def test_lookahead(without: float, seeds: int, verdict: str) -> None:
    methods = {Method("afedpg"): falling(1.0, seeds), Method("afedpg-vanilla"): falling(without, seeds)}
    found = complexity.judge_lookahead(methods)
    assert found is not None
    assert found.verdict == verdict
    assert found.value == pytest.approx(without)


@pytest.mark.parametrize(("spread", "verdict"), [(0.1, "holds"), (2.0, "not enough data")])
def test_a_factor_whose_interval_lies_on_both_sides_is_open(spread: float, verdict: str) -> None:
    """Four times the gap in the mean of the seeds, which are alike or lie far apart."""
    without = falling(1.0)
    factors = 4.0 * np.array([1 - spread / 2, 1 + spread / 2] * 5)[:, None]
    without = replace(without, gap=without.gap * factors)
    found = complexity.judge_lookahead({Method("afedpg"): falling(1.0), Method("afedpg-vanilla"): without})
    assert found is not None
    assert found.value == pytest.approx(4.0)
    assert found.verdict == verdict


@pytest.mark.parametrize(("gap", "samples", "verdicts"), [
    (Interval(1.0, 0.95, 1.04), Interval(0.12, 0.11, 0.13), ("holds", "holds")),
    (Interval(1.03, 0.99, 1.06), Interval(0.122, 0.1, 0.14), ("not enough data", "not enough data")),
    (Interval(1.2, 1.06, 1.4), Interval(0.2, 0.14, 0.3), ("does not hold", "does not hold")),
    (Interval(1.0, 0.95, 1.04), Interval(math.inf, 0.1, math.inf), ("holds", "not enough data")),
])  # fmt: skip
def test_the_whole_interval_decides_about_teams(gap: Interval, samples: Interval, verdicts: tuple[str, str]) -> None:
    good = complexity.Team(2, Interval(1.0, 0.99, 1.01), Interval(0.5, 0.49, 0.51), 1.0, 24)
    shared, speedup, _ = complexity.judge_teams([good, complexity.Team(8, gap, samples, 7.0, 24)])
    assert (shared.verdict, speedup.verdict) == verdicts


@pytest.mark.parametrize(("gap", "seeds", "share", "samples"), [
    (1e-4, 10, "holds", "holds"),
    (4e-4, 10, "does not hold", "does not hold"),
    (1e-4, 2, "not enough data", "not enough data"),
])  # fmt: skip
def test_teams(gap: float, seeds: int, share: str, samples: str) -> None:
    found = complexity.teams({1: falling(1e-4, seeds), 2: falling(1e-4, seeds), 8: falling(gap, seeds)})
    assert found[-1].sample_ratio.value == pytest.approx(gap / 1e-4 / 8)
    shared, speedup, delay = complexity.judge_teams(found)
    assert (shared.verdict, speedup.verdict) == (share, samples)
    assert delay.verdict == "does not hold"  # a delay of 7 is more than a lone agent can have


def test_a_study_without_any_of_the_methods_named_is_an_empty_panel() -> None:
    """As with `--methods pg`: there is nothing to see with and without the lookahead."""
    studies = {name: {Method("pg"): falling(1e-4)} if name != "lookahead" else {} for name in STUDIES}
    team = {1: falling(1e-4), 8: falling(1e-4)}
    figure = complexity_figure.draw(studies, team, complexity.teams(team), "smoke")
    drawn = {axes.get_title()[0]: len(axes.get_lines()) for axes in figure.axes}
    assert (drawn["a"], drawn["d"]) == (2, 0)  # the curve and the paper's slope
