"""Kill anything at any moment: the run goes on with `afedpg resume` and ends with the same bits and the same rows.

AFEDPG_KILLS=20 kills every run twenty times.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from federations import alive, children, wait_until
from held import Hold
from twin import check_draws

from afedpg import replay, train
from afedpg.record import checkpoint
from afedpg.record.database import read_arrivals, read_table

DEFENCES = ("slots", "clip-centred", "bounded")
KILLS = int(os.environ.get("AFEDPG_KILLS", "4"))


def rows(run):
    tables = [read_table(run / "run.db", table) for table in ("arrivals", "episodes", "evaluations", "unused")]
    return repr([{name: column.tolist() for name, column in table.items()} for table in tables])


def flags(settings):
    words = {name: ",".join(map(str, value)) if isinstance(value, tuple) else value for name, value in settings.items()}
    return [f"--{name.replace('_', '-')}" + ("" if word is True else f"={word}") for name, word in words.items()]


def quadratic(method="afedpg", iterations=1500):
    return {
        "method": method,
        "agents": 4,
        "iterations": iterations,
        "checkpoint_seconds": 0.05,
        "seed": 3,
        "keep_reports": True,
    }


def survive(start_command, folder, settings, workers, kills, moments, task="quadratic", longest=0.4):
    """One run, killed up to so often, against one that was left alone; returns how many kills met it alive."""
    run, killed = folder / "run", 0
    while killed < kills:
        if (run / "run.toml").exists():
            process = start_command("resume", run, "--workers", workers, "--json")
        else:  # killed before there was a run: nothing to go on with
            shutil.rmtree(run, ignore_errors=True)
            more = (*flags(settings), "--workers", workers, "--out", run, "--json")
            process = start_command("train", task, *more)
        wait_until(lambda process=process: process.poll() is not None or holds(process, run))
        time.sleep(moments.uniform(0, longest))
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        killed += 1
        if checkpoint.names(run / "checkpoints"):
            assert replay(run).agrees
    end = start_command("resume", run, "--workers", workers, "--json")
    out, err = end.communicate(timeout=300)
    assert end.returncode == 0, err
    whole = train(task, **settings, out=folder / "whole")
    assert json.loads(out.splitlines()[-1])["theta_sha256"] == whole.sha256
    assert rows(run) == rows(folder / "whole")
    assert replay(run).recorded == whole.sha256
    if settings.get("aggregator") not in DEFENCES:  # the twin knows the aggregators of other methods alone
        check_draws(run)
    return killed


def holds(process, run):
    """The lock of who was killed is still there; it is this one's when it says so."""
    return (run / "lock").exists() and (run / "lock").read_text() == str(process.pid)


@pytest.mark.parametrize(("method", "workers"), [("afedpg", 1), ("fedpg", 1), ("afedpg", 2)])
def test_kill_9_of_the_whole_group_at_random_moments(method, workers, start_command, tmp_path):
    kills = KILLS if workers == 1 else max(2, KILLS // 4)
    settings = quadratic(method, (600 if workers == 1 else 200) * kills)
    moments, attempt = random.Random(kills), 0
    while kills > 0:
        attempt += 1
        kills -= survive(start_command, tmp_path / str(attempt), settings, workers, kills, moments)


@pytest.mark.parametrize(
    "aggregator", ["rennala", "malenia", "fedbuff:size=5", "fedasync", "ringmaster:threshold=3", "newest", *DEFENCES]
)
def test_kill_9_with_every_aggregator(aggregator, start_command, tmp_path):
    """A batch that is open when the process dies is filled by the same contributions afterwards."""
    settings, attempt, kills = {**quadratic(iterations=700), "aggregator": aggregator}, 0, max(2, KILLS // 4)
    while kills > 0:
        attempt += 1
        kills -= survive(start_command, tmp_path / str(attempt), settings, 1, kills, random.Random(attempt))


def started(run: Path):
    try:
        return len(read_arrivals(run / "run.db")["gradient"]) > 0
    except Exception:
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_stores_the_run_and_says_how_to_go_on(workers, start_command, tmp_path):
    settings, run, middle = quadratic(iterations=200), tmp_path / "run", Hold(tmp_path, 400)
    command = ("train", "quadratic", *flags(settings), "--out", run, "--workers", workers, "--json")
    process = start_command(*command, program=middle.program)
    middle.wait(process)
    os.killpg(process.pid, signal.SIGINT)
    middle.release()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.count("\n")) == (130, "", 1), err
    assert f"go on with: afedpg resume {run}" in err
    end = start_command("resume", run, "--workers", workers, "--json")
    out, err = end.communicate(timeout=300)
    assert end.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["theta_sha256"] == train("quadratic", **settings).sha256


def test_no_process_is_left_when_train_is_killed(start_command, tmp_path):
    """The workers end by themselves, though nobody told them to."""
    settings, run = quadratic(iterations=100_000), tmp_path / "run"
    process = start_command("train", "quadratic", *flags(settings), "--out", run, "--workers", 2)
    wait_until(lambda: started(run))
    workers = children(process.pid)
    assert len(workers) >= 2
    process.kill()
    process.wait()
    wait_until(lambda: not any(alive(worker) for worker in workers), what="the workers ended with their parent")
