"""What `afedpg status` says of a server: who is in while it runs, that it is gone once it is, and how much each did."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from federations import site, wait_until

import afedpg
from afedpg.cli import main
from afedpg.record.database import Database, read_counts


def said(capsys: pytest.CaptureFixture[str], run: Path) -> tuple[str, dict[str, Any]]:
    capsys.readouterr()
    assert main(["status", str(run)]) == 0
    text = capsys.readouterr().out
    assert main(["status", str(run), "--json"]) == 0
    return text, json.loads(capsys.readouterr().out)


def test_after_a_kill_the_server_is_stopped_and_its_agents_counts_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with site(tmp_path, "--iterations", 10**6, "--dimension", 20) as federation:
        server = federation.server()
        for number in range(2):
            federation.agent(number, "--seconds-per-gradient", 0.002 * (number + 1))
        # The status is written once a second: the first one may be of before the agents joined.
        wait_until(lambda: federation.status()["gradients"] > 400 and len(federation.status()["agents"]) == 2)
        text, document = said(capsys, federation.run)
        assert document["state"] == "running"
        assert [agent["state"] in ("working", "waiting") for agent in document["agents"]] == [True, True]
        assert text.startswith("iteration ")
        server.send_signal(signal.SIGKILL)
        server.wait()
        killed = time.time()
        text, document = said(capsys, federation.run)
        assert document["state"] == "stopped"
        assert [agent["state"] for agent in document["agents"]] == ["stopped", "stopped"]
        assert killed - 10 < document["time"] <= killed
        assert re.match(r"stopped, last sign of life \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, \d+ s ago\niteration ", text)
        time.sleep(1.5)
        _, later = said(capsys, federation.run)
        assert later["agents"][0]["last_seen"] >= document["agents"][0]["last_seen"] + 1.4
        before = document["gradients"]
        federation.server()
        wait_until(lambda: federation.status()["gradients"] > before + 100, what="the resumed server goes on")
        document = federation.status()
        assert sum(agent["gradients"] for agent in document["agents"]) == document["gradients"]


def test_of_a_finished_run_it_says_so_and_who_never_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    afedpg.train("quadratic", agents=1, iterations=20, engine="local", out=tmp_path / "run")
    _, document = said(capsys, tmp_path / "run")
    base = Database(tmp_path / "run" / "run.db")
    changes = ({"state": "working"}, {"state": "waiting"}, {"state": "working", "gradients": 0}, {"state": "away"})
    agents = [{**document["agents"][0], "agent": number, **change} for number, change in enumerate(changes)]
    base.note("status", json.dumps({**document, "agents": agents}))
    base.close()
    text, document = said(capsys, tmp_path / "run")
    assert (document["state"], document["gradients"]) == ("finished", 20)
    assert [agent["state"] for agent in document["agents"]] == ["done", "done", "never answered", "left"]
    assert text.startswith("finished, last sign of life ")


def test_unused_reports_have_a_column_where_there_are_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        how = {"engine": "local", "max_share": 0.6}  # so that neither can do all the work alone
        afedpg.train("quadratic", agents=2, iterations=50, **how, out=tmp_path / name)
    text, document = said(capsys, tmp_path / "one")
    assert "unused" not in text
    assert (document["unused"], [agent["unused"] for agent in document["agents"]]) == (0, [0, 0])
    assert main(["runs", str(tmp_path)]) == 0
    assert "unused" not in capsys.readouterr().out.splitlines()[0]
    base = Database(tmp_path / "one" / "run.db")
    for sequence in range(3):
        base.add_event("unused", sequence, 1.0, 7, 1, "late: its round closed 2 iterations ago")
    document["agents"][1]["unused"] = 3
    base.note("status", json.dumps(document))
    base.close()
    text, _ = said(capsys, tmp_path / "one")
    _, iteration, head, *rows = text.splitlines()
    assert "unused 3," in iteration
    place = re.split(r"  +", head.strip()).index("unused")
    assert [re.split(r"  +", row.strip())[place] for row in rows] == ["0", "3"]
    assert main(["runs", str(tmp_path)]) == 0
    head, *rows = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines())
    assert [row[head.index("unused")] for row in rows] == ["3", "0"]
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert [run["unused"] for run in json.loads(capsys.readouterr().out)] == [3, 0]


def test_a_status_and_a_run_of_a_version_without_unused_reports_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    afedpg.train("quadratic", agents=1, iterations=20, engine="local", out=tmp_path / "run")
    _, document = said(capsys, tmp_path / "run")
    del document["unused"], document["agents"][0]["unused"]
    base = Database(tmp_path / "run" / "run.db")
    base.note("status", json.dumps(document))
    base.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "run" / "run.db")) as connection:
        connection.execute("DROP TABLE unused")
    assert "unused" not in said(capsys, tmp_path / "run")[0]
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert [(run["state"], run["unused"]) for run in json.loads(capsys.readouterr().out)] == [("finished", 0)]


def test_a_run_that_was_never_served_has_no_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    afedpg.train("quadratic", agents=2, iterations=10, out=tmp_path / "run")
    assert main(["status", str(tmp_path / "run")]) == 1
    assert "was never served" in capsys.readouterr().err
    assert sum(applied for applied, _, _ in read_counts(tmp_path / "run" / "run.db").values()) == 20


def test_the_return_at_every_site_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = afedpg.train("quadratic", agents=2, iterations=20, optima=(0.0, 3.0), engine="local", out=tmp_path / "run")
    text, document = said(capsys, tmp_path / "run")
    means = [evaluation.mean for evaluation in result.evaluations]
    assert document["sites"] == [["agent 0", "exact", means[0]], ["agent 1", "exact", means[1]]]
    worst = means.index(min(means))
    assert text.splitlines()[-1] == (
        f"theta, exact: mean of 2 sites {sum(means) / 2:.6g}, worst {min(means):.6g} on agent {worst} "
        f"(agent 0 {means[0]:.6g}, agent 1 {means[1]:.6g})"
    )


def test_a_server_that_runs_tells_the_returns_of_its_last_evaluation(tmp_path: Path) -> None:
    settings = ("--iterations", 10**6, "--optima", "0,3", "--evaluate-every", 20)
    with site(tmp_path, *settings) as federation:
        federation.server()
        for number in range(2):
            federation.agent(number, "--seconds-per-gradient", 0.002)
        wait_until(lambda: federation.gradients() > 400)
        wait_until(lambda: len(federation.status()["sites"]) == 2)
        assert [where for where, _, _ in federation.status()["sites"]] == ["agent 0", "agent 1"]
