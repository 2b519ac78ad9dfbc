"""The plain Gymnasium sampler: any task, one environment step after the other, no torch on the way.

Every episode begins with reset(seed drawn from the agent's own stream), so nothing of an environment outlives an
episode and an agent can go on in any process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import AfedpgError
from afedpg.messages import AgentState, Floats, Moments
from afedpg.policy.mlp import Policy
from afedpg.sampling.environments import NO_EPISODE, Environment, Environments, Episode, Live, too_long
from afedpg.sampling.evaluate import Episodes
from afedpg.sampling.normalizer import Scaling, scaling
from afedpg.sampling.rollout import Rollout
from afedpg.sampling.spaces import Observations
from afedpg.seeding import freeze, stream, thaw

SAMPLING = frozenset({  # the keys of an agent's state that samplers have
    "noise_stream", "episode_stream", "total_steps", "episode_seed", "episode_actions", "episode_observation",
    "episode_return",
})  # fmt: skip


class Sampler(Protocol):
    """Turns theta~ into a rollout. What it must remember of an agent lies in the agent's state, under its own names."""

    def start(self, seed: int, agent_id: int) -> AgentState: ...

    def sample(
        self, agent_id: int, state: AgentState, theta: Floats, statistics: Moments | None
    ) -> tuple[AgentState, Rollout, dict[str, float]]:
        """The arrays of the state that are new, the rollout, and what the report should say beside it."""

    def play(
        self, env: Environment, agent_id: int, theta: Floats, statistics: Moments | None, episodes: int,
        deterministic: bool, generator: np.random.Generator,
    ) -> Episodes | None:  # fmt: skip
        """What `evaluate` gives, if this sampler has a faster way there."""


def start_sampling(environments: Environments, seed: int, agent_id: int) -> AgentState:
    """An agent's state before its first rollout, whichever the sampler."""
    return {
        "noise_stream": freeze(stream(seed, "agent", agent_id)),
        "episode_stream": freeze(stream(seed, "environment", agent_id)),
        "total_steps": np.zeros(1, np.int64),
        **no_episode(environments),
    }


def no_episode(environments: Environments) -> AgentState:
    return {
        "episode_seed": np.array([NO_EPISODE], np.int64),
        "episode_actions": environments.actions.empty(),
        "episode_observation": np.empty(0, environments.observations.dtype),
        "episode_return": np.zeros(1),
    }


@dataclass
class _Steps:
    """A rollout being written: arrays for `capacity` steps, of which `count` are filled."""

    capacity: int
    observations: Observations
    actions: NDArray[Any]  # [capacity, act] or [capacity]
    count: int = 0
    raw: NDArray[Any] = field(init=False)
    scaled: NDArray[Any] = field(init=False)  # a picture's bytes: the same array
    rewards: NDArray[np.float64] = field(init=False)
    terminated: NDArray[np.bool_] = field(init=False)
    truncated: NDArray[np.bool_] = field(init=False)
    cuts: list[tuple[int, NDArray[Any]]] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape, picture = (self.capacity, self.observations.size), self.observations.image is not None
        self.raw = np.empty(shape, self.observations.dtype)
        self.scaled = self.raw if picture else np.empty(shape, np.float32)
        self.rewards = np.empty(self.capacity)
        self.terminated = np.zeros(self.capacity, np.bool_)
        self.truncated = np.zeros(self.capacity, np.bool_)

    def rollout(self) -> Rollout:
        n = self.count
        after = np.array([after for _, after in self.cuts], self.scaled.dtype).reshape(-1, self.observations.size)
        seen = self.scaled[:n]
        raw = seen if self.scaled is self.raw else self.raw[:n]
        return Rollout(
            raw, seen, self.actions[:n], self.rewards[:n], self.terminated[:n], self.truncated[:n],
            np.array([step for step, _ in self.cuts], np.int64), after, tuple(self.returns), tuple(self.lengths),
        )  # fmt: skip


class GymnasiumSampler:
    """T steps, episodes going on across rollouts; or, with `whole_episodes`, fresh episodes until at least T steps."""

    def __init__(self, environments: Environments, policy: Policy, steps: int, whole_episodes: bool) -> None:
        self._environments = environments
        self._policy = policy
        self._steps = steps
        self._whole = whole_episodes

    def start(self, seed: int, agent_id: int) -> AgentState:
        return start_sampling(self._environments, seed, agent_id)

    def sample(
        self, agent_id: int, state: AgentState, theta: Floats, statistics: Moments | None
    ) -> tuple[AgentState, Rollout, dict[str, float]]:
        live = self._environments.of(agent_id)
        scale = scaling(statistics, live.observations.size)
        walk = _Walk(live, state, self._policy, theta, scale, self._capacity)
        if self._whole:
            walk.begin()
            while walk.steps.count < self._steps:
                walk.finish_episode(self._steps)
        else:
            walk.restore(state)
            walk.advance(self._steps)
        rollout = walk.steps.rollout()
        walk.check_observations()
        changed = {
            "noise_stream": freeze(walk.noise),
            "episode_stream": freeze(walk.seeds),
            "total_steps": state["total_steps"] + rollout.steps,
        }
        changed |= no_episode(self._environments) if self._whole else walk.episode()
        return changed, rollout, {"restarted": 1.0} if walk.restarted else {}

    def play(
        self, env: Environment, agent_id: int, theta: Floats, statistics: Moments | None, episodes: int,
        deterministic: bool, generator: np.random.Generator,
    ) -> None:  # fmt: skip
        """It has none: `evaluate` is already step by step."""

    @property
    def _capacity(self) -> int:
        return 2 * self._steps if self._whole else self._steps  # the last whole episode has at most T steps


