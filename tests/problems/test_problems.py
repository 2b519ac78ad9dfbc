"""Synthetic problems know their answers: value, gradient and optimum agree with each other and with the samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.config import PROBLEMS, Config
from afedpg.messages import Task, TaskId
from afedpg.problems import LQBandit, ProblemWorkload, Quadratic, SaturatingBandit, SoftmaxMDP, make_problem

ALL = [make_problem(Config(task)) for task in PROBLEMS]
names = [type(problem).__name__ for problem in ALL]
each = pytest.mark.parametrize("problem", ALL, ids=names)
seeds = st.integers(0, 2**31)


def some_theta(problem, seed):
    return np.random.default_rng(seed).normal(0, 1.5, problem.parameters)


@each
@given(seed=seeds)
@settings(max_examples=30)
def test_the_exact_gradient_is_the_slope_of_the_exact_value(problem, seed):
    theta, h = some_theta(problem, seed), 1e-5
    slopes = [
        (problem.value(theta + h * axis) - problem.value(theta - h * axis)) / (2 * h)
        for axis in np.eye(problem.parameters)
    ]
    np.testing.assert_allclose(problem.gradient(theta), slopes, rtol=1e-6, atol=1e-8)


@each
@pytest.mark.parametrize("seed", [1, 2])
def test_sampled_gradients_and_rewards_are_unbiased(problem, seed):
    """Every coordinate's mean lies within 4.5 standard errors of the exact one."""
    theta = (0.4 * some_theta(problem, seed)).astype(np.float32)
    exact, samples = theta.astype(np.float64), 4_000 if problem.width > 100 else 40_000
    draws = problem.draw(np.random.default_rng(seed), samples)
    gradients, rewards = zip(*(problem.sample(theta, draw) for draw in draws), strict=True)
    for sampled, expected in [
        (np.array(gradients, np.float64), problem.gradient(exact)),
        (np.array(rewards)[:, None], problem.value(exact)),
    ]:
        error = np.abs(sampled.mean(axis=0) - expected)
        assert np.all(error <= 4.5 * sampled.std(axis=0) / math.sqrt(samples) + 1e-6)


@each
@given(seed=seeds)
@settings(max_examples=30)
def test_no_theta_is_better_than_the_optimum(problem, seed):
    assert problem.value(3 * some_theta(problem, seed)) <= problem.optimum


