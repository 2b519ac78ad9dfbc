"""Whether a compiled task is its Gymnasium environment: native rollouts, judged by the environment itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from afedpg.config import from_settings
from afedpg.errors import AfedpgError
from afedpg.messages import Floats
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.environments import Environments, make_environment
from afedpg.sampling.native.sampler import native_sampler
from afedpg.sampling.rollout import Rollout
from afedpg.seeding import stream, thaw

REWARD_TOLERANCE = 1e-9


def verify_task(task: str, kwargs: dict[str, Any] | None = None, steps: int = 2000, seed: int = 0) -> int:
    """Compare `steps` native steps with `gymnasium.make(task, **kwargs)`; returns the number of episodes that ended.

    Raises an AfedpgError that names the first difference: observations, terminations and truncations must agree to the
    bit, rewards within 1e-9.
    """
    config = from_settings({"task": task, "agents": 1, "env_kwargs": kwargs or {}})
    environments = Environments(config)
    policy = MlpPolicy(environments.observations.size, environments.actions.size, gaussian=True, hidden=(32,))
    sampler = native_sampler(environments, policy, steps, whole_episodes=False)
    if isinstance(sampler, str):
        raise AfedpgError(f"{task} has no native sampler: {sampler}")
    theta = policy.initial_theta(stream(seed, "theta")).astype(np.float32)
    state = sampler.start(seed, 0)
    _, rollout, _ = sampler.sample(0, state, theta, None)
    env = make_environment(config.environment, kwargs or {})
    try:
        _judge(task, env, thaw(state["episode_stream"]), rollout, sampler.given)
    finally:
        env.close()
        environments.close()
    return len(rollout.lengths)


def _judge(task: str, env: Any, seeds: np.random.Generator, rollout: Rollout, given: Floats) -> None:
    observation, _ = env.reset(seed=int(seeds.integers(2**31)))
    for step in range(rollout.steps):
        _same(task, step, "observation", rollout.raw[step], np.asarray(observation, np.float64))
        observation, reward, terminated, truncated, _ = env.step(given[step])
        if not abs(rollout.rewards[step] - float(reward)) <= REWARD_TOLERANCE:
            raise AfedpgError(
                f"{task}, step {step}: reward {rollout.rewards[step]!r} compiled, {reward!r} in Gymnasium"
            )
        _same(task, step, "terminated", rollout.terminated[step], bool(terminated))
        _same(task, step, "truncated", rollout.truncated[step], bool(truncated and not terminated))
        if terminated or truncated:
            observation, _ = env.reset(seed=int(seeds.integers(2**31)))


def _same(task: str, step: int, what: str, ours: Any, theirs: Any) -> None:
    if np.array_equal(ours, theirs):
        return
    where = f"[{int(np.flatnonzero(ours != theirs)[0])}]" if np.ndim(ours) else ""
    first = (np.ravel(ours)[np.ravel(ours != theirs)][0], np.ravel(theirs)[np.ravel(ours != theirs)][0])
    raise AfedpgError(f"{task}, step {step}: {what}{where} is {first[0]!r} compiled, {first[1]!r} in Gymnasium")
