"""The asynchronous PPO learner against loops that read like the textbook, in torch's float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from environments_for_tests import Walk
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_ppo import SlowPpo, close

from afedpg.agent.compute.local_steps import Adam
from afedpg.agent.compute.objectives import Clipped as Objective
from afedpg.agent.estimators.advantage import gae
from afedpg.agent.estimators.clipped import Clipped
from afedpg.agent.estimators.torch_ppo import optimize_in_torch
from afedpg.agent.scaling import LARGEST
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import ConfigError
from afedpg.messages import Task, TaskId
from afedpg.sampling.normalizer import moments_of, scaling
from afedpg.sampling.rollout import Rollout
from afedpg.server.moments import merge

TASKS = {"CartPole-v1": "categorical", "Pendulum-v1": "Gaussian"}


def workload(task="CartPole-v1", make_env=None, make_policy=None, **settings):
    usual = {"method": "afedppo", "steps": 48, "hidden": (16,), "baseline_hidden": (16,), "sampler": "gymnasium"}
    return EnvironmentWorkload(from_settings({"task": task} | usual | settings), make_env, make_policy)


class Alone:
    """One agent and its server: differences are added, moments taken over."""

    def __init__(self, work, agent_id=0):
        self.work, self.agent_id, self.state = work, agent_id, work.start(agent_id)
        self.theta = work.initial_theta().astype(np.float32)
        self.version, self.statistics, self.tasks, self.reports = 0, {}, [], []
        self.groups = {}
        at = 0
        for group in work.exchange.groups:
            self.groups[group.name] = slice(at, at + group.size), group.kind
            at += group.size

    def exchange(self):
        task = Task(TaskId(0, self.version), self.agent_id, self.theta, self.version, self.statistics)
        self.state, report = self.work.work(self.state, task)
        theta = self.theta.copy()
        for place, kind in self.groups.values():
            theta[place] = report.payload[place] + (theta[place] if kind == "step" else 0)
        self.theta, self.version = theta, self.version + 1
        merged = {name: merge(self.statistics.get(name), new) for name, new in report.moments.items()}
        self.statistics = merged
        self.tasks.append(task)
        self.reports.append(report)
        return report

    def part(self, name, vector=None):
        return (self.theta if vector is None else vector)[self.groups[name][0]]


@pytest.mark.parametrize("compute", ["native", "torch"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("rollouts", "scaled"), [(1, True), (3, True), (3, False)])
def test_alone_it_is_ppo(task, compute, rollouts, scaled, seen):
    how = f"clipped:epochs=4,minibatch=20,rate=0.001,clip=0.01,rollouts={rollouts},decay=false"
    alone = Alone(workload(task, compute=compute, estimator=how, scale_advantages=scaled))
    slow = SlowPpo(alone, 4, 20, 1e-3, 0.01, rollouts)
    start = {name: alone.part(name).copy() for name in ("policy", "value")}
    for _ in range(6):
        alone.exchange()
        slow.fit(seen[-1])
    assert close(alone.part("policy"), slow.policy.numpy(), start["policy"])
    assert close(alone.part("value"), slow.value.numpy(), start["value"])
    assert sum(len(report.stats.returns) for report in alone.reports) > 0
    assert alone.reports[-1].stats.extra["clipped"] > 0


def test_the_discount_goes_to_the_last_one_by_equal_factors_of_the_horizon(seen):
    how = "clipped:epochs=4,minibatch=20,rate=0.001,clip=0.01,rollouts=3,decay=false,last_gamma=0.5"
    alone = Alone(workload("Pendulum-v1", compute="native", estimator=how, gamma=0.9, horizon=4))
    slow = SlowPpo(alone, 4, 20, 1e-3, 0.01, 3)
    start = alone.part("value").copy()
    for horizon in (10, 10 / 5**0.25, 10 / 5**0.5, 10 / 5**0.75, 2, 2):
        slow.gamma = 1 - 1 / horizon
        alone.exchange()
        slow.fit(seen[-1])
    assert close(alone.part("value"), slow.value.numpy(), start)


@pytest.mark.parametrize("settings", [{"gamma": 1.0}, {"estimator": "clipped:last_gamma=0.9,average_reward=true"}])
def test_a_last_discount_without_a_first_one_is_refused(settings):
    with pytest.raises(ConfigError, match="last_gamma needs a gamma below 1, and no average_reward"):
        workload(**{"estimator": "clipped:last_gamma=0.9", **settings})


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("counts", [(0, 0), (300, 300), (300, 0)])
@pytest.mark.parametrize("max_kl", [0.0, 2e-5])
def test_native_code_and_torch_optimize_alike(task, counts, max_kl):
    from afedpg.agent.compute.kernels import Learner, optimize

    work = workload(task, compute="native")
    tools, generator = work._tools, np.random.default_rng(1)
    alone = Alone(work)
    theta, phi = alone.part("policy"), alone.part("value")
    n, policy = 100, theta + 0.1 * generator.normal(size=theta.size).astype(np.float32)
    observations = generator.normal(size=(n, tools.observations)).astype(np.float32)
    discrete = TASKS[task] == "categorical"
    actions = generator.integers(2, size=n) if discrete else generator.normal(size=(n, 1)).astype(np.float32)
    no = np.zeros(n, np.bool_)
    rollout = Rollout(observations.astype(float), observations, actions, np.zeros(n), no, no, np.array([n - 1]),
                      observations[:1], (), ())  # fmt: skip
    given = Objective(generator.normal(size=n), tools.log_probs(policy, rollout), 0.1, 0.01, False)

    def learner(start):
        second = (1e-3 * generator.uniform(size=start.size)).astype(np.float32) if counts[0] else np.zeros_like(start)
        first = (0.01 * generator.normal(size=start.size)).astype(np.float32) if counts[1] else np.zeros_like(start)
        return Learner(start, first, second, *counts)

    learners = learner(policy), learner(phi)
    rates = Adam(3e-3, 0.3, epsilon=1e-5), Adam(3e-3, 0.3, epsilon=1e-5)
    passes = np.stack([generator.permutation(n) for _ in range(3)])
    what, seen = (given, generator.normal(size=n), passes, 32, max_kl), (rollout.observations, rollout.actions)
    (one, value, told), (other, other_value, other_told) = (
        optimize(tools.kernels, tools.critic, learners, rates, *seen, *what),
        optimize_in_torch(tools, learners, rates, rollout, *what),
    )
    assert close(one.theta, other.theta, policy)
    assert close(value.theta, other_value.theta, phi)
    for mine, its in ((one, other), (value, other_value)):
        assert mine.counts == its.counts
        np.testing.assert_allclose(mine.second, its.second, rtol=1e-2, atol=1e-7)
    assert value.counts == (counts[0] + 12, counts[1] + 12)
    assert (one.counts[0] < counts[0] + 12) == (max_kl > 0)
    for name in ("kl", "last_kl", "clipped", "policy_steps", "critic_steps"):
        assert told[name] == pytest.approx(other_told[name], rel=1e-3, abs=1e-6), name


class Logits(torch.nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.layer = torch.nn.Linear(observations.shape[0], int(actions.n))

    def _distribution(self, observations):
        return torch.distributions.Categorical(logits=self.layer(observations))

    def log_prob(self, observations, actions):
        return self._distribution(observations).log_prob(actions)

    def sample(self, observations, generator):
        return torch.multinomial(self._distribution(observations).probs, 1, generator=generator)[:, 0]

    def mode(self, observations):
        return self._distribution(observations).logits.argmax(1)


def test_a_policy_of_ones_own_learns():
    how = "clipped:epochs=20,rate=0.01"
    alone = Alone(workload(make_policy=Logits, steps=256, activation="tanh", estimator=how))
    for _ in range(12):
        alone.exchange()
    episodes = [report.stats.returns for report in alone.reports]
    assert np.mean(sum(episodes[-4:], ())) > 2 * np.mean(sum(episodes[:3], ()))


def test_an_entropy_that_a_policy_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="entropy, which yours does not have; use entropy=0"):
        workload(make_policy=Logits, estimator="clipped:entropy=0.01")


@pytest.mark.parametrize("compute", ["native", "torch"])
@pytest.mark.parametrize("share", ["second", "both", "none"])
def test_the_policys_first_step_is_as_long_as_adams(compute, share):
    """The critic has made many steps by then: its count is not the policy's."""
    rate = 1e-3
    how = f"clipped:share={share},epochs=1,minibatch=96,rate={rate},clip=1"
    alone = Alone(workload(compute=compute, estimator=how))
    for _ in range(2):
        report = alone.exchange()
    step = np.abs(alone.part("policy", report.payload))
    assert 0.9 * rate < step.max() < 1.001 * rate


