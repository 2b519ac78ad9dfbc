"""Environments: made the same way everywhere, kept alive in a worker, and brought back to mid-episode.

An environment in mid-episode is (episode seed, actions so far). A live one is used only if it is exactly the one that
is asked for; otherwise it is reset and the actions are replayed, and the last observation must come out bit for bit.
"""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import gymnasium
import numpy as np
from numpy.typing import NDArray

from afedpg.config import AgentConfig, Config
from afedpg.errors import AfedpgError, ConfigError
from afedpg.imports import modules_in, search_working_folder
from afedpg.sampling.answers import Wrong, check_kind, opening, outcome
from afedpg.sampling.physics import split_physics
from afedpg.sampling.sites import Sites, make_sites
from afedpg.sampling.spaces import Actions, Observations, actions_of, choices_of, observations_of
from afedpg.validation import check_agent

Environment = gymnasium.Env[Any, Any]
MakeEnv = Callable[[int], Environment]
OwnSites = Sites | Callable[[Environment, int], Environment]
NO_EPISODE = -1
MOST_LIVE = 64  # environments in one process: 1 MB each of MuJoCo's; beyond, every rollout replays its episode first


@dataclass(frozen=True)
class Episode:
    """Where an environment stands: reset with `seed`, then given `actions`, it last showed `observation`."""

    seed: int
    actions: NDArray[Any]  # [n, act] or [n], exactly what env.step was given
    observation: NDArray[Any]  # [obs] flat, unscaled

    def equals(self, other: Episode) -> bool:
        same = self.seed == other.seed and self.actions.shape == other.actions.shape
        # a live environment's own arrays come back as they are, so the comparison is rarely made
        same = same and (self.actions is other.actions or np.array_equal(self.actions, other.actions))
        return same and np.array_equal(self.observation, other.observation)


class Live:
    """One agent's environment in this process."""

    def __init__(self, env: Environment, agent_id: int) -> None:
        self.env = env
        self.agent_id = agent_id
        spec = env.unwrapped.spec
        self.name = type(env.unwrapped).__name__ if spec is None else spec.id
        self.observations: Observations = observations_of(env.observation_space)
        self.actions: Actions = actions_of(env.action_space)
        self.at: Episode | None = None  # None while it moves, and after a failure

    def reset(self, seed: int) -> NDArray[Any]:
        self.at = None
        try:
            answer = self.env.reset(seed=seed)
        except Exception as error:
            raise self._failure(f"env.reset(seed={seed})", error) from error
        try:
            return self._flat(opening(answer))
        except Wrong as error:
            raise self._wrong(str(error)) from error

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool]:
        try:
            answer = self.env.step(self.actions.shaped(action))
        except Exception as error:
            raise self._failure("env.step", error) from error
        try:
            observation, reward, terminated, truncated = outcome(answer)
            return self._flat(observation), reward, terminated, truncated
        except Wrong as error:
            raise self._wrong(str(error)) from error

    def check_reward(self, step: int, reward: float) -> None:
        if not math.isfinite(reward):
            raise self._wrong(f"returned a reward of {reward} at the agent's step {step}")

    def bad_observation(self, step: int) -> AfedpgError:
        return self._wrong(f"returned a NaN or infinite observation at the agent's step {step}")

    def _flat(self, observation: Any) -> NDArray[Any]:
        space = self.observations.space
        try:
            flat = self.observations.flatten(observation)
        except Exception as error:  # Gymnasium raises many kinds
            text = f"{type(error).__name__}: {one_line(error)}"
            raise Wrong(f"returned an observation that is none of its space {space} ({text})") from error
        if flat.size != self.observations.size:
            raise Wrong(f"returned {flat.size} numbers, its observation space {space} has {self.observations.size}")
        return flat

    def _failure(self, where: str, error: Exception) -> AfedpgError:
        return failure(self.agent_id, where, error, self.name)

    def _wrong(self, what: str) -> AfedpgError:
        return AfedpgError(f"agent {self.agent_id}: the environment {what}; fix the environment {self.name}")

    def restore(self, episode: Episode) -> bool:
        """Whether reset and replay lead to the observation that was seen."""
        observation = self.reset(episode.seed)
        for action in episode.actions:
            observation, _, terminated, truncated = self.step(action)
            if terminated or truncated:  # this episode was still going on
                return False
        return np.array_equal(observation, episode.observation)


