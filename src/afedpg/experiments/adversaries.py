"""Learning among liars: every attack against every defence, with liars that are slow, as fast as the others, or fast.

A score is 0 for the policy at the start and 1 for the honest agents alone. A run ends after its virtual seconds, or
after as many contributions as all would make in them if no liar were faster than the honest. Faster liars use these up
sooner, so their cells also count what a flood takes away: honest agents have less time in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from afedpg import plotting
from afedpg.config import ATTACKS, PROBLEMS
from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import Plan
from afedpg.experiments.outcome import Outcome, Picture, Verdict, rule, settle
from afedpg.experiments.statistics import Interval, bootstrap
from afedpg.experiments.tables import Table, table
from afedpg.experiments.trials import AGENTS, EPISODES, METHOD, Case, Course, Likeness, Trial

TITLE = "Learning among agents that lie"
NONE, RECOMMENDED = "each", "slots"
DEFENCES = (NONE, "clip-centred", RECOMMENDED)
PACES = {"10 times slower": 10.0, "equal": 1.0, "10 times faster": 0.1}
TEAMS = {"smoke": (2,), "short": (2,), "full": (2, 3)}  # how many of the ten lie
SEEDS = (1, 3, 5)
SEVEN = ("sign-flip", "scaled-sign-flip", "copies", "alie", "ipm", "largest-angle", "adaptive")  # the worst elsewhere
NOT_ALONE = ("false-drift", "random-values")  # afedpg's reports have nothing of that kind
OF_ENVIRONMENTS = ("poisoned-moments", "observation-noise")
SMOKE = ("sign-flip", "alie")
SHARE = {"smoke": 0.1, "short": 1.0, "full": 1.0}  # of the seconds
TASKS = {
    "smoke": ("lq-bandit",), "short": ("lq-bandit", "softmax-mdp"),
    "full": ("lq-bandit", "softmax-mdp", "CartPole-v1"),
}  # fmt: skip
COURSES = {  # chosen on seeds 100 to 102
    "lq-bandit": Course(200.0, {NONE: 0.03, "clip-centred": 0.03, RECOMMENDED: 0.01}),
    # Gradients of single episodes of this problem are skewed: a robust mean of them leaves out the rare ones that find
    # the reward. The mean of 16 episodes, which is a short rollout, is not.
    "softmax-mdp": Course(100.0, {NONE: 0.05, "clip-centred": 0.05, RECOMMENDED: 0.02}, {"batch": 16}),
    "hopper": Course(  # half a million samples where nobody lies
        50.0, {NONE: 0.02, RECOMMENDED: 0.02}, {"steps": 1024, "baseline": "linear"}, {RECOMMENDED: "beta=0.4,fair=1.0"}
    ),
}
ENVIRONMENT = Course(
    60.0, {NONE: 0.03, "clip-centred": 0.03, RECOMMENDED: 0.015}, {"steps": 512}, {RECOMMENDED: "beta=0.2"}
)
BROKEN, MANY = 0.5, 5  # undefended, so many attacks score below
LEAST_SEEDS = 5


@dataclass(frozen=True)
class Grid:
    """What is tried on a task at full scale, and what is asked of the recommended defence."""

    defences: tuple[str, ...] = DEFENCES  # where somebody lies
    attacks: tuple[str, ...] = ()  # all that there are
    paces: tuple[str, ...] = tuple(PACES)
    teams: tuple[int, ...] = TEAMS["full"]
    more: tuple[int, ...] = ()  # so many liars are reported as well, and nothing is asked
    seeds: int = LEAST_SEEDS  # of a cell in which somebody lies
    good: float = 0.9  # a score that
    share: float = 0.9  # of the cells must have
    worst: float = 0.7  # and all of them
    cost: float = 0.05  # of what is learned, where nobody lies
    by_interval: bool = True  # else the mean alone must be within the cost


GRIDS = {
    "hopper": Grid(
        (RECOMMENDED,), SEVEN, ("equal", "10 times faster"), (2,), more=(4,), seeds=3, good=0.8, share=1.0,
        worst=0.8, cost=0.1, by_interval=False,
    ),
}  # fmt: skip


def attacks(choices: Choices, task: str) -> list[str]:
    left_out = (*NOT_ALONE, *(OF_ENVIRONMENTS if task in PROBLEMS else ()))
    named = SMOKE if choices.scale == "smoke" else grid_of(task).attacks or ATTACKS
    return [name for name in named if name not in left_out]


def paces(choices: Choices, task: str) -> dict[str, float]:
    """How fast liars are."""
    return {name: PACES[name] for name in ([choices.timing] if choices.timing else grid_of(task).paces)}


def all_paces(choices: Choices) -> dict[str, float]:
    return {
        name: pace for task in choices.pick_tasks(TASKS[choices.scale]) for name, pace in paces(choices, task).items()
    }


def teams(choices: Choices, task: str) -> list[int]:
    """How many of the ten lie where something is asked."""
    return [liars for liars in TEAMS[choices.scale] if liars in grid_of(task).teams]


def all_teams(choices: Choices, task: str) -> list[int]:
    return teams(choices, task) + (list(grid_of(task).more) if choices.scale == "full" else [])


def grid_of(task: str) -> Grid:
    return GRIDS.get(task, Grid())


def cases(choices: Choices) -> list[Case]:
    """What the others are compared with comes first."""
    found = []
    for task in choices.pick_tasks(TASKS[choices.scale]):
        defences = grid_of(task).defences
        found += [Case(task, "", NONE, 1.0, liars) for liars in all_teams(choices, task)]
        found += [Case(task, "", defence, 1.0, 0) for defence in dict.fromkeys([NONE, *defences])]
        found += [
            Case(task, attack, defence, pace, liars)
            for defence in reversed(defences)
            for liars in all_teams(choices, task)
            for attack in attacks(choices, task)
            for pace in paces(choices, task).values()
        ]
    return found


def trials(choices: Choices) -> dict[Case, list[Trial]]:
    if METHOD not in choices.pick_methods((METHOD.name,)):
        return {}
    plan = Plan(choices)
    return {
        case: [Trial(plan, case, _course(choices, case.task), seed) for seed in seeds_of(choices, case)]
        for case in cases(choices)
    }


def seeds_of(choices: Choices, case: Case) -> tuple[int, ...]:
    seeds = tuple(choices.pick_seeds(*SEEDS))
    return seeds if choices.seeds or not case.attack else seeds[: grid_of(case.task).seeds]


def _course(choices: Choices, task: str) -> Course:
    course = COURSES.get(task, ENVIRONMENT)
    return replace(course, seconds=course.seconds * SHARE[choices.scale])


def likenesses(choices: Choices) -> list[Likeness]:
    """Contributions of honest agents: of each task, and where there is a choice by estimator, T and delay."""
    plan, found = Plan(choices), []
    for task in choices.pick_tasks(TASKS[choices.scale]):
        short = choices.scale == "smoke"
        kinds = [("gae", 128), ("gae", 1024), ("reinforce", 1024), ("clipped", 128)]
        if task in PROBLEMS:
            kinds = [("", batch) for batch in dict.fromkeys([1, _course(choices, task).more.get("batch", 1)])]
        for estimator, steps in kinds:
            rounds = 20 if short or steps > 128 else 60
            laws = ("equal",) if short else ("equal", "linear")
            found += [Likeness(plan, task, estimator, steps, law, 0, rounds) for law in laws]
    return found


def jobs(choices: Choices) -> Sequence[Trial | Likeness]:
    every = trials(choices)
    found = [*(likenesses(choices) if every else ()), *(trial for mine in every.values() for trial in mine)]
    return [job for job in found if not choices.finished_only or job.finished(choices.out)]


@dataclass(frozen=True)
class Score:
    """One cell: its seeds' scores."""

    case: Case
    scores: tuple[float, ...]  # by seed; NaN where the honest agents learned nothing
    values: tuple[float, ...]  # of theta in the end
    seeds: tuple[int, ...]
    learned: bool = True  # the honest agents alone did: else there is nothing to measure lies by

    @property
    def median(self) -> float:
        return float(np.median(self.scores))


