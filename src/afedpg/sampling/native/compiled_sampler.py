"""What compiled samplers have in common.

An agent's streams, its state in mid-episode and its rollouts are those of the plain sampler, bit for bit.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import AgentState, Floats, Moments, Vector
from afedpg.policy.forward import aligned, network_of, parameter_count, scratch_for
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.environments import NO_EPISODE, Environment, Environments, Episode, Live, too_long
from afedpg.sampling.evaluate import MOST_STEPS, Episodes
from afedpg.sampling.gymnasium import GymnasiumSampler, no_episode
from afedpg.sampling.native import closed_loop
from afedpg.sampling.native.closed_loop import (
    CUTS,
    EPISODE_STEPS,
    EPISODES,
    FIRST_STEP,
    RESETS,
    STEP,
    UNSTABLE,
    Buffers,
)
from afedpg.sampling.rollout import Rollout
from afedpg.seeding import freeze, thaw

Found = tuple[AgentState, Rollout, dict[str, float]]


class Body(Protocol):
    """An environment as a compiled loop sees it; whoever moves it moves the environment."""

    @property
    def limit(self) -> int:
        """Steps after which an episode is truncated."""

    def resets(self, seeds: NDArray[np.int64]) -> Any:
        """How the episodes of these seeds start, as the loop takes it."""

    def restore(self, episode: Episode) -> bool:
        """Whether reset and replay lead to the observation that was seen."""


class CompiledSampler(ABC):
    """T steps, episodes going on across rollouts; or, with `whole_episodes`, fresh episodes until at least T steps."""

    loop: ClassVar[Any]  # the compiled function that rolls out

    def __init__(self, environments: Environments, policy: MlpPolicy, steps: int, whole_episodes: bool) -> None:
        self._environments = environments
        self._plain = GymnasiumSampler(environments, policy, steps, whole_episodes)  # for agents of another kind
        self._steps = steps
        self._whole = whole_episodes
        self._bodies: WeakKeyDictionary[Live, Any] = WeakKeyDictionary()
        capacity = 2 * steps if whole_episodes else steps
        self._buffers = _buffers(policy.observations, *self.room(capacity))
        self._network = network_of(policy.sizes, policy.activation, policy.mean)
        self._sizes = self._network.sizes
        self._theta = aligned(parameter_count(self._sizes, log_std=policy.gaussian))
        self._scratch = scratch_for(self._sizes)
        self._noise = np.random.Generator(np.random.PCG64(0))
        self._seeds = np.random.Generator(np.random.PCG64(0))
        self._expected_resets = 2

    @staticmethod
    @abstractmethod
    def body(env: Environment) -> Any:
        """The environment's `Body`, or as a str the reason why the loop cannot roll it out."""

    @abstractmethod
    def room(self, capacity: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """For so many actions of the policy, and as the environment gets them."""

    @abstractmethod
    def acting(self, theta: Floats, statistics: Moments | None, live: Live, deterministic: bool = False) -> Any:
        """The policy for one rollout, as the loop takes it."""

    @abstractmethod
    def run(
        self, body: Any, acting: Any, noise: np.random.Generator, resets: Any, buffers: Buffers,
        progress: NDArray[np.int64], stop: int, whole_episodes: bool,
    ) -> None:  # fmt: skip
        """One call of the loop."""

    def warm_up(self, live: Live, body: Body) -> None:
        """Compile, or load from the cache: a rollout of no steps, and the way back to an episode's start."""
        acting = self.acting(np.zeros(len(self._theta), np.float32), None, live)
        self._go_on(body, acting, np.empty(0, np.int64), _progress(None))
        body.restore(Episode(0, self._environments.actions.empty(), np.empty(self._sizes[0])))

    @property
    def given(self) -> NDArray[Any]:
        """Of the last rollout: the actions as the environment got them."""
        return self._buffers.given

    def start(self, seed: int, agent_id: int) -> AgentState:
        return self._plain.start(seed, agent_id)

    def sample(self, agent_id: int, state: AgentState, theta: Floats, statistics: Moments | None) -> Found:
        live = self._environments.of(agent_id)
        body = self._bodies.get(live)
        if body is None:
            body = self._bodies[live] = self.body(live.env)
            if isinstance(body, str):
                print(f"agent {agent_id} uses the plain sampler: {body}", file=sys.stderr, flush=True)
        if isinstance(body, str):
            return self._plain.sample(agent_id, state, theta, statistics)
        return self._sample(live, body, state, self.acting(theta, statistics, live))

    def play(
        self, env: Environment, agent_id: int, theta: Floats, statistics: Moments | None, episodes: int,
        deterministic: bool, generator: np.random.Generator,
    ) -> Episodes | None:  # fmt: skip
        """What `evaluate` plays step by step. None where the loop cannot, and of episodes too long for its buffers."""
        body, live = self.body(env), Live(env, agent_id)
        if isinstance(body, str) or body.limit > MOST_STEPS:
            return None
        buffers = _buffers(int(self._sizes[0]), *self.room(body.limit))
        acting = self.acting(theta, statistics, live, deterministic)
        returns, lengths = [], []
        for _ in range(episodes):
            start, progress = body.resets(np.array([generator.integers(2**31)])), _progress(None)
            self.run(body, acting, generator, start, buffers, progress, body.limit, True)
            _check_finite(live, 0, buffers.rewards[: progress[STEP]], buffers.raw[: progress[STEP]])
            returns.append(float(buffers.returns[0]))
            lengths.append(int(progress[STEP]))
        return Episodes(tuple(returns), tuple(lengths))

    def _sample(self, live: Live, body: Body, state: AgentState, acting: Any) -> Found:
        episode, restarted = self._go_back(live, body, state)
        live.at = None  # it moves from here on
        progress = _progress(episode)
        if episode is not None:
            self._buffers.raw[0] = episode.observation
            self._buffers.returns[0] = state["episode_return"][0]
        thaw(state["noise_stream"], self._noise)
        seeds = self._roll_out(body, acting, progress, thaw(state["episode_stream"], self._seeds))
        rollout = self._rollout(progress)
        self._check(live, int(state["total_steps"][0]), progress, rollout)
        thaw(state["episode_stream"], self._seeds).integers(2**31, size=len(seeds))  # more may have been drawn ahead
        changed: AgentState = {
            "noise_stream": freeze(self._noise),
            "episode_stream": freeze(self._seeds),
            "total_steps": state["total_steps"] + rollout.steps,
        }
        if self._whole:
            changed |= no_episode(self._environments)
        else:
            live.at = self._present(progress, episode, seeds)
            changed |= _flat(live.at, self._buffers.returns[progress[EPISODES]])
        return changed, rollout, _extra(restarted, int(progress[UNSTABLE]))

    def _go_back(self, live: Live, body: Body, state: AgentState) -> tuple[Episode | None, bool]:
        """Where the agent's last rollout stopped, with the environment there; or None, and whether it could not be."""
        if self._whole or state["episode_seed"][0] == NO_EPISODE:
            return None, False
        episode = Episode(int(state["episode_seed"][0]), state["episode_actions"], state["episode_observation"])
        if (live.at is not None and live.at.equals(episode)) or body.restore(episode):
            return episode, False
        return None, True

    def _roll_out(
        self, body: Body, acting: Any, progress: NDArray[np.int64], stream: np.random.Generator
    ) -> NDArray[np.int64]:
        """The whole rollout; returns the seeds of the episodes that began in it."""
        used = np.empty(0, np.int64)
        ahead = self._expected_resets
        while True:
            seeds = stream.integers(2**31, size=ahead)
            progress[RESETS] = 0
            self._go_on(body, acting, seeds, progress)
            used = np.concatenate([used, seeds[: progress[RESETS]]])
            if progress[EPISODE_STEPS] >= 0 or (self._whole and progress[STEP] >= self._steps):
                break
            ahead = 4 + len(used) // 4
        self._expected_resets = len(used) + 1
        return used

    def _go_on(self, body: Body, acting: Any, seeds: NDArray[np.int64], progress: NDArray[np.int64]) -> None:
        """With the rollout, as far as episodes of these seeds last."""
        resets = body.resets(seeds)
        self.run(body, acting, self._noise, resets, self._buffers, progress, self._steps, self._whole)

    def _rollout(self, progress: NDArray[np.int64]) -> Rollout:
        buffers, n = self._buffers, progress[STEP]
        cuts, ended = progress[CUTS], progress[EPISODES]
        return Rollout(
            raw=buffers.raw[:n],
            observations=buffers.observations[:n],
            actions=buffers.actions[:n],
            rewards=buffers.rewards[:n],
            terminated=buffers.terminated[:n],
            truncated=buffers.truncated[:n],
            cut_steps=buffers.cut_steps[:cuts],
            cut_observations=buffers.cut_observations[:cuts],
            returns=tuple(buffers.returns[:ended].tolist()),
            lengths=tuple(buffers.lengths[:ended].tolist()),
        )

    def _present(self, progress: NDArray[np.int64], before: Episode | None, seeds: NDArray[np.int64]) -> Episode:
        """Where the environment stands after the rollout."""
        given = self._buffers.given[progress[FIRST_STEP] : progress[STEP]].copy()
        if not len(seeds):
            assert before is not None
            given = np.concatenate([before.actions, given])
        seed = int(seeds[-1]) if before is None or len(seeds) else before.seed
        return Episode(seed, given, self._buffers.raw[progress[STEP]].copy())

    def _check(self, live: Live, before: int, progress: NDArray[np.int64], rollout: Rollout) -> None:
        """What must not happen. `before`: the agent's steps until this rollout."""
        if self._whole and progress[EPISODE_STEPS] >= 0:
            raise too_long(live.agent_id, self._steps)
        _check_finite(live, before, rollout.rewards, self._buffers.raw[: rollout.steps + (not self._whole)])


def _check_finite(live: Live, before: int, rewards: Vector, observations: Vector) -> None:
    """`before`: steps that came before these; rewards [n], observations [n or n + 1, obs]."""
    finite = np.isfinite(rewards)
    if not finite.all():
        live.check_reward(before + int(finite.argmin()), float(rewards[finite.argmin()]))
    finite = np.isfinite(observations.sum(axis=1))  # one pass; a row with a NaN or an infinity sums to one
    if not finite.all():
        raise live.bad_observation(before + int(finite.argmin()))


def _buffers(observations: int, actions: NDArray[Any], given: NDArray[Any]) -> Buffers:
    capacity = len(actions)
    return Buffers(
        raw=np.empty((capacity + 1, observations)),
        observations=np.empty((capacity, observations), np.float32),
        actions=actions,
        given=given,
        rewards=np.empty(capacity),
        terminated=np.empty(capacity, np.bool_),
        truncated=np.empty(capacity, np.bool_),
        cut_steps=np.empty(capacity, np.int64),
        cut_observations=np.empty((capacity, observations), np.float32),
        returns=np.empty(capacity + 1),
        lengths=np.empty(capacity, np.int64),
    )


def _progress(episode: Episode | None) -> NDArray[np.int64]:
    progress = np.zeros(closed_loop.PROGRESS, np.int64)
    progress[EPISODE_STEPS] = -1 if episode is None else len(episode.actions)
    return progress


def _flat(episode: Episode, running_return: float) -> AgentState:
    return {
        "episode_seed": np.array([episode.seed], np.int64),
        "episode_actions": episode.actions,
        "episode_observation": episode.observation,
        "episode_return": np.array([running_return]),
    }


def _extra(restarted: bool, unstable: int) -> dict[str, float]:
    extra = {"restarted": 1.0} if restarted else {}
    return extra | ({"unstable": float(unstable)} if unstable else {})
