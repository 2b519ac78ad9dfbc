"""The learning rows as curves, beside the returns that others have published for the same number of samples.

Others' figures are as published: other code, mostly other versions of the tasks, other networks. They say where a
method stands, not which one wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from afedpg import plotting
from afedpg.errors import AfedpgError
from afedpg.experiments.curves import Curve, Key, Mean, curves_table, over_samples, read_curve, smoothed, window_of
from afedpg.experiments.jobs import RunJob
from afedpg.experiments.outcome import Outcome, Picture
from afedpg.experiments.statistics import Interval, t_interval
from afedpg.experiments.tables import Table, table
from afedpg.plotting import Figure

TITLE = "What the learning rows learned"


@dataclass(frozen=True)
class Published:
    method: str
    samples: float  # in all
    returns: dict[str, float]  # by task
    source: str


STORED = "Tianshou's stored runs, -v3: means of 10 seeds over the last 5% of the samples"
PUBLISHED = (
    Published("REINFORCE without critic", 3e6, {"swimmer": 35, "hopper": 396, "walker2d": 412, "humanoid": 438},
              "Tianshou examples/mujoco, -v3: the highest point of the mean curve"),
    Published("VPG with GAE critic", 3e6,
              {"swimmer": 52, "hopper": 817, "walker2d": 475}, "Spinning Up benchmark curves"),
    Published("A2C", 1e6, {"swimmer": 37, "hopper": 1213, "walker2d": 1145, "halfcheetah": 1882, "ant": 3509,
                           "humanoid": 1549}, STORED),
    Published("A2C", 3e6, {"swimmer": 39, "hopper": 1336, "walker2d": 1565, "halfcheetah": 2304, "ant": 5083,
                           "humanoid": 5126}, STORED),
    Published("NPG", 1e6, {"swimmer": 28, "hopper": 1893, "walker2d": 2393, "halfcheetah": 3396, "ant": 2256,
                           "humanoid": 734}, STORED),
    Published("TRPO", 1e6, {"swimmer": 38, "hopper": 1927, "walker2d": 3763, "halfcheetah": 4376, "ant": 2753,
                            "humanoid": 802}, STORED),
    Published("PPO", 1e6, {"swimmer": 66, "hopper": 2356, "walker2d": 3505, "halfcheetah": 5708, "ant": 3207,
                           "humanoid": 763}, STORED),
    Published("PPO", 1e6, {"hopper": 2383, "walker2d": 2288, "halfcheetah": 1443, "humanoid": 716}, "CleanRL, -v4"),
    Published("PPO", 3e6, {"swimmer": 79, "hopper": 2736, "walker2d": 4473, "halfcheetah": 7253, "ant": 3852,
                           "humanoid": 1289}, STORED),
    Published("APPO", 1e7,
              {"swimmer": 117, "hopper": 2793, "walker2d": 5488, "humanoid": 5439}, "Sample Factory, -v4"),
)  # fmt: skip


def return_at(curves: Sequence[Curve], samples: float) -> Interval | None:
    """Mean of the seeds over the 5% of the run that end at so many samples of all agents; None if it is shorter."""
    values = []
    for curve in curves:
        total = curve.samples * curve.key.agents
        end = int(np.searchsorted(total, samples * (1 - 1e-9)))
        if end == len(total):
            return None
        values.append(np.nanmean(curve.returns[max(0, end + 1 - window_of(len(total))) : end + 1]))
    return t_interval(np.array(values))


def comparison(curves: dict[Key, list[Curve]]) -> Table:
    """Every published figure whose number of samples our runs of that task have reached."""
    rows = []
    for key, mine in curves.items():
        for other in PUBLISHED:
            found = return_at(mine, other.samples)
            if found is not None and key.task in other.returns:
                rows.append(
                    (key.task, key.method.label, key.agents, len(mine), int(other.samples), found.value, found.low,
                     found.high, other.method, float(other.returns[key.task]), other.source)
                )  # fmt: skip
    return table("task method agents seeds samples mean low high published published_return source", rows)


def draw(curves: dict[Key, list[Curve]]) -> Figure:
    tasks = list(dict.fromkeys(key.task for key in curves))
    figure, axes = plotting.panels(1, len(tasks))
    for panel, task in zip(axes[0], tasks, strict=True):
        for key, mine in curves.items():
            if key.task == task:
                mean = over_samples([smoothed(curve) for curve in mine])
                all_agents = Mean(mean.x * key.agents, mean.values)
                label = key.method.label
                all_agents.draw(panel, plotting.METHOD_COLORS[label], label, plotting.line_of(label))
        panel.set_title(f"{task}, {_seeds([len(mine) for key, mine in curves.items() if key.task == task])}")
        plotting.thousands(panel)
        panel.set_xlabel("samples of all agents")
    axes[0][0].set_ylabel("training return")
    plotting.legend_below(figure, 2)
    return figure  # type: ignore[no-any-return]


def _seeds(counts: Sequence[int]) -> str:
    """One panel's curves may have different numbers of them."""
    least, most = min(counts), max(counts)
    return f"{least} to {most} seeds" if least < most else f"{most} seed{'s' if most > 1 else ''}"


def by_curve(runs: Sequence[RunJob]) -> dict[Key, list[RunJob]]:
    """Runs that differ in nothing but the seed; two settings of one task and method would be averaged as if seeds."""
    found: dict[Key, list[RunJob]] = {}
    for run in runs:
        config = run.settings.config
        mine = found.setdefault(Key(config.task, run.settings.method, config.agents), [])
        mine.append(run)
        if replace(config, seed=0) != replace(mine[0].settings.config, seed=0):
            raise AfedpgError(f"learning: {mine[0].name} and {run.name} differ in more than the seed: not one curve")
    return found


def outcome(runs: Sequence[RunJob], out: Path) -> Outcome:
    curves = {key: [read_curve(key, run, out) for run in mine] for key, mine in by_curve(runs).items()}
    caption = "Return of training episodes (sampled with theta~): mean of the seeds and 95% band, smoothed over 5%."
    return Outcome(
        title=TITLE,
        text="The runs behind the learning rows, and what others have published for the same number of samples. eta "
        "falls to 0 over a tuned run, so a point in its middle is not the best that fits into so many samples.",
        verdicts=(),
        tables={
            "learning": curves_table(curve for mine in curves.values() for curve in mine),
            "learning-published": comparison(curves),
        },
        pictures=(Picture("learning", caption, lambda: draw(curves)),),
        shown=("learning-published",),
    )