@pytest.mark.parametrize(
    ("problem", "best"),
    [
        (Quadratic(7), np.ones(7)),
        (LQBandit(), np.ones(4)),
        (SaturatingBandit(), np.full(2, 60.0)),
        (SoftmaxMDP(), 60.0 * np.array([-1, 1, -1, 1, -1, 1])),  # always to the right
    ],
)
def test_the_optimum_is_reached_where_it_should_be(problem, best):
    assert problem.value(best) == pytest.approx(problem.optimum, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(problem.gradient(best), 0, atol=1e-10)


def test_the_numbers_of_the_paper():
    lq = LQBandit()
    assert lq.contexts == (1.0, 0.5, 0.3, 0.2)
    assert lq.optimum - lq.value(np.zeros(4)) == pytest.approx((1 + 0.25 + 0.09 + 0.04) / 4)
    assert SaturatingBandit().contexts == (1.0, 0.7)
    assert SaturatingBandit().value(np.zeros(2)) == pytest.approx(0.5)


@pytest.mark.filterwarnings("error")
def test_a_policy_that_ran_far_away_earns_nothing_and_says_nothing():
    """Diverged methods get there; numpy would warn of an overflow for every sample."""
    far = np.full(2, -1e6)
    assert SaturatingBandit().reward(-1e6, 1.0) == pytest.approx(0, abs=1e-300)
    assert SaturatingBandit().value(far) == pytest.approx(0, abs=1e-300)
    assert SaturatingBandit().gradient(far) == pytest.approx(0, abs=1e-300)


def test_the_mdp_is_one():
    from afedpg.problems.softmax_mdp import MOVE, START

    np.testing.assert_allclose(MOVE.sum(axis=-1), 1)
    assert START.sum() == pytest.approx(1)
    assert np.all(MOVE >= 0)
    policy = SoftmaxMDP().policy(np.array([0.0, 0.0, 1.0, 2.0, 700.0, -700.0]))
    np.testing.assert_allclose(policy, [[0.5, 0.5], [1 / (1 + math.e), math.e / (1 + math.e)], [1, 0]], atol=1e-12)


def works(workload, agent_id, count):
    """The gradients of that many pieces of work, and the last state."""
    state, theta, gradients = workload.start(agent_id), workload.initial_theta().astype(np.float32), []
    for turn in range(count):
        state, report = workload.work(state, Task(TaskId(0, turn), agent_id, theta, turn))
        assert (report.task_id, report.agent_id, report.version) == (TaskId(0, turn), agent_id, turn)
        assert report.payload.dtype == np.float32
        gradients.append(report.payload.copy())
    return np.array(gradients), state


@each
def test_work_is_a_function_of_its_arguments_and_leaves_them_untouched(problem):
    workload = ProblemWorkload(problem, seed=3)
    _, state = works(workload, 0, 5)
    theta = some_theta(problem, 0).astype(np.float32)
    task = Task(TaskId(0, 9), 0, theta, 9)
    before = {name: array.copy() for name, array in state.items()}, theta.copy()
    first_state, first = workload.work(state, task)
    again_state, again = workload.work(state, task)
    assert first.payload.tobytes() == again.payload.tobytes()
    assert first.stats == again.stats
    assert all(first_state[name].tobytes() == again_state[name].tobytes() for name in first_state)
    assert theta.tobytes() == before[1].tobytes()
    assert all(state[name].tobytes() == array.tobytes() for name, array in before[0].items())


@each
def test_every_agent_and_every_seed_has_a_stream_of_its_own(problem):
    """Past a block of draws, so that refilling is part of it."""
    count = 1100 if problem.width < 3 else 60
    mine, _ = works(ProblemWorkload(problem, seed=0), 0, count)
    same, _ = works(ProblemWorkload(problem, seed=0), 0, count)
    assert mine.tobytes() == same.tobytes()
    for seed, agent_id in [(0, 1), (1, 0)]:
        other, _ = works(ProblemWorkload(problem, seed), agent_id, count)
        assert not np.array_equal(mine, other)
    half = count // 2
    assert not np.array_equal(mine[:half], mine[half : 2 * half])


def test_no_draw_is_ever_used_twice():
    gradients, _ = works(ProblemWorkload(Quadratic(2), seed=0), 0, 3000)
    assert len(np.unique(gradients, axis=0)) == 3000


def test_an_older_state_of_a_problems_agent_is_gone_on_from_with_other_draws() -> None:
    workload = ProblemWorkload(make_problem(Config("quadratic")), 0)
    state = workload.start(0)
    lives = [state, *(workload.renew(state, life) for life in (1, 2, 3, 1 << 40))]
    lives.append(workload.renew(lives[1], 2))  # a second life of the first, which is not the third
    assert len({life["draws"].tobytes() for life in lives}) == 6


@each
@given(batch=st.integers(2, 40), rounds=st.integers(1, 4), seed=seeds)
@settings(max_examples=10)
def test_a_batch_is_the_mean_of_as_many_gradients_of_the_same_draws(problem, batch, rounds, seed):
    """Also across the end of a block of draws, which are 8 for the widest problem."""
    single, several = ProblemWorkload(problem, seed), ProblemWorkload(problem, seed, steps=batch)
    one, many = single.start(0), several.start(0)
    task = Task(TaskId(0, 1), 0, some_theta(problem, seed).astype(np.float32), 0)
    for _ in range(rounds):
        reports = []
        for _ in range(batch):
            one, report = single.work(one, task)
            reports.append(report)
        many, told = several.work(many, task)
        mean = np.mean([report.payload for report in reports], axis=0, dtype=np.float64)
        np.testing.assert_allclose(told.payload, mean, rtol=1e-6)
        assert told.payload.dtype == np.float32
        assert told.stats.returns == tuple(report.stats.returns[0] for report in reports)
        assert told.stats.steps == batch
