"""An agent's work depends on its state and its Task alone, whoever computes it and how often."""

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Counting, Endless, Failing, Forgetful, Walk
from tabular import tabular

from afedpg.agent.estimators import gradient
from afedpg.agent.estimators.advantage import gae, standardized
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Task, TaskId
from afedpg.sampling.environments import MOST_LIVE

TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
STEPS = {"CartPole-v1": 64, "Pendulum-v1": 64, "Swimmer-v4": 64, "Humanoid-v4": 48, TAXI: 64}

ESTIMATORS = [{"baseline": "mlp"}, {"method": "a3c"}, {"estimator": "reinforce", "steps": 500}]


def workload(task, make_env=None, **settings):
    settings = {"steps": STEPS.get(task, 64), "hidden": (16,), "sampler": "gymnasium"} | settings
    return EnvironmentWorkload(from_settings({"task": task} | settings), make_env)


def follow(work, state, count, first=0, statistics=None, agent_id=0, drift=0.01):
    """`count` reports of one agent whose theta drifts by itself, as if other agents moved it."""
    theta = work.initial_theta()
    reports = []
    for index in range(first, first + count):
        drifted = (theta + drift * np.sin(np.arange(theta.size) * (index + 1))).astype(np.float32)
        state, report = work.work(state, Task(TaskId(0, index), agent_id, drifted, index, statistics or {}))
        reports.append(report)
    return state, reports


def same(left, right):
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def same_reports(left, right):
    return all(
        np.array_equal(a.payload, b.payload)
        and (a.stats, a.scalars) == (b.stats, b.scalars)
        and same(means(a), means(b))
        and means(a)
        for a, b in zip(left, right, strict=True)
    )


def means(report):
    return {name: moments.mean for name, moments in report.moments.items()}


@pytest.mark.parametrize("task", STEPS)
def test_an_agent_moved_in_mid_episode_gives_the_same_bits(task):
    """Alone in one process, and handed to a fresh one after every report."""
    work = workload(task)
    state, reports = follow(work, work.start(0), 5)
    moved, others = work.start(0), []
    for index in range(5):
        moved, report = follow(workload(task), moved, 1, first=index)
        others += report
    assert same_reports(reports, others)
    assert same(state, moved)
    assert not any("restarted" in report.stats.extra for report in others)
    assert len(state["episode_actions"]) > 0


@pytest.mark.parametrize("settings", ESTIMATORS)
def test_every_estimator_moves_as_exactly(settings):
    work = workload("CartPole-v1", **settings)
    state, reports = follow(work, work.start(0), 4)
    moved, others = work.start(0), []
    for index in range(4):
        moved, report = follow(workload("CartPole-v1", **settings), moved, 1, first=index)
        others += report
    assert same_reports(reports, others)
    assert same(state, moved)


@pytest.mark.parametrize("settings", [{}, *ESTIMATORS])
def test_work_can_be_repeated_and_leaves_its_input(settings):
    work = workload("CartPole-v1", **settings)
    state, _ = follow(work, work.start(0), 2)
    kept = {name: array.copy() for name, array in state.items()}
    first, reports = follow(work, state, 1, first=2)
    again, repeated = follow(work, state, 1, first=2)
    assert same(state, kept)
    assert same(first, again)
    assert same_reports(reports, repeated)


def test_a_live_environment_of_another_history_is_not_used():
    """Same episode seed, same number of actions, same observation, but other actions."""
    work = workload("counting", lambda agent: Counting())
    state = work.start(0)
    one, _ = follow(work, state, 1, first=0)
    two, _ = follow(work, state, 1, drift=1.0)  # the live environment now stands here
    assert not np.array_equal(one["episode_actions"], two["episode_actions"])
    next_state, reports = follow(work, one, 1, first=1)
    expected_state, expected = follow(workload("counting", lambda agent: Counting()), one, 1, first=1)
    assert same(next_state, expected_state)
    assert same_reports(reports, expected)


def test_few_live_environments_serve_many_agents():
    many = MOST_LIVE + 6
    work = workload("CartPole-v1", agents=many, steps=16)
    states = [work.start(agent) for agent in range(many)]
    for index in range(2):
        for agent in range(many):
            states[agent], _ = follow(work, states[agent], 1, first=index, agent_id=agent)
    alone = workload("CartPole-v1", agents=many, steps=16)
    state, _ = follow(alone, alone.start(7), 2, agent_id=7)
    assert same(state, states[7])
    assert len(work.environments._live) == MOST_LIVE