def failure(agent_id: int, where: str, error: Exception, name: str = "") -> AfedpgError:
    what = f"{where} raised {type(error).__name__}: {one_line(error)}"
    return AfedpgError(f"agent {agent_id}: {what}; fix {f'the environment {name}' if name else where}")


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class Environments:
    """The environments of one process: at most `limit` alive, the least recently used one makes room."""

    def __init__(
        self, config: Config, make_env: MakeEnv | None = None, limit: int = MOST_LIVE, sites: OwnSites | None = None
    ) -> None:
        self._config = config
        self._make_env = make_env
        self._sites = make_sites(config.agent.sites, sites, config.agents) if make_env is None else None
        self._limit = limit
        self._live: OrderedDict[int, Live] = OrderedDict()
        self._made: WeakValueDictionary[int, Environment] = WeakValueDictionary()  # by id, unwrapped
        check_agents(config.agent.env_kwargs, config.agents)
        first = self.of(0)
        self.observations, self.actions = first.observations, first.actions

    def of(self, agent_id: int) -> Live:
        """That agent's live environment, wherever it stands."""
        live = self._live.get(agent_id) or self._adopt(agent_id) or Live(self.make(agent_id), agent_id)
        self._live[agent_id] = live
        self._live.move_to_end(agent_id)
        return live

    def make(self, agent_id: int, render_mode: str | None = None) -> Environment:
        """A fresh environment of that agent, with the spaces of agent 0's, which the caller closes."""
        env = self._make(agent_id, render_mode)
        self._check_new(env, agent_id)
        if hasattr(self, "actions"):  # else this is agent 0's, the one to compare with
            try:
                self._compare(Live(env, agent_id))
            except ConfigError:
                env.close()
                raise
        return env

    def _check_new(self, env: Environment, agent_id: int) -> None:
        """Agents would step one another's episodes, and an evaluation theirs, and no error would come of it."""
        inner = env.unwrapped
        if self._made.get(id(inner)) is inner:
            setting = "task" if self._setting == "env_kwargs" else self._setting
            raise ConfigError(
                f"{setting}: agent {agent_id} got a {type(inner).__name__} that was given out before, and agents would "
                "step one another's; make a new one at every call"
            )
        with suppress(TypeError):  # one with __slots__ cannot be watched, and is taken as it is
            self._made[id(inner)] = inner

    def compare_all(self) -> list[int]:
        """Makes every environment that differs from the others once, and so compares their spaces; returns the agents
        whose episodes have no time limit.

        That is what the first evaluation makes, and every agent's first rollout; here nothing is computed yet.
        """
        endless = [] if time_limit(self.of(0).env) else [0]
        for agent_id, _ in self.distinct()[1:]:
            env = self.make(agent_id)
            endless += [] if time_limit(env) else [agent_id]
            env.close()
        return endless

    def _make(self, agent_id: int, render_mode: str | None) -> Environment:
        if self._make_env is None:
            return environment_of(self._config, self._sites, agent_id, render_mode)
        try:
            env = self._make_env(agent_id)
        except AfedpgError:
            raise
        except Exception as error:
            raise failure(agent_id, "make_env", error) from error
        check_kind(env, f"make_env: agent {agent_id}")
        limit = self._config.agent.max_episode_steps
        return gymnasium.wrappers.TimeLimit(env, limit) if limit else env

    def distinct(self) -> list[tuple[int, str]]:
        """One agent for each kind of environment there is, with a name for it; no name where all are alike."""
        tables = bool(self._config.agent.env_kwargs.get("agents"))
        if self._make_env is None and self._sites is None and not tables:
            return [(0, "")]
        kinds: dict[tuple[str, str], int] = {}
        for agent_id in range(self._config.agents):
            kinds.setdefault(self._kind(agent_id), agent_id)
        by_site = self._sites is not None and not tables
        return [(agent_id, site if by_site else f"agent {agent_id}") for (_, site), agent_id in kinds.items()]

    def _kind(self, agent_id: int) -> tuple[str, str]:
        """What that agent's environment is made with, and its site; equal ones are the same environment."""
        if self._make_env is not None:
            return str(agent_id), ""
        site = "" if self._sites is None else self._sites.site(agent_id).name
        return repr(kwargs_of(self._config.agent, agent_id)), site

    def close(self) -> None:
        for live in self._live.values():
            live.env.close()
        self._live.clear()

    def _adopt(self, agent_id: int) -> Live | None:
        """When full, the oldest environment makes room; where it is the same task, it is taken over, not remade."""
        if len(self._live) < self._limit:
            return None
        old_id, old = self._live.popitem(last=False)
        if self._kind(old_id) == self._kind(agent_id):
            old.agent_id, old.at = agent_id, None
            return old
        old.env.close()
        return None

    @property
    def _setting(self) -> str:
        """What makes environments differ."""
        named = "env_kwargs" if self._sites is None else "sites"
        return named if self._make_env is None else "make_env"

    def _compare(self, live: Live) -> None:
        if _shapes(live.observations, live.actions) != _shapes(self.observations, self.actions):
            raise ConfigError(
                f"{self._setting}: agent {live.agent_id} has observations {live.observations.space} and actions "
                f"{live.actions.space}, agent 0 has {self.observations.space} and {self.actions.space}; "
                "one policy serves all agents, so shapes must agree"
            )


