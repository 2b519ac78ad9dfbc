"""AFedPG beside its rivals: virtual seconds until theta is at a gap and stays there, on problems with a known optimum;
with `--tasks hopper` until theta is at a return.

All rivals have the outer step of afedpg (mix, normalize, step, look ahead) and differ in the aggregator: which
contributions make a step. On environments asynchronous PPO stands beside them. Messages take no time here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from afedpg import config as configuration
from afedpg import plotting
from afedpg.errors import ConfigError
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.contests import (
    AGENTS,
    CONTEST,
    EXACT,
    HOLD,
    LEVEL,
    Contest,
    Contestant,
    Course,
    Law,
    Passage,
    course_to,
    points,
    times,
)
from afedpg.experiments.jobs import Plan
from afedpg.experiments.outcome import Outcome, Picture, Verdict, settle
from afedpg.experiments.statistics import Interval, bootstrap
from afedpg.experiments.tables import Table, table

TITLE = "Time to a goal beside Rennala, Malenia, FedBuff, FedAsync, Ringmaster and FedPG"
PROBLEMS = ("lq-bandit", "softmax-mdp")
GOALS = {  # a return of theta, after how many contributions a run has not reached it, and T
    "hopper": {"smoke": (15.0, 600, 64), "short": (300.0, 1_000, 1024), "full": (1_000.0, 1_500, 1024)},
    "CartPole-v1": {"smoke": (15.0, 600, 64), "short": (200.0, 500, 1024), "full": (450.0, 1_000, 1024)},
}
LAW_OF_SEARCH, LAW_BESIDE = "sqrt", "straggler"  # of environments: the winners of the first also run under the other
LAWS: dict[str, Law] = {
    "equal": (("timing", "equal"),),
    "sqrt": (("timing", "sqrt"),),
    "straggler": (("timing", "straggler"), ("spread", 20.0)),
    "pareto": (("timing", "pareto"), ("shape", 1.5)),
}
IN_WORDS = {
    "equal": "equal speeds",
    "sqrt": "t_i = sqrt(i)",
    "straggler": "one of 10 agents 20 times slower",
    "pareto": "heavy tails (Pareto, index 1.5)",
    "own": "a timing model of one's own",
}
SEEDS, SEARCHED = (2, 8, 24), {"smoke": 1, "short": 2, "full": 3}
# Single samples of this problem are skewed: most say nothing, and rare ones carry theta far. A contribution is the mean
# of 16, and a point of the search must do on more seeds.
SKEWED, SEARCHED_SKEWED = "softmax-mdp", {"smoke": 1, "short": 3, "full": 8}
SEARCHED_LONG = 1  # of environments, where a run takes half a minute
BATCH = ("batch", 16)
LEAST_SEEDS = 8
TIE = 1.25  # two times within this factor are as good as equal
US = "afedpg"
PPO = Contestant("afedppo", Method("afedppo"))  # has its own outer step, and the constants of its preset
PPO_PRESET = "ppo"


def contestants(choices: Choices) -> list[Contestant]:
    """Three values of the own parameter of each, if it has one. Own methods stand beside afedpg and its rivals."""
    if not choices.pick_methods((US,)):
        return []
    afedpg = Method(US)
    found = [
        Contestant(US, afedpg, "each"),
        Contestant("fedpg", afedpg, "all"),
        Contestant("rennala", afedpg, "rennala:batch={}", (2, 5, 10)),
        Contestant("malenia", afedpg, "malenia:batch={}", (10, 20, 40)),
        Contestant("fedbuff", afedpg, "fedbuff:size={}", (2, 5, 10)),
        Contestant("fedasync", afedpg, "fedasync:power={}", (0.25, 0.5, 1.0)),
        Contestant("ringmaster", afedpg, "ringmaster:threshold={}", (5, 10, 20)),
    ]
    return found + [Contestant(method.label, method) for method in choices.methods if method.own]


def entrants(choices: Choices, problem: str) -> list[Contestant]:
    """Asynchronous PPO, too, where there is an environment; a clock of one's own does not know its shorter rollouts."""
    found = contestants(choices)
    beside = found and problem not in configuration.PROBLEMS and not choices.own_timing
    return [*found, PPO] if beside else found