def test_agents_and_seeds_have_streams_of_their_own():
    work, other = workload("CartPole-v1"), workload("CartPole-v1", seed=1)
    _, (first,) = follow(work, work.start(0), 1)
    _, (second,) = follow(work, work.start(1), 1, agent_id=1)
    _, (third,) = follow(other, other.start(0), 1)
    assert not np.array_equal(first.payload, second.payload)
    assert not np.array_equal(first.payload, third.payload)


def test_episodes_go_on_across_reports():
    work = workload("Pendulum-v1", steps=64)
    _, reports = follow(work, work.start(0), 10)
    lengths = [length for report in reports for length in report.stats.lengths]
    assert lengths == [200] * 3
    assert all(report.stats.steps == 64 for report in reports)


def test_returns_count_from_the_episodes_start():
    work = workload("CartPole-v1", steps=8)
    _, reports = follow(work, work.start(0), 20)
    lengths = [length for report in reports for length in report.stats.lengths]
    returns = [total for report in reports for total in report.stats.returns]
    assert max(lengths) > 8
    assert returns == [float(length) for length in lengths]


def test_reinforce_takes_whole_episodes():
    work = workload("CartPole-v1", steps=500, estimator="reinforce")
    _, reports = follow(work, work.start(0), 2)
    for report in reports:
        assert sum(report.stats.lengths) == report.stats.steps >= 500
        assert report.stats.steps - report.stats.lengths[-1] < 500
        assert report.stats.returns == tuple(float(length) for length in report.stats.lengths)


def test_an_environment_that_cannot_be_brought_back_starts_anew_and_says_so():
    state, _ = follow(workload("walk", lambda agent: Forgetful(1000)), workload("walk", Walk).start(0), 1)
    elsewhere = workload("walk", lambda agent: Forgetful(1000))
    follow(elsewhere, elsewhere.start(0), 1, first=5)  # it has been reset once, so the seed is lost on it
    _, (report,) = follow(elsewhere, state, 1, first=1)
    assert report.stats.extra == {"restarted": 1.0}


@pytest.mark.parametrize(("how", "says"), [
    ("raises", "the wheel came off"), ("reward", "reward of nan"), ("observation", "infinite observation"),
    ("shape", "returned 3 numbers"),
])  # fmt: skip
def test_a_broken_environment_is_named_with_agent_and_step(how, says):
    work = workload("walk", lambda agent: Failing(how), steps=24)
    state, _ = follow(work, work.start(0), 1)
    kept = {name: array.copy() for name, array in state.items()}
    with pytest.raises(AfedpgError) as failure:
        follow(work, state, 1, first=1)
    assert says in str(failure.value)
    assert "agent 0" in str(failure.value)
    assert "step 3" in str(failure.value)
    assert same(state, kept)


def test_whole_episodes_need_an_end():
    with pytest.raises(ConfigError, match=r"steps: 100 .* CartPole-v1, which may take 500"):
        workload("CartPole-v1", steps=100, estimator="reinforce")
    work = workload("walk", lambda agent: Endless(), steps=100, estimator="reinforce")
    with pytest.raises(ConfigError, match="steps: agent 0 had an episode of more than"):
        follow(work, work.start(0), 1)


def test_what_is_too_short_for_an_episode_is_named_with_what_helps():
    said = "is less than one episode of CartPole-v1, which may take 500, and reinforce takes whole episodes; use"
    with pytest.raises(ConfigError, match=f"^steps: 64 {said} --steps 500 or more$"):
        workload("CartPole-v1", estimator="reinforce", steps=64)
    with pytest.raises(ConfigError, match=f"^segment: 32 {said} --segment 0 with --steps 500 or more$"):
        workload("CartPole-v1", method="a3c", estimator="reinforce", steps=1024)
    assert workload("CartPole-v1", method="a3c", estimator="reinforce", segment=0, steps=500).parameters


def test_shapes_must_agree_between_agents():
    work = workload("mixed", lambda agent: gymnasium.make("CartPole-v1" if agent == 0 else "Acrobot-v1"))
    with pytest.raises(ConfigError, match="agent 1 has observations"):
        follow(work, work.start(1), 1, agent_id=1)


@pytest.mark.parametrize("task", ["Swimmer-v4", "CartPole-v1"])
def test_both_samplers_give_the_same_bits(task):
    plain, native = workload(task), workload(task, sampler="native")
    state, reports = follow(plain, plain.start(0), 3)
    same_state, others = follow(native, native.start(0), 3)
    assert same(state, same_state)
    assert same_reports(reports, others)


def test_a_native_sampler_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="sampler: Acrobot-v1 has no native one"):
        workload("Acrobot-v1", sampler="native")
    assert workload("Acrobot-v1", sampler="auto").steps == 64


