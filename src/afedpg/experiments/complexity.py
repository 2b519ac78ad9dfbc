"""Table 1, measured: how fast gap and gradient norm fall on bandits with a known optimum, and what N agents save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from afedpg.engine.timing import make_timing
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.complexity_figure import FLOOR, draw
from afedpg.experiments.measurements import Measurement
from afedpg.experiments.outcome import Outcome, Picture, Ruling, Verdict, rule, settle
from afedpg.experiments.statistics import Interval, bootstrap, falls_to, mean_slope
from afedpg.experiments.studies import (
    AGENTS,
    LEVEL,
    SEEDS,
    SHARED_K,
    STUDIES,
    Curves,
    Study,
    Team,
    fit_range,
    measurements,
    read_curves,
    team_measurements,
)  # fmt: skip
from afedpg.experiments.tables import Table, table
from afedpg.messages import Vector

TITLE = "Sample and time complexity (Table 1) on problems whose optimum is known"
EXPONENTS = {"gap": -2 / 5, "norm": -2 / 7}
PLAIN_EXPONENTS = {"gap": -1 / 3, "norm": -1 / 4}
FRACTIONS = {-2 / 5: "-2/5", -2 / 7: "-2/7", -1 / 3: "-1/3", -1 / 4: "-1/4"}
LEAST_GRADIENTS = 50_000  # rates are about large K: shorter curves do not speak
LEAST_SEEDS = 8
LOOKAHEAD_RATIO = 3.0
TEAM_TOLERANCE = 0.05
SPEEDUP_SLACK = 1.1  # of the samples that 1/N would be


def jobs(choices: Choices) -> Sequence[Measurement]:
    found = [m for study in STUDIES.values() for seeds in measurements(choices, study).values() for m in seeds]
    return found + [m for seeds in team_measurements(choices).values() for m in seeds]


@dataclass(frozen=True)
class Slope:
    study: Study
    method: Method
    measure: str  # "gap" or "norm"
    exponent: float  # the paper's
    slope: Interval
    first: float
    last: float
    seeds: int


def slopes(choices: Choices, curves: dict[str, dict[Method, Curves]]) -> list[Slope]:
    found = []
    for name, methods in curves.items():
        study = STUDIES[name]
        first, last = fit_range(study, choices.scale)
        measure = "norm" if study.schedule == "fosp" else "gap"
        for method, c in methods.items():
            values = c.norm if measure == "norm" else c.gap
            used = c.gradients >= first * (1 - 1e-9)
            exponent = (PLAIN_EXPONENTS if method.name == "pg-plain" else EXPONENTS)[measure]
            fitted = mean_slope(c.gradients[used], values[:, used])
            found.append(Slope(study, method, measure, exponent, fitted, first, last, len(values)))
    return found


def slope_ruling(s: Slope) -> Ruling:
    return settle(s.seeds >= LEAST_SEEDS and s.last >= LEAST_GRADIENTS, s.slope.at_most(s.exponent))


def judge_slope(s: Slope) -> Verdict:
    what = "gap J* - J" if s.measure == "gap" else "gradient norm"
    bound = FRACTIONS[s.exponent]
    return Verdict(
        claim=f"{s.method.label} on the {s.study.problem} ({s.study.schedule} schedule): the {what} falls at least as "
        f"fast as K^({bound})",
        verdict=slope_ruling(s),
        statistic=f"slope {s.slope} over K = {s.first:.3g} to {s.last:.3g}, {s.seeds} seeds",
        **s.slope._asdict(),
        needed=f"upper 95% limit at most {bound}, K >= {LEAST_GRADIENTS:,}, {LEAST_SEEDS} seeds or more",
    )  # fmt: skip


def judge_lookahead(methods: dict[Method, Curves]) -> Verdict | None:
    named = {method.name: curves for method, curves in methods.items()}
    if "afedpg" not in named or "afedpg-vanilla" not in named:
        return None
    ours, without = named["afedpg"], named["afedpg-vanilla"]
    last = float(ours.gradients[-1])
    both = np.stack([without.gap[:, -1], ours.gap[:, -1]], axis=1)  # [seeds, 2]: the same seeds
    ratio = bootstrap(both, _ratio_of_means, seed=1)
    return Verdict(
        claim="The lookahead matters: without it the gap is several times larger (lq-bandit, global, eta0 = 3)",
        verdict=settle(len(both) >= LEAST_SEEDS and last >= LEAST_GRADIENTS, ratio.above(LOOKAHEAD_RATIO)),
        statistic=f"gap of afedpg-vanilla / gap of afedpg at K = {last:.3g}: {ratio}, {len(both)} seeds",
        **ratio._asdict(),
        needed=f"lower 95% limit above {LOOKAHEAD_RATIO:g}, K >= {LEAST_GRADIENTS:,}, {LEAST_SEEDS} seeds or more",
    )  # fmt: skip


def _ratio_of_means(pairs: NDArray[np.float64]) -> float:
    return float(pairs[:, 0].mean() / pairs[:, 1].mean())


def teams(curves: dict[int, Curves]) -> list[Team]:
    alone = curves[1]
    found = []
    for agents, c in curves.items():
        both = np.stack([c.gap, alone.gap], axis=1)  # [seeds, 2, points]
        gaps = bootstrap(both, lambda pairs, x=c.gradients: _gap_ratio(x, pairs), seed=2)  # type: ignore[misc]
        samples = bootstrap(both, lambda pairs, x=c.gradients, n=agents: _sample_ratio(x, pairs, n), seed=3)  # type: ignore[misc]
        delay = float(np.mean(c.delays[:, -1]) / c.gradients[-1])
        found.append(Team(agents, gaps, samples, delay, len(c.gap)))
    return found


def _gap_ratio(gradients: Vector, pairs: NDArray[np.float64]) -> float:
    mean = pairs.mean(axis=0)  # [2, points]
    at = [float(np.exp(np.interp(np.log(SHARED_K), np.log(gradients), np.log(row)))) for row in mean]
    return at[0] / at[1]


def _sample_ratio(gradients: Vector, pairs: NDArray[np.float64], agents: int) -> float:
    team, alone = (falls_to(gradients, row, LEVEL) for row in pairs.mean(axis=0))
    return team / agents / alone


def judge_teams(found: Sequence[Team]) -> list[Verdict]:
    several = [team for team in found if team.agents > 1]
    enough = len(several) > 1 and all(team.seeds >= LEAST_SEEDS for team in several)
    told = ", ".join(f"N = {team.agents}: {team.gap_ratio}" for team in several)
    worst = max(several, key=lambda team: team.gap_ratio.high)
    most = several[-1]
    shares = ", ".join(f"N = {team.agents}: {team.sample_ratio}" for team in several)
    reached = all(np.isfinite(team.sample_ratio.value) for team in several)
    late = ", ".join(f"N = {team.agents}: {team.delay:.4g}" for team in found)
    return [
        Verdict(
            claim="N agents share K: after the same number of gradients in all, the gap is no larger for larger N",
            verdict=settle(enough, *(team.gap_ratio.at_most(1 + TEAM_TOLERANCE) for team in several)),
            statistic=f"gap(N) / gap(1) at K = {SHARED_K:,}: {told}",
            **worst.gap_ratio._asdict(),
            needed=f"upper 95% limit at most {1 + TEAM_TOLERANCE:g} for every N, {LEAST_SEEDS} seeds or more",
        ),
        Verdict(
            claim="Linear speedup: each of N agents needs about 1/N of the samples",
            verdict=settle(enough and reached, *(t.sample_ratio.at_most(SPEEDUP_SLACK / t.agents) for t in several)),
            statistic=f"samples per agent to a gap of {LEVEL:g}, of N = 1's: {shares}",
            **most.sample_ratio._asdict(),
            needed=f"upper 95% limit at most {SPEEDUP_SLACK:g}/N for every N, {LEAST_SEEDS} seeds or more",
        ),
        Verdict(
            claim="The average delay is at most the average concurrency, that is N (an identity where no agent rests)",
            verdict=rule(len(found) > 1, all(team.delay <= team.agents for team in found)),
            statistic=f"average delay of the applied gradients: {late}",
            value=most.delay,
            needed="at most N; every step ages the other N - 1 gradients by one, so the average is N - 1 less what "
            "those under way at the end have gathered, whatever is learned: this checks the counting",
        ),
    ]  # fmt: skip


def judge_time(choices: Choices, methods: dict[Method, Curves]) -> Verdict | None:
    """fedpg's seconds for K gradients over afedpg's, against max t_i / N * sum(1/t_i)."""
    named = {method.name: curves for method, curves in methods.items()}
    if "afedpg" not in named or "fedpg" not in named or choices.own_timing or choices.timing:
        return None
    last = float(named["afedpg"].gradients[-1])
    ratio = float(named["fedpg"].seconds[0, -1] / named["afedpg"].seconds[0, -1])
    config = next(iter(measurements(choices, STUDIES["gap"])[Method("afedpg")])).settings.config
    seconds = np.array([make_timing(config).seconds(agent, 0) for agent in range(AGENTS)])
    formula = float(seconds.max() / AGENTS * np.sum(1 / seconds))
    error = abs(ratio / formula - 1)
    return Verdict(
        claim="Time for K gradients: FedPG needs K t_max / N, AFedPG K / sum(1/t_i)",
        verdict=rule(last >= 100 * AGENTS, error <= 2 * AGENTS / last),
        statistic=f"time of fedpg / time of afedpg {ratio:.5g}, the formula gives {formula:.5g} (K = {last:.3g}, "
        f"linear spread, t_max = {config.timing.spread:g} t_min)",
        value=ratio,
        needed="relative error at most 2N/K: both counts end within one gradient per agent",
    )


def _eta(s: Slope) -> float:
    return s.study.plain_eta if s.method.name == "pg-plain" else s.study.eta


def slopes_table(found: Sequence[Slope]) -> Table:
    rows = [
        (s.study.name, s.study.problem, s.study.schedule, _eta(s), s.method.label, s.measure, FRACTIONS[s.exponent],
         *s.slope, s.first, s.last, s.seeds, slope_ruling(s))
        for s in found
    ]  # fmt: skip
    return table("study problem schedule eta0 method measure paper slope low high from_k to_k seeds verdict", rows)


def teams_table(found: Sequence[Team]) -> Table:
    rows = [(t.agents, *t.gap_ratio, *t.sample_ratio, 1 / t.agents, t.delay, t.seeds) for t in found]
    names = "agents gap_ratio gap_low gap_high sample_ratio sample_low sample_high one_over_n average_delay seeds"
    return table(names, rows)


def curves_table(curves: dict[str, dict[Method, Curves]], team: dict[int, Curves]) -> Table:
    """The seeds' means: small enough to keep; the seeds themselves lie in OUT/measurements."""
    groups = [
        (name, m.label, 1 if m.name in ("pg", "pg-plain") else AGENTS, c)
        for name, ms in curves.items()
        for m, c in ms.items()
    ]
    groups += [("agents", "afedpg", agents, c) for agents, c in team.items()]
    rows = [
        (name, label, agents, int(c.gradients[i]), c.gap[:, i].mean(), c.norm[:, i].mean(), c.seconds[:, i].mean(),
         c.delays[:, i].mean() / c.gradients[i], len(c.gap))
        for name, label, agents, c in groups
        for i in range(len(c.gradients))
    ]  # fmt: skip
    return table("study method agents gradients gap gradient_norm seconds average_delay seeds", rows)