def scores(choices: Choices) -> list[Score]:
    """Of cells whose trials are all there, or with --finished-only some, and that can be compared with something."""
    rows = {}
    for case, wanted in trials(choices).items():
        there = [trial for trial in wanted if trial.finished(choices.out)]
        if there and (choices.finished_only or len(there) == len(wanted)):
            rows[case] = [next(trial.read(choices.out).records()) for trial in there]
    found = []
    for case, mine in rows.items():
        seeds = tuple(int(row["seed"]) for row in mine)
        alone = [row for row in rows.get(Case(case.task, "", NONE, 1.0, case.liars), ()) if row["seed"] in seeds]
        if not alone:
            continue
        start, end = (float(np.median([float(row[name]) for row in alone])) for name in ("start", "value"))
        values = tuple(float(row["value"]) for row in mine)
        of_cell = tuple((value - start) / (end - start) if end > start else math.nan for value in values)
        found.append(Score(case, of_cell, values, seeds, end > start))
    return found


def judge(found: Sequence[Score], choices: Choices) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for task in dict.fromkeys(score.case.task for score in found):
        asked = (0, *teams(choices, task))
        mine = [score for score in found if score.case.task == task and score.case.liars in asked]
        wanted = len(attacks(choices, task)) * len(paces(choices, task)) * len(teams(choices, task))
        lied = {defence: [s for s in mine if s.case.attack and s.case.defence == defence] for defence in DEFENCES}
        unattacked = {s.case.defence: s for s in mine if not s.case.attack and s.case.liars == 0}
        of_task = []
        if lied[RECOMMENDED]:
            of_task.append(_judge_grid(task, lied[RECOMMENDED], wanted))
        if lied[NONE]:
            of_task.append(_judge_undefended(task, lied[NONE], wanted))
        if {NONE, RECOMMENDED} <= unattacked.keys():
            of_task.append(_judge_cost(task, unattacked[RECOMMENDED], unattacked[NONE]))
        verdicts += of_task if all(score.learned for score in mine) else map(_open, of_task)
    return verdicts


