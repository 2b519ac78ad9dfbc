"""`afedpg runs --compare`: grouped by everything but the seed, with the numbers of the runs themselves."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from support import curves

from afedpg import train
from afedpg.cli import main
from afedpg.errors import AfedpgError
from afedpg.record.database import read_arrivals, read_evaluations
from afedpg.student import t_quantile


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three seeds of one setting, one of another."""
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1, 10):
        train("quadratic", agents=3, iterations=40, seed=seed, out=f"runs/sweep/seed{seed}")
    train("quadratic", agents=3, iterations=40, method="fedpg", alpha=0.2, out="runs/fedpg")
    return Path("runs")


def said(capsys, *arguments):
    capsys.readouterr()
    assert main(["runs", "--compare", *arguments]) == 0
    return capsys.readouterr()


def test_the_numbers_are_those_of_the_runs(runs, capsys):
    fedpg, afedpg = json.loads(said(capsys, "--json").out)["groups"]
    assert (afedpg["seeds"], afedpg["runs"]) == ([0, 1, 10], [f"runs/sweep/seed{seed}" for seed in (0, 1, 10)])
    assert fedpg["settings"] == {"method": "fedpg", "alpha": 0.2}
    assert afedpg["settings"] == {"method": "afedpg", "alpha": 0.1}
    rows = [read_arrivals(Path(path, "run.db")) for path in afedpg["runs"]]
    results = afedpg["results"]
    assert results["training, last 5%"]["values"] == pytest.approx([r["mean_return"][114:].mean() for r in rows])
    theta = np.array([read_evaluations(Path(path, "run.db"))["mean"][-1] for path in afedpg["runs"]])
    assert results["theta, exact"]["values"] == theta.tolist()
    half = t_quantile(2) * theta.std(ddof=1) / np.sqrt(3)
    assert results["theta, exact"]["mean"] == pytest.approx(theta.mean())
    assert results["theta, exact"]["low"] == pytest.approx(theta.mean() - half)
    assert results["theta, exact"]["high"] == pytest.approx(theta.mean() + half)
    assert results["samples"]["values"] == [120, 120, 120]
    assert results["virtual seconds"]["values"] == [r["seconds"][-1] for r in rows]
    assert results["delay, mean"]["values"] == pytest.approx([r["delay"].mean() for r in rows])
    assert results["delay, max"]["values"] == [r["delay"].max() for r in rows]
    assert results["bytes up"]["values"] == [r["bytes_up"].sum() for r in rows]
    assert (fedpg["results"]["theta, exact"]["low"], fedpg["results"]["delay, max"]["mean"]) == (None, 0)


def test_every_segment_of_a3c_counts(tmp_path, monkeypatch, capsys):
    """Against what the run itself said when each arrived, to the last one."""
    monkeypatch.chdir(tmp_path)
    seen = []
    result = train(
        "CartPole-v1", method="a3c", agents=4, iterations=6, steps=256, segment=32, hidden=(8,), evaluate_episodes=1,
        timing="straggler", workers=1, out="runs/a3c", on_arrival=lambda arrival, *rest: seen.append(arrival),
    )  # fmt: skip
    [group] = json.loads(said(capsys, "--json").out)["groups"]
    found = {name: values["mean"] for name, values in group["results"].items()}
    assert (found["samples"], found["virtual seconds"]) == (result.samples, result.seconds)
    assert result.samples == 6144
    assert found["delay, mean"] == pytest.approx(np.mean([arrival.delay for arrival in seen]))
    assert found["delay, max"] == max(arrival.delay for arrival in seen)
    assert found["bytes up"] == sum(arrival.bytes_up for arrival in seen)
    assert max(step for points in curves(Path("runs/a3c")).values() for step, _ in points) == result.samples


def test_people_see_columns_side_by_side(runs, capsys):
    lines = said(capsys).out.splitlines()
    assert lines[0].split() == ["runs", "runs/fedpg", "runs/sweep/seed{0,1,10}"]
    assert ["seeds", "0", "0,1,10"] in [line.split() for line in lines]
    assert ["method", "fedpg", "afedpg"] in [line.split() for line in lines]
    assert not any(line.startswith(("agents", "iterations", "seed ")) for line in lines)  # the same in all
    assert sum("[" in line for line in lines) == 2  # theta and training: intervals over three seeds


