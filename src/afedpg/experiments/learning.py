"""What the experiments that learn a task have in common: presets, lengths of runs, evaluations of theta."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from afedpg.config import PROBLEMS
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.curves import (
    Curve,
    Evaluated,
    Key,
    Mean,
    curves_table,
    evaluations_table,
    means_table,
    read_curve,
    read_evaluated,
    smoothed,
)
from afedpg.experiments.jobs import Plan, RunJob, Settings, preset_settings
from afedpg.experiments.outcome import Picture
from afedpg.experiments.tables import Table

SMOKE_ITERATIONS = 3  # of a real environment: enough to see that everything works, and no more
SHORT_SHARE = 20  # `short` is a twentieth of the preset's iterations
SYNTHETIC_ITERATIONS = {"smoke": 50, "short": 200, "full": 1000}
UNKNOWN_ITERATIONS = 400  # a task without a preset
EVALUATIONS = 50  # of theta over a run


@dataclass(frozen=True)
class LearningPlan:
    choices: Choices

    def settings(self, task: str, method: Method, agents: int, seed: int, factor: int = 1) -> Settings:
        iterations = self.iterations(task, method) * factor
        smoke = self.choices.scale == "smoke" and task not in PROBLEMS
        shared = {
            "iterations": iterations,
            "evaluate_every": 0 if smoke else max(1, iterations // EVALUATIONS),
            "evaluate_episodes": 1 if smoke else 10,
            "evaluate_kind": "sampled",
        }
        return Plan(self.choices, self.choices.pick_preset(), shared).settings(task, method, agents, seed)

    def iterations(self, task: str, method: Method) -> int:
        """Iterations per agent."""
        scale = self.choices.scale
        if task in PROBLEMS:
            return SYNTHETIC_ITERATIONS[scale]
        full = int(preset_settings(task, self.choices.pick_preset(), method).get("iterations", UNKNOWN_ITERATIONS))
        return {"smoke": SMOKE_ITERATIONS, "short": max(1, full // SHORT_SHARE), "full": full}[scale]

    def describe(self, runs: Sequence[RunJob]) -> dict[str, Any]:
        """For the report: what was the same for all, and each task's constants."""
        configs = [run.settings.config for run in runs]
        found: dict[str, Any] = {
            "preset": self.choices.pick_preset(),
            "seeds": sorted({config.seed for config in configs}),
            "timing": runs[0].settings.clock,
        }
        for run, config in zip(runs, configs, strict=True):
            schedule, agent = config.schedule, config.agent
            text = f"{self._origin(run)}{schedule.schedule} schedule, alpha {schedule.alpha:g}, eta {schedule.eta:g}"
            if not config.synthetic:
                text += f", T {agent.steps}, hidden {'x'.join(map(str, agent.hidden))}, gamma {agent.gamma:g}, "
                text += f"{agent.baseline} baseline, observation scaling {'on' if agent.scale_observations else 'off'}"
            found[f"{config.task}, {config.method}, K {config.iterations} per agent"] = text
        return found

    def _origin(self, run: RunJob) -> str:
        """Where the constants are from, if not from the preset told of all."""
        task, method, preset = run.settings.config.task, run.settings.method, self.choices.pick_preset()
        by_default = preset_settings(task, preset, method) == preset_settings(task, "", method)
        return f"the defaults, as {preset} has nothing for it: " if by_default else ""


@dataclass(frozen=True)
class Learned:
    """What the runs of a figure learned: their training curves, and theta's evaluations."""

    id: str
    curves: list[Curve]
    evaluated: list[Evaluated]

    @staticmethod
    def read(id: str, runs: Sequence[tuple[Key, RunJob]], out: Path) -> Learned:
        curves = [read_curve(key, run, out) for key, run in runs]
        return Learned(id, curves, [e for key, run in runs for e in read_evaluated(key, run, out)])

    def means(self, over: Callable[[Sequence[Curve]], Mean], smooth: bool = True) -> dict[Key, Mean]:
        curves = [smoothed(curve) if smooth else curve for curve in self.curves]
        return {key: over([c for c in curves if c.key == key]) for key in dict.fromkeys(c.key for c in curves)}

    def tables(self, means: Mapping[Key, Mean], x: str) -> dict[str, Table]:
        return {
            self.id: curves_table(self.curves),
            f"{self.id}-means": means_table(means.items(), x),
            f"{self.id}-evaluations": evaluations_table(self.evaluated),
        }

    def pictures(
        self, means: dict[Key, Mean], over: str, caption: str, draw: Callable[[dict[Key, Mean], str], Figure]
    ) -> tuple[Picture, ...]:
        """Of the training returns, and of theta's own `over` the same where it was evaluated on the way."""
        found = [Picture(self.id, caption, lambda: draw(means, "training return"))]
        if theta := evaluations(self.evaluated, over):
            more = "Return of theta itself on separate evaluation episodes: mean of the seeds and 95% band."
            found.append(Picture(f"{self.id}-theta", more, lambda: draw(theta, "return of theta")))
        return tuple(found)


def evaluations(evaluated: Sequence[Evaluated], over: str) -> dict[Key, Mean]:
    """The evaluations of theta as curves over samples per agent or seconds; none where only the end was evaluated."""
    found: dict[Key, Mean] = {}
    for key in dict.fromkeys(e.key for e in evaluated):
        first = next(e.kind for e in evaluated if e.key == key)  # sampled before deterministic, or exact
        mine = [e for e in evaluated if e.key == key and e.kind == first]
        points = min(len(e.means) for e in mine)
        if points < 3:
            return {}
        x = np.mean([getattr(e, over)[:points] for e in mine], axis=0)
        found[key] = Mean(x, np.array([e.means[:points] for e in mine]))
    return found
