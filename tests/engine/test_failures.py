"""What goes wrong is said at once, in the user's own terms, and leaves no folder, no lock and no endless run behind."""

from __future__ import annotations

import logging
import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from support import answer

from afedpg import Own, recompute, replay, resume, train
from afedpg.engine.crew import Job, Pool
from afedpg.engine.federation import Federation
from afedpg.engine.virtual import VirtualEngine
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Join, Stats, Task, TaskId
from afedpg.problems import Quadratic
from afedpg.record import folder as folders
from afedpg.record.journal import Journal
from afedpg.runs.evaluate import evaluate_run
from afedpg.server.rules import afedpg
from afedpg.server.schedules import Constant
from afedpg.server.state import initial_state

SMALL = {"agents": 3, "iterations": 20}
CARTPOLE = {"agents": 2, "iterations": 2, "steps": 64, "evaluate_episodes": 1, "scale_observations": False}


class Tiny(torch.nn.Module):
    """Logits straight from the observation."""

    def __init__(self, observations, actions):
        super().__init__()
        self.logits = torch.nn.Linear(observations.shape[0], int(actions.n))

    def log_prob(self, observations, actions):
        return self.logits(observations).log_softmax(-1).gather(1, actions.long().reshape(-1, 1))[:, 0]

    def sample(self, observations, generator):
        return torch.multinomial(self.logits(observations).softmax(-1), 1, generator=generator)[:, 0]

    def mode(self, observations):
        return self.logits(observations).argmax(-1)


def make_cartpole(agent_id):
    return gymnasium.make("CartPole-v1")


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_policy_of_ones_own(tmp_path, workers):
    run, own = tmp_path / "run", Own(make_policy=Tiny)
    result = train("CartPole-v1", **CARTPOLE, make_policy=Tiny, workers=workers, out=run)
    assert result.theta.size == 4 * 2 + 2
    assert replay(run, own).agrees
    assert recompute(run, own).agrees
    assert len(evaluate_run(run, episodes=1, own=own)) == 2


@pytest.mark.parametrize("use", [resume, replay, recompute])
def test_a_run_with_own_parts_is_used_with_them_alone(tmp_path, use):
    train("quadratic", **SMALL, eta=lambda k, v: 0.1 / (k + 1), out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"own parts: eta: .*<lambda> #\w+; given were: none"):
        use(tmp_path / "run")
    assert evaluate_run(tmp_path / "run")  # how theta was trained does not matter here


def test_a_run_is_evaluated_where_it_was_trained(tmp_path):
    train("CartPole-v1", **CARTPOLE, make_env=make_cartpole, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="own parts: make_env: make_cartpole; given were: none"):
        evaluate_run(tmp_path / "run", episodes=1)
    assert evaluate_run(tmp_path / "run", episodes=1, own=Own(make_env=make_cartpole))


