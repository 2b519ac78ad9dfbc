"""Whether asynchronous PPO learns as much as PPO on one machine does: six tasks together, by Agarwal et al. 2021."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from afedpg.experiments.outcome import Verdict, rule
from afedpg.experiments.statistics import interquartile_mean, stratified_bootstrap
from afedpg.messages import Vector

SEEDS = 5
SHARE, WORST = 0.95, 0.8  # of what PPO has over random actions: of all tasks together at least, of each task


@dataclass(frozen=True)
class Contest:
    """Returns on one task, of the same seeds."""

    task: str
    ours: Vector
    theirs: Vector
    random: float  # of random actions

    @property
    def share(self) -> float:
        return float(np.mean(scores(self.ours, self.theirs, self.random)))

    @property
    def told(self) -> str:
        means = f"{np.mean(self.ours):.0f} against {np.mean(self.theirs):.0f}, random {self.random:.0f}"
        return f"{self.task} {self.share:.2f} ({means}; {len(self.ours)} seeds)"


def scores(ours: Vector, theirs: Vector, random: float) -> Vector:
    """(ours - random) / (PPO - random), of each seed of ours; PPO's seeds are averaged, as no two runs are a pair."""
    with np.errstate(divide="ignore", invalid="ignore"):  # where PPO learned nothing nothing is ruled
        return np.asarray((ours - random) / (np.mean(theirs) - random))


def judge(contests: Sequence[Contest], tasks: Sequence[str]) -> Verdict:
    """Of all `tasks`; with fewer of them, or fewer seeds, it says how each task stands and rules nothing."""
    claim = f"Eight agents learn as much as PPO of Stable-Baselines3 does with as many samples, {len(tasks)} tasks"
    needed = f"lower 95% limit at least {SHARE:g}, no task's mean under {WORST:g}; {len(tasks)} tasks, {SEEDS} seeds"
    if not contests:
        return Verdict(claim, rule(False, False), "no task has both, and random actions", needed=needed)

    def together(samples: Sequence[Vector]) -> float:
        each = zip(samples[::2], samples[1::2], contests, strict=True)
        return interquartile_mean(np.concatenate([scores(ours, theirs, one.random) for ours, theirs, one in each]))

    found = stratified_bootstrap([side for one in contests for side in (one.ours, one.theirs)], together, seed=0)
    there = {one.task for one in contests if len(one.ours) >= SEEDS}
    sound = all(np.mean(one.theirs) > one.random and np.isfinite(one.share) for one in contests)
    holds = found.low >= SHARE and min(one.share for one in contests) >= WORST
    told = ", ".join(one.told for one in contests)
    text = f"interquartile mean of (ours - random) / (PPO - random) {found}, {len(contests)} tasks: {told}"
    return Verdict(claim, rule(there >= set(tasks) and sound, holds), text, *found, needed=needed)