def test_the_ratio_is_against_the_policy_that_sampled_wherever_the_newest_is():
    """Others moved theta far away meanwhile: the divergence that is reported says so."""
    alone = Alone(workload(estimator="clipped:epochs=1,minibatch=48,rollouts=1"))
    for _ in range(2):
        alone.exchange()
    alone.theta = alone.theta.copy()
    alone.part("policy")[:] += 0.3 * np.sin(np.arange(alone.part("policy").size))
    moved, rollout = alone.part("policy"), alone.work.prepare(alone.state, 0)
    sampled, observations = alone.state["theta"], rollout["rollout_observations"]
    kernels = alone.work._tools.kernels
    change = kernels.log_prob(moved, observations, rollout["rollout_actions"])
    change -= kernels.log_prob(sampled, observations, rollout["rollout_actions"])
    report = alone.exchange()
    assert report.stats.extra["kl"] == pytest.approx(np.mean(np.exp(change) - 1 - change), rel=1e-4)
    assert report.stats.extra["kl"] > 1e-3


def test_fetched_before_the_rollout_the_newest_policy_is_the_one_that_samples():
    """So whatever the others did meanwhile, the first minibatch sees no divergence."""
    alone = Alone(workload(estimator="clipped:epochs=1,minibatch=48,rollouts=1,late_fetch=false"))
    assert not alone.work.exchange.late_fetch
    for _ in range(2):
        alone.exchange()
    alone.theta = alone.theta.copy()
    alone.part("policy")[:] += 0.3 * np.sin(np.arange(alone.part("policy").size))
    assert alone.work.prepare(alone.state, 0) is alone.state
    assert alone.exchange().stats.extra["kl"] == pytest.approx(0, abs=1e-9)


