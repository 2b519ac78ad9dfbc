"""Agents that sample first and ask for the newest parameters then: the laws of time and of bits, and whole runs."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import Idle, simulate

from afedpg import Callback, recompute, replay, resume, train
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.engine.timing import Timing, with_clock
from afedpg.messages import Exchange, Fetch, Join, Report
from afedpg.record.database import read_arrivals
from afedpg.record.journal import read

LATE = Idle(exchange=Exchange(late_fetch=True))
SMALL = {
    "method": "afedppo", "agents": 3, "iterations": 6, "steps": 24, "hidden": (8,), "baseline_hidden": (8,), "seed": 5,
    "evaluate_episodes": 1, "evaluate_kind": "sampled",
}  # fmt: skip
CASES = {
    "native": ("CartPole-v1", {"compute": "native"}),
    "torch": ("CartPole-v1", {"compute": "torch", "estimator": "clipped:share=both"}),
    "fetched before": ("CartPole-v1", {"compute": "native", "estimator": "clipped:late_fetch=false,values=taken"}),
    "own values": ("CartPole-v1", {"compute": "native", "estimator": "clipped:values=local"}),
    "fetched before, cut": (
        "CartPole-v1", {"compute": "native", "estimator": "clipped:late_fetch=false", "max_episode_steps": 7},
    ),
    "Gaussian, pareto": ("Pendulum-v1", {"compute": "native", "timing": "pareto", "estimator": "clipped:rollouts=2"}),
}  # fmt: skip
each = pytest.mark.parametrize(("task", "more"), CASES.values(), ids=CASES)


@settings(max_examples=50)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.floats(0, 1), st.integers(1, 60))
def test_a_contribution_takes_the_agents_seconds_whatever_share_comes_after_the_fetch(speeds, share, gradients):
    timing = Timing(with_clock(lambda agent, n: speeds[agent]), update_share=share)
    run = simulate(timing, len(speeds), gradients, workload=LATE)
    counts = [0] * len(speeds)
    for arrival, now in zip(run.arrivals, run.seconds, strict=True):
        counts[arrival.agent] += 1
        assert now == pytest.approx(counts[arrival.agent] * speeds[arrival.agent], abs=1e-8 * gradients)


def test_a_late_fetch_makes_delays_shorter():
    """Of N equally busy agents the delay is N - 1; with a late fetch, about the share of it that the update takes."""
    mean = {}
    for share in (0.0, 0.1, 0.5, 1.0):
        timing = Timing(with_clock(lambda agent, n: 1 + agent / 7 + 0.01 * (n % 3)), update_share=share)
        run = simulate(timing, 8, 2000, workload=LATE)
        mean[share] = np.mean(run.applied_delays[100:])
    assert mean[0.0] == 0
    assert mean[1.0] == pytest.approx(7, rel=0.01)
    assert mean[0.1] == pytest.approx(0.7, rel=0.1)
    assert mean[0.5] == pytest.approx(3.5, rel=0.1)


def small(task, more, **settings):
    return train(task, **(SMALL | more | settings))


@pytest.mark.usefixtures("forked_workers")
@each
def test_workers_and_replay_give_the_same_bits(task, more, tmp_path):
    """With values among theta's groups, or at the agents, and both statistics in every report."""
    whole = small(task, more, out=tmp_path / "run")
    assert whole.gradients == 18
    assert small(task, more, workers=2).sha256 == whole.sha256
    folded, computed = replay(tmp_path / "run"), recompute(tmp_path / "run")
    assert folded.replayed == folded.recorded == computed.replayed == whole.sha256
    reports = [event for _, _, event in read(tmp_path / "run" / "journal") if isinstance(event, Report)]
    assert len(reports) == whole.gradients
    assert all(report.moments.keys() == {"observations", "returns"} for report in reports)
    policy, second, *_ = EnvironmentWorkload(from_settings({"task": task} | SMALL | more)).exchange.groups
    own_values = "values=local" in more.get("estimator", "")
    assert second.name == ("moments.second" if own_values else "value")
    without = [report for report in reports if not report.payload[policy.size :][: second.size].any()]
    assert len(without) == (3 if own_values else 0)  # an agent's first fit is the critic's alone
    assert small(task, more, seed=6).sha256 != whole.sha256


KILLED = """
import json, os, signal, sys
from afedpg import train
task, settings, at, out = json.loads(sys.argv[1])
def die(arrival, seconds, theta):
    if arrival.gradient == at:
        os.kill(os.getpid(), signal.SIGKILL)
train(task, **settings, out=out, checkpoint_seconds=1e-9 if at % 2 else 1e9, on_arrival=die)
"""