def _open(verdict: Verdict) -> Verdict:
    return Verdict(verdict.claim, rule(False, False), "the honest agents learned nothing", needed=verdict.needed)


def _judge_grid(task: str, lied: Sequence[Score], wanted: int) -> Verdict:
    asked = grid_of(task)
    share = sum(score.median >= asked.good for score in lied) / len(lied)
    worst = min(lied, key=lambda score: score.median)
    enough = len(lied) == wanted and min(len(score.scores) for score in lied) >= asked.seeds
    return Verdict(
        claim=f"{task}: with --aggregator {RECOMMENDED} liars take little, however they lie and however fast",
        verdict=rule(enough, share >= asked.share and worst.median >= asked.worst),
        statistic=f"a score of {asked.good:g} or more in {share:.0%} of {len(lied)} of {wanted} cells; the worst "
        f"{worst.median:.2f} ({_words(worst.case)})",
        value=share,
        needed=f"{asked.share:.0%} of all cells at {asked.good:g}, none under {asked.worst:g}, {asked.seeds} seeds",
    )


def _judge_undefended(task: str, lied: Sequence[Score], wanted: int) -> Verdict:
    """Cells that are missing can only add to the attacks that are enough."""
    measured = [score for score in lied if len(score.scores) >= LEAST_SEEDS]
    broken = sorted({score.case.attack for score in measured if score.median < BROKEN})
    enough = len(measured) == wanted or len(broken) >= MANY
    return Verdict(
        claim=f"{task}: undefended, at least {MANY} attacks take half of what is learned or more",
        verdict=rule(enough, len(broken) >= MANY),
        statistic=f"{len(broken)} of {len({score.case.attack for score in lied})} score under {BROKEN:g} in some of "
        f"{len(lied)} of {wanted} cells: {', '.join(broken) or 'none'}",
        value=len(broken), needed=f"{MANY} attacks, {LEAST_SEEDS} seeds",
    )  # fmt: skip


def _judge_cost(task: str, defended: Score, plain: Score) -> Verdict:
    """Both scores are in units of what the same ten agents learn undefended, on the same seeds."""
    (cost, seeds), asked = _cost(defended, plain), grid_of(task)
    enough, least = seeds >= LEAST_SEEDS, 1 - asked.cost
    return Verdict(
        claim=f"{task}: where nobody lies, {RECOMMENDED} costs at most {asked.cost:.0%}",
        verdict=settle(enough, cost.above(least)) if asked.by_interval else rule(enough, cost.value >= least),
        statistic=f"what is learned, of what is learned undefended: {cost}, {seeds} seeds",
        **cost._asdict(), needed=f"lower 95% limit above {least:g}" if asked.by_interval else f"a mean of {least:g}",
    )  # fmt: skip


def _cost(defended: Score, plain: Score) -> tuple[Interval, int]:
    """And on how many seeds: those of both, in pairs, as one that fails undefended is a matter of chance, too."""
    undefended = dict(zip(plain.seeds, plain.scores, strict=True))
    there = zip(defended.seeds, defended.scores, strict=True)
    pairs = np.array([(score, undefended[seed]) for seed, score in there if seed in undefended])
    if not len(pairs):  # with --finished-only either may have other seeds so far
        return Interval(math.nan, math.nan, math.nan), 0
    return bootstrap(pairs, lambda some: float(some[:, 0].mean() / some[:, 1].mean()), seed=0), len(pairs)


def _words(case: Case) -> str:
    pace = next((words for words, pace in PACES.items() if pace == case.pace), "")
    return f"{case.attack}, {pace}, {case.liars} of {AGENTS} lie"