def test_alone_values_that_are_taken_over_are_those_whose_difference_is_added():
    added, taken = (Alone(workload(estimator=f"clipped:values={how}")) for how in ("added", "taken"))
    for _ in range(4):
        start = added.part("value").copy()
        added.exchange()
        taken.exchange()
        moved = np.abs(added.part("value") - start).max()
        np.testing.assert_allclose(added.part("value"), taken.part("value"), atol=1e-3 * moved)
        taken.theta = added.theta.copy()  # or the roundings of one exchange would grow in the next


@pytest.mark.parametrize("share", ["both", "second", "none"])
def test_alone_a_critic_of_ones_own_is_the_one_that_the_server_takes_over(share):
    """And is never sent, nor are Adam's moments of it."""
    taken, own = (Alone(workload(estimator=f"clipped:values={how},share={share}")) for how in ("taken", "local"))
    own.state = {**own.state, "critic": taken.part("value"), "clipped_stream": taken.state["clipped_stream"]}
    for _ in range(4):
        taken.exchange()
        own.exchange()
        np.testing.assert_array_equal(own.part("policy"), taken.part("policy"))
        np.testing.assert_array_equal(own.state["critic"], taken.part("value"))
    kept = {"policy"} | {name for name in taken.groups if name.startswith("moments")}
    assert own.groups.keys() == kept
    moments = {"both": 2, "second": 1, "none": 0}[share]
    assert len(taken.theta) - len(own.theta) == (1 + moments) * taken.part("value").size + min(1, moments)


def test_an_agents_first_fit_is_the_critics_alone():
    alone = Alone(workload())
    first = alone.exchange()
    assert not alone.part("policy", first.payload).any()
    assert alone.part("value", first.payload).any()
    assert alone.part("policy", alone.exchange().payload).any()


