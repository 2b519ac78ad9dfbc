"""Native and plain samplers side by side, and Gymnasium itself as the judge."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from afedpg.config import from_settings
from afedpg.messages import AgentState, Floats
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.environments import Environments, MakeEnv, make_environment
from afedpg.sampling.gymnasium import GymnasiumSampler
from afedpg.sampling.native.compiled_sampler import CompiledSampler
from afedpg.sampling.native.sampler import native_sampler
from afedpg.sampling.rollout import Rollout
from afedpg.sampling.spaces import BoxActions
from afedpg.seeding import stream, thaw


class Pair:
    """The two samplers for one task, each with environments of its own."""

    def __init__(
        self,
        task: str,
        kwargs: dict[str, Any] | None = None,
        steps: int = 200,
        whole_episodes: bool = False,
        make_env: MakeEnv | None = None,
        hidden: tuple[int, ...] = (32, 32),
        limit: int = 16,
        activation: str = "relu",
        mean: str = "tanh",
        sites: str = "",
    ) -> None:
        config = from_settings({"task": task, "agents": 4, "env_kwargs": kwargs or {}, "sites": sites})
        self.ours, self.theirs = (Environments(config, make_env, limit) for _ in range(2))
        observations, actions = self.ours.observations.size, self.ours.actions.size
        gaussian = isinstance(self.ours.actions, BoxActions)
        self.policy = MlpPolicy(observations, actions, gaussian, hidden=hidden, activation=activation, mean=mean)
        self.theta: Floats = self.policy.initial_theta(stream(0, "theta")).astype(np.float32)
        native = native_sampler(self.ours, self.policy, steps, whole_episodes)
        assert isinstance(native, CompiledSampler), native
        self.native = native
        self.plain = GymnasiumSampler(self.theirs, self.policy, steps, whole_episodes)


def assert_same_rollout(ours: Rollout, theirs: Rollout) -> None:
    """Bit for bit, rewards within 1e-9."""
    for name in ("raw", "observations", "actions", "terminated", "truncated", "cut_steps", "cut_observations"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    np.testing.assert_allclose(ours.rewards, theirs.rewards, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.returns, theirs.returns, rtol=0, atol=1e-6)
    assert ours.lengths == theirs.lengths


def assert_same_state(ours: AgentState, theirs: AgentState) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        if name == "episode_return":
            np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-6)
        else:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
            assert ours[name].dtype == theirs[name].dtype, name


class Judge:
    """Gymnasium's own environment, given the actions of native rollouts from the same resets."""

    def __init__(self, task: str, kwargs: dict[str, Any], start: AgentState) -> None:
        self.env: gymnasium.Env[Any, Any] = make_environment(task, kwargs)
        self._seeds = thaw(start["episode_stream"])
        self._observation = self._begin()
        self.episodes = 0

    def _begin(self) -> NDArray[np.float64]:
        observation, _ = self.env.reset(seed=int(self._seeds.integers(2**31)))
        return np.array(observation, np.float64)

    def check(self, rollout: Rollout, given: NDArray[np.float32]) -> None:
        for step in range(rollout.steps):
            np.testing.assert_array_equal(rollout.raw[step], self._observation)
            observation, reward, terminated, truncated, _ = self.env.step(given[step])
            assert abs(rollout.rewards[step] - float(reward)) <= 1e-9
            assert rollout.terminated[step] == terminated
            assert rollout.truncated[step] == (truncated and not terminated)
            self._observation = np.array(observation, np.float64)
            if terminated or truncated:
                self.episodes += 1
                self._observation = self._begin()
