"""An agent's work: work(state, Task) -> (state, Report).

    theta~ -> policy -> rollout -> estimator -> contribution

The state is flat arrays that are replaced, never written to; so a computation can be repeated from the same state, in
any process, with the same bits.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.baselines.linear import Baseline, LinearBaseline, NoBaseline
from afedpg.agent.baselines.mlp import MlpBaseline
from afedpg.agent.compute.choice import build_kernels, uses_kernels
from afedpg.agent.estimators.checks import (
    answer_of,
    check_estimator,
    estimated,
    flat,
    groups_of,
    initial_of,
    started,
    statistics_of,
)
from afedpg.agent.estimators.estimator import Estimator, Tools
from afedpg.agent.estimators.shipped import SHIPPED
from afedpg.agent.scaling import LARGEST, RETURNS, discounted_returns, reward_scale
from afedpg.config import AgentConfig, Config
from afedpg.errors import ConfigError
from afedpg.export.exporter import Exporter
from afedpg.export.policy_file import PolicyFile
from afedpg.messages import (
    OBSERVATIONS,
    AgentState,
    Evaluation,
    Exchange,
    Floats,
    Moments,
    Occasion,
    Report,
    Statistics,
    Stats,
    Task,
    Vector,
)
from afedpg.parts import build
from afedpg.policy.mlp import MlpPolicy, Policy
from afedpg.sampling.environments import Environments, MakeEnv, OwnSites, time_limit
from afedpg.sampling.evaluate import MOST_STEPS, REMEDY, evaluate
from afedpg.sampling.gymnasium import GymnasiumSampler, Sampler, start_sampling
from afedpg.sampling.normalizer import moments_of, rescaled
from afedpg.sampling.rollout import Rollout, rollout_from_state, rollout_to_state
from afedpg.sampling.spaces import BoxActions, Observations, choices_of
from afedpg.seeding import branch, stream
from afedpg.server.moments import merge
from afedpg.server.schedules import server_steps, shorter
from afedpg.server.state import statistics_from_tree, statistics_to_tree

_OF_TASK, _OWN = "task_", "own_"  # what the keys of statistics begin with in an agent's state: its last Task's, its own
_log = logging.getLogger("afedpg")

if TYPE_CHECKING:
    from afedpg.agent.compute.kernels import CriticKernels, PolicyKernels
    from afedpg.policy.own import MakePolicy


class EnvironmentWorkload:
    """Environments and a policy. Built from its arguments alone, so that a spawned worker can build it again.

    config.agent.env_kwargs are gymnasium.make's arguments for every agent; `agents` in it may hold a table per agent
    that is laid over them: {"frame_skip": 4, "agents": {"0": {"gravity": -9.8}, "1": {"gravity": -3.7}}}. `gravity`,
    `friction` and `wind` work for every MuJoCo task. config.agent.sites, or an object or function of the user's own,
    changes each agent's environment after it was made. `make_env(agent_id)` replaces all of it,
    `make_policy(observation space, action space)` the MLP policies.
    """

    def __init__(
        self,
        config: Config,
        make_env: MakeEnv | None = None,
        make_policy: MakePolicy | None = None,
        estimator: Estimator | None = None,
        sites: OwnSites | None = None,
        contributions: int = 1,
    ) -> None:
        self._config, self.make_policy, self._contributions = config, make_policy, contributions
        self._said_cut = False
        self._earlier: dict[int, Tools] = {}
        self.environments = Environments(config, make_env, sites=sites)
        self._agent = _settings(config, self.environments.observations, contributions)
        self.estimator = check_estimator(estimator or build("estimator", config.agent.estimator, SHIPPED))
        self.policy = build_policy(config, self.environments, self.estimator, make_policy)
        self._native = uses_kernels(config, self.policy, self.estimator.value_network)
        observations = self.environments.observations
        baseline = partial(choose_baseline, self._agent, observations)
        self._tools = Tools(
            self.policy, self._agent, observations.size, self._build_kernels, baseline, observations.image
        )
        # A server never works; it evaluates without torch and without the compiled rollout, which would take memory.
        self._works = config.engine != "grpc" or make_policy is not None
        if self._works:
            self._prepare()
        _check(config, self.environments, self.estimator)
        answer_of(self.estimator, self.estimator.check, self._tools)

    def _prepare(self) -> None:
        """Finds out now what cannot be had, and compiles."""
        _ = self._sampler, self._tools.baseline
        if not self._native:
            import torch

            torch.set_num_threads(1)  # last bits of a product change with the number of threads

    @cached_property
    def _sampler(self) -> Sampler:
        return choose_sampler(self._config, self.environments, self.policy, self.estimator)

    def _build_kernels(self) -> tuple[PolicyKernels | None, CriticKernels | None]:
        return build_kernels(self._config, self.policy, self.estimator.own_critic) if self._native else (None, None)

    @property
    def parameters(self) -> int:
        groups = self.exchange.groups
        return sum(group.size for group in groups) if groups else self.policy.layout.size

    @cached_property
    def exchange(self) -> Exchange:
        statistics = {OBSERVATIONS: self._tools.observations} if self._agent.scale_observations else {}
        statistics |= {RETURNS: 1} if self._agent.scale_rewards else {}
        estimator = self.estimator
        statistics |= statistics_of(estimator, self._tools)
        groups = groups_of(estimator, self._tools)
        return Exchange(groups, estimator.scalars, statistics, late_fetch=estimator.late_fetch)

    @property
    def cost(self) -> float:
        return self.steps / self._agent.steps

    @property
    def steps(self) -> int:
        return self._config.report_steps

    def check(self) -> None:
        endless = self.environments.compare_all()
        if endless:
            whose = self._config.task if len(endless) == len(self.environments.distinct()) else f"agents {endless[:9]}"
            text = "%s: no time limit is known, so an evaluation's episode is cut after %d steps; %s"
            _log.warning(text, whose, MOST_STEPS, REMEDY)

    def initial_theta(self) -> Vector:
        generator = stream(self._config.seed, "theta")
        policy = self.policy.initial_theta(generator)
        return np.concatenate([policy, initial_of(self.estimator, self._tools, self.exchange.groups, generator)])

    def start(self, agent_id: int) -> AgentState:
        state = start_sampling(self.environments, self._config.seed, agent_id)
        generator = stream(self._config.seed, "baseline", agent_id)
        state |= started(self.estimator, self._tools, generator)
        if self._agent.scale_rewards:
            state["discounted_return"] = np.zeros(1)
        return state

    def renew(self, state: AgentState, life: int) -> AgentState:
        return {key: branch(array, life) if key.endswith("_stream") else array for key, array in state.items()}

    def prepare(self, state: AgentState, agent_id: int) -> AgentState:
        """Where it fetches late, samples with its own policy, scaled by its last Task's statistics and its own."""
        if not self.estimator.late_fetch or "theta" not in state or "rollout_rewards" in state:
            return state
        changed, rollout, extra = self._sample(state, agent_id, state["theta"], _statistics_in(state, _OF_TASK))
        return {**state, **changed, **rollout_to_state(rollout, extra)}

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        state = self.prepare(state, task.agent_id)
        policy = task.theta[: self.policy.layout.size]
        if "rollout_rewards" in state:
            rollout, extra = rollout_from_state(state)
            state = {key: array for key, array in state.items() if not key.startswith("rollout_")}
            changed: AgentState = {}
        else:
            changed, rollout, extra = self._sample(state, task.agent_id, policy, task.statistics)
            if self.estimator.late_fetch:
                changed["theta"] = policy  # what it was sampled with
        rollout = replace(rollout, restarted="restarted" in extra)
        moments: dict[str, Moments] = {}
        if self._agent.scale_observations:
            new = moments[OBSERVATIONS] = moments_of(rollout.raw)
            if self.estimator.late_fetch and OBSERVATIONS not in task.statistics:
                rollout = rescaled(rollout, new)
            if self._agent.scaling == "local":
                own = _statistics_in(state, _OWN).get(OBSERVATIONS)
                changed = {**changed, **_statistics_to_state({OBSERVATIONS: merge(own, new)}, _OWN)}
        scaled = rollout
        if self._agent.scale_rewards:
            changed, moments[RETURNS], scaled = self._scaled(state, changed, task.statistics, rollout)
        fitted, contribution = estimated(self.estimator, self._tools_at(task.version), state | changed, task, scaled)
        if self.estimator.late_fetch:  # with its own, or an agent's second rollout would not be scaled at all
            fitted = {**fitted, **_statistics_to_state(with_own(task.statistics, moments), _OF_TASK)}
        report = Report(
            task_id=task.task_id,
            agent_id=task.agent_id,
            payload=flat(self.estimator, contribution, self.exchange.groups, self.parameters),
            version=task.version,
            moments={**moments, **contribution.moments},
            stats=Stats(rollout.steps, rollout.returns, rollout.lengths, {**extra, **contribution.extra}),
            scalars=contribution.scalars,
        )
        return state | changed | fitted, report

    def _tools_at(self, version: int) -> Tools:
        """Before a run was extended, an estimator's rates fell as if it were to end earlier."""
        horizon = next((less for step, less in shorter(self._config, self._contributions) if version < step), 0)
        if not horizon or self._config.agent.horizon:
            return self._tools
        earlier = replace(self._tools, settings=replace(self._agent, horizon=horizon))
        return self._earlier.setdefault(horizon, earlier)  # kept: kernels are built once for each

    def _sample(
        self, state: AgentState, agent_id: int, policy: Floats, statistics: Statistics
    ) -> tuple[AgentState, Rollout, dict[str, float]]:
        if self._agent.scaling == "local":
            statistics = _statistics_in(state, _OWN)
        scaled_by = statistics.get(OBSERVATIONS) if self._agent.scale_observations else None
        return self._sampler.sample(agent_id, state, policy, scaled_by)

    def _scaled(
        self, state: AgentState, changed: AgentState, statistics: Statistics, rollout: Rollout
    ) -> tuple[AgentState, Moments, Rollout]:
        """The rollout with its rewards divided by the deviation of the discounted return; episode returns stay.

        The rollout's own returns count, or the critic would be fitted to unscaled ones first.
        """
        before = 0.0 if rollout.restarted else float(state["discounted_return"][0])
        running, ends = discounted_returns(rollout, before, self._agent.gamma)
        own = moments_of(running[:, None])
        scale = reward_scale(merge(statistics.get(RETURNS), own))
        changed = {**changed, "discounted_return": np.array([ends])}
        rewards = np.clip(rollout.rewards / scale, -LARGEST, LARGEST)
        return changed, own, replace(rollout, rewards=rewards, reward_scale=scale)

    def evaluate(
        self, theta: Floats, statistics: Statistics, iteration: int, occasion: Occasion = "evaluation"
    ) -> list[Evaluation]:
        """theta on every environment that differs from the others, as `evaluate_kind` says."""
        record = self._config.record
        kinds = ("sampled", "deterministic") if record.evaluate_kind == "both" else (record.evaluate_kind,)
        theta = theta[: self.policy.layout.size]
        seed = self._config.seed
        return [
            self._evaluate(
                theta,
                self.scaled_at(agent_id, statistics),
                agent_id,
                where,
                kind,
                stream(seed, occasion, agent_id, iteration),
            )
            for agent_id, where in self.environments.distinct()
            for kind in kinds
        ]

    def scaled_at(self, agent_id: int, statistics: Statistics) -> Moments | None:
        """By what observations are scaled when theta is evaluated in that agent's environment."""
        if not self._agent.scale_observations:
            return None
        shared = statistics.get(OBSERVATIONS)
        return statistics.get(f"{OBSERVATIONS}/{agent_id}", shared) if self._agent.scaling == "local" else shared

    def _evaluate(
        self,
        theta: Floats,
        statistics: Moments | None,
        agent_id: int,
        where: str,
        kind: str,
        generator: np.random.Generator,
    ) -> Evaluation:
        episodes = self._config.record.evaluate_episodes
        env = self.environments.make(agent_id)
        try:
            how = (episodes, kind == "deterministic", generator)
            compiled = self._sampler.play(env, agent_id, theta, statistics, *how) if self._works else None
            outcome = compiled or evaluate(self.policy, theta, statistics, env, *how, agent_id)
        finally:
            env.close()
        if outcome.cut and not self._said_cut:  # once: an evaluation may come every few seconds
            self._said_cut = True
            text = "evaluation: %d of %d episodes did not end within %d steps and were cut; %s"
            _log.warning(text, outcome.cut, episodes, MOST_STEPS, REMEDY)
        low, high = outcome.interval
        return Evaluation(kind, outcome.mean, outcome.deviation, low, high, episodes, where)

    def export(self, theta: Floats, statistics: Statistics) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        return self.exporter.export(theta, statistics)

    @property
    def exporter(self) -> Exporter:
        file = PolicyFile(
            task=self._config.environment,
            env_kwargs=self._agent.env_kwargs,
            policy=self.policy.describe(),
            observation_space=self.environments.observations.space,
            action_space=self.environments.actions.space,
            layout=self.policy.layout,
            theta=np.zeros(0, np.float32),
            statistics=None,
        )
        return Exporter(file, self._agent.scale_observations, self.make_policy)


