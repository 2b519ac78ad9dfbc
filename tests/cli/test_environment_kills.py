"""The same with real environments, killed in the middle of their episodes. AFEDPG_KILLS=20 kills all four tasks."""

from __future__ import annotations

import os
import random

import pytest
from test_kills import survive

from afedpg import train

KILLS = int(os.environ.get("AFEDPG_KILLS", "0"))
TASKS = {
    "CartPole-v1": {"steps": 256, "iterations": 60},
    "Pendulum-v1": {"steps": 256, "iterations": 60},
    "Swimmer-v4": {"steps": 512, "iterations": 24},
    "Humanoid-v4": {"steps": 128, "iterations": 60, "hidden": (32, 32), "baseline": "linear"},
}


def settings_of(task):
    common = {
        "agents": 3,
        "seed": 1,
        "checkpoint_seconds": 0.3,
        "evaluate_episodes": 1,
        "evaluate_kind": "sampled",
        "keep_reports": True,
    }
    return common | TASKS[task]


@pytest.mark.parametrize("task", TASKS if KILLS else ["CartPole-v1", "Swimmer-v4"])
def test_kill_9_in_mid_episode(task, start_command, tmp_path):
    kills, attempt, moments = KILLS // 4 or 1, 0, random.Random(task)
    while kills > 0:
        attempt += 1
        folder = tmp_path / str(attempt)
        kills -= survive(start_command, folder, settings_of(task), 1, kills, moments, task, longest=1.5)


@pytest.mark.parametrize(("task", "workers"), [("CartPole-v1", 1), ("Swimmer-v4", 2)])
def test_kill_9_with_native_kernels(task, workers, start_command, tmp_path):
    """The same bits after it, on replay, and as one worker's: policy and critic are computed by compiled code."""
    kills, attempt, moments = KILLS // 4 or 1, 0, random.Random(workers)
    settings = settings_of(task) | {"compute": "native", "baseline": "mlp", "hidden": (32, 32)}
    while kills > 0:
        attempt += 1
        kills -= survive(start_command, tmp_path / str(attempt), settings, workers, kills, moments, task, longest=1.5)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("task", TASKS if KILLS else ["Pendulum-v1"])
def test_workers_change_nothing(task):
    settings = settings_of(task) | {"iterations": 6}
    assert len({train(task, **settings, workers=workers).sha256 for workers in (1, 2, 3)}) == 1
