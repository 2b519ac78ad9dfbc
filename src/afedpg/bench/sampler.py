"""How close a rollout comes to the physics it needs, and how far it leaves the usual way behind.

Three things take turns in one process, one thread, round after round:

    physics only         the rollout's actions and resets once more, mj_step in a compiled loop: the limit
    native sampler       the rollout itself
    gymnasium + torch    the same network as a torch module, one environment step after the other

Time is the thread's own processor time, so that a neighbour on the machine costs all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from afedpg.bench.compute_torch import network_of
from afedpg.bench.rows import compared
from afedpg.config import Config, from_settings
from afedpg.errors import AfedpgError
from afedpg.messages import AgentState, Floats, Moments
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.environments import Environments, Episode
from afedpg.sampling.native import closed_loop
from afedpg.sampling.native.compiled_sampler import CompiledSampler
from afedpg.sampling.native.sampler import native_sampler
from afedpg.sampling.native.simulation import Body, body_of
from afedpg.seeding import stream, thaw

# the paper's networks and timesteps per gradient
PAPER: dict[str, tuple[tuple[int, ...], int]] = {
    "Swimmer-v4": ((64, 64), 2048),
    "Hopper-v4": ((256, 256), 1024),
    "Walker2d-v4": ((512, 512), 1024),
    "Humanoid-v4": ((512, 512, 512), 512),
}
OTHERS = ((256, 256), 1024)  # any other task
LIMIT, OURS, USUAL = "physics only", "native sampler", "gymnasium + torch"


def run(tasks: Sequence[str] = tuple(PAPER), rounds: int = 9) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for task in tasks:
        speeds = measure(task, rounds)
        rows += [
            compared("sampler", task, OURS, other, speeds[OURS], speeds[other], "steps/s") for other in (LIMIT, USUAL)
        ]
    return rows


def measure(task: str, rounds: int) -> dict[str, list[float]]:
    """Steps per second of each, one entry per round."""
    bench = Bench.make(task)
    speeds: dict[str, list[float]] = {LIMIT: [], OURS: [], USUAL: []}
    bench.round()  # caches, branch predictors and allocators warm up
    for _ in range(rounds):
        for name, speed in bench.round().items():
            speeds[name].append(speed)
    bench.environments.close()
    return speeds


@dataclass
class Bench:
    """Agent 0 rolls out, agent 1's environment does the physics alone."""

    environments: Environments
    sampler: CompiledSampler
    body: Body
    theta: Floats
    state: AgentState
    usual: Callable[[], int]
    steps: int
    statistics: Moments | None = None

    @staticmethod
    def make(task: str, network: tuple[tuple[int, ...], int] | None = None) -> Bench:
        """`network`: the widths and T to measure with; else the paper's."""
        hidden, steps = network or PAPER.get(task, OTHERS)
        config = from_settings({"task": task, "agents": 3, "hidden": hidden, "steps": steps})
        environments = Environments(config)
        actions = environments.actions.size
        policy = MlpPolicy(environments.observations.size, actions, gaussian=True, hidden=hidden)
        theta = policy.initial_theta(stream(config.seed, "theta")).astype(np.float32)
        sampler = native_sampler(environments, policy, steps, whole_episodes=False)
        body = body_of(environments.of(1).env)
        if isinstance(sampler, str) or isinstance(body, str):
            raise AfedpgError(f"bench: {task} has no native sampler: {sampler}")
        usual = _usual(config, environments, policy, theta, steps // 8)
        return Bench(environments, sampler, body, theta, sampler.start(0, 0), usual, steps)

    def round(self) -> dict[str, float]:
        before = self.state
        changed, rollout, _ = self._timed(lambda: self.sampler.sample(0, before, self.theta, self.statistics))
        ours = self.steps / self.seconds
        self.state = before | changed
        self._put_body(before)
        ends = rollout.terminated | rollout.truncated
        seeds = thaw(before["episode_stream"]).integers(2**31, size=int(ends.sum()) + 1)
        fresh = before["episode_seed"][0] < 0  # the very first rollout starts with a reset of its own
        resets = self.body.resets(seeds[1:] if fresh else seeds[:-1])
        given = self.sampler.given[: self.steps]
        self._timed(lambda: closed_loop.physics_only(self.body.world, self.body.simulation, resets, given, ends))
        limit = self.steps / self.seconds
        done = self._timed(self.usual)
        return {LIMIT: limit, OURS: ours, USUAL: done / self.seconds}

    def _put_body(self, state: AgentState) -> None:
        """To where the rollout started."""
        seed = int(state["episode_seed"][0])
        if seed >= 0:
            self.body.restore(Episode(seed, state["episode_actions"], state["episode_observation"]))

    def _timed(self, work: Callable[[], Any]) -> Any:
        start = time.thread_time()
        result = work()
        self.seconds = time.thread_time() - start
        return result


def _usual(
    config: Config, environments: Environments, policy: MlpPolicy, theta: Floats, steps: int
) -> Callable[[], int]:
    """The loop that everybody writes."""
    env = environments.make(2)
    sizes = (environments.observations.size, *policy.hidden, environments.actions.size)
    network = torch.nn.Sequential(network_of(sizes, theta, torch.nn.ReLU), torch.nn.Tanh())
    deviation = torch.exp(torch.from_numpy(policy.layout.views(theta)["log_std"].copy()))
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    middle, half = (high + low) / 2, (high - low) / 2
    observation, _ = env.reset(seed=config.seed)

    def loop() -> int:
        nonlocal observation
        with torch.no_grad():
            for _ in range(steps):
                mean = network(torch.as_tensor(observation, dtype=torch.float32))
                action = torch.normal(mean, deviation).numpy()
                observation, _, terminated, truncated, _ = env.step(middle + half * np.clip(action, -1, 1))
                if terminated or truncated:
                    observation, _ = env.reset()
        return steps

    return loop
