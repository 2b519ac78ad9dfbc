"""Lies about the world: a liar's environment is another one than it says. Its report is honest work in it.

A changed world is as repeatable as the environment below it: whatever is random in it follows from the episode's seed.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from afedpg.config import Config, option
from afedpg.errors import ConfigError
from afedpg.messages import Floats, Vector
from afedpg.problems.problem import Problem
from afedpg.sampling.disturbance import Disturbance
from afedpg.sampling.environments import MakeEnv, OwnSites, environment_of
from afedpg.sampling.sites import make_sites

Env = gymnasium.Env[Any, Any]
_SHOWS_NOTHING = "attack: this one changes what is observed, and a synthetic problem shows nothing"


class World(ABC):
    """What every changed world is: of an environment, and where there is such a thing of a synthetic problem."""

    @abstractmethod
    def environment(self, env: Env) -> Env:
        """The environment as it is in this world."""

    def sample(self, problem: Problem, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        """What a synthetic problem's `sample` gives in this world; one that has none is refused at the start."""
        raise ConfigError(_SHOWS_NOTHING)


@dataclass(frozen=True)
class RewardFlip(World):
    """Every reward has the other sign: the best policy of this world is the worst of the real one."""

    def environment(self, env: Env) -> Env:
        return _RewardFlip(env)

    def sample(self, problem: Problem, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        """These estimates are linear in the reward."""
        gradient, reward = problem.sample(theta, draw)
        return -gradient, -reward


@dataclass(frozen=True)
class RandomActions(World):
    """The environment is given actions drawn evenly, whatever the policy says; the gradient credits the policy's."""

    def environment(self, env: Env) -> Env:
        return _RandomActions(env)

    def sample(self, problem: Problem, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        """At theta = 0 softmax-mdp acts evenly, and the bandits around 0."""
        return problem.sample(np.zeros_like(theta), draw)


@dataclass(frozen=True)
class ObservationNoise(World):
    """Every observed number has Gaussian noise on it."""

    scale: float = option(1.0, "deviation of the noise", above=0)

    def environment(self, env: Env) -> Env:
        return _ObservationNoise(env, self.scale)


class _RewardFlip(gymnasium.Wrapper[Any, Any, Any, Any]):
    disturbance = Disturbance(reward=-1.0)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, -float(reward), terminated, truncated, info


class _RandomActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    disturbance = Disturbance(random=True)

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._given = copy.deepcopy(env.action_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._given.seed(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        return self.env.step(self._given.sample())


class _ObservationNoise(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Env, scale: float) -> None:
        super().__init__(env)
        if not (isinstance(env.observation_space, gymnasium.spaces.Box) and env.observation_space.dtype.kind == "f"):
            kind = env.observation_space
            raise ConfigError(f"attack: observation-noise needs observations that are real numbers, not {kind}")
        self._scale, self.disturbance = scale, Disturbance(noise=scale)
        self._generator = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        observation, info = self.env.reset(seed=seed, options=options)
        return self._disturbed(observation), info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._disturbed(observation), reward, terminated, truncated, info

    def _disturbed(self, observation: Any) -> Any:
        noise = self._scale * self._generator.standard_normal(np.shape(observation))
        return (observation + noise).astype(observation.dtype)


@dataclass(frozen=True)
class ChangedEnvironments:
    """Makes the environments of agents that lie."""

    config: Config
    make_env: MakeEnv | None
    world: World
    sites: OwnSites | None = None

    def __call__(self, agent_id: int) -> Env:
        if self.make_env is not None:
            return self.world.environment(self.make_env(agent_id))
        sites = make_sites(self.config.agent.sites, self.sites, self.config.agents)
        return self.world.environment(environment_of(self.config, sites, agent_id))


@dataclass(frozen=True)
class ChangedProblem:
    """A synthetic problem whose samples are not those of its objective."""

    problem: Problem
    world: World

    def __post_init__(self) -> None:
        if type(self.world).sample is World.sample:
            raise ConfigError(_SHOWS_NOTHING)

    @property
    def parameters(self) -> int:
        return self.problem.parameters

    @property
    def optimum(self) -> float:
        return self.problem.optimum

    @property
    def width(self) -> int:
        return self.problem.width

    def initial_theta(self) -> Vector:
        return self.problem.initial_theta()

    def value(self, theta: Vector) -> float:
        return self.problem.value(theta)

    def gradient(self, theta: Vector) -> Vector:
        return self.problem.gradient(theta)

    def draw(self, generator: np.random.Generator, samples: int) -> Vector:
        return self.problem.draw(generator, samples)

    def sample(self, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        return self.world.sample(self.problem, theta, draw)