def _shapes(observations: Observations, actions: Actions) -> tuple[Any, ...]:
    return observations.size, observations.image, type(actions), actions.size, choices_of(actions)


def environment_of(config: Config, sites: Sites | None, agent_id: int, render_mode: str | None = None) -> Environment:
    """That agent's, made from the task's name and changed to what its site has."""
    env = make_environment(config.environment, kwargs_of(config.agent, agent_id), render_mode)
    if sites is None:
        return env
    try:
        changed = sites.site(agent_id).change(env)
    except AfedpgError:
        raise
    except Exception as error:  # a user's function
        raise failure(agent_id, "sites", error) from error
    check_kind(changed, f"sites: agent {agent_id}")
    return changed


def make_environment(task: str, kwargs: Mapping[str, Any], render_mode: str | None = None) -> Environment:
    """gymnasium.make, plus `gravity`, `friction` and `wind` for any MuJoCo task; failures name the setting."""
    if next(modules_in([task, kwargs]), None):
        search_working_folder()
    try:
        settings, physics = split_physics(task, kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older task versions are asked for on purpose
            if render_mode is not None:  # an environment that draws nothing need not know the word
                settings["render_mode"] = render_mode
            env = gymnasium.make(task, disable_env_checker=True, **settings)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(f"task: {task} needs a package that is not installed: {error}") from error
    except (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound) as error:
        hint = "" if ":" in task else f" If a module registers it, name both, as MODULE:{task}"
        raise ConfigError(f"task: {task} cannot be made: {one_line(error)}{hint}") from error
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise ConfigError(f"task: {task} cannot be made: {one_line(error)}") from error
    except Exception as error:
        raise _not_made(task, kwargs, render_mode, error) from error
    check_kind(env, f"task: {task}")
    if physics is not None:
        physics.apply(env)
    return env


def _not_made(task: str, kwargs: Mapping[str, Any], render_mode: str | None, error: Exception) -> ConfigError:
    """Gymnasium's make, or the constructor behind it, raised: which setting is to blame?"""
    text = one_line(error)
    if isinstance(error, TypeError):
        if render_mode is not None and "render_mode" in text:
            return ConfigError(f"video: {task} shows no pictures: its constructor takes no render_mode")
        if "gymnasium.Env" in text:  # how Gymnasium refuses PettingZoo's, Gym's and others' environments
            return ConfigError(f"task: {task} is no Gymnasium environment: {text}")
        if kwargs:
            return ConfigError(f"env_kwargs: {task} does not take {dict(kwargs)}: {text}")
    given = f" with {dict(kwargs)}" if kwargs else ""
    return ConfigError(f"task: {task} cannot be made{given}: {type(error).__name__}: {text}")


def time_limit(env: Environment) -> int | None:
    """Steps after which an episode is truncated by a wrapper; None where only the environment itself can end it."""
    limits = []
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            limits.append(int(layer._max_episode_steps))
        layer = layer.env
    return min(limits, default=None)


def kwargs_of(settings: AgentConfig, agent_id: int) -> dict[str, Any]:
    """The keyword arguments of one agent: those for all, with the table agents.ID of env_kwargs laid over them.

    As a TOML file:
        frame_skip = 4            # for every agent
        [agents.0]
        gravity = -9.81           # for agent 0 alone
    """
    limit = {"max_episode_steps": settings.max_episode_steps} if settings.max_episode_steps else {}
    common = {name: value for name, value in settings.env_kwargs.items() if name != "agents"}
    return limit | common | dict(settings.env_kwargs.get("agents", {}).get(str(agent_id), {}))


def check_agents(settings: Mapping[str, Any], agents: int) -> None:
    tables = settings.get("agents", {})
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise ConfigError("env_kwargs: `agents` holds a table per agent, as in [agents.0]")
    for name in tables:
        if not isinstance(name, str):  # run.toml could not hold it
            raise ConfigError(f"env_kwargs: agents.{name}: a {type(name).__name__}; name agents by text, as '0'")
        check_agent("env_kwargs", name, agents)


def too_long(agent_id: int, limit: int) -> ConfigError:
    return ConfigError(
        f"steps: agent {agent_id} had an episode of more than T = {limit} steps, and reinforce takes whole episodes; "
        "raise --steps above the longest episode, or use --estimator gae"
    )
