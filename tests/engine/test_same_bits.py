"""theta's bits depend on the configuration alone: not on workers, deaths, interruptions or how often it was resumed."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from simulation import Deadly
from support import Fold

from afedpg import recompute, replay, resume, train
from afedpg.engine.crew import Job, Pool
from afedpg.engine.process import Interrupted
from afedpg.errors import AfedpgError
from afedpg.messages import Report, Task, TaskId
from afedpg.record import checkpoint
from afedpg.record.database import read_arrivals, read_notes, read_table
from afedpg.record.folder import RunFolder
from afedpg.record.journal import read
from afedpg.server.rules import afedpg
from afedpg.server.schedules import Constant

CASES = {
    "afedpg": {"method": "afedpg", "agents": 4, "iterations": 20},
    "vanilla, pareto": {"method": "afedpg-vanilla", "agents": 3, "iterations": 20, "timing": "pareto"},
    "fedpg": {"method": "fedpg", "agents": 4, "iterations": 20},
    "a3c, lognormal": {"method": "a3c", "agents": 3, "iterations": 20, "timing": "lognormal"},
    "pg, fosp": {"method": "pg", "agents": 1, "iterations": 60, "schedule": "fosp"},
    "fedpg, drop": {"method": "fedpg", "agents": 4, "iterations": 20, "drop": {"1": 20.0}, "late": {"2": 7.5}},
    "rennala": {"aggregator": "rennala:batch=5", "agents": 4, "iterations": 20},
    "malenia, drop": {"aggregator": "malenia:batch=6", "agents": 4, "iterations": 20, "drop": {"3": 20.0}},
    "fedbuff, pareto": {"aggregator": "fedbuff:size=3", "agents": 4, "iterations": 20, "timing": "pareto"},
    "fedasync": {"aggregator": "fedasync:law=hinge,bound=2", "agents": 4, "iterations": 20},
    "ringmaster": {"aggregator": "ringmaster:threshold=3", "agents": 4, "iterations": 20, "late": {"2": 7.5}},
    "newest, drop": {"aggregator": "newest:most=2", "agents": 4, "iterations": 20, "drop": {"3": 9.5}},
    "sites, local scaling": {
        "task": "CartPole-v1",
        "agents": 3,
        "iterations": 20,
        "steps": 32,
        "hidden": (8,),
        "sites": "length",
        "scaling": "local",
        "evaluate_episodes": 1,
    },
    "slots, a flood of noise": {
        "agents": 4,
        "iterations": 20,
        "aggregator": "slots:mean=ctma,fair=1.0",
        "attack": "noise",
        "attackers": (1,),
        "timing": "list",
        "speeds": (1.0, 0.1, 1.0, 2.0),
        "drop": {"2": 9.5},
    },
    "clip-centred, adaptive": {
        "agents": 4,
        "iterations": 20,
        "aggregator": "clip-centred",
        "attack": "adaptive",
        "attackers": (0, 3),
    },
    "bounded, a fast liar": {
        "agents": 4,
        "iterations": 20,
        "aggregator": "bounded",
        "attack": "scaled-sign-flip",
        "attackers": (1,),
        "timing": "list",
        "speeds": (1.0, 0.1, 1.0, 2.0),
        "drop": {"2": 9.5},
    },
    "fedpg-attack": {"agents": 3, "iterations": 20, "attack": "fedpg-attack", "attackers": (2,)},
    "mdp": {"task": "softmax-mdp", "method": "afedpg", "agents": 3, "iterations": 30, "silent": (1,)},
}
each = pytest.mark.parametrize("settings", CASES.values(), ids=CASES)


def run(settings, **more):
    steps = {"schedule": "constant", "alpha": 0.1, "eta": 0.01}
    settings = {"task": "quadratic", "seed": 5, "evaluate_every": 10, **steps, **settings, **more}
    return train(settings.pop("task"), **settings)


def rows(path):
    """All that run.db says of what happened; as text, for NaN stands for what is not there and never equals itself."""
    names = ("arrivals", "episodes", "evaluations", "rejected", "unused")
    tables = [read_table(RunFolder(Path(path)).database, name) for name in names]
    return [{name: repr(column.tolist()) for name, column in table.items()} for table in tables]


def at_gradient(count, action):
    """A callback that does something once, when that many gradients are applied."""

    def on_arrival(arrival, seconds, theta):
        if arrival.gradient == count:
            action()

    return on_arrival


def crash():
    raise ZeroDivisionError("a bug in a callback")


interrupt = partial(os.kill, os.getpid(), signal.SIGINT)


@each
def test_twice_gives_the_same_bits_and_another_seed_others(settings):
    assert run(settings).sha256 == run(settings).sha256 != run(settings, seed=6).sha256


@each
def test_replay_and_recompute_agree(settings, tmp_path):
    result = run(settings, out=tmp_path / "run")
    folded, computed = replay(tmp_path / "run"), recompute(tmp_path / "run")
    assert folded.replayed == folded.recorded == computed.replayed == result.sha256
    assert folded.gradients == computed.gradients == result.gradients
    assert folded.events >= result.gradients


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("method", ["afedpg", "fedpg"])
def test_workers_change_nothing(method):
    theta = [run(CASES[method], workers=workers).sha256 for workers in (1, 2, 3)]
    assert theta[0] == theta[1] == theta[2]


def kill_a_worker():
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)


def test_a_worker_killed_in_mid_run_changes_nothing(tmp_path):
    killed = run(CASES["afedpg"], workers=2, on_arrival=at_gradient(30, kill_a_worker), out=tmp_path / "killed")
    run(CASES["afedpg"], out=tmp_path / "whole")
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    assert killed.sha256 == replay(tmp_path / "whole").recorded


@each
@pytest.mark.parametrize("often", [0.01, 1e9], ids=["checkpoints", "none"])
@given(data=st.data())
@settings(max_examples=2, phases=[Phase.generate])
def test_a_run_that_crashed_goes_on_as_if_nothing_had_happened(settings, often, data, tmp_path_factory):
    """With checkpoints all the time, and with none but the first."""
    folder = tmp_path_factory.mktemp("runs")
    whole = run(settings, out=folder / "whole")
    at, out = data.draw(st.integers(1, whole.gradients)), folder / "crashed"
    with pytest.raises(ZeroDivisionError):
        run(settings, checkpoint_seconds=often, on_arrival=at_gradient(at, crash), out=out)
    assert replay(out).agrees
    assert resume(out).sha256 == whole.sha256
    assert rows(out) == rows(folder / "whole")
    assert replay(out).recorded == whole.sha256


@each
@given(data=st.data())
@settings(max_examples=2, phases=[Phase.generate])
def test_a_run_that_was_interrupted_goes_on_as_if_nothing_had_happened(settings, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    whole = run(settings, out=folder / "whole")
    at = data.draw(st.integers(1, whole.gradients - settings["agents"]))
    with pytest.raises(Interrupted, match=f"after gradient [0-9]+ of .* go on with: afedpg resume {folder}/stopped"):
        run(settings, on_arrival=at_gradient(at, interrupt), out=folder / "stopped")
    assert recompute(folder / "stopped").agrees
    assert resume(folder / "stopped").sha256 == whole.sha256
    assert rows(folder / "stopped") == rows(folder / "whole")


@pytest.mark.parametrize("goal", [{"stop_at_return": -7.0}, {"stop_at_evaluation": -7.0, "evaluate_every": 4}])
def test_an_interruption_forgets_nothing_that_decides_the_end(goal, tmp_path):
    """Goals look at a window of returns or evaluations; it must be the same one after a resume."""
    settings = {**CASES["afedpg"], **goal, "iterations": 1000}
    whole = run(settings)
    assert 100 < whole.gradients < 4000
    for before in (1, 2, 3, 10):
        out = tmp_path / str(before)
        with pytest.raises(Interrupted):
            run(settings, on_arrival=at_gradient(whole.gradients - before, interrupt), out=out)
        again = resume(out)
        assert (again.gradients, again.sha256) == (whole.gradients, whole.sha256)


def test_a_run_killed_before_its_first_gradient_can_be_recomputed_and_resumed(tmp_path):
    with pytest.raises(ZeroDivisionError):
        run(CASES["fedpg"], on_arrival=at_gradient(1, crash), out=tmp_path / "run")
    assert recompute(tmp_path / "run").gradients == 0
    assert recompute(tmp_path / "run").agrees
    for name in checkpoint.names(tmp_path / "run" / "checkpoints"):  # not even the first one was written
        (tmp_path / "run" / "checkpoints" / str(name)).rename(tmp_path / str(name))
    (tmp_path / "run" / "run.db").unlink()  # which has no row before there is a checkpoint
    assert resume(tmp_path / "run").sha256 == run(CASES["fedpg"]).sha256


def test_a_finished_run_is_resumed_to_itself(tmp_path):
    result = run(CASES["afedpg"], out=tmp_path / "run")
    again = resume(tmp_path / "run")
    assert (again.sha256, again.gradients) == (result.sha256, result.gradients)
    assert again.evaluations == result.evaluations
    assert read_notes(tmp_path / "run" / "run.db")["state"] == "finished"


def test_every_event_is_in_the_journal_before_it_is_applied(tmp_path):
    """When the rule asks for eta, the report it is for can be read already."""
    journal = tmp_path / "run" / "journal"
    asked = []

    def eta(k, v):
        if journal.exists():  # the first value is asked for before anything is written
            written = sum(isinstance(event, Report) for _, _, event in read(journal))
            asked.append((written, k + 1))
        return 0.1

    run({"agents": 3, "iterations": 5}, eta=eta, out=tmp_path / "run")
    assert {iteration for _, iteration in asked} == set(range(1, 16))
    assert all(written == iteration for written, iteration in asked)


def test_the_journal_alone_gives_theta(tmp_path):
    """Whatever the server knew when the process died can be folded again."""
    seen = []

    def look(arrival, seconds, theta):
        seen.append(theta.copy())
        if arrival.gradient == 77:
            crash()

    with pytest.raises(ZeroDivisionError):
        run({"agents": 3, "iterations": 50, "alpha": 0.2, "eta": 0.05}, on_arrival=look, out=tmp_path / "run")
    server = Fold(afedpg(Constant(0.2), Constant(0.05)), np.zeros(10), agents=0)
    for _, _, event in read(tmp_path / "run" / "journal"):
        server(event)
    assert server.state.gradients == 77
    assert server.theta.tobytes() == seen[-1].tobytes()


def test_a_damaged_theta_is_found_out(tmp_path):
    """replay compares: a checkpoint that says something else than the journal does not pass."""
    run(CASES["afedpg"], out=tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    newest, tree = checkpoint.load_latest(folder)
    tree["server"]["theta"][0] = np.nextafter(tree["server"]["theta"][0], math.inf)
    checkpoint.save(folder, newest, tree, keep=2)
    assert not replay(tmp_path / "run").agrees
    assert not recompute(tmp_path / "run").agrees


def test_a_job_that_kills_every_worker_is_to_blame_itself():
    pool = Pool(Deadly, 2)
    try:
        jobs = [Job(agent, 1, {}, Task(TaskId(0, agent), agent, np.zeros(1, np.float32), 0)) for agent in range(4)]
        pool.prefetch(jobs)
        assert pool.collect(jobs[0])[1].agent_id == 0
        with pytest.raises(AfedpgError, match="agent 2: the environment is gone"):
            pool.collect(jobs[2])
        with pytest.raises(RuntimeError, match="KeyError: 'lost'"):
            pool.collect(jobs[3])
        with pytest.raises(AfedpgError, match=r"agent 1: 3 worker processes died at its work \(exit code 3\)"):
            pool.collect(jobs[1])
    finally:
        pool.close()
    assert not multiprocessing.active_children()


def test_workers_start_where_the_run_is_process_number_1():
    """As it is in a container, where the parent's number is also that of whoever adopts orphans."""
    code = "from afedpg import train; print(train('quadratic', agents=4, iterations=20, workers=2).sha256)"
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", code]
    if subprocess.run([*command[:3], "true"], capture_output=True, check=False).returncode:
        pytest.skip("process namespaces are not allowed here")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout.strip() == train("quadratic", agents=4, iterations=20).sha256


@pytest.mark.parametrize("at", [7, 18])
def test_every_segment_has_its_row_once_whatever_happens(at, tmp_path):
    """A report of a3c is a part of T steps, and a crash may come between two of them."""
    segments = {"task": "CartPole-v1", "method": "a3c", "agents": 2, "iterations": 4, "steps": 64, "segment": 16}
    settings = segments | {"hidden": (8,), "evaluate_episodes": 1}
    whole = run(settings, out=tmp_path / "whole")
    with pytest.raises(ZeroDivisionError):
        run(settings, checkpoint_seconds=1e-9, on_arrival=at_gradient(at, crash), out=tmp_path / "run")
    assert resume(tmp_path / "run").sha256 == whole.sha256
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert read_arrivals(tmp_path / "run" / "run.db")["gradient"].tolist() == list(range(1, 33))
