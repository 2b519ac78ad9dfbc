"""The bar of `learners`: PPO of Stable-Baselines3, run here on the same tasks, samples and measure; and random actions.

Its settings are those of Tianshou's benchmark on MuJoCo (examples/mujoco/mujoco_ppo.py), as far as Stable-Baselines3
can express them. They were written down before any run, and are not tuned.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from afedpg.config import SHORT_NAMES
from afedpg.errors import ConfigError
from afedpg.experiments.choices import Method
from afedpg.experiments.curves import BINS, Curve, Key, keep, kept_at, read_kept
from afedpg.experiments.jobs import START_SECONDS, Progress
from afedpg.sampling.environments import make_environment

PPO, RANDOM = Method("sb3-ppo"), Method("random")
PACKAGE = "stable-baselines3"
STEPS, MINIBATCH, EPOCHS, GAMMA, RATE = 2048, 64, 10, 0.99, 3e-4
# What Stable-Baselines3 cannot express of Tianshou's settings:
# - Tianshou computes advantages anew before every pass, with the values of that moment. Here once per update.
# - Tianshou divides the targets of the values by the returns' deviation. Here the rewards are divided by it.
# - The last layer of the values starts with a gain of 1, not of sqrt 2.
SETTINGS: dict[str, Any] = {
    "n_steps": STEPS,  # of one environment; Tianshou's are of several together
    "batch_size": MINIBATCH, "n_epochs": EPOCHS, "gamma": GAMMA, "gae_lambda": 0.95, "clip_range": 0.2,
    "vf_coef": 0.25, "ent_coef": 0.0, "max_grad_norm": 0.5, "normalize_advantage": False,
}  # fmt: skip
POLICY: dict[str, Any] = {
    "net_arch": {"pi": [64, 64], "vf": [64, 64]}, "ortho_init": True, "log_std_init": -0.5,
    "optimizer_kwargs": {"eps": 1e-8},  # Adam's usual; Stable-Baselines3 would take 1e-5
}  # fmt: skip
FIXED: dict[str, Any] = {  # what `train` does besides; all of it is part of a run's name
    **SETTINGS, **POLICY, "activation": "tanh", "learning_rate": f"{RATE:g}, falling linearly to 0",
    "actions": "clipped to [-1, 1], scaled to the task's range", "observations": "normalized", "rewards": "scaled",
}  # fmt: skip
PPO_SECONDS, RANDOM_SECONDS = 1.5e-3, 2e-4  # per sample, roughly


@dataclass(frozen=True)
class BarRun(ABC):
    """A job that leaves its curve where a run of ours does; one that was computed elsewhere counts as well."""

    packages: ClassVar[tuple[str, ...]] = ()  # besides those of every run: spent.csv has their versions

    task: str
    key: Key
    seed: int
    samples: int

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def gradients(self) -> int: ...

    @property
    @abstractmethod
    def cost(self) -> float: ...

    @abstractmethod
    def train(self, progress: Progress) -> Curve: ...

    def digest(self, settings: dict[str, Any]) -> str:
        """Of what the rest of a name does not say."""
        words = json.dumps([SHORT_NAMES[self.task], settings], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:10]

    def path(self, out: Path) -> Path:
        return kept_at(out, self.name)

    def finished(self, out: Path) -> bool:
        return self.path(out).is_file()

    def perform(self, out: Path, workers: int, progress: Progress) -> None:
        keep(self.train(progress), self.path(out))

    def curve(self, out: Path) -> Curve:
        return read_kept(self.path(out), self.key, self.seed)


@dataclass(frozen=True)
class PpoRun(BarRun):
    """One training. Interrupted it starts anew: an environment of its own cannot be stored in mid-episode."""

    packages = (PACKAGE,)

    @property
    def updates(self) -> int:
        """Rounded up, as our rounds are."""
        return max(1, -(-self.samples // STEPS))

    @property
    def name(self) -> str:
        return f"{self.task}-{PPO.name}-k{self.updates}-seed{self.seed}-{self.digest(FIXED)}"

    @property
    def gradients(self) -> int:
        """Of minibatches."""
        return self.updates * EPOCHS * (STEPS // MINIBATCH)

    @property
    def cost(self) -> float:
        return START_SECONDS + self.updates * STEPS * PPO_SECONDS

    def train(self, progress: Progress = lambda done: None) -> Curve:
        import stable_baselines3
        import torch
        from gymnasium.wrappers import RescaleAction
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

        total = self.updates * STEPS

        def rate(remaining: float) -> float:
            """`remaining` is 1 - k / updates in the k-th update; Tianshou's first one has the full rate."""
            return RATE * (remaining + 1 / self.updates)

        def told(here: dict[str, Any], there: dict[str, Any]) -> bool:
            progress(here["self"].num_timesteps / total)
            return True

        with _one_thread():
            # Within everything that scales: what it counts are the task's own rewards.
            env = RescaleAction(make_environment(SHORT_NAMES[self.task], {}), -np.float32(1), np.float32(1))
            monitor = Monitor(env)
            normalized = VecNormalize(DummyVecEnv([lambda: monitor]), gamma=GAMMA)
            shape = {**POLICY, "activation_fn": torch.nn.Tanh}
            learner = stable_baselines3.PPO(
                "MlpPolicy",
                normalized,
                learning_rate=rate,
                policy_kwargs=shape,
                seed=self.seed,
                device="cpu",
                **SETTINGS,
            )
            learner.learn(total, callback=told)
            normalized.close()
        lengths, returns = monitor.get_episode_lengths(), monitor.get_episode_rewards()
        return cut(self, total, lengths, returns, min(BINS, self.updates))


