"""An agent's work: work(state, Task) -> (state, Report).

    theta~ -> policy -> rollout -> values -> advantages -> gradient

The state is flat arrays that are replaced, never written to; so a computation can be repeated from the same state, in
any process, with the same bits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.baselines.linear import Baseline, LinearBaseline, NoBaseline
from afedpg.agent.baselines.mlp import MlpBaseline
from afedpg.agent.compute.choice import native_kernels
from afedpg.agent.compute.kernels import CriticKernels
from afedpg.agent.estimators import gradient
from afedpg.agent.estimators.advantage import Row, bootstrapped_returns, gae, standardized
from afedpg.config import AgentConfig, Config
from afedpg.errors import ConfigError
from afedpg.export.policy_file import PolicyFile, contents
from afedpg.messages import AgentState, Evaluation, Floats, Moments, Report, Stats, Task, Vector
from afedpg.policy.mlp import MlpPolicy, Policy
from afedpg.sampling.environments import Environments, MakeEnv, time_limit
from afedpg.sampling.evaluate import MOST_STEPS, evaluate
from afedpg.sampling.gymnasium import GymnasiumSampler, Sampler
from afedpg.sampling.native.sampler import native_sampler
from afedpg.sampling.normalizer import moments_of
from afedpg.sampling.rollout import Rollout
from afedpg.sampling.spaces import BoxActions
from afedpg.seeding import Purpose, branch, stream

_log = logging.getLogger("afedpg")

if TYPE_CHECKING:
    from afedpg.policy.own import MakePolicy


class EnvironmentWorkload:
    """Environments and a policy. Built from its arguments alone, so that a spawned worker can build it again.

    config.agent.env_kwargs are gymnasium.make's arguments for every agent; `agents` in it may hold a table per agent
    that is laid over them: {"frame_skip": 4, "agents": {"0": {"gravity": -9.8}, "1": {"gravity": -3.7}}}. `gravity`,
    `friction` and `wind` work for every MuJoCo task. `make_env(agent_id)` replaces all of it, `make_policy(observation
    space, action space)` the MLP policies.
    """

    def __init__(self, config: Config, make_env: MakeEnv | None = None, make_policy: MakePolicy | None = None) -> None:
        self._config = config
        self._agent = config.agent
        self._a3c = config.method == "a3c"
        self._said_cut = False
        self.environments = Environments(config, make_env)
        self.policy = build_policy(config, self.environments, make_policy)
        native = native_kernels(config, self.policy)
        if native is None:
            import torch

            torch.set_num_threads(1)  # last bits of a product change with the number of threads
        critic = None if native is None else native[1]
        self._kernels = None if native is None else native[0]
        self._baseline = choose_baseline(self._agent, self.environments.observations.size, critic)
        self._sampler = choose_sampler(config, self.environments, self.policy)
        _check(config, self.environments, make_policy)

    @property
    def parameters(self) -> int:
        return self.policy.layout.size

    @property
    def cost(self) -> float:
        return self._agent.segment / self._agent.steps if self._a3c else 1.0

    @property
    def steps(self) -> int:
        return self._agent.segment if self._a3c else self._agent.steps

    def check(self) -> None:
        endless = self.environments.compare_all()
        if endless:
            whose = self._config.task if len(endless) == len(self.environments.distinct()) else f"agents {endless[:9]}"
            text = "%s: no time limit is known, so an evaluation's episode is cut after %d steps; %s"
            _log.warning(text, whose, MOST_STEPS, self._remedy)

    def initial_theta(self) -> Vector:
        return self.policy.initial_theta(stream(self._config.seed, "theta"))

    def start(self, agent_id: int) -> AgentState:
        state = self._sampler.start(self._config.seed, agent_id)
        if self._uses_baseline:
            state |= self._baseline.start(stream(self._config.seed, "baseline", agent_id))
        return state

    def renew(self, state: AgentState, life: int) -> AgentState:
        return {key: branch(array, life) if key.endswith("_stream") else array for key, array in state.items()}

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        statistics = task.statistics if self._agent.scale_observations else None
        changed, rollout, extra = self._sampler.sample(task.agent_id, state, task.theta, statistics)
        fitted, uphill = self._estimate(state, task.theta, rollout)
        report = Report(
            task_id=task.task_id,
            agent_id=task.agent_id,
            gradient=uphill,
            version=task.version,
            moments=moments_of(rollout.raw) if self._agent.scale_observations else None,
            stats=Stats(rollout.steps, rollout.returns, rollout.lengths, extra),
        )
        return state | changed | fitted, report

    def evaluate(
        self, theta: Floats, statistics: Moments | None, iteration: int, fresh: bool = False
    ) -> list[Evaluation]:
        """theta on every environment that differs from the others, as `evaluate_kind` says."""
        record = self._config.record
        kinds = ("sampled", "deterministic") if record.evaluate_kind == "both" else (record.evaluate_kind,)
        scaled_by = statistics if self._agent.scale_observations else None
        seed = self._config.seed
        purpose: Purpose = "verdict" if fresh else "evaluation"
        return [
            self._evaluate(theta, scaled_by, agent_id, where, kind, stream(seed, purpose, agent_id, iteration))
            for agent_id, where in self.environments.distinct()
            for kind in kinds
        ]

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
            outcome = evaluate(
                self.policy, theta, statistics, env, episodes, kind == "deterministic", generator, agent_id
            )
        finally:
            env.close()
        if outcome.cut and not self._said_cut:  # once: an evaluation may come every few seconds
            self._said_cut = True
            text = "evaluation: %d of %d episodes did not end within %d steps and were cut; %s"
            _log.warning(text, outcome.cut, episodes, MOST_STEPS, self._remedy)
        low, high = outcome.interval
        return Evaluation(kind, outcome.mean, outcome.deviation, low, high, episodes, where)

    def export(self, theta: Floats, statistics: Moments | None) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        return contents(
            PolicyFile(
                task=self._config.environment,
                env_kwargs=self._agent.env_kwargs,
                policy=self.policy.describe(),
                observation_space=self.environments.observations.space,
                action_space=self.environments.actions.space,
                layout=self.policy.layout,
                theta=theta,
                statistics=statistics if self._agent.scale_observations else None,
            )
        )

    @property
    def _remedy(self) -> str:
        """For episodes without an end."""
        if self.environments.by_name:
            return "set one, as --env-kwargs max_episode_steps=500"
        return "set one, as gymnasium.wrappers.TimeLimit(env, 500) in make_env"

    @property
    def _uses_baseline(self) -> bool:
        return not self._a3c and self._agent.estimator == "gae"

    def _estimate(self, state: AgentState, theta: Floats, rollout: Rollout) -> tuple[AgentState, Floats]:
        """The baseline's new arrays, and the gradient."""
        agent = self._agent
        if self._a3c:
            assert isinstance(self.policy, MlpPolicy)
            uphill = gradient.a3c(
                self.policy, theta, rollout, agent.gamma, agent.entropy, agent.value_weight, agent.device
            )
            return {}, uphill
        if agent.estimator == "reinforce":
            return {}, gradient.reinforce(self.policy, theta, rollout, agent.gamma, agent.device, self._kernels)
        fitted, advantages = self._advantages(state, rollout)
        if agent.scale_advantages:
            advantages = standardized(advantages)
        uphill = gradient.advantage_gradient(self.policy, theta, rollout, advantages, agent.device, self._kernels)
        return fitted, uphill

    def _advantages(self, state: AgentState, rollout: Rollout) -> tuple[AgentState, Row]:
        """GAE with the values fitted so far; only then is this rollout fitted."""
        seen = np.concatenate([rollout.observations, rollout.cut_observations])
        values = self._baseline.values(state, seen)
        within, beyond = values[: rollout.steps], values[rollout.steps :]
        advantages = gae(rollout, within, beyond, self._agent.gamma, self._agent.gae_lambda)
        # whole returns, not lambda-returns: those carry a fresh baseline's zeros from report to report
        returns = bootstrapped_returns(rollout, beyond, self._agent.gamma)
        return self._baseline.fit(state, rollout.observations, returns), advantages


