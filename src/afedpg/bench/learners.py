"""The learners' speed, report after report in turns, in one process, one thread, in processor time.

afedppo against Stable-Baselines3's PPO     the same network, T, epochs and minibatches, one environment
natural against gae                         what ten products with the Fisher information cost a whole training
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from afedpg.bench.rows import compared
from afedpg.config import Config
from afedpg.engine.federation import Federation
from afedpg.messages import Fetch, Join, Task
from afedpg.record import folder
from afedpg.record.recorder import Recorder
from afedpg.runs.parts import Own, configure, prepare

EPOCHS, MINIBATCH, STEPS = 10, 64, 1024
OURS, PPO = "afedppo", "Stable-Baselines3 PPO"
NATURAL, PLAIN = "natural", "gae"


class Training:
    """Rollout to record, one report at a time."""

    def __init__(self, config: Config, place: str) -> None:
        self.workload, rule, server = prepare(config, Own())
        self.recorder = Recorder(folder.create(Path(place) / "run", config), config)
        self.federation = Federation(rule, server, self.recorder)
        self._state = self.workload.start(0)
        [self.task] = self.federation.apply(Join(0), 0.0).tasks
        self._seconds = 0.0

    def report(self) -> int:
        """Its environment steps."""
        self._state, report = self.workload.work(self._state, self.task)
        self._seconds += 1.0
        tasks: list[Task] = self.federation.apply(report, self._seconds).tasks
        if self.workload.exchange.late_fetch:
            self._state = self.workload.prepare(self._state, 0)
            tasks = self.federation.apply(Fetch(0), self._seconds).tasks
        [self.task] = tasks
        return report.stats.steps

    def close(self) -> None:
        self.recorder.close(finished=False)


def run(task: str, rounds: int, preset: str | None) -> list[dict[str, Any]]:
    speeds = _measure(task, rounds, preset)
    return [
        compared("train", task, subject, reference, speeds[subject], speeds[reference], "steps/s")
        for subject, reference in ((OURS, PPO), (NATURAL, PLAIN))
        if speeds.get(reference)
    ]


def _measure(task: str, rounds: int, preset: str | None) -> dict[str, list[float]]:
    """Steps per second of each; the first report warms everything up."""
    usual = {"agents": 1, "iterations": rounds + 1, "steps": STEPS}
    clipped = f"clipped:epochs={EPOCHS},minibatch={MINIBATCH},rollouts=1"
    settings = {
        OURS: (None, {"method": "afedppo", "estimator": clipped}),
        NATURAL: (preset, {"estimator": "natural"}),
        PLAIN: (preset, {"estimator": "gae"}),
    }
    with ExitStack() as stack:
        reports: dict[str, Callable[[], int]] = {}
        for name, (base, more) in settings.items():
            place = stack.enter_context(tempfile.TemporaryDirectory())
            training = Training(configure(task, base, usual | more), place)
            stack.callback(training.close)
            reports[name] = training.report
        config = configure(task, None, usual | settings[OURS][1])
        learn = stable_baselines("PPO", config, torch.nn.Tanh, batch_size=MINIBATCH, n_epochs=EPOCHS)
        if learn is not None:
            reports[PPO] = learn
        speeds: dict[str, list[float]] = {name: [] for name in reports}
        for _ in range(rounds + 1):
            for name, report in reports.items():
                start = time.thread_time()
                speeds[name].append(report() / (time.thread_time() - start))
    return {name: values[1:] for name, values in speeds.items()}


def stable_baselines(
    name: str, config: Config, activation: type[torch.nn.Module], **settings: Any
) -> Callable[[], int] | None:
    """One learning step of T environment steps, which it returns; None where the package is not installed."""
    if config.synthetic or importlib.util.find_spec("stable_baselines3") is None:
        return None
    import gymnasium
    import stable_baselines3

    steps, shape = config.agent.steps, {"net_arch": list(config.agent.hidden), "activation_fn": activation}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older task versions are asked for on purpose
        env = gymnasium.make(config.environment)  # as its users make it
    kind = getattr(stable_baselines3, name)
    model = kind("MlpPolicy", env, n_steps=steps, policy_kwargs=shape, device="cpu", seed=config.seed, **settings)

    def learn() -> int:
        model.learn(steps, reset_num_timesteps=False)
        return steps

    return learn
