"""The runs behind `learners`: which tasks, teams, speeds and seeds asynchronous PPO is judged on. Draws nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from afedpg.experiments.bar_runs import PPO, RANDOM, BarRun, PpoRun, RandomRun, check_installed, is_installed
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.curves import KeptRun, Key
from afedpg.experiments.jobs import Plan

METHOD = Method("afedppo")
TASKS = ("hopper", "walker2d", "halfcheetah", "ant", "humanoid", "swimmer")
MILLION = 1_000_000
SHARE = {"smoke": 1e-3, "short": 0.05, "full": 1.0}  # of the samples
CONSTANT = "a constant discount"  # where the preset lets its horizon grow
PARTS: dict[str, dict[str, Any]] = {  # what one part is worth
    CONSTANT: {"estimator": "clipped"},
    f"{CONSTANT}, fetched before the rollout": {"estimator": "clipped:late_fetch=false"},
    f"{CONSTANT}, values taken over": {"estimator": "clipped:values=taken"},
    f"{CONSTANT}, fetched before, values taken over": {"estimator": "clipped:late_fetch=false,values=taken"},
}
FETCHES = tuple(PARTS)  # when parameters are fetched, and how values are shared: two by two
PARTS[f"{CONSTANT}, bounded"] = {"estimator": "clipped", "aggregator": "bounded"}  # its cost where nobody lies
LIES: dict[str, dict[str, Any]] = {  # of the fastest of the agents, which is heard most often
    f"{CONSTANT}, random values": {"attack": "random-values"},
    f"{CONSTANT}, random moments of Adam": {"attack": "random-values:group=moments"},
}
LIES = {name: {"estimator": "clipped", **lie, "attackers": (0,)} for name, lie in LIES.items()}
LIES |= {f"{name}, bounded": {**lie, "aggregator": "bounded"} for name, lie in LIES.items()}
OWN_CRITIC = "a critic of each agent's own"  # with Hopper's preset
PLAIN = "afedpg, tanh and a linear mean"
BAR: dict[str, tuple[Method, type[BarRun]]] = {  # what ours is measured by
    "PPO of Stable-Baselines3": (PPO, PpoRun),
    "random actions": (RANDOM, RandomRun),
}
RANDOM_SAMPLES = 100_000  # a tenth of them where not all is run
VARIANTS = {
    "": {},
    **PARTS,
    OWN_CRITIC: {"estimator": "clipped:last_gamma=0.999,values=local"},
    **LIES,
    PLAIN: {"activation": "tanh", "mean": "linear"},
}


class Cell(NamedTuple):
    """One row of a table; its seeds are averaged."""

    study: str
    task: str
    agents: int
    spread: float
    samples: int  # of all agents together
    seeds: tuple[int, ...]
    variant: str = ""  # one of VARIANTS, or of BAR
    planned: int = 0  # seeds at full scale, whatever was named

    @property
    def method(self) -> Method:
        if self.variant in BAR:
            return BAR[self.variant][0]
        return Method("afedpg") if self.variant == PLAIN else METHOD

    @property
    def label(self) -> str:
        words = f"{self.task}, {self.samples / 1e6:g}M, N = {self.agents}, speeds {self.spread:g}:1"
        return f"{words}, {self.variant}" if self.variant else words


def cells(choices: Choices) -> list[Cell]:
    """Chosen on seeds 100 to 102 before any of these was run."""
    if METHOD not in choices.pick_methods((METHOD.name,)):
        return []
    five, ten, three = range(5), range(10), range(3)
    found = [
        Cell("tasks", task, 8, 4.0, MILLION, tuple(ten if task in ("hopper", "walker2d") else five))
        for task in choices.pick_tasks(TASKS)
    ]
    long = ("hopper", "walker2d", "ant", "humanoid")
    found += [Cell("long", task, 8, 4.0, 3 * MILLION, tuple(three)) for task in long]
    found.append(Cell("long", "swimmer", 8, 4.0, 3 * MILLION, tuple(five)))
    found += [Cell("alone", task, 1, 1.0, MILLION, tuple(five)) for task in ("hopper", "walker2d")]
    teams = [(4, 1.0), (4, 4.0), (4, 20.0), (8, 1.0), (8, 20.0), (32, 1.0), (32, 4.0), (32, 20.0)]
    found += [Cell("teams", "hopper", agents, spread, MILLION, tuple(three)) for agents, spread in teams]
    critics = [(1, 1.0), (8, 4.0), (32, 4.0)]
    found += [
        Cell("critics", "hopper", agents, spread, MILLION, tuple(three), OWN_CRITIC) for agents, spread in critics
    ]
    for task in ("hopper", "walker2d"):
        found.append(Cell("discount", task, 8, 4.0, MILLION, tuple(ten), CONSTANT))
        found.append(Cell("discount", task, 8, 4.0, 3 * MILLION, tuple(three), CONSTANT))
    found += [Cell("parts", "hopper", 8, 4.0, 300_000, tuple(three), variant) for variant in PARTS]
    found += [Cell("parts", "walker2d", 8, 4.0, 300_000, tuple(three), variant) for variant in FETCHES]
    found += [Cell("liars", "hopper", 8, 4.0, 300_000, tuple(three), variant) for variant in LIES]
    found.append(Cell("plain", "hopper", 8, 4.0, MILLION, tuple(five), PLAIN))
    others = {
        "CartPole-v1": 100_000, "Acrobot-v1": 300_000, "Pendulum-v1": 300_000, "Reacher-v5": 500_000,
        "Pusher-v5": MILLION, "MountainCarContinuous-v0": 300_000,
    }  # fmt: skip
    found += [Cell("defaults", task, 8, 4.0, samples, tuple(ten)) for task, samples in others.items()]
    if "bar" in choices.studies or choices.finished_only or is_installed():  # left out, where it is not asked for
        found += [_bar(task, variant) for task in TASKS for variant in BAR]
    if choices.scale == "smoke":
        small = ("tasks", "bar") if "bar" in choices.studies else ("tasks",)  # the bar needs a package: if it is named
        few = [(study, task) for study in small for task in choices.pick_tasks(("hopper",))]
        few.append(("defaults", "CartPole-v1"))
        found = [cell for cell in found if cell[:2] in few]
    found = [cell for cell in found if not choices.tasks or cell.task in choices.tasks]
    found = [cell for cell in found if not choices.studies or cell.study in choices.studies]
    found = [cell._replace(planned=len(cell.seeds)) for cell in found]
    return [cell._replace(seeds=_chosen(choices, cell.seeds)) if cell.method != RANDOM else cell for cell in found]


def _bar(task: str, variant: str) -> Cell:
    """PPO on five seeds. Random actions have one: so many episodes are known well enough, whichever seeds are named."""
    samples, seeds = (RANDOM_SAMPLES, 1) if BAR[variant][0] == RANDOM else (MILLION, 5)
    return Cell("bar", task, 1, 1.0, samples, tuple(range(seeds)), variant)


def _chosen(choices: Choices, seeds: tuple[int, ...]) -> tuple[int, ...]:
    named = tuple(seed for seed in seeds if seed in choices.seeds) if choices.seeds else seeds
    return named if choices.scale == "full" else named[:2]


def runs(choices: Choices) -> list[tuple[Cell, KeptRun | BarRun]]:
    found: list[tuple[Cell, KeptRun | BarRun]] = []
    for cell in cells(choices):
        if cell.variant in BAR:
            found += [(cell, _bar_run(choices, cell, seed)) for seed in cell.seeds]
            continue
        plan = Plan(choices, "tuned" if cell.variant == PLAIN else "ppo", {"evaluate_kind": "both"})
        for seed in cell.seeds:
            more: dict[str, Any] = {"timing": "linear", "spread": cell.spread, **VARIANTS[cell.variant]}
            more |= {} if cell.variant == PLAIN else {"steps": 0}
            one = plan.settings(cell.task, cell.method, cell.agents, seed, **more)
            samples = cell.samples * SHARE[choices.scale]
            rounds = max(2, -(-int(samples) // (cell.agents * one.config.agent.steps)))
            more["iterations"] = rounds
            settings = plan.settings(cell.task, cell.method, cell.agents, seed, **more)
            found.append((cell, KeptRun(settings, Key(cell.label, cell.method, cell.agents))))
    return found


def _bar_run(choices: Choices, cell: Cell, seed: int) -> BarRun:
    method, kind = BAR[cell.variant]
    share = max(0.1, SHARE[choices.scale]) if method == RANDOM else SHARE[choices.scale]
    return kind(cell.task, Key(cell.label, method, cell.agents), seed, int(cell.samples * share))


def jobs(choices: Choices) -> Sequence[KeptRun | BarRun]:
    every = [run for _, run in runs(choices)]
    if choices.finished_only:
        return [run for run in every if run.finished(choices.out)]
    check_installed([run for run in every if isinstance(run, BarRun) and not run.finished(choices.out)])
    return every
