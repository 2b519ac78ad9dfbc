"""Where the time of one training iteration goes: milliseconds of processor time per stage, median over reports.

The stages are timed where they happen, by wrapping the methods of the objects that a training run is made of.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from afedpg.agent.estimators import gradient
from afedpg.agent.work import EnvironmentWorkload
from afedpg.bench.train import PRESETS
from afedpg.engine.federation import Federation
from afedpg.errors import ConfigError
from afedpg.messages import Join
from afedpg.record import folder
from afedpg.record.recorder import Recorder
from afedpg.runs.parts import Own, configure, prepare

STAGES = ("rollout", "values", "critic", "gradient", "other work", "server and record")


def run(tasks: Sequence[str] = tuple(PRESETS), rounds: int = 9) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}; prints a table on the way."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    print(f"{'ms per report':<14}{'steps':>7}" + "".join(f"{stage:>19}" for stage in STAGES) + f"{'whole':>9}")
    for task in tasks:
        steps, stages = _measure(task, rounds)
        whole = sum(stages.values())
        cells = "".join(f"{f'{value:.2f} ({value / whole:.0%})':>19}" for value in stages.values())
        print(f"{task:<14}{steps:>7}{cells}{whole:>9.1f}", flush=True)
        for stage, value in stages.items():
            row = {"benchmark": "iteration", "task": task, "subject": stage, "reference": "whole iteration"}
            rows.append({**row, "ratio": value / whole, "subject_ms": value, "reference_ms": whole})
    return rows


class _Clock:
    """Adds up what wrapped calls take, per stage."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    def wrap(self, owner: Any, method: str, stage: str) -> None:
        inner = getattr(owner, method)

        def timed(*arguments: Any) -> Any:
            start = time.thread_time()
            try:
                return inner(*arguments)
            finally:
                self.spent[stage] += time.thread_time() - start

        object.__setattr__(owner, method, timed)  # baselines are frozen


def _measure(task: str, rounds: int) -> tuple[int, dict[str, float]]:
    config = configure(task, PRESETS.get(task), {"agents": 1, "iterations": rounds + 1})
    workload, rule, server = prepare(config, Own())
    if not isinstance(workload, EnvironmentWorkload):
        raise ConfigError(f"tasks: {task} is a synthetic problem; its iterations have no stages")
    clock, original = _Clock(), gradient.advantage_gradient
    clock.wrap(workload._sampler, "sample", "rollout")
    clock.wrap(workload._tools.baseline, "values", "values")
    clock.wrap(workload._tools.baseline, "fit", "critic")
    clock.wrap(gradient, "advantage_gradient", "gradient")
    seen: dict[str, list[float]] = {stage: [] for stage in STAGES}
    try:
        with tempfile.TemporaryDirectory() as place:
            recorder = Recorder(folder.create(Path(place) / "run", config), config)
            federation = Federation(rule, server, recorder)
            state = workload.start(0)
            [work] = federation.apply(Join(0), 0.0).tasks
            for count in range(rounds + 1):
                clock.spent.clear()
                start = time.thread_time()
                state, report = workload.work(state, work)
                worked = time.thread_time()
                [work] = federation.apply(report, float(count)).tasks
                clock.spent["server and record"] = time.thread_time() - worked
                named = sum(clock.spent[stage] for stage in ("rollout", "values", "critic", "gradient"))
                clock.spent["other work"] = worked - start - named
                for stage, values in seen.items():
                    values.append(clock.spent[stage] * 1e3)
            recorder.close(finished=False)
    finally:
        gradient.advantage_gradient = original
    return config.agent.steps, {stage: statistics.median(values[1:]) for stage, values in seen.items()}