@pytest.mark.parametrize("elsewhere", [{"workers": 2}, {"engine": "local"}])
@pytest.mark.parametrize("part", ["make_env", "make_policy"])
def test_what_cannot_travel_is_refused_before_there_is_a_folder(tmp_path, elsewhere, part):
    own = {part: lambda *arguments: None}
    with pytest.raises(ConfigError, match=f"{part}: other processes import it by name"):
        train("quadratic", **SMALL, **elsewhere, **own, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("broken", ["start", "to_tree", "run"])
def test_whatever_fails_the_folder_is_free_again(tmp_path, monkeypatch, broken):
    def fail(*arguments):
        raise RuntimeError("a defect")

    monkeypatch.setattr(VirtualEngine, broken, fail)
    with pytest.raises(RuntimeError, match="a defect"):
        train("quadratic", **SMALL, out=tmp_path / "run")
    monkeypatch.undo()
    assert resume(tmp_path / "run").sha256 == train("quadratic", **SMALL).sha256


def test_who_resumes_has_the_folder_for_itself_before_reading(tmp_path, monkeypatch):
    train("quadratic", **SMALL, out=tmp_path / "run")
    monkeypatch.setattr("afedpg.record.checkpoint.load_latest", lambda *arguments: pytest.fail("read without the lock"))
    with folders.open_run(tmp_path / "run").lock(), pytest.raises(AfedpgError, match="is being written by another"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("method", ["afedpg", "fedpg"])
def test_a_run_whose_every_report_is_refused_ends(method):
    with pytest.raises(AfedpgError, match=r"30 reports in a row refused, the last of agent \d: contribution: norm"):
        train("quadratic", **SMALL, method=method, max_norm=1e-9)


def test_who_is_refused_for_its_share_waits_for_the_slow_ones():
    """A hundred times as fast: refused over and over while the others work, which is no reason to end."""
    seen = []
    settings = {**SMALL, "timing": "leader", "spread": 100.0, "max_share": 0.5}
    train("quadratic", **settings, on_arrival=lambda arrival, *_: seen.append(arrival.agent))
    assert len(seen) == 60
    assert seen.count(0) <= 0.5 * 60 + 10


def test_what_would_happen_again_is_not_offered_to_be_resumed(tmp_path):
    with pytest.raises(
        AfedpgError, match=r"refused.* \(after gradient 0 of \d+\); resuming would bring the same"
    ) as refused:
        train("quadratic", **SMALL, max_norm=1e-9, out=tmp_path / "run")
    assert "afedpg resume" not in str(refused.value)


def test_a_bad_setting_found_late_is_still_a_bad_setting(tmp_path, monkeypatch):
    def sample(self, theta, draw):
        raise ConfigError("steps: too few")

    monkeypatch.setattr(Quadratic, "sample", sample)
    with pytest.raises(ConfigError, match=r"^steps: too few$"):
        train("quadratic", **SMALL, out=tmp_path / "run")


class Endless(gymnasium.Env):
    """An episode that no rollout sees the end of."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


def make_endless(agent_id):
    return Endless()


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_setting_is_one_wherever_it_is_found(tmp_path, workers):
    """Resuming would bring the same: it is not offered."""
    with pytest.raises(ConfigError, match=r"^steps: agent \d had an episode of more than T = 64 .* --estimator gae$"):
        train(
            "CartPole-v1", **CARTPOLE, estimator="reinforce", make_env=make_endless, workers=workers, out=tmp_path / "r"
        )


def test_a_run_that_began_with_another_is_replayed_from_its_checkpoint(tmp_path, monkeypatch):
    """Its own beginning is gone from the journal, and so may be the run it came from."""
    first, second = tmp_path / "first", tmp_path / "second"
    train("quadratic", **SMALL, out=first)
    monkeypatch.setattr("afedpg.record.recorder.Journal", partial(Journal, segment_bytes=1024))
    train("quadratic", **SMALL, from_run=str(first), journal_mib=1e-3, out=second)
    first.rename(tmp_path / "moved")
    assert replay(second).agrees


def test_an_agents_caveat_is_said_once(caplog):
    rule = afedpg(Constant(0.1), Constant(0.1))
    federation = Federation(rule, initial_state(rule, np.zeros(3)))
    (task,) = federation.apply(Join(3), 0.0).tasks
    with caplog.at_level(logging.WARNING, "afedpg"):
        for extra in ({"restarted": 1.0}, {"restarted": 1.0, "unstable": 2.0}, {"unstable": 1.0}):
            report = answer(task, np.ones(3))._replace(stats=Stats(extra=extra))
            (task,) = federation.apply(report, 1.0).tasks
    assert caplog.messages == [
        "agent 3: its episode could not be brought back exactly and was started again",
        "agent 3: the physics became unstable",
    ]


def no_workload():
    raise AfedpgError("the environment needs a licence")


def dies_at_once():
    import os

    os._exit(7)


def test_a_worker_that_cannot_start_says_why():
    job = Job(0, 1, {}, Task(TaskId(0, 0), 0, np.zeros(1, np.float32), 0))
    pool = Pool(no_workload, 1)
    try:
        with pytest.raises(AfedpgError, match="the environment needs a licence"):
            pool.collect(job)
    finally:
        pool.close()


def test_workers_that_die_without_work_are_not_hired_for_ever():
    pool = Pool(dies_at_once, 1)
    try:
        with pytest.raises(AfedpgError, match=r"^3 worker processes died without any work \(exit code 7\)"):
            _wait_for_ever(pool)
    finally:
        pool.close()


def _wait_for_ever(pool):
    while True:
        pool._receive()


def test_a_script_without_a_main_guard_works(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import afedpg\nafedpg.train('quadratic', agents=2, iterations=2, workers=2)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