def with_own(statistics: Statistics, own: Mapping[str, Moments]) -> Statistics:
    """As the server's will be once it has these, if nobody else reports meanwhile."""
    return {**statistics, **{name: merge(statistics.get(name), new) for name, new in own.items()}}


def _statistics_to_state(statistics: Statistics, whose: str) -> AgentState:
    return {f"{whose}{key}": array for key, array in statistics_to_tree(statistics).items()}


def _statistics_in(state: AgentState, whose: str) -> Statistics:
    return statistics_from_tree({key[len(whose) :]: array for key, array in state.items() if key.startswith(whose)})


def choose_sampler(config: Config, environments: Environments, policy: Policy, estimator: Estimator) -> Sampler:
    """The one place where rollout code is picked. Both samplers give the same bits; the native one is faster."""
    agent, steps, whole_episodes = config.agent, config.report_steps, estimator.whole_episodes
    if agent.sampler != "gymnasium":
        from afedpg.sampling.native.sampler import native_sampler  # compiled code, which a server does not need

        native = native_sampler(environments, policy, steps, whole_episodes)
        if not isinstance(native, str):
            return native
        if agent.sampler == "native":
            raise ConfigError(f"sampler: {config.task} has no native one: {native}; use --sampler auto")
    return GymnasiumSampler(environments, policy, steps, whole_episodes)