def test_an_agent_with_a_policy_of_ones_own():
    config = from_settings({"task": "CartPole-v1", "steps": 64})
    works = [EnvironmentWorkload(config, None, tabular) for _ in range(2)]
    assert works[0].parameters == 2
    state, reports = follow(works[0], works[0].start(0), 2)
    moved, first = follow(works[0], works[0].start(0), 1)
    moved, second = follow(works[1], moved, 1, first=1)
    assert same(state, moved)
    assert same_reports(reports, first + second)
    assert reports[0].payload.sum() == pytest.approx(0, abs=1e-6)  # logits: a shift of all changes nothing
    a3c = from_settings({"task": "CartPole-v1", "method": "a3c"})
    with pytest.raises(ConfigError, match="a3c"):
        EnvironmentWorkload(a3c, None, tabular)


def test_a3c_shares_value_parameters_and_costs_its_share():
    plain, shared = workload("CartPole-v1", steps=1024), workload("CartPole-v1", method="a3c", steps=1024)
    assert shared.parameters == plain.parameters + (4 + 1) * 16 + 16 + 1
    assert (shared.steps, shared.cost) == (32, 32 / 1024)
    assert (plain.steps, plain.cost) == (1024, 1.0)
    _, reports = follow(shared, shared.start(0), 3)
    assert all(np.abs(report.payload[plain.parameters :]).sum() > 0 for report in reports)


def test_observations_are_scaled_with_what_was_handed_out():
    """Scaling by known statistics equals an environment that shows scaled observations."""
    work = workload("CartPole-v1")
    _, (plain,) = follow(work, work.start(0), 1)
    _, (scaled,) = follow(work, work.start(0), 1, statistics=plain.moments)
    off = workload("CartPole-v1", scale_observations=False)
    _, (ignored,) = follow(off, off.start(0), 1, statistics=plain.moments)
    assert not np.array_equal(plain.payload, scaled.payload)
    np.testing.assert_array_equal(plain.payload, ignored.payload)
    assert ignored.moments == {}
    assert plain.moments["observations"].count == 64


def test_an_older_state_is_gone_on_from_with_other_samples():
    """Each life has noise of its own; the critic and the episode so far are what they were."""
    work = workload("Pendulum-v1", baseline="mlp")
    state, _ = follow(work, work.start(0), 2)
    lives = [state, *(work.renew(state, life) for life in (1, 2, 1 << 40))]
    nexts = [follow(work, life, 1, first=2)[1][0].payload.tobytes() for life in lives]
    assert len(set(nexts)) == len(lives)
    streams = {"noise_stream", "episode_stream", "baseline_stream"}
    for life in lives[1:]:
        assert {key for key in state if not np.array_equal(state[key], life[key])} == streams
    assert same(work.renew(state, 2), lives[2])


def second_report(work):
    """With a baseline that was fitted and statistics to scale by; and the rollout behind it."""
    theta = work.initial_theta().astype(np.float32)
    state, first = work.work(work.start(0), Task(TaskId(0, 0), 0, theta, 0))
    _, rollout, _ = work._sampler.sample(0, state, theta, first.moments["observations"])
    _, report = work.work(state, Task(TaskId(0, 1), 0, theta, 1, first.moments))
    return theta, state, rollout, report


@pytest.mark.parametrize("scale_advantages", [True, False])
@pytest.mark.parametrize("baseline", ["linear", "mlp", "none"])
def test_a_report_is_what_its_settings_say(baseline, scale_advantages):
    settings = {"gamma": 0.9, "gae_lambda": 0.3, "baseline": baseline, "scale_advantages": scale_advantages}
    work = workload("CartPole-v1", compute="torch", **settings)
    theta, state, rollout, report = second_report(work)
    values = work._tools.baseline.values(state, np.concatenate([rollout.observations, rollout.cut_observations]))
    advantages = gae(rollout, values[: rollout.steps], values[rollout.steps :], 0.9, 0.3)  # of the baseline before
    advantages = standardized(advantages) if scale_advantages else advantages
    np.testing.assert_array_equal(report.payload, gradient.advantage_gradient(work.policy, theta, rollout, advantages))
    seen = report.moments["observations"]
    np.testing.assert_array_equal(seen.mean, rollout.raw.mean(axis=0))  # as the environment gave them
    assert not np.array_equal(rollout.raw.astype(np.float32), rollout.observations)


def test_an_a3c_report_is_what_its_settings_say():
    work = workload("CartPole-v1", method="a3c", segment=32, gamma=0.9, entropy=0.3, value_weight=0.7)
    theta, _, rollout, report = second_report(work)
    expected = gradient.a3c(work.policy, theta, rollout, 0.9, entropy=0.3, value_weight=0.7)
    np.testing.assert_array_equal(report.payload, expected)