def choose_sampler(config: Config, environments: Environments, policy: Policy) -> Sampler:
    """The one place where rollout code is picked. Both samplers give the same bits; the native one is faster."""
    a3c, agent = config.method == "a3c", config.agent
    steps = agent.segment if a3c else agent.steps
    whole_episodes = not a3c and agent.estimator == "reinforce"
    if agent.sampler != "gymnasium":
        native = native_sampler(environments, policy, steps, whole_episodes)
        if not isinstance(native, str):
            return native
        if agent.sampler == "native":
            raise ConfigError(f"sampler: {config.task} has no native one: {native}; use --sampler auto")
    return GymnasiumSampler(environments, policy, steps, whole_episodes)


def choose_baseline(agent: AgentConfig, observations: int, kernels: CriticKernels | None = None) -> Baseline:
    if agent.baseline == "linear":
        return LinearBaseline(observations)
    if agent.baseline == "mlp":
        return MlpBaseline(
            observations, agent.baseline_hidden, agent.baseline_rate, agent.baseline_epochs, agent.device, kernels
        )
    return NoBaseline()


def build_policy(config: Config, environments: Environments, make_policy: MakePolicy | None) -> Policy:
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
        value_hidden=config.agent.hidden if config.method == "a3c" else None,
    )


def _check(config: Config, environments: Environments, make_policy: MakePolicy | None) -> None:
    if config.agent.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise ConfigError("device: this machine or this build of torch has no cuda; use --device cpu")
    if config.method == "a3c" and make_policy is not None:
        raise ConfigError("method: a3c shares value parameters, which a policy of your own does not have")
    if config.method != "a3c" and config.agent.estimator == "reinforce":
        longest = time_limit(environments.of(0).env)
        if longest is not None and longest > config.agent.steps:
            raise ConfigError(
                f"steps: {config.agent.steps} is less than one episode of {config.task}, which may take {longest}, and "
                f"reinforce takes whole episodes; use --steps {longest} or more"
            )