def test_moments_that_no_honest_agent_sends_do_not_stop_the_others():
    alone = Alone(workload())
    for _ in range(2):
        alone.exchange()
    for name in "second", "steps":
        alone.theta[alone.groups[f"moments.{name}"][0]] = 1e8
    assert np.abs(alone.part("policy", alone.exchange().payload)).max() > 1e-6


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("share", ["second", "both", "none"])
def test_what_an_agent_adds_is_as_long_as_a_fit_of_full_steps_or_little_longer(task, share):
    """Longer where a gradient is above what the others have seen; never so short that a liar may say what it likes."""
    alone = Alone(workload(task, estimator=f"clipped:bound=1,share={share}"))
    lengths = {group.name: [] for group in alone.work.exchange.groups[:2]}
    for _ in range(12):
        report = alone.exchange()
        for group in alone.work.exchange.groups[:2]:
            lengths[group.name].append(np.linalg.norm(alone.part(group.name, report.payload)) / group.longest)
    assert 0.1 < max(lengths["value"]) < 1.5
    assert 0.1 < max(lengths["policy"]) < 1.5


def test_from_the_second_rollout_on_observations_are_scaled_by_the_agents_own_as_well():
    """Its last Task knew nothing of the rollout before it; of the first, nothing at all."""
    alone = Alone(workload("Pendulum-v1"))
    alone.exchange()
    for _ in range(3):
        alone.state = alone.work.prepare(alone.state, 0)
        rollout, scale = alone.state, scaling(alone.statistics["observations"], 3)
        wanted = np.array([scale(raw) for raw in rollout["rollout_raw"]])
        np.testing.assert_array_equal(rollout["rollout_observations"], wanted)
        alone.exchange()


def test_the_first_values_are_fitted_under_the_rollouts_own_scaling(seen):
    """Unscaled, they would be fitted to observations that never come again."""
    alone = Alone(workload("Pendulum-v1"))
    _, plain, _ = alone.work._sample(alone.state, 0, alone.part("policy"), {})
    plain = replace(plain, raw=plain.raw.copy(), cut_observations=plain.cut_observations.copy())
    scale, rollout = scaling(alone.exchange().moments["observations"], 3), seen[0]
    np.testing.assert_array_equal(rollout.observations, [scale(raw) for raw in plain.raw])
    np.testing.assert_array_equal(rollout.cut_observations, [scale(raw * 1.0) for raw in plain.cut_observations])
    assert np.abs(rollout.observations.std(axis=0) - 1).max() < 1e-3


def test_the_first_rollout_which_was_not_scaled_is_not_remembered():
    alone = Alone(workload())
    kept = []
    for _ in range(6):
        alone.exchange()
        kept.append(len(alone.state.get("window_rewards", ())) // 48)
    assert kept == [0, 1, 2, 3, 4, 4]


def test_rewards_are_scaled_by_the_returns_of_all_rollouts_and_returns_are_not(seen):
    """R_t goes on from rollout to rollout; the deviation is that of all R_t so far, in one pass over them."""
    gamma, returns, rewards, running, total = 0.9, [], [], 0.0, 0.0
    alone = Alone(workload("Pendulum-v1", gamma=gamma, steps=90))
    for _ in range(5):
        report = alone.exchange()
        rollout = seen[-1]
        raw = rollout.rewards * rollout.reward_scale
        ended = rollout.terminated | rollout.truncated
        for reward, end in zip(raw, ended, strict=True):
            running = gamma * running + reward
            rewards.append(running)
            total += reward
            if end:
                returns.append(total)
                running = total = 0.0
        assert rollout.reward_scale == pytest.approx(np.std(rewards), rel=1e-9)
        assert np.abs(rollout.rewards).max() < LARGEST
        assert report.moments["returns"].count == 90
        whole = moments_of(np.array(rewards)[:, None])
        for name in ("count", "mean", "m2"):
            assert getattr(alone.statistics["returns"], name) == pytest.approx(getattr(whole, name), rel=1e-9)
    assert [value for report in alone.reports for value in report.stats.returns] == pytest.approx(returns)
    assert len(returns) == 2


class Unseeded(Walk):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None)


