"""Where the time of one training iteration goes: milliseconds of processor time per stage, median over reports.

The stages are timed where they happen, by wrapping the methods of the objects that a training run is made of.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from afedpg.agent.estimators import gradient
from afedpg.agent.work import EnvironmentWorkload
from afedpg.bench.learners import Training
from afedpg.bench.rows import compared, processor_seconds
from afedpg.bench.train import PRESETS
from afedpg.errors import ConfigError
from afedpg.runs.parts import configure

STAGES = ("rollout", "values", "critic", "gradient", "other work", "server and record")


def run(tasks: Sequence[str] = tuple(PRESETS), rounds: int = 9) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        stages = _measure(task, rounds)
        whole = [sum(values) for values in zip(*stages.values(), strict=True)]
        for stage, values in stages.items():
            rows.append(compared("iteration", task, stage, "whole iteration", values, whole, "ms"))
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


def _measure(task: str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each stage, one entry per report; the first report warms everything up."""
    config = configure(task, PRESETS.get(task), {"agents": 1, "iterations": rounds + 1})
    clock, original = _Clock(), gradient.advantage_gradient
    seen: dict[str, list[float]] = {stage: [] for stage in STAGES}
    try:
        with tempfile.TemporaryDirectory() as place:
            training = Training(config, place)
            workload = training.workload
            if not isinstance(workload, EnvironmentWorkload):
                raise ConfigError(f"tasks: {task} is a synthetic problem; its iterations have no stages")
            clock.wrap(workload._sampler, "sample", "rollout")
            clock.wrap(workload._tools.baseline, "values", "values")
            clock.wrap(workload._tools.baseline, "fit", "critic")
            clock.wrap(gradient, "advantage_gradient", "gradient")
            clock.wrap(training.federation, "apply", "server and record")
            for _ in range(rounds + 1):
                clock.spent.clear()
                whole = processor_seconds(training.report)
                clock.spent["other work"] = whole - sum(clock.spent.values())
                for stage, values in seen.items():
                    values.append(clock.spent[stage] * 1e3)
            training.close()
    finally:
        gradient.advantage_gradient = original
    return {stage: values[1:] for stage, values in seen.items()}
