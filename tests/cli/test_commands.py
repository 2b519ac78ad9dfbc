"""train, resume, replay and runs, and what they leave in a run folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from afedpg import train
from afedpg.cli import main
from afedpg.dashboard.catalog import Catalog
from afedpg.engine.crew import Alone
from afedpg.engine.federation import Federation
from afedpg.record import checkpoint
from afedpg.record.database import read_arrivals, read_evaluations

SMALL = ("--agents", "3", "--iterations", "20", "--seed", "4")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(capsys, *arguments):
    """stdout of a command that must succeed."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def last_line(capsys, *arguments):
    return json.loads(done(capsys, *arguments, "--json").splitlines()[-1])


def test_the_last_line_is_for_machines(capsys):
    result = last_line(capsys, "train", "quadratic", *SMALL, "--out", "run")
    same = train("quadratic", agents=3, iterations=20, seed=4)
    assert result["theta_sha256"] == same.sha256
    assert (result["out"], result["gradients"], result["samples"], result["iteration"]) == ("run", 60, 60, 60)
    assert result["seconds"] == same.seconds
    assert result["evaluations"][0]["mean"] == same.evaluations[0].mean
    assert last_line(capsys, "resume", "run")["theta_sha256"] == same.sha256
    replayed = last_line(capsys, "replay", "run")
    assert (replayed["agrees"], replayed["recorded"]) == (True, same.sha256)
    assert last_line(capsys, "replay", "run", "--recompute")["replayed"] == same.sha256


def test_people_are_told_the_same(capsys):
    text = done(capsys, "train", "quadratic", *SMALL)
    assert "60 gradients, 60 samples" in text
    assert "theta, exact: " in text
    assert f"theta SHA-256 {train('quadratic', agents=3, iterations=20, seed=4).sha256}" in text
    assert "run folder: runs/quadratic-afedpg-seed4" in text
    assert "same bits" in done(capsys, "replay", "runs/quadratic-afedpg-seed4")
    done(capsys, "train", "quadratic", *SMALL)  # the default folder is the next that is free
    assert [path.name for path in sorted(Path("runs").iterdir())] == [
        "quadratic-afedpg-seed4",
        "quadratic-afedpg-seed4-2",
    ]


def test_runs_are_listed(capsys):
    for method in ("afedpg", "fedpg"):
        done(capsys, "train", "quadratic", "--method", method, *SMALL)
    with pytest.raises(ZeroDivisionError):
        train("lq-bandit", agents=2, iterations=5, out="runs/broken", on_arrival=lambda *_: 1 / 0)
    runs = {run["path"]: run for run in last_line(capsys, "runs")}
    assert {path: run["state"] for path, run in runs.items()} == {
        "runs/broken": "interrupted",
        "runs/quadratic-afedpg-seed4": "finished",
        "runs/quadratic-fedpg-seed4": "finished",
    }
    fedpg = runs["runs/quadratic-fedpg-seed4"]
    assert [fedpg[name] for name in ("method", "agents", "seed", "gradients", "total")] == ["fedpg", 3, 4, 60, 60]
    head, *lines = (re.split(" {2,}", line) for line in done(capsys, "runs").splitlines())
    said = {line[0]: dict(zip(head, line, strict=True)) for line in lines}["runs/quadratic-afedpg-seed4"]
    assert said.pop("training, last 5%") == f"{runs[said['run']]['last_return']:.4g}"
    assert said.pop("theta") == f"{runs[said['run']]['theta']['exact']:.4g} exact"
    assert said == {
        "run": "runs/quadratic-afedpg-seed4", "state": "finished", "task": "quadratic", "method": "afedpg",
        "agents": "3", "seed": "4", "gradients": "60/60",
    }  # fmt: skip
    assert done(capsys, "runs", "runs/broken").splitlines()[1].split()[:3] == [
        "runs/broken",
        "interrupted",
        "lq-bandit",
    ]
    Path("runs/empty").mkdir()
    assert done(capsys, "runs", "runs/empty").startswith("no runs in runs/empty")


