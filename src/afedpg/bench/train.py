"""Whole training, rollout to record, against the physics it needs and against Stable-Baselines3's A2C.

Three things take turns in one process, one thread, report after report, in processor time:

    physics only         a rollout's actions and resets once more, mj_step in a compiled loop: the limit
    training             rollout, gradient, critic, fold, journal and run.db of one report
    A2C                  Stable-Baselines3 with the same network and T, one environment (pip install "afedpg[bench]")

The critic is that of the preset whose returns are claimed. On Hopper learners are compared too: see bench/learners.py.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import torch

from afedpg.bench import learners, sampler
from afedpg.bench.rows import compared
from afedpg.config import Config
from afedpg.errors import AfedpgError
from afedpg.messages import OBSERVATIONS
from afedpg.runs.parts import configure

PRESETS = {"swimmer": "paper", "hopper": "tuned", "walker2d": "tuned", "humanoid": "tuned"}
LEARNERS = ("hopper",)  # that are compared too: see bench/learners.py
LIMIT, OURS, A2C = sampler.LIMIT, "training", "Stable-Baselines3 A2C"


def run(tasks: Sequence[str] = tuple(PRESETS), rounds: int = 9) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        speeds = _measure(task, rounds)
        subject = f"{OURS}, preset {PRESETS.get(task, 'default')}"
        rows += [
            compared("train", task, subject, other, speeds[OURS], speeds[other], "steps/s")
            for other in (LIMIT, A2C)
            if speeds[other]
        ]
        if task in LEARNERS:
            rows += learners.run(task, rounds, PRESETS[task])
    if importlib.util.find_spec("stable_baselines3") is None:
        print('without A2C: `pip install "afedpg[bench]"` brings it')
    return rows


def _measure(task: str, rounds: int) -> dict[str, list[float]]:
    """Steps per second of each, one entry per report; the first report warms everything up."""
    config = configure(task, PRESETS.get(task), {"agents": 1, "iterations": rounds + 1})
    speeds: dict[str, list[float]] = {LIMIT: [], OURS: [], A2C: []}
    with tempfile.TemporaryDirectory() as place:
        training = learners.Training(config, place)  # first: it names what is wrong with a task
        physics, learn = _physics(config), learners.stable_baselines("A2C", config, torch.nn.ReLU)
        for _ in range(rounds + 1):
            # the same theta~ and statistics: as a policy changes, so do the contacts, and the physics' own speed
            if physics is not None:
                given = training.task
                physics.theta, physics.statistics = given.theta.copy(), given.statistics.get(OBSERVATIONS)
            start = time.thread_time()
            speeds[OURS].append(training.report() / (time.thread_time() - start))
            if physics is not None:
                speeds[LIMIT].append(physics.round()[LIMIT])
            if learn is not None:
                start = time.thread_time()
                speeds[A2C].append(learn() / (time.thread_time() - start))
        training.close()
    return {name: values[1:] for name, values in speeds.items()}


def _physics(config: Config) -> sampler.Bench | None:
    """None for a task that is not one of MuJoCo's: there is no limit to name."""
    try:
        return sampler.Bench.make(config.environment, (config.agent.hidden, config.agent.steps))
    except AfedpgError:
        return None
