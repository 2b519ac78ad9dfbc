"""Every benchmark runs once, at its smallest: what it measures is not looked at, that it can be measured is."""

from __future__ import annotations

import json

import pytest

from afedpg.bench import dashboard, iteration, network, ray, sampler, server, train, virtual, workers
from afedpg.cli import main

KEYS = {"benchmark", "task", "subject", "reference", "ratio"}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for module, name, value in [
        (dashboard, "AGENTS", 2), (dashboard, "ITERATIONS", 20), (dashboard, "NEW_ROWS", 5), (virtual, "FEW", 2),
        (dashboard, "BROWSERS", ()), (virtual, "MANY", 4), (virtual, "ARRIVALS", 40),
        (network, "WARM_SECONDS", 0.1), (ray, "ACTORS", 2), (ray, "SECONDS", 0.1), (ray, "ITERATIONS", 4),
        (workers, "AGENTS", 2), (workers, "ITERATIONS", 2),
    ]:  # fmt: skip
        monkeypatch.setattr(module, name, value)


SMALLEST = {
    "server": lambda: server.run(["Swimmer"], 1),
    "virtual": lambda: virtual.run(rounds=1),
    "dashboard": lambda: dashboard.run(rounds=1),
    "network": lambda: network.run(["swimmer"], 1, seconds=0.5),
    "sampler": lambda: sampler.run(["Swimmer-v4"], 1),
    "iteration": lambda: iteration.run(["swimmer"], 1),
    "workers": lambda: workers.run(["hopper"], 1),
    **{f"train-{task}": lambda task=task: train.run([task], 1) for task in (*train.PRESETS, "CartPole-v1")},
}


@pytest.mark.parametrize("name", SMALLEST)
def test_it_ends_with_rows(name, capsys):
    rows = SMALLEST[name]()
    assert rows
    assert all(row.keys() >= KEYS and row["benchmark"] == name.partition("-")[0] for row in rows)
    json.dumps(rows)


def test_the_ray_engine_too():
    pytest.importorskip("ray", reason="Ray is not installed")
    assert [row["subject"] for row in ray.run(["swimmer"], 1)] == ["server, journal and run.db"]


def test_the_file_names_the_commit_it_was_measured_at(tmp_path, capsys):
    file = tmp_path / "rows.json"
    assert main(["bench", "server", "--tasks", "Swimmer", "--rounds", "1", "--out", str(file)]) == 0
    document = json.loads(file.read_text())
    assert {row["benchmark"] for row in document["rows"]} == {"server"}
    assert {"python", "numpy", "torch"} <= document["versions"].keys()


@pytest.mark.parametrize("name", ["sampler", "train", "iteration", "workers", "server", "virtual", "network"])
def test_a_task_that_nobody_knows(name, capsys):
    assert main(["bench", name, "--tasks", "nosuch", "--rounds", "1"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "nosuch" in said


@pytest.mark.parametrize("out", [".", "nosuch/rows.json"])
def test_where_the_rows_cannot_go_nothing_is_measured(out, capsys):
    assert main(["bench", "server", "--out", out]) == 2
    assert capsys.readouterr().err.startswith(f"afedpg: out: '{out}' is no file")