def test_a_return_is_one_number_wherever_it_is_shown(capsys):
    """Of a run that gets worse after its middle, so that every other window gives another number."""
    train(
        "quadratic", agents=2, iterations=30, out="run", evaluate_every=30,
        eta=lambda iteration, version: 0.05 if iteration < 30 else 3.0,
    )  # fmt: skip
    rows = read_arrivals(Path("run/run.db"))
    expected = rows["mean_return"][-4:].mean()  # two per agent: more than 5% of 60
    assert expected != pytest.approx(rows["mean_return"][-15:].mean(), rel=0.05)
    assert last_line(capsys, "runs", "run")[0]["last_return"] == pytest.approx(expected)
    [group] = last_line(capsys, "runs", "run", "--compare")["groups"]
    assert group["results"]["training, last 5%"]["mean"] == pytest.approx(expected)
    [listed] = Catalog([Path()]).describe()
    assert (listed["return"], list(listed["theta"])) == (pytest.approx(expected, rel=1e-5), ["exact"])
    text = done(capsys, "train", "quadratic", *SMALL, "--out", "other")
    [value] = re.findall(r"^training, last 5%: (\S+)$", text, re.M)
    other = last_line(capsys, "runs", "other")[0]
    assert float(value) == pytest.approx(other["last_return"], rel=1e-5)
    assert last_line(capsys, "resume", "other")["training_return"] == other["last_return"]


def test_a_run_is_recomputed_by_as_many_workers_as_it_is_trained_by(capsys, monkeypatch):
    steps = ("--agents", "2", "--iterations", "2", "--steps", "16", "--hidden", "4", "--evaluate-episodes", "1")
    done(capsys, "train", "CartPole-v1", *steps, "--out", "run")
    monkeypatch.setattr("afedpg.runs.train.WORTH_A_WORKER", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    used = []

    def crew(build, workload, workers, interruption):
        used.append(workers)
        return Alone(workload)

    monkeypatch.setattr("afedpg.runs.virtual._crew", crew)
    for given in ([], ["--workers", "1"]):
        assert "same bits: recomputed" in done(capsys, "replay", "run", "--recompute", *given)
    assert used == [2, 1]
    assert main(["replay", "run", "--workers", "2"]) == 2
    assert capsys.readouterr().err.startswith("afedpg: workers: only used with --recompute")


def test_several_seeds_are_several_runs(capsys, empty_folder):
    done(capsys, "train", "quadratic", "--agents", "2", "--iterations", "5", "--seeds", "0-1,7", "--out", "all")
    assert sorted(path.name for path in (empty_folder / "all").iterdir()) == ["seed0", "seed1", "seed7"]
    for seed in (0, 1, 7):
        recorded = last_line(capsys, "replay", f"all/seed{seed}")["recorded"]
        assert recorded == train("quadratic", agents=2, iterations=5, seed=seed).sha256


@pytest.mark.parametrize("out", [("--out", "all"), ()], ids=["named", "default"])
def test_seeds_that_were_interrupted_go_on(out, capsys, monkeypatch):
    """Finished runs are left as they are, the interrupted one is resumed, the others begin."""
    several = ("train", "quadratic", "--agents", "2", "--iterations", "5", "--seeds", "0-3", "--json", *out)
    apply, events = Federation.apply, []

    def stopped(federation, *event):
        events.append(event)
        if len(events) == 20:  # in the middle of the second run
            os.kill(os.getpid(), signal.SIGINT)
        return apply(federation, *event)

    with monkeypatch.context() as patch:
        patch.setattr(Federation, "apply", stopped)
        assert main(list(several)) == 130
    where = "all/seed{}" if out else "runs/quadratic-afedpg-seed{}"
    hint = "the same command again goes on with all seeds" if out else "then --seeds 2,3 for the others"
    assert capsys.readouterr().err.endswith(f"; go on with: afedpg resume {where.format(1)}; {hint}\n")
    if out:
        first = {path: path.read_bytes() for path in Path(where.format(0)).rglob("*") if path.is_file()}
        assert main(list(several)) == 0
        said = capsys.readouterr()
        assert said.err == "all/seed0 is finished\n"
        assert [json.loads(line)["out"] for line in said.out.splitlines()] == [where.format(seed) for seed in (1, 2, 3)]
        assert {path: path.read_bytes() for path in Path(where.format(0)).rglob("*") if path.is_file()} == first
        for seed in range(4):
            recorded = last_line(capsys, "replay", where.format(seed))["recorded"]
            assert recorded == train("quadratic", agents=2, iterations=5, seed=seed).sha256
        assert main([*several, "--eta", "0.5"]) == 2  # other settings: another run
        assert capsys.readouterr().err.startswith("afedpg: out: all/seed0 exists; choose another --out")


def test_afedpg_and_its_ablation_differ_in_one_line(capsys):
    for method in ("afedpg", "afedpg-vanilla"):
        done(capsys, "train", "quadratic", "--method", method, *SMALL, "--out", method)
    one, other = (Path(method, "run.toml").read_text().splitlines() for method in ("afedpg", "afedpg-vanilla"))
    assert [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]] == [
        ('method = "afedpg"', 'method = "afedpg-vanilla"')
    ]


