"""PPO, asynchronously: local epochs of the clipped objective, started at parameters fetched *after* the rollout.

    sample T steps with the agent's own theta_i, then fetch the newest (theta, phi, moments of Adam)
    epochs of minibatches over the agent's last K rollouts, from (theta, phi), with
        r = pi_theta(a|s) / pi_sampled(a|s), the policy that sampled each rollout, clipped at 1 +- c
        advantages by GAE with the newest phi
    send theta' - theta, phi' - phi and Adam's moments, and go on sampling with theta'

Agents that fit from the newest parameters see what the others have done, and the ratio against the policy that sampled
bounds how far all of them together go from the data. A contribution is as old as the fit takes, not as the rollout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from afedpg.agent.estimators.advantage import Row, gae, standardized
from afedpg.agent.estimators.average import Averaging
from afedpg.agent.estimators.estimator import Tools
from afedpg.config import option
from afedpg.errors import ConfigError
from afedpg.messages import AgentState, Contribution, Floats, Group, Task, Vector
from afedpg.sampling.rollout import Rollout
from afedpg.seeding import freeze, thaw

if TYPE_CHECKING:  # compiled code is imported where something is computed: a server does without
    from afedpg.agent.compute.kernels import Learner

EPSILON = 1e-5  # of Adam
EPOCHS, EPOCHS_OF_PICTURES = 10, 4  # as others do on MuJoCo and on Atari; convolutions take most of a picture's time


class Parts(NamedTuple):
    """Theta by its groups."""

    policy: Floats
    value: Floats
    moments: Floats  # second moments of policy and value, perhaps the first ones, and both numbers of steps behind them


@dataclass(frozen=True)
class Clipped(Averaging):
    """Local epochs of PPO's clipped objective from the newest parameters, which are fetched after the rollout."""

    epochs: int = option(
        0,
        f"passes over one rollout; over K of them, a K-th each; 0: {EPOCHS}, of pictures {EPOCHS_OF_PICTURES}",
        at_least=0,
        at_most=1000,
    )
    minibatch: int = option(64, "rows of a minibatch", at_least=1, at_most=1 << 20)
    rate: float = option(3e-4, "Adam's rate", above=0, at_most=10)
    decay: bool = option(True, "the policy's rate falls linearly to 0 over the run")
    clip: float = option(0.2, "the ratio's range is 1 +- clip", above=0, at_most=1)
    entropy: float = option(0.0, "weight of the entropy", at_least=0, at_most=1e3)
    rollouts: int = option(4, "K, the agent's last rollouts that every fit goes over", at_least=1, at_most=1024)
    max_kl: float = option(0.0, "the policy's epochs end beyond this KL; 0: never", at_least=0, at_most=1e3)
    max_norm: float = option(
        0.5, "longer gradients of a minibatch are shortened to it; the values' of half the square", above=0, at_most=1e9
    )
    share: str = option("second", "which of Adam's moments agents share", choices=("both", "second", "none"))
    values: str = option(
        "added", "the server adds differences of values, takes values over, or every agent has its own",
        ("added", "taken", "local"),
    )  # fmt: skip
    bound: float = option(
        0.0, "the server shortens what is longer than so many fits of full steps; 0: nothing", at_least=0, at_most=1e9
    )
    last_gamma: float = option(
        0.0, "the discount at the run's end, to which 1 / (1 - gamma) goes geometrically; 0: gamma", at_least=0,
        at_most=0.99999,
    )  # fmt: skip
    late_fetch: bool = option(True, "the newest parameters are fetched after the rollout, not before it")
    own_critic = True

    def check(self, tools: Tools) -> None:
        if self.entropy and not hasattr(tools.policy, "entropy"):
            raise ConfigError("estimator: clipped needs a policy's entropy, which yours does not have; use entropy=0")
        if self.last_gamma and (self.average_reward or tools.settings.gamma == 1):
            raise ConfigError("estimator: clipped:last_gamma needs a gamma below 1, and no average_reward")

    def groups(self, tools: Tools) -> tuple[Group, ...]:
        policy, value = tools.parameters, tools.critic_network.layout.size
        networks = [policy] if self._own_values else [policy, value]
        kind = "step" if self.values == "added" else "parameters"
        groups = (
            Group("policy", policy, longest=self._longest(tools, policy)),
            Group("value", value, kind, self._longest(tools, value)),
        )[: len(networks)]
        if not self._shared:
            return groups
        # Groups of their own, because their sizes differ by orders: squares of gradients, and thousands of steps.
        moments = (Group(f"moments.{name}", sum(networks), "parameters") for name in self._shared)
        return (*groups, *moments, Group("moments.steps", len(networks), "parameters"))

    @property
    def _shared(self) -> tuple[str, ...]:
        """Which of Adam's moments theta has."""
        return {"both": ("second", "first"), "second": ("second",), "none": ()}[self.share]

    @property
    def _own_values(self) -> bool:
        return self.values == "local"

    def _longest(self, tools: Tools, size: int) -> float:
        """A step of Adam moves a number by about its rate: a fit is as long as all its steps, and rarely longer."""
        if not self.bound:
            return math.inf
        steps = tools.settings.steps
        windows = range(1, self.rollouts + 1)
        fits = [max(1, round(self._epochs(tools) / k)) * math.ceil(k * steps / self.minibatch) for k in windows]
        return self.bound * max(fits) * self.rate * math.sqrt(size)

    def initial(self, tools: Tools, generator: np.random.Generator) -> Vector:
        value = np.empty(0) if self._own_values else _first_values(tools, generator)
        rest = sum(group.size for group in self.groups(tools)[1:]) - value.size
        return np.concatenate([value, np.zeros(rest)])

    def start(self, tools: Tools, generator: np.random.Generator) -> AgentState:
        own = self._start_values(tools, generator) if self._own_values else {}
        own |= {"clipped_stream": freeze(generator), "clipped_fits": np.zeros(1, np.int64)}
        return {**own, **self.start_average()}

    def _start_values(self, tools: Tools, generator: np.random.Generator) -> AgentState:
        value = _first_values(tools, generator).astype(np.float32)
        moments = len(self._shared) * value.size + 1 if self._shared else 0
        return {"critic": value, "critic_moments": np.zeros(moments, np.float32)}

    def estimate(
        self, tools: Tools, state: AgentState, task: Task, rollout: Rollout
    ) -> tuple[AgentState, Contribution]:
        from afedpg.agent.compute.kernels import optimize
        from afedpg.agent.compute.local_steps import Adam
        from afedpg.agent.compute.objectives import Clipped as Objective
        from afedpg.agent.estimators.torch_ppo import optimize_in_torch

        here = self._split(tools, state, task.theta)
        scale = rollout.reward_scale
        log_prob = tools.log_probs(state["theta"] if self.late_fetch else here.policy, rollout)
        window, past = self._window(state, replace(rollout, rewards=rollout.rewards * scale), log_prob)
        joined = replace(window, rewards=window.rewards / scale)
        average, advantages, targets = self._advantages(tools, state, task.version, here.value, rollout, joined)
        fits = int(state["clipped_fits"][0])
        shuffle = thaw(state["clipped_stream"])
        count = max(1, round(self._epochs(tools) * rollout.steps / joined.steps))
        passes = np.stack([shuffle.permutation(joined.steps) for _ in range(count)])
        advantages = standardized(advantages) if tools.settings.scale_advantages else advantages
        given = Objective(advantages, past["window_log_prob"], self.clip, self.entropy, False)
        # An agent's first fit is the critic's alone, and nobody remembers its rollout: observations were not scaled.
        learners = self._learners(tools, here)
        how = Adam(self._rate(tools, task) if fits else 0.0, self.max_norm, epsilon=EPSILON)
        # The kernels' error is the whole square, of which PPO takes half: what a gradient is compared with is doubled.
        rates = how, how._replace(rate=self.rate, max_norm=2 * self.max_norm, epsilon=2 * EPSILON)
        what = (given, targets, passes, self.minibatch, self.max_kl)
        if tools.kernels is None or tools.critic is None:
            policy, value, told = optimize_in_torch(tools, learners, rates, joined, *what)
        else:
            policy, value, told = optimize(
                tools.kernels, tools.critic, learners, rates, joined.observations, joined.actions, *what
            )
        if not fits:
            policy, past = learners[0], {}
        if not (np.isfinite(policy.theta).all() and np.isfinite(value.theta).all()):
            (policy, value), past = learners, {}  # or the agent would act with it from now on
        sent, own = self._parts(here, policy, value)
        if not np.isfinite(log_prob).all():  # no ratio is a number, nor will be: the server refuses it and says so
            sent["policy"] = np.full_like(here.policy, np.nan)
        contribution = Contribution(sent, extra={"kl": told["last_kl"], "clipped": told["clipped"]})
        new: AgentState = {"clipped_stream": freeze(shuffle), "clipped_fits": np.array([fits + 1])}
        own |= {"theta": policy.theta} if self.late_fetch else {}
        return {**past, **average, **new, **own}, contribution

    def _parts(self, here: Parts, policy: Learner, value: Learner) -> tuple[dict[str, Floats], AgentState]:
        """What is sent, and what the agent keeps to itself."""
        moments = {f"moments.{name}": [getattr(each, name) for each in (policy, value)] for name in self._shared}
        if self._shared:
            moments["moments.steps"] = [np.array([each.steps], np.float32) for each in (policy, value)]
        sent = {"policy": policy.theta - here.policy}
        if self._own_values:
            sent |= {name: of_policy for name, (of_policy, _) in moments.items()}
            kept = [np.empty(0, np.float32), *(of_value for _, of_value in moments.values())]
            return sent, {"critic": value.theta, "critic_moments": np.concatenate(kept)}
        sent["value"] = value.theta - here.value if self.values == "added" else value.theta
        return sent | {name: np.concatenate(both) for name, both in moments.items()}, {}

    def _epochs(self, tools: Tools) -> int:
        return self.epochs or (EPOCHS if tools.image is None else EPOCHS_OF_PICTURES)

    def _rate(self, tools: Tools, task: Task) -> float:
        """Falls with the server's iteration, which every agent knows."""
        return self.rate * (1 - _passed(tools, task.version)) if self.decay else self.rate

    def _gamma(self, tools: Tools, version: int) -> float:
        """The horizon 1 / (1 - gamma) is multiplied by the same factor in every step of the server."""
        gamma = tools.settings.gamma
        if not self.last_gamma:
            return gamma
        factor: float = ((1 - self.last_gamma) / (1 - gamma)) ** _passed(tools, version)
        return 1 - (1 - gamma) * factor

    def _split(self, tools: Tools, state: AgentState, theta: Floats) -> Parts:
        policy, value = tools.parameters, tools.critic_network.layout.size
        if not self._own_values:
            return Parts(theta[:policy], theta[policy : policy + value], theta[policy + value :])
        shared, own = theta[policy:], state["critic_moments"]
        of_policy = (shared[at : at + policy] for at in range(0, len(shared), policy))  # the last is the steps
        of_value = (own[at : at + value] for at in range(0, len(own), value))
        moments = [part for both in zip(of_policy, of_value, strict=True) for part in both]
        return Parts(theta[:policy], state["critic"], np.concatenate([np.empty(0, np.float32), *moments]))

    def _learners(self, tools: Tools, here: Parts) -> tuple[Learner, Learner]:
        """Both networks with Adam as the others left it; a first moment that is not shared begins anew.

        Each network has its own count of steps: a policy that has made fewer than the critic, as in a first fit, would
        otherwise divide by a second moment that is corrected for steps it never made, and go too far.
        """
        from afedpg.agent.compute.kernels import Learner

        policy, value = here.policy.size, here.value.size
        zeros = np.zeros(policy + value, np.float32)
        longest = 2 * self.max_norm  # of any gradient: moments beyond it can only come from a lie
        second = zeros if self.share == "none" else np.clip(here.moments[: zeros.size], 0, longest**2)
        first = zeros
        if self.share == "both":
            first = np.clip(here.moments[zeros.size : 2 * zeros.size], -longest, longest)
        steps = (0, 0) if self.share == "none" else tuple(int(np.clip(n, 0, 2**53)) for n in here.moments[-2:])
        counts = [(n, n if self.share == "both" else 0) for n in steps]
        return (
            Learner(here.policy, first[:policy], second[:policy], *counts[0]),
            Learner(here.value, first[policy:], second[policy:], *counts[1]),
        )

    def _advantages(
        self, tools: Tools, state: AgentState, version: int, value: Floats, new: Rollout, rollout: Rollout
    ) -> tuple[AgentState, Row, Row]:
        """And what the critic is fitted to; of the joined rollouts, with the values as they are now."""
        from afedpg.agent.estimators.torch_ppo import values_in_torch

        seen = np.concatenate([rollout.observations, rollout.cut_observations])
        if tools.critic is None or tools.kernels is None:
            values = values_in_torch(tools, value, seen)
        else:
            values = tools.critic.values(value, seen)
        within, beyond = values[: rollout.steps], values[rollout.steps :]
        if self.average_reward:
            return self.averaged(state, new, rollout, within, beyond, tools.settings.gae_lambda)
        advantages = gae(rollout, within, beyond, self._gamma(tools, version), tools.settings.gae_lambda)
        return {}, advantages, advantages + within

    def _window(self, state: AgentState, rollout: Rollout, log_prob: Row) -> tuple[Rollout, AgentState]:
        """The last K rollouts as one, and the same as arrays of the state. An episode that one rollout was cut in and
        the next goes on with is whole again.
        """
        new: AgentState = {
            "window_observations": rollout.observations, "window_actions": rollout.actions,
            "window_rewards": rollout.rewards, "window_terminated": rollout.terminated,
            "window_truncated": rollout.truncated, "window_log_prob": log_prob,
        }  # fmt: skip
        cut_steps, cut_observations = rollout.cut_steps, rollout.cut_observations
        keep = (self.rollouts - 1) * rollout.steps
        if "window_rewards" in state:
            drop = max(0, len(state["window_rewards"]) - keep)
            before = len(state["window_rewards"]) - drop
            new = {key: np.concatenate([state[key][drop:], array]) for key, array in new.items()}
            old = state["window_cut_steps"]
            # The last cut of the older rollouts is where this one goes on, unless an episode ended just there.
            ended = state["window_terminated"][-1] or state["window_truncated"][-1]
            goes_on = before > 0 and not (ended or rollout.restarted)
            if rollout.restarted and before > 0 and not ended:
                new["window_truncated"][before - 1] = True
            kept = (old >= drop) & ~((old == len(state["window_rewards"]) - 1) & goes_on)
            cut_steps = np.concatenate([old[kept] - drop, cut_steps + before])
            cut_observations = np.concatenate([state["window_cut_observations"][kept], cut_observations])
        new = {key: np.array(array) for key, array in new.items()}
        joined = replace(
            rollout,
            observations=new["window_observations"], actions=new["window_actions"], rewards=new["window_rewards"],
            terminated=new["window_terminated"], truncated=new["window_truncated"],
            cut_steps=cut_steps, cut_observations=cut_observations,
        )  # fmt: skip
        return joined, {**new, "window_cut_steps": cut_steps, "window_cut_observations": cut_observations}


def _first_values(tools: Tools, generator: np.random.Generator) -> Vector:
    network = tools.critic_network
    return network.layout.flatten(network.initial(1.0, generator), np.float64)


def _passed(tools: Tools, version: int) -> float:
    """The share of the run that is over, in server steps; 0 where its end is not known."""
    horizon = tools.settings.horizon
    return min(1.0, version / horizon) if horizon else 0.0