class _Walk:
    """One rollout under way."""

    def __init__(
        self, live: Live, state: AgentState, policy: Policy, theta: Floats, scale: Scaling, capacity: int
    ) -> None:
        self.live = live
        self.scale = scale
        self.noise = thaw(state["noise_stream"])
        self.seeds = thaw(state["episode_stream"])
        self.restarted = False
        self._actor = policy.actor(theta)
        self._before = int(state["total_steps"][0])
        self.steps = _Steps(capacity, live.observations, live.actions.room(capacity))

    def begin(self) -> None:
        """A new episode, from a seed of the agent's own stream."""
        self._seed = int(self.seeds.integers(2**31))  # some environments take no larger ones
        self._given: list[Any] = []  # actions of this episode, as the environment got them
        self._earlier = self.live.actions.empty()  # and those of rollouts before this one
        self._return = 0.0
        self._observation = self.live.reset(self._seed)

    def restore(self, state: AgentState) -> None:
        """To where the agent's last rollout stopped."""
        if state["episode_seed"][0] == NO_EPISODE:
            return self.begin()
        episode = Episode(int(state["episode_seed"][0]), state["episode_actions"], state["episode_observation"])
        here = self.live.at is not None and self.live.at.equals(episode)
        self.live.at = None
        if not here and not self.live.restore(episode):
            self.restarted = True
            return self.begin()
        self._seed, self._earlier, self._given = episode.seed, episode.actions, []
        self._return = float(state["episode_return"][0])
        self._observation = episode.observation
        return None

    def advance(self, count: int) -> None:
        steps = self.steps
        for _ in range(count):
            if self._step():
                self.begin()
        # the rollout's end cuts an episode that goes on
        if not (steps.terminated[steps.count - 1] or steps.truncated[steps.count - 1]):
            steps.cuts.append((steps.count - 1, self.scale(self._observation)))

    def finish_episode(self, limit: int) -> None:
        for _ in range(limit):
            if self._step():
                return self.begin() if self.steps.count < limit else None
        raise too_long(self.live.agent_id, limit)

    def _step(self) -> bool:
        """One step of the environment; whether the episode ended."""
        steps, t = self.steps, self.steps.count
        steps.raw[t] = self._observation
        scaled = steps.scaled[t] = self.scale(self._observation)
        action = steps.actions[t] = self._actor.sample(scaled, self.noise)
        given = self.live.actions.to_environment(action)
        try:
            observation, reward, terminated, truncated = self.live.step(given)
        except AfedpgError as error:
            self.check_observations()  # what raised may be the consequence of a NaN before
            raise AfedpgError(f"{error} (at the agent's step {self._before + t})") from error
        self.live.check_reward(self._before + t, reward)
        steps.rewards[t], steps.terminated[t], steps.truncated[t] = reward, terminated, truncated and not terminated
        steps.count = t + 1
        self._given.append(given)
        self._return += reward
        self._observation = observation
        if truncated and not terminated:
            steps.cuts.append((t, self.scale(observation)))
        if terminated or truncated:
            steps.returns.append(self._return)
            steps.lengths.append(len(self._earlier) + len(self._given))
        return terminated or truncated

    def check_observations(self) -> None:
        """Once per rollout, because a check at every step would cost as much as the step."""
        steps = self.steps
        rows = np.isfinite(steps.raw[: steps.count]).all(axis=1)
        bad = int(rows.argmin()) if not rows.all() else steps.count
        if bad < steps.count or not np.isfinite(self._observation).all():
            raise self.live.bad_observation(self._before + bad)

    def episode(self) -> AgentState:
        """Where the environment stands now; the live one remembers it too."""
        new = np.array(self._given, self._earlier.dtype).reshape(-1, *self._earlier.shape[1:])
        actions = np.concatenate([self._earlier, new])
        observation = self._observation.copy()  # it may be the environment's own array
        self.live.at = Episode(self._seed, actions, observation)
        return {
            "episode_seed": np.array([self._seed], np.int64),
            "episode_actions": actions,
            "episode_observation": observation,
            "episode_return": np.array([self._return]),
        }
