"""The asynchronous PPO learner against loops that read like the textbook, in torch's float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from environments_for_tests import Walk

from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.messages import Task, TaskId

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
        from afedpg.server.moments import merge

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
@pytest.mark.parametrize("share", ["second", "both", "none"])
def test_the_policys_first_step_is_as_long_as_adams(compute, share):
    """The critic has made many steps by then: its count is not the policy's."""
    rate = 1e-3
    alone = Alone(workload(compute=compute, estimator=f"clipped:share={share},epochs=1,minibatch=96,rate={rate},clip=1"))
    for _ in range(2):
        report = alone.exchange()
    step = np.abs(alone.part("policy", report.payload))
    assert 0.9 * rate < step.max() < 1.001 * rate


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
    alone.theta[alone.groups["moments"][0]] = 1e8
    assert np.abs(alone.part("policy", alone.exchange().payload)).max() > 1e-6