def laws(choices: Choices, problem: str) -> dict[str, Law]:
    """Those under which constants are searched."""
    if choices.own_timing:
        return {"own": ()}
    usual = list(LAWS) if problem in configuration.PROBLEMS else [LAW_OF_SEARCH]
    return {name: LAWS[name] for name in ([choices.timing] if choices.timing else usual)}


def contests(choices: Choices) -> dict[tuple[str, str], list[Contest]]:
    """By problem and law; ours is the first of each."""
    return {
        (problem, law): [_contest(choices, who, problem, clock) for who in entrants(choices, problem)]
        for problem in choices.pick_tasks(PROBLEMS)
        for law, clock in laws(choices, problem).items()
    }


def _contest(choices: Choices, who: Contestant, problem: str, clock: Law) -> Contest:
    named = choices.timing or choices.own_timing
    also = () if problem in configuration.PROBLEMS or named else ((LAW_BESIDE, LAWS[LAW_BESIDE]),)
    seeds = choices.pick_seeds(*SEEDS)
    plan, way = Plan(choices, "tuned"), course(choices, problem)
    if who == PPO:
        plan = Plan(choices, PPO_PRESET)
        steps = plan.settings(problem, who.method, AGENTS, seeds[0]).config.agent.steps
        way = way.by_preset(steps / dict(way.more)["steps"])
    return Contest(plan, who, problem, clock, searched(choices, problem), seeds, way, also)


def course(choices: Choices, problem: str) -> Course:
    if problem in configuration.PROBLEMS:
        return replace(EXACT, more=(*EXACT.more, BATCH)) if problem == SKEWED else EXACT
    if problem not in GOALS:
        known = ", ".join((*configuration.PROBLEMS, *GOALS))
        raise ConfigError(f"tasks: rivals has no goal for '{problem}'; choose from {known}")
    return course_to(*GOALS[problem][choices.scale])


def searched(choices: Choices, problem: str) -> int:
    """On how many seeds a point of the search is tried."""
    if problem not in configuration.PROBLEMS:
        return SEARCHED_LONG
    return (SEARCHED_SKEWED if problem == SKEWED else SEARCHED)[choices.scale]


def goal_of(problem: str) -> str:
    return "gap" if problem in configuration.PROBLEMS else "return"


def jobs(choices: Choices) -> Sequence[Contest]:
    return [contest for found in contests(choices).values() for contest in found]


@dataclass(frozen=True)
class Standing:
    """One contestant on one problem under one law."""

    problem: str
    law: str
    label: str
    aggregator: str
    alpha: float
    eta: float
    seconds: Interval  # median over the seeds
    ratio: Interval  # to ours, of the medians; the same seeds
    reached: int
    gradients: float  # median of those that were used
    unused: float  # share of all contributions, median
    seeds: int


def standings(choices: Choices) -> list[Standing]:
    found = []
    for (problem, law), each in contests(choices).items():
        for phase in each[0].phases:
            where = (problem, law if phase == CONTEST else phase)
            ours = times(each[0].read(choices.out), phase)
            found += [_standing(where, contest, phase, ours, choices) for contest in each]
    return found


def _standing(
    where: tuple[str, str], contest: Contest, phase: str, ours: Sequence[Passage], choices: Choices
) -> Standing:
    data = contest.read(choices.out)
    passages = times(data, phase)
    mine, theirs = (np.array([passage.seconds for passage in side]) for side in (passages, ours))
    best = next(row for row in data.records() if row["phase"] == phase)
    shares = [p.unused / max(1, p.gradients + p.unused) for p in passages]
    return Standing(
        *where, contest.contestant.label, str(best["aggregator"]), float(best["alpha"]), float(best["eta"]),
        bootstrap(mine, _median, seed=1), bootstrap(np.stack([mine, theirs], axis=1), _ratio, seed=2),
        int(np.isfinite(mine).sum()), float(np.median([p.gradients for p in passages])), float(np.median(shares)),
        len(mine),
    )  # fmt: skip


