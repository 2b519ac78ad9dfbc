"""The example in one file is the algorithm that the engine runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from afedpg import train
from afedpg.agent.work import EnvironmentWorkload, choose_sampler
from afedpg.config import from_settings
from afedpg.engine.workloads import BuildWorkload
from afedpg.messages import Task, TaskId
from afedpg.server import kernels

FILE = Path(__file__).parents[1] / "examples/afedpg_in_one_file.py"
SECONDS = (1.0, 1.25, 3.0, 7.5)


@pytest.fixture
def one_file():
    spec = importlib.util.spec_from_file_location("afedpg_in_one_file", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SyntheticAgent:
    """An agent of the engine's synthetic problem, with the example's interface."""

    def __init__(self, workload, number):
        self.workload, self.number, self.state = workload, number, workload.start(number)

    def gradient(self, theta):
        self.state, report = self.workload.work(self.state, Task(TaskId(0, 0), self.number, theta, 0))
        return report.payload


def both(one_file, problem, schedule):
    """theta of the example and of the engine after the same gradients, and the delays of both."""
    delays = []
    settings = {"agents": 4, "iterations": 50, "schedule": schedule, "speeds": SECONDS, "timing": "list", "eta": 0.05}
    result = train(problem, on_arrival=lambda arrival, *_: delays.append(arrival.delay), **settings)
    workload = BuildWorkload(from_settings({"task": problem, **settings}))()
    eta, alpha = {
        "linear": (lambda k, v: 0.05 * (1 - k / 200), lambda k, v: 0.1),
        "constant": (lambda k, v: 0.05, lambda k, v: 0.1),
        "global": (lambda k, v: 0.05 * (k + 1) ** -1.0, lambda k, v: (max(v, (k + 1) // 2) + 1) ** -0.8),
    }[schedule]
    server = one_file.Server(workload.initial_theta(), alpha, eta)
    agents = [SyntheticAgent(workload, number) for number in range(4)]
    told = [delay for _, _, delay in one_file.federate(server, agents, SECONDS, 200)]
    return server.theta, result.theta, told, delays


@pytest.mark.parametrize("schedule", ["constant", "linear", "global"])
@pytest.mark.parametrize("problem", ["quadratic", "lq-bandit", "softmax-mdp"])
def test_it_gives_the_engines_bits(one_file, monkeypatch, problem, schedule):
    """The one liberty of the compiled server is the order in which it sums a norm; so both take the same norm."""
    monkeypatch.setattr(one_file, "norm", kernels.norm)
    mine, theirs, told, delays = both(one_file, problem, schedule)
    assert mine.tobytes() == theirs.tobytes()
    assert told == delays


def test_its_own_norm_changes_last_digits_alone(one_file):
    mine, theirs, _, _ = both(one_file, "quadratic", "constant")
    np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_its_gradient_of_a_cartpole_rollout_is_the_engines(one_file):
    settings = {"task": "CartPole-v1", "hidden": (32,), "baseline": "linear", "scale_observations": False, "steps": 300}
    config = from_settings(settings)
    workload = EnvironmentWorkload(config)
    sampler = choose_sampler(config, workload.environments, workload.policy, workload.estimator)
    theta = workload.initial_theta().astype(np.float32)
    agent, state = one_file.Agent(0), workload.start(0)
    for _ in range(3):  # the values of later reports were fitted on the earlier ones
        _, rollout, _ = sampler.sample(0, state, theta, None)
        after = np.concatenate([rollout.observations[1:], rollout.observations[:1]])
        after[rollout.cut_steps] = rollout.cut_observations
        columns = (rollout.actions, rollout.rewards, after, rollout.terminated, rollout.truncated)
        mine = agent.estimate(theta.astype(np.float64), rollout.observations.astype(np.float64), *columns)
        state, report = workload.work(state, Task(TaskId(0, 0), 0, theta, 0))
        assert np.linalg.norm(mine - report.payload) <= 1e-5 * np.linalg.norm(mine)


def test_it_learns_cartpole(one_file):
    agents = [one_file.Agent(number, steps=256) for number in range(4)]
    server = one_file.Server(one_file.initial_theta(np.random.default_rng(0)), lambda k, v: 0.2, lambda k, v: 0.1)
    for _ in one_file.federate(server, agents, (1.0, 2.0, 3.0, 4.0), 120):
        pass
    before = np.mean([value for agent in agents for value in agent.returns[:5]])
    after = np.mean([value for agent in agents for value in agent.returns[-5:]])
    assert before < 40
    assert after > 100


def test_a_student_reads_it_in_one_sitting():
    assert len(FILE.read_text().splitlines()) <= 150