def test_a_narrow_terminal_gets_the_columns_below_each_other(runs, capsys):
    from afedpg.experiments.comparison import compare
    from afedpg.record.folder import find_runs

    compared = compare(find_runs(runs), pytest.fail)
    one, two = compared.table(50).split("\n\n")
    assert [block.splitlines()[0].split()[1] for block in (one, two)] == ["runs/fedpg", "runs/sweep/seed{0,1,10}"]
    assert max(len(line) for line in (one + "\n" + two).splitlines()) <= 50
    assert "\n\n" not in compared.table(200)


def test_only_the_runs_that_are_named(runs, capsys):
    [group] = json.loads(said(capsys, "runs/sweep/seed1", "runs/sweep", "--json").out)["groups"]
    assert group["seeds"] == [0, 1, 10]


def test_a_run_that_cannot_be_read_is_left_out_and_said_to_be(runs, capsys):
    (runs / "broken").mkdir()
    (runs / "broken" / "run.toml").write_text("?")
    shown = said(capsys, "--json")
    assert len(json.loads(shown.out)["groups"]) == 2
    assert shown.err.startswith("warning: left out: runs/broken/run.toml")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(("folder", "others"), [("runs", 4), ("runs/brok\x1b[31men", 0)])
def test_a_list_names_the_run_that_cannot_be_read(runs, capsys, folder, others):
    (runs / "brok\x1b[31men").mkdir()
    (runs / "brok\x1b[31men" / "run.toml").write_text("?")
    assert main(["runs", folder]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == (others and 1 + others)  # with a head
    assert shown.err.startswith(r"warning: left out: runs/brok\x1b[31men/run.toml is not TOML")
    assert shown.err.count("\n") == 1


def test_a_seed_counts_once(runs, capsys):
    train("quadratic", agents=3, iterations=40, seed=1, out="runs/again")
    shown = said(capsys, "--json")
    assert sorted(group["seeds"] for group in json.loads(shown.out)["groups"]) == [[0], [0, 1, 10]]
    assert shown.err == "warning: left out: runs/sweep/seed1 has the settings and the seed of runs/again\n"


def test_of_a_seed_the_run_that_came_furthest_counts(runs, capsys):
    """Wherever it lies: a folder that comes first by name is not the whole run for that."""
    with pytest.raises(AfedpgError):
        train("quadratic", agents=3, iterations=40, seed=1, out="runs/again", on_arrival=_fails)
    shown = said(capsys, "--json")
    [group] = [group for group in json.loads(shown.out)["groups"] if 1 in group["seeds"]]
    assert group["runs"][1:2] == ["runs/sweep/seed1"]
    assert group["states"] == ["finished"] * 3
    assert shown.err == "warning: left out: runs/again has the settings and the seed of runs/sweep/seed1\n"


def _fails(arrival, seconds, theta):
    if arrival.gradient == 57:
        raise AfedpgError("out of luck")


def test_a_run_without_a_row_yet_is_compared_by_its_settings(runs, capsys):
    (runs / "fedpg" / "run.db").unlink()
    shutil.rmtree(runs / "fedpg" / "checkpoints")
    fedpg, _ = json.loads(said(capsys, "--json").out)["groups"]
    assert (fedpg["results"], fedpg["states"]) == ({}, ["interrupted"])


@pytest.mark.parametrize(("stored", "shown"), [(None, "-"), (float("inf"), "inf")])
def test_a_run_that_diverged_is_compared_as_well(runs, capsys, stored, shown):
    """SQLite stores NaN as NULL."""
    with closing(sqlite3.connect("runs/fedpg/run.db")) as connection, connection:
        connection.execute("UPDATE evaluations SET mean = ?", (stored,))
    found = json.loads(said(capsys, "--json").out, parse_constant=pytest.fail)
    assert found["groups"][0]["results"].get("theta, exact", {"values": [None]})["values"] == [None]
    line = next(line for line in said(capsys).out.splitlines() if line.startswith("theta"))
    assert line.split()[2] == shown


def test_names_on_disk_cannot_drive_the_terminal(runs, capsys):
    hostile = Path("runs/evil\x1b]0;title\x07\x1b[31m")
    Path("runs/fedpg").rename(hostile)
    for arguments in ([], ["--compare"]):
        capsys.readouterr()
        assert main(["runs", *arguments]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\x07" not in out
        assert r"evil\x1b]0;title\x07\x1b[31m" in out