def _settings(config: Config, observations: Observations, contributions: int) -> AgentConfig:
    """With how many server steps the run has, and so that a picture's bytes are not scaled by statistics."""
    agent = config.agent
    scaled = agent.scale_observations and observations.image is None
    return replace(agent, horizon=agent.horizon or server_steps(config, contributions), scale_observations=scaled)


def choose_baseline(agent: AgentConfig, observations: Observations, kernels: CriticKernels | None = None) -> Baseline:
    size, image = observations.size, observations.image
    if agent.baseline == "linear":
        return LinearBaseline(size)
    if agent.baseline == "mlp":
        return MlpBaseline(
            size, agent.baseline_hidden, agent.baseline_rate, agent.baseline_epochs, agent.device, kernels, image
        )
    return NoBaseline()


def build_policy(
    config: Config, environments: Environments, estimator: Estimator, make_policy: MakePolicy | None
) -> Policy:
    observations, actions = environments.observations, environments.actions
    if make_policy is not None:
        from afedpg.policy.own import ModulePolicy

        generator = stream(config.seed, "theta")
        return ModulePolicy.make(make_policy, observations.space, actions.space, generator)
    return MlpPolicy(
        observations=observations.size,
        actions=actions.size,
        gaussian=isinstance(actions, BoxActions),
        hidden=config.agent.hidden,
        log_std=config.agent.log_std,
        value_hidden=config.agent.hidden if estimator.value_network else None,
        activation=config.agent.activation,
        mean=config.agent.mean,
        choices=choices_of(actions),
        image=observations.image,
    )


def _check(config: Config, environments: Environments, estimator: Estimator) -> None:
    if config.agent.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ConfigError("device: this machine or this build of torch has no cuda; use --device cpu")
    longest = time_limit(environments.of(0).env) if estimator.whole_episodes else None
    if longest is not None and longest > config.report_steps:
        name, how = ("segment", "--segment 0 with ") if config.agent.segment else ("steps", "")
        raise ConfigError(
            f"{name}: {config.report_steps} is less than one episode of {config.task}, which may take {longest}, "
            f"and {config.agent.estimator} takes whole episodes; use {how}--steps {longest} or more"
        )