@contextmanager
def _one_thread() -> Iterator[None]:
    """With several, the last bits of a product depend on how many there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class RandomRun(BarRun):
    """Uniformly random actions: the return of who has learned nothing, as a curve of one part."""

    gradients = 0

    @property
    def name(self) -> str:
        return f"{self.task}-{RANDOM.name}-k{self.samples}-seed{self.seed}-{self.digest({})}"

    @property
    def cost(self) -> float:
        return self.samples * RANDOM_SECONDS

    def train(self, progress: Progress = lambda done: None) -> Curve:
        env = make_environment(SHORT_NAMES[self.task], {})
        env.action_space.seed(self.seed)
        env.reset(seed=self.seed)
        lengths, returns = [0], [0.0]  # the last of both is of the episode that is not over
        for sample in range(self.samples):
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            lengths[-1] += 1
            returns[-1] += float(reward)
            if terminated or truncated:
                env.reset()
                lengths.append(0)
                returns.append(0.0)
                progress(sample / self.samples)
        env.close()
        return cut(self, self.samples, lengths[:-1], returns[:-1], parts=1)


def cut(run: BarRun, total: int, lengths: Sequence[int], returns: Sequence[float], parts: int) -> Curve:
    """Episodes of one environment, one after the other, as a curve of equal parts.

    `seconds` are those of virtual time, which nothing here has.
    """
    edges = np.linspace(0, total, parts + 1).astype(int)
    part = np.searchsorted(edges, np.cumsum(lengths), side="left") - 1  # an end at an edge belongs to the part before
    episodes = np.bincount(part, minlength=parts)
    sums = np.bincount(part, weights=np.asarray(returns, np.float64), minlength=parts)
    means = np.where(episodes > 0, sums / np.maximum(episodes, 1), np.nan)
    return Curve(run.key, run.seed, edges[1:].astype(np.float64), np.full(parts, np.nan), means, episodes)


def is_installed() -> bool:
    return importlib.util.find_spec("stable_baselines3") is not None


def check_installed(missing: Sequence[BarRun]) -> None:
    """Before anything is computed; curves that are there need nothing."""
    if any(PACKAGE in run.packages for run in missing) and not is_installed():
        raise ConfigError(
            "studies: bar needs Stable-Baselines3, which is not installed; install it with: pip install 'afedpg[bench]'"
            ", or name the other studies"
        )
