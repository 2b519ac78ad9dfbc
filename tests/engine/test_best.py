"""The best evaluated theta is kept beside the last: whatever the run does afterwards, and however it ends."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from afedpg import Own, evaluate_run, load_policy, replay, resume, train
from afedpg.cli import main
from afedpg.errors import ConfigError
from afedpg.export.policy_file import LoadedPolicy, sha256_of
from afedpg.messages import Evaluation
from afedpg.record.database import read_evaluations
from afedpg.runs.best import Evaluated, better

FALLING = {"agents": 2, "iterations": 24, "steps": 256, "evaluate_every": 4, "evaluate_episodes": 20, "seed": 3}


def falls(iteration: int, version: int) -> float:
    return 0.03 if iteration < 32 else 3.0


@pytest.fixture(scope="module")
def fallen(tmp_path_factory):
    """CartPole learns, and then steps of the wrong length take it all away."""
    return train("CartPole-v1", **FALLING, eta=falls, workers=1, out=tmp_path_factory.mktemp("best") / "fallen")


def at(mean: float, gradients: int = 1, **kinds: float) -> Evaluated:
    told = tuple(Evaluation(kind, value) for kind, value in (kinds or {"sampled": mean}).items())
    return Evaluated(np.full(2, mean, np.float32), {}, gradients, gradients, 1, 1.0, told)


def test_a_run_that_falls_at_the_end_delivers_the_best_theta(fallen):
    rows = read_evaluations(fallen.out / "run.db")
    place = rows["gradients"][rows["mean"].argmax()]
    assert fallen.best.gradients == place < fallen.gradients
    assert fallen.best.mean == rows["mean"].max()
    last = max(evaluation.mean for evaluation in fallen.evaluations)
    assert last < 0.5 * fallen.best.mean
    kind = fallen.best.acting
    (again,) = (told for told in fallen.best.again if told.kind == kind)
    (fresh,) = evaluate_run(fallen.out, 100, kind, own=Own(eta=falls))
    assert again.low <= fresh.mean <= again.high
    assert fresh.mean > 2 * last


def test_the_default_is_the_best_and_the_last_can_be_had(fallen):
    best, last = load_policy(fallen.out), load_policy(fallen.out, which="last")
    np.testing.assert_array_equal(best.file.theta, fallen.best.theta)
    np.testing.assert_array_equal(last.file.theta, fallen.theta.astype(np.float32))
    assert repr(best).startswith("LoadedPolicy(CartPole-v1: best theta of 6 evaluations, after iteration 32: ")
    assert "on fresh episodes; acts " in repr(best)
    with pytest.raises(ConfigError, match="which: 'worst' is neither best nor last"):
        load_policy(fallen.out, which="worst")


def test_the_command_line_says_which_it_takes(fallen, capsys, tmp_path):
    said = {}
    evaluate = ["evaluate", str(fallen.out), "--episodes", "2"]
    for which in ((), ("--which", "best"), ("--which", "last")):
        assert main([*evaluate, *which]) == 0
        said[which] = capsys.readouterr().out.splitlines()
    assert said[()] == said["--which", "best"]
    assert said[()][0].startswith(f"best theta of 6 evaluations, after iteration {fallen.best.iteration}: ")
    assert said["--which", "last"][0] == "last theta, after iteration 48"
    assert main([*evaluate, "--json"]) == 0
    assert {row["which"] for row in json.loads(capsys.readouterr().out)} == {"best"}
    for which in ("best", "last"):
        assert main(["export", str(fallen.out), str(tmp_path / which), "--which", which]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first.startswith(f"{which} theta")
        assert second.endswith(sha256_of(load_policy(fallen.out, which=which).file.theta))


def test_it_acts_as_it_evaluated_better_unless_told_otherwise(fallen):
    policy = fallen.policy
    means = {told.kind: told.mean for told in fallen.best.evaluations}
    assert policy.file.origin.acting == max(means, key=lambda kind: (means[kind], kind == "deterministic"))
    assert at(0, sampled=2.0, deterministic=1.0).acting == "sampled"
    assert at(0, sampled=1.0, deterministic=1.0).acting == "deterministic"


@pytest.mark.parametrize("acting", ["sampled", "deterministic"])
def test_a_stored_way_of_acting_is_used(fallen, acting):
    file = replace(fallen.policy.file, origin=replace(fallen.policy.file.origin, acting=acting))
    observation = np.zeros(4, np.float32)
    told, free = LoadedPolicy(file), LoadedPolicy(file)
    how = partial(told.act, observation, deterministic=acting == "deterministic")
    assert [free.act(observation) for _ in range(50)] == [how() for _ in range(50)]


def test_the_second_look_plays_other_episodes(fallen):
    """Neither those that the theta was chosen by, nor those that `evaluate` plays."""
    kind = {told.kind: told.mean for told in fallen.best.evaluations}
    again = {told.kind: told.mean for told in fallen.best.again}
    later = {told.kind: told.mean for told in evaluate_run(fallen.out, FALLING["evaluate_episodes"])}
    assert kind["sampled"] != again["sampled"] != later["sampled"] != kind["sampled"]


def test_of_two_that_are_equally_good_the_later_one_is_kept():
    first, second, worse, none = at(1.0), at(1.0), at(0.5), at(float("nan"))
    assert better(first, second) is second
    assert better(first, worse) is first
    assert better(first, none) is first
    assert better(None, none) is None


def test_a_killed_run_keeps_the_same_best_theta(tmp_path):
    """Bit for bit: what was the best before the kill, and what becomes it afterwards."""
    settings = {"agents": 2, "iterations": 20, "steps": 64, "evaluate_every": 2, "evaluate_episodes": 3, "workers": 1}

    class Killed(BaseException): ...

    def kill(after, arrival, seconds, theta):
        if arrival.gradient == after:
            raise Killed

    whole = train("CartPole-v1", **settings, out=tmp_path / "whole")
    files = {name: (tmp_path / "whole" / name).read_bytes() for name in ("best.safetensors", "policy.safetensors")}
    for after in (3, 9, 33):
        for seconds in (1e-9, 1e9):  # a checkpoint after every event, or only at the start
            out = tmp_path / f"killed{after}-{seconds}"
            with pytest.raises(Killed):
                train("CartPole-v1", **settings, checkpoint_seconds=seconds, out=out, on_arrival=partial(kill, after))
            assert resume(out, workers=1).sha256 == whole.sha256
            assert {name: (out / name).read_bytes() for name in files} == files
            assert replay(out).agrees


def test_a_finished_run_that_is_resumed_is_not_judged_twice(tmp_path):
    settings = {"agents": 2, "iterations": 6, "steps": 64, "evaluate_every": 2, "evaluate_episodes": 3, "workers": 1}
    train("CartPole-v1", **settings, out=tmp_path / "run")
    before = (tmp_path / "run" / "best.safetensors").read_bytes()
    assert resume(tmp_path / "run", workers=1).looks == 3
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == before


def test_without_an_evaluation_there_is_no_best(tmp_path):
    class Killed(BaseException): ...

    def kill(arrival, seconds, theta):
        if arrival.gradient == 3:
            raise Killed

    with pytest.raises(Killed):
        train("CartPole-v1", agents=2, iterations=6, steps=64, out=tmp_path / "run", on_arrival=kill)
    assert load_policy(tmp_path / "run").file.origin.which == "last"
    with pytest.raises(ConfigError, match="has no best theta: none was evaluated yet; use last"):
        load_policy(tmp_path / "run", which="best")
    with pytest.raises(ConfigError, match="has no best theta: none was evaluated yet; use last"):
        evaluate_run(tmp_path / "run", 1, which="best")


def test_a_run_without_a_checkpoint_in_training_passes_nothing_off_as_trained(tmp_path, capsys, caplog):
    """As kill -9 leaves it before its first 30 seconds are over."""
    run, kept = tmp_path / "a run", tmp_path / "kept"
    at_first = []

    def keep(arrival, seconds, theta):
        if not at_first:
            at_first.append(arrival)
            shutil.copytree(run, kept)

    settings = {"agents": 2, "iterations": 3, "steps": 32, "checkpoint_seconds": 1000}
    train("CartPole-v1", **settings, out=run, on_arrival=keep)
    for name in ("checkpoints", "policy.safetensors", "best.safetensors"):
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
        if (kept / name).exists():
            (kept / name).rename(run / name)
    assert repr(load_policy(run)) == "LoadedPolicy(CartPole-v1: last theta, after iteration 0)"
    warning = f"{run}: this is the theta that the run began with, before its 6 gradients: a later checkpoint was never"
    for words in (["evaluate", str(run), "--episodes", "2"], ["export", str(run), str(tmp_path / "policy.onnx")]):
        caplog.clear()
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("last theta, after iteration 0")
        assert caplog.messages == [f"{warning} written; go on with: afedpg resume '{run}'"]
    caplog.clear()
    train("CartPole-v1", agents=2, iterations=1, steps=32, from_run=str(run))
    assert caplog.messages[0].startswith(warning)
    for words in (["replay", str(run)], ["replay", str(run), "--recompute"]):
        assert main(words) == 1
        assert (
            "no gradient lies between its first checkpoint and its newest; go on with: afedpg resume '"
            in capsys.readouterr().err
        )