def cells_table(found: Sequence[Score]) -> Table:
    rows = [(*s.case, s.median, min(s.scores), max(s.scores), len(s.scores)) for s in found]
    return table("task attack defence seconds_of_a_liar liars score lowest highest seeds", rows)


def runs_table(found: Sequence[Score]) -> Table:
    rows = [(*s.case, *row) for s in found for row in zip(s.seeds, s.values, s.scores, strict=True)]
    return table("task attack defence seconds_of_a_liar liars seed value score", rows)


def likeness_table(choices: Choices) -> Table:
    rows = [
        (job.task, job.estimator or "exact score", job.steps, job.timing, *row)
        for job in likenesses(choices)
        if job.finished(choices.out)
        for row in job.read(choices.out).rows
    ]
    names = "task estimator steps timing seed delay cosine cosine_of_means norm norm_low norm_high"
    return table(names, rows)


def draw(found: Sequence[Score]) -> Figure:
    """A panel per task and defence: attacks down, liars' number and speed across."""
    lied = [score for score in found if score.case.attack]
    tasks = list(dict.fromkeys(s.case.task for s in lied))
    defences = [defence for defence in DEFENCES if any(s.case.defence == defence for s in lied)]
    across = sorted({(s.case.liars, s.case.pace) for s in lied}, key=lambda place: (place[0], -place[1]))
    names = list(dict.fromkeys(s.case.attack for s in lied))
    figure, axes = plotting.panels(
        max(1, len(tasks)), max(1, len(defences)), width=1.6 + 0.45 * len(across), height=0.6 + 0.24 * len(names)
    )
    for row, task in enumerate(tasks):
        for column, defence in enumerate(defences):
            grid = np.full((len(names), len(across)), np.nan)
            for s in lied:
                if (s.case.task, s.case.defence) == (task, defence):
                    grid[names.index(s.case.attack), across.index((s.case.liars, s.case.pace))] = s.median
            _panel(axes[row][column], grid, names if column == 0 else [""] * len(names), across)
            axes[row][column].set_title(f"{task}, {defence}")
    return figure  # type: ignore[no-any-return]


def _panel(
    panel: plotting.Axes, grid: np.ndarray[tuple[int, int], np.dtype[np.float64]], names: Sequence[str],
    across: Sequence[tuple[int, float]],
) -> None:  # fmt: skip
    panel.imshow(np.clip(grid, 0, 1), cmap="cividis", vmin=0, vmax=1, aspect="auto")
    panel.grid(visible=False)
    for (row, column), value in np.ndenumerate(grid):
        if math.isfinite(value) or value < 0:
            text = f"{value:.2f}" if value > -1 else "< -1"
            panel.text(
                column, row, text, ha="center", va="center", fontsize=6, color="white" if value < 0.6 else "black"
            )
    speeds = {10.0: "slow", 1.0: "equal", 0.1: "fast"}
    panel.set_xticks(range(len(across)), [f"{liars}\n{speeds.get(pace, '')}" for liars, pace in across])
    panel.set_yticks(range(len(names)), names)


def outcome(choices: Choices) -> Outcome:
    found = scores(choices)
    speeds = all_paces(choices)
    told = {task: COURSES.get(task, ENVIRONMENT) for task in dict.fromkeys(score.case.task for score in found)}
    return Outcome(
        title=TITLE,
        text=f"{AGENTS} agents in virtual time, a second per contribution; those that lie take "
        f"{' or '.join(f'{pace:g}' for pace in speeds.values())}. A run ends after as many contributions as they all "
        "would make in its seconds if no liar were faster than the honest, and eta falls over them to 0; faster liars "
        "use them up sooner, so their cells also count what a flood takes away. Theta's worth in the end is exact "
        f"where the problem is known, else the mean return of {EPISODES} episodes. Step lengths were chosen on seeds "
        "that are not among these.",
        verdicts=tuple(judge(found, choices)),
        tables={
            "adversaries": cells_table(found),
            "adversaries-runs": runs_table(found),
            "adversaries-likeness": likeness_table(choices),
        },
        pictures=(
            Picture(
                "adversaries",
                "Median score over the seeds: 0 the policy at the start, 1 the honest agents alone. Across: how many "
                f"of the {AGENTS} lie, and their speed ({', '.join(speeds)}).",
                lambda: draw(found),
            ),
        ),
        shown=("adversaries-likeness",),
        settings={
            "agents": AGENTS, "schedule": "linear", "seeds": list(choices.pick_seeds(*SEEDS)),
            **{f"{task}: eta": str(dict(course.eta)) for task, course in told.items()},
            **{f"{task}: seconds": course.seconds * SHARE[choices.scale] for task, course in told.items()},
        },
    )  # fmt: skip