def test_the_policy_file_holds_theta(capsys):
    result = train("quadratic", agents=3, iterations=20, out="run")
    np.testing.assert_array_equal(load_file("run/policy.safetensors")["theta"], result.theta.astype(np.float32))


def test_one_row_per_applied_gradient_and_the_evaluations_asked_for():
    result = train(
        "lq-bandit", agents=4, iterations=30, evaluate_every=10, schedule="constant", alpha=0.2, eta=0.05, out="run"
    )
    rows = read_arrivals(Path("run/run.db"))
    assert rows["gradient"].tolist() == list(range(1, 121))
    assert rows["iteration"].tolist() == list(range(120))
    np.testing.assert_array_equal(rows["delay"], rows["iteration"] - rows["version"])
    assert set(rows["alpha"]) == {0.2}
    assert set(rows["bytes_up"]) == set(rows["bytes_down"]) == {16}
    np.testing.assert_allclose(rows["step_length"], 0.05)
    np.testing.assert_allclose(rows["lookahead_length"], 0.2)
    assert (rows["seconds"][-1], rows["steps"].sum()) == (result.seconds, result.samples)
    evaluations = read_evaluations(Path("run/run.db"))
    assert evaluations["gradients"].tolist() == [40, 80, 120]
    assert evaluations["mean"][-1] == result.evaluations[0].mean


def test_a_run_can_start_where_another_ended(capsys):
    first = train("quadratic", agents=2, iterations=50, out="first")
    thetas = []
    train(
        "quadratic", agents=2, iterations=1, from_run="first", eta=1e-9,
        on_arrival=lambda arrival, seconds, theta: thetas.append(theta.copy()),
    )  # fmt: skip
    np.testing.assert_allclose(thetas[0], first.theta, atol=1e-8)


def test_a_run_that_names_places_is_resumed_from_anywhere(capsys, tmp_path, monkeypatch):
    first = train("quadratic", agents=2, iterations=5, out="first")
    Path("times.csv").write_text("agent,seconds\n0,1.0\n1,2.5\n")
    with pytest.raises(ZeroDivisionError):
        train(
            "quadratic", agents=2, iterations=20, timing="trace", trace="times.csv", from_run="first", out="second",
            on_arrival=lambda arrival, *_: 1 / (arrival.gradient - 9),
        )  # fmt: skip
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = last_line(capsys, "resume", "../second")
    monkeypatch.chdir(tmp_path)
    whole = train("quadratic", agents=2, iterations=20, timing="trace", trace="times.csv", from_run="first")
    assert resumed["theta_sha256"] == whole.sha256 != first.sha256


def test_another_cluster_is_for_runs_that_have_one(capsys):
    train("quadratic", agents=2, iterations=5, out="run")
    assert main(["resume", "run", "--agent-cpus", "0.5"]) == 2
    assert capsys.readouterr().err == (
        "afedpg: agent_cpus: only used with --engine ray; this is a run of --engine virtual\n"
    )