def outcome(choices: Choices) -> Outcome:
    out = choices.out
    curves = {n: {m: read_curves(ms, out) for m, ms in measurements(choices, s).items()} for n, s in STUDIES.items()}
    team = {agents: read_curves(ms, out) for agents, ms in team_measurements(choices).items()}
    fitted, together = slopes(choices, curves), teams(team)
    verdicts = [judge_slope(s) for s in fitted if s.study.name != "lookahead"]
    more = [judge_lookahead(curves["lookahead"]), *judge_teams(together), judge_time(choices, curves["gap"])]
    caption = (
        f"Means over the seeds with 95% bands (t-interval, cut off below {FLOOR:g} of the mean); dashed: the paper's "
        "exponent. Gradients count all agents together; the gap and the gradient norm are exact, of theta. a, c: "
        "eta0 = 1; b: eta0 = 3 (pg-plain, whose steps are not normalized: 0.3 in a, 0.1 in b, 1 in c). d: as a with "
        "eta0 = 3; e, f: as a; in these three all runs of a seed see the same draws. f: 95% bootstrap intervals."
    )
    return Outcome(
        title=TITLE,
        text="Two contextual bandits with a known optimum, with the schedules of the two theorems. Slopes are those of "
        "the seeds' mean curve, with bootstrap intervals over the seeds. A bound on a rate holds if the measured one "
        "is at least as fast; a claim holds or does not if the whole interval says so, and is open otherwise.",
        verdicts=(*verdicts, *(verdict for verdict in more if verdict is not None)),
        tables={
            "complexity": slopes_table(fitted),
            "complexity-agents": teams_table(together),
            "complexity-curves": curves_table(curves, team),
        },
        pictures=(Picture("complexity", caption, lambda: draw(curves, team, together, choices.scale)),),
        shown=("complexity", "complexity-agents"),
        settings={
            "agents": AGENTS,
            "timing": jobs(choices)[0].settings.clock,
            "seeds": list(choices.pick_seeds(*SEEDS)),
            "K": [f"{study.name}: {study.gradients[choices.scale]:,}" for study in STUDIES.values()],
        },
    )