@each
@pytest.mark.parametrize("at", [7, 12])
def test_a_run_killed_goes_on_with_the_same_bits(task, more, at, tmp_path):
    """With checkpoints all the time, agents in mid-fetch among them, and with none but the first."""
    arguments = json.dumps([task, SMALL | more, at, str(tmp_path / "run")])
    killed = subprocess.run([sys.executable, "-c", KILLED, arguments], check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert resume(tmp_path / "run").sha256 == small(task, more).sha256
    assert replay(tmp_path / "run").agrees


@pytest.mark.parametrize(("aggregator", "steps"), [("", 18), ("fedbuff:size=3", 6), ("fedbuff:size=4", 5)])
def test_the_rates_fall_over_the_runs_steps_whatever_these_are_made_of(monkeypatch, aggregator, steps):
    passed = []

    def note(tools, version):
        passed.append(version / tools.settings.horizon)
        return passed[-1]

    monkeypatch.setattr("afedpg.agent.estimators.clipped._passed", note)
    train("CartPole-v1", **SMALL, aggregator=aggregator, workers=1)
    assert set(passed) <= {step / steps for step in range(steps)}
    assert max(passed) == (steps - 1) / steps


BATCH = {**SMALL, "aggregator": "fedbuff:size=3", "estimator": "clipped:last_gamma=0.9"}


@pytest.mark.usefixtures("forked_workers")
def test_so_they_do_in_worker_processes():
    assert train("CartPole-v1", **BATCH, workers=2).sha256 == train("CartPole-v1", **BATCH, workers=1).sha256


def test_so_they_do_in_a_federation():
    alone = {**BATCH, "agents": 1}
    assert train("CartPole-v1", **alone, engine="local").sha256 == train("CartPole-v1", **alone, workers=1).sha256


def test_rounds_are_refused_in_one_line(tmp_path):
    command = [sys.executable, "-m", "afedpg", "train", "CartPole-v1", "--method", "afedppo", "--aggregator", "all"]
    done = subprocess.run(
        [*command, "--out", tmp_path / "run"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert "aggregator" in line
    assert "fetch late" in line
    assert not (tmp_path / "run").exists()


class BothAtWork(Callback):
    """Ends a run of two agents after 50 gradients, of which each has sent ten: one may start much later."""

    def __init__(self):
        self.counts = Counter()

    def on_arrival(self, event):
        self.counts[event.arrival.agent] += 1
        return self.counts.total() < 50 or min(self.counts[0], self.counts[1]) < 10


def test_real_processes_learn_and_every_fetch_is_answered_once(tmp_path):
    settings = {
        "method": "afedppo", "agents": 2, "iterations": 10**4, "steps": 256, "hidden": (32,), "baseline_hidden": (32,),
        "evaluate_episodes": 5, "compute": "native", "keep_reports": True,
    }  # fmt: skip
    run = train("CartPole-v1", engine="local", callbacks=[BothAtWork()], out=tmp_path / "run", **settings)
    events = [event for _, _, event in read(tmp_path / "run" / "journal")]
    for agent in range(2):
        mine = [type(event) for event in events if getattr(event, "agent_id", -1) == agent]
        told = [kind for kind in mine if kind in (Join, Report, Fetch)]
        assert told[:2] == [Join, Report]
        assert told[2:] == [Fetch, Report] * (len(told[2:]) // 2) + [Fetch] * (len(told) % 2)
    assert replay(tmp_path / "run").agrees
    arrivals = read_arrivals(tmp_path / "run" / "run.db")
    assert run.gradients == len(arrivals["gradient"]) >= 50
    assert np.median(arrivals["delay"]) <= 1
    late = np.nanmean(arrivals["mean_return"][-10:])
    assert late > 2 * np.nanmean(arrivals["mean_return"][:6])
    with (tmp_path / "run" / "trace.csv").open() as file:
        trace = [(int(row["agent"]), float(row["seconds"])) for row in csv.DictReader(file)]
    for agent in range(2):  # from one report to the next: what is spent before the fetch counts
        gaps = np.diff(arrivals["seconds"][arrivals["agent"] == agent])
        spent = [seconds for who, seconds in trace if who == agent][1:]
        assert sum(spent) == pytest.approx(gaps.sum(), rel=0.05, abs=0.05)