def test_a_checkpoint_that_is_cut_off_is_passed_over(capsys):
    whole = train("quadratic", agents=3, iterations=20, checkpoint_seconds=0.001, out="run")
    newest = checkpoint.names(Path("run/checkpoints"))[-1]
    damaged = Path("run/checkpoints", str(newest), "state.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert main(["resume", "run", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["theta_sha256"] == whole.sha256
    for name in checkpoint.names(Path("run/checkpoints")):
        path = Path("run/checkpoints", str(name), "state.json")
        path.write_text(path.read_text()[:-50])
    assert main(["resume", "run"]) == 1
    *warnings, said = capsys.readouterr().err.splitlines()
    assert [warning.startswith("warning: checkpoint run/checkpoints/") for warning in warnings] == [True]
    assert said.startswith("afedpg: checkpoint run/checkpoints/")
    assert said.endswith("no whole checkpoint is left, start the run again")
    assert main(["evaluate", "run"]) == 1
    assert capsys.readouterr().err.endswith("afedpg export and load_policy take what run/policy.safetensors has\n")


def test_a_journal_that_is_cut_off_is_named(capsys):
    whole = train("quadratic", agents=3, iterations=20, out="run")
    [segment] = Path("run/journal").iterdir()
    segment.write_bytes(segment.read_bytes()[:-500])
    assert main(["replay", "run"]) == 1
    said = capsys.readouterr().err
    assert "run/journal ends after event" in said
    assert said.count("\n") == 1
    segment.unlink()
    assert main(["replay", "run"]) == 1
    assert "the checkpoint stands at 63" in capsys.readouterr().err
    assert main(["resume", "run", "--json"]) == 0  # the checkpoint alone is enough to go on
    assert json.loads(capsys.readouterr().out)["theta_sha256"] == whole.sha256


def test_a_theta_that_differs_is_an_error(capsys):
    train("quadratic", agents=2, iterations=5, out="run")
    newest, tree = checkpoint.load_latest(Path("run/checkpoints"))
    tree["server"]["theta"][0] += 1e-15
    checkpoint.save(Path("run/checkpoints"), newest, tree, keep=2)
    assert main(["replay", "run"]) == 1
    assert "theta differs: recorded" in capsys.readouterr().err


def test_two_processes_cannot_write_one_run(capsys):
    def second(arrival, seconds, theta):
        if arrival.gradient == 3:
            assert main(["resume", "run"]) == 1
            assert "is being written by another process" in capsys.readouterr().err

    train("quadratic", agents=2, iterations=5, out="run", on_arrival=second)
    assert "same bits" in done(capsys, "replay", "run")


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["resume", "--help"], ["runs", "--help"]])
def test_help_loads_nothing_heavy_and_has_an_example(arguments):
    code = (
        "import sys\nfrom afedpg.cli import main\n"
        f"try: main({arguments})\nexcept SystemExit as end: assert end.code == 0\n"
        "heavy = {'numpy', 'torch', 'numba', 'gymnasium', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "example: afedpg" in done.stdout


def test_a_disk_that_runs_full_is_one_line_and_the_run_goes_on_once_there_is_room(small_disk, capsys):
    """The journal's second segment does not fit any more."""
    settings = {"agents": 3, "iterations": 80, "dimension": 20_000}
    whole = train("quadratic", **settings)
    disk = small_disk(24 * 1024)
    options = [f"--{name}={value}" for name, value in settings.items()]
    assert main(["train", "quadratic", *options, "--out", str(disk / "run"), "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "disk full" in said.err
    assert f"`afedpg resume {disk}/run`" in said.err
    subprocess.run(["mount", "-o", "remount,size=128m", str(disk)], check=True)
    result = last_line(capsys, "resume", disk / "run")
    assert result["theta_sha256"] == whole.sha256
    assert last_line(capsys, "replay", disk / "run")["agrees"]


def test_a_disk_without_any_room_is_one_line(small_disk, capsys):
    disk = small_disk(64)
    (disk / "fill").write_bytes(bytes(60 * 1024))
    assert main(["train", "quadratic", "--out", str(disk / "run"), "--json"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), "disk full" in said.err) == ("", 1, True)