def _median(values: NDArray[np.float64]) -> float:
    """The lower one of two in the middle: between a time and never there is no mean."""
    return float(np.sort(values)[(len(values) - 1) // 2])


def _ratio(pairs: NDArray[np.float64]) -> float:
    mine, ours = _median(pairs[:, 0]), _median(pairs[:, 1])
    return mine / ours if math.isfinite(ours) else (math.nan if math.isinf(mine) else 0.0)


def judge(found: Sequence[Standing]) -> list[Verdict]:
    """What the paper of Rennala and Malenia claims, and whether anybody is faster than afedpg."""
    verdicts = []
    for problem, law in dict.fromkeys((s.problem, s.law) for s in found):
        here = {s.label: s for s in found if (s.problem, s.law) == (problem, law)}
        if "rennala" in here:
            verdicts.append(_judge_one("Rennala", here["rennala"], tie=law == "equal"))
        if PPO.label in here:
            verdicts.append(_judge_one("Asynchronous PPO", here[PPO.label]))
        verdicts.append(_judge_fastest(problem, law, [s for s in here.values() if s.label not in (US, PPO.label)]))
    return verdicts


def _judge_one(name: str, rival: Standing, tie: bool = False) -> Verdict:
    ratio, goal = rival.ratio, goal_of(rival.problem)
    where = f"{rival.problem}, {IN_WORDS[rival.law]}"
    answers = (ratio.above(1 / TIE), ratio.at_most(TIE)) if tie else (ratio.at_most(1.0),)
    return Verdict(
        claim=f"{name} {'is as fast as' if tie else f'reaches the {goal} sooner than'} AFedPG ({where})",
        verdict=settle(rival.seeds >= LEAST_SEEDS and not math.isnan(ratio.value), *answers),
        statistic=f"time of {rival.label} / time of afedpg {ratio}, {rival.seeds} seeds; {rival.unused:.0%} of its "
        "contributions unused",
        **ratio._asdict(),
        needed=(f"95% interval within 1/{TIE:g} and {TIE:g}" if tie else "upper 95% limit at most 1")
        + f", {LEAST_SEEDS} seeds or more",
    )  # fmt: skip


def _judge_fastest(problem: str, law: str, rivals: Sequence[Standing]) -> Verdict:
    best = min(rivals, key=lambda s: s.ratio.value if math.isfinite(s.ratio.value) else math.inf)
    return Verdict(
        claim=f"No other aggregator reaches the {goal_of(problem)} sooner than AFedPG's ({problem}, {IN_WORDS[law]})",
        verdict=settle(best.seeds >= LEAST_SEEDS, *(s.ratio.above(1 / TIE) for s in rivals)),
        statistic=f"the fastest of them, {best.label}: time / time of afedpg {best.ratio}, {best.seeds} seeds",
        **best.ratio._asdict(),
        needed=f"lower 95% limit above 1/{TIE:g} for each of them, {LEAST_SEEDS} seeds or more",
    )  # fmt: skip


def to_table(found: Sequence[Standing]) -> Table:
    rows = [
        (s.problem, s.law, s.label, s.aggregator, s.alpha, s.eta, *s.seconds, *s.ratio, s.reached, s.seeds,
         s.gradients, s.unused)
        for s in found
    ]  # fmt: skip
    names = "problem timing method aggregator alpha eta seconds low high ratio ratio_low ratio_high"
    return table(f"{names} reached seeds gradients unused_share", rows)


def runs_table(choices: Choices) -> Table:
    """Every run, of the search as well."""
    rows = [
        (problem, law, contest.contestant.label, *row)
        for (problem, law), each in contests(choices).items()
        for contest in each
        for row in contest.read(choices.out).rows
    ]
    return table("problem timing method phase seed aggregator alpha eta seconds gradients unused", rows)


def draw(found: Sequence[Standing]) -> Figure:
    problems, shown = (list(dict.fromkeys(getattr(s, name) for s in found)) for name in ("problem", "law"))
    labels = list(dict.fromkeys(s.label for s in found))
    cells = dict.fromkeys((s.problem, s.law) for s in found)  # environments are not run under every law
    leftmost = {problem: next(law for law in shown if (problem, law) in cells) for problem in problems}
    lowest = {law: [problem for problem in problems if (problem, law) in cells][-1] for law in shown}
    farthest = 1.2 * max([20.0, *(end for s in found for end in s.ratio if math.isfinite(end))])
    figure, axes = plotting.panels(len(problems), len(shown), width=2.9, height=2.6)
    for row, problem in enumerate(problems):
        for column, law in enumerate(shown):
            panel = axes[row][column]
            if (problem, law) not in cells:
                panel.set_axis_off()
                continue
            here = {s.label: s for s in found if (s.problem, s.law) == (problem, law)}
            _panel(panel, [here.get(label) for label in labels], labels if leftmost[problem] == law else None, farthest)
            panel.set_title(f"{problem}\n{IN_WORDS[law]}")
            if lowest[law] == problem:
                panel.set_xlabel("time / time of afedpg")
    return figure  # type: ignore[no-any-return]


def _panel(
    panel: plotting.Axes, here: Sequence[Standing | None], labels: Sequence[str] | None, farthest: float
) -> None:
    panel.axvline(1.0, color=plotting.GREY, linewidth=0.8)
    for place, standing in enumerate(here):
        if standing is None:  # beside environments alone
            continue
        ratio = standing.ratio
        if math.isfinite(ratio.value):
            ends = [ratio.value if math.isnan(end) else min(end, farthest) for end in ratio[1:]]
            color = plotting.BLUE if standing.label == US else plotting.BLACK
            panel.plot(ends, [place, place], color=color, linewidth=1.5)
            panel.plot([ratio.value], [place], marker="o", markersize=4, color=color)
        else:
            panel.text(1.0, place, " not reached", va="center", fontsize=8)
    panel.set(xscale="log", ylim=(len(here) - 0.5, -0.5))
    panel.set_yticks(range(len(here)), labels or [""] * len(here))
    panel.set_xlim(0.2, farthest)
    plotting.plain_logarithms(panel, y=False)


def outcome(choices: Choices) -> Outcome:
    found = standings(choices)
    values = [f"{who.aggregator}: {who.values}" for who in contestants(choices) if len(who.values) > 1]
    goals = {
        problem: f"the mean of theta's last evaluations is {goal:g}"
        if (goal := course(choices, problem).goal) is not None
        else f"theta's exact gap is {LEVEL:.0%} of the first one and stays so for {HOLD:g} s"
        for problem in choices.pick_tasks(PROBLEMS)
    }
    tried = {problem: searched(choices, problem) for problem in goals}
    search = [
        f"{len(points(contestants(choices)[0], course(choices, problem)))} points on {seeds} seeds ({problem})"
        for problem, seeds in tried.items()
    ]
    beside = any(PPO in entrants(choices, problem) for problem in goals)
    caption = (
        f"Median virtual seconds until {', or '.join(dict.fromkeys(goals.values()))}, over afedpg's, with 95% "
        "bootstrap intervals over the seeds. Left of the line: sooner than afedpg."
    )
    return Outcome(
        title=TITLE,
        text=f"{AGENTS} agents in virtual time; messages take none. Every rival has afedpg's outer step and "
        f"the same pairs of alpha and eta to search, {', '.join(search)} that are not among those of the contest. "
        "Contributions travel one by one: that Rennala's agents may add theirs up locally "
        "and so communicate less is not tested."
        + (f" {PPO.label} has an outer step of its own and the constants of its preset, without a search." * beside),
        verdicts=tuple(judge(found)),
        tables={"rivals": to_table(found), "rivals-runs": runs_table(choices)},
        pictures=(Picture("rivals", caption, lambda: draw(found)),),
        shown=("rivals",),
        settings={
            "agents": AGENTS, "schedule": "constant", "values searched": values,
            "goal": goals, "courses": {problem: str(course(choices, problem)) for problem in goals},
            "seeds": list(choices.pick_seeds(*SEEDS)), "seeds of the search": tried,
        },
    )  # fmt: skip