def test_an_episode_that_could_not_be_brought_back_is_not_gone_on_with():
    def again():
        return workload("unseeded", lambda agent: Unseeded(length=1000))

    alone = Alone(again())
    alone.exchange()
    alone.exchange()
    alone.work = again()
    report = alone.exchange()
    assert report.stats.extra["restarted"] == 1
    assert alone.state["window_truncated"].nonzero()[0].tolist() == [47]
    assert alone.state["window_cut_steps"].tolist() == [47, 95]
    assert alone.state["discounted_return"][0] == pytest.approx(
        sum(0.99 ** (47 - t) * reward for t, reward in enumerate(alone.state["window_rewards"][48:])), rel=1e-6
    )


STEP = st.sampled_from(["goes on"] * 4 + ["terminated", "truncated"])


@settings(max_examples=200, deadline=None)
@given(data=st.data(), steps=st.integers(1, 6), rollouts=st.integers(1, 5), count=st.integers(1, 8))
def test_rollouts_joined_are_one_trajectory(data, steps, rollouts, count):
    """GAE over the last K rollouts is that over the uninterrupted trajectory, from its K-th last on."""
    ends = data.draw(st.lists(STEP, min_size=steps * count, max_size=steps * count))
    restarts = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    generator = np.random.default_rng(0)
    observations = generator.normal(size=(len(ends), 2)).astype(np.float32)
    rewards, beyond = generator.normal(size=len(ends)), generator.normal(size=(len(ends), 2)).astype(np.float32)
    for n in range(1, count):  # where a rollout goes on with an episode, it begins where the one before was cut
        if ends[n * steps - 1] == "goes on" and not restarts[n]:
            beyond[n * steps - 1] = observations[n * steps]

    def cut(begin, end, inner=()):
        """Steps [begin, end) as a sampler gives them, with more cuts at the `inner` steps."""
        terminated = np.array([how == "terminated" for how in ends[begin:end]])
        truncated = np.array([how == "truncated" or t in inner for t, how in enumerate(ends[begin:end], begin)])
        cuts = np.array([t for t in range(end - begin) if truncated[t] or (t == end - begin - 1 and not terminated[t])])
        cuts = cuts.astype(np.int64)
        return Rollout(
            observations[begin:end].astype(np.float64), observations[begin:end], np.arange(begin, end),
            rewards[begin:end], terminated, truncated, cuts, beyond[begin:end][cuts], (), (),
        )  # fmt: skip

    estimator, state = Clipped(rollouts=rollouts), {}
    for n in range(count):
        goes_on = n == 0 or ends[n * steps - 1] == "goes on"
        rollout = replace(cut(n * steps, (n + 1) * steps), restarted=goes_on and n > 0 and restarts[n])
        log_prob = np.arange(n * steps, (n + 1) * steps, dtype=np.float64)
        joined, state = estimator._window(state, rollout, log_prob)
    begin = max(0, count - rollouts) * steps
    restarted = {n * steps - 1 for n in range(1, count) if restarts[n] and ends[n * steps - 1] == "goes on"}
    whole = cut(begin, len(ends), restarted)
    values = observations.astype(np.float64).sum(axis=1)[begin:]
    found = gae(joined, values, joined.cut_observations.astype(np.float64).sum(axis=1), 0.9, 0.8)
    right = gae(whole, values, whole.cut_observations.astype(np.float64).sum(axis=1), 0.9, 0.8)
    np.testing.assert_allclose(found, right, rtol=1e-12)
    np.testing.assert_array_equal(joined.cut_steps, whole.cut_steps)
    np.testing.assert_array_equal(state["window_log_prob"], np.arange(begin, len(ends)))
    np.testing.assert_array_equal(joined.actions, np.arange(begin, len(ends)))


@pytest.mark.parametrize("compute", ["native", "torch"])
def test_a_fit_that_leaves_the_finite_numbers_moves_nothing_and_is_forgotten(compute, monkeypatch):
    alone = Alone(workload(compute=compute, scale_advantages=True))
    for _ in range(3):
        alone.exchange()
    before = alone.part("policy").copy()
    with monkeypatch.context() as patch:
        patch.setattr("afedpg.agent.estimators.clipped.standardized", lambda advantages: np.inf * advantages)
        report = alone.exchange()
    assert np.isfinite(report.payload).all()
    assert not alone.part("policy", report.payload).any()
    np.testing.assert_array_equal(alone.state["theta"], before)
    assert alone.part("policy", alone.exchange().payload).any()
