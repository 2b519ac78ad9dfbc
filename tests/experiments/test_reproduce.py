"""`afedpg reproduce` from the command line, on problems that take seconds: files, restarts, a user's own code."""

from __future__ import annotations

import html
import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from federations import alive, children, wait_until
from reproducing import OWN, csvs, reproduce, rows_of

from afedpg.cli import main
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Plan, RunJob
from afedpg.record import checkpoint
from afedpg.record.database import read_arrivals, read_evaluations
from afedpg.record.folder import find_runs, summarize


@pytest.fixture(scope="module")
def speedup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("speedup")
    arguments = ("sample-speedup", "--scale", "smoke", "--tasks", "quadratic", "--seeds", "0-2", "--workers", "2")
    assert reproduce(*arguments, "--out", str(out)) == 0
    return out


def test_help_costs_nothing() -> None:
    code = "import sys, afedpg.cli\nafedpg.cli.make_parser()\nprint({'numpy', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_file_is_there(speedup: Path) -> None:
    folder = speedup / "sample-speedup"
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".png", ".svg", ".pdf", ".json"}
    document = json.loads((folder / "verdict.json").read_text())
    (verdict,) = document["verdicts"]
    assert verdict["verdict"] == "holds"  # a quadratic: N = 8 needs an eighth
    assert verdict["value"] == float(rows_of(folder / "sample-speedup-ratios.csv")[-1]["ratio"])
    assert len(find_runs(speedup / "runs")) == 12
    report = (speedup / "report.html").read_text()
    assert "data:image/png;base64," in report
    assert html.escape(verdict["claim"]) in report
    command = "afedpg reproduce sample-speedup --scale smoke --tasks quadratic --seeds 0,1,2"
    assert document["command"] == command
    assert f"<code>{command}</code>" in report
    (made_with,) = document["made_with"]
    assert made_with in html.unescape(report)
    assert f"numpy {np.__version__}" in made_with
    assert "http" not in report.replace("http-equiv", "")  # opens without a network


def test_the_curves_are_those_of_the_runs(speedup: Path) -> None:
    """The table against run.db, read and binned by hand."""
    mine = [
        r for r in rows_of(speedup / "sample-speedup" / "sample-speedup.csv") if r["agents"] == "8" and r["seed"] == "1"
    ]
    (run,) = [r for r in find_runs(speedup / "runs") if (r.config().agents, r.config().seed) == (8, 1)]
    arrivals = read_arrivals(run.path / "run.db")
    assert len(mine) == 200  # 400 gradients, two in each part
    for place in (0, 57, 199):
        two = slice(2 * place, 2 * place + 2)
        assert float(mine[place]["training_return"]) == pytest.approx(arrivals["mean_return"][two].mean())
        assert float(mine[place]["samples_per_agent"]) == (2 * place + 2) / 8
        assert float(mine[place]["seconds"]) == arrivals["seconds"][2 * place + 1]
    evaluated = rows_of(speedup / "sample-speedup" / "sample-speedup-evaluations.csv")
    last = [row for row in evaluated if row["agents"] == "8" and row["seed"] == "1"][-1]
    assert float(last["return"]) == read_evaluations(run.path / "run.db")["mean"][-1]


def test_more_agents_need_fewer_samples_each(speedup: Path) -> None:
    ratios = rows_of(speedup / "sample-speedup" / "sample-speedup-ratios.csv")
    assert float(ratios[0]["ratio"]) == 1.0
    assert all(float(a["ratio"]) > float(b["ratio"]) for a, b in itertools.pairwise(ratios))


def test_a_second_time_computes_nothing(speedup: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, stamps = csvs(speedup), {path: path.stat().st_mtime_ns for path in speedup.glob("runs/*/run.db")}
    arguments = ("sample-speedup", "--scale", "smoke", "--tasks", "quadratic", "--seeds", "0-2", "--workers", "1")
    assert reproduce(*arguments, "--out", str(speedup)) == 0
    assert "12 runs, 12 done already; 0 gradients" in capsys.readouterr().err
    assert csvs(speedup) == before
    assert {path: path.stat().st_mtime_ns for path in speedup.glob("runs/*/run.db")} == stamps


def test_replay_of_a_run_without_its_events_names_what_proves_it(
    speedup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = find_runs(speedup / "runs")[0].path
    capsys.readouterr()
    assert main(["replay", str(run)]) == 1
    error = capsys.readouterr().err
    again = f"replay {run} --recompute"
    assert error == f"afedpg: {run}: its events are not kept; `afedpg {again}` computes them again\n"
    assert main(again.split()) == 0
    assert "same bits: recomputed" in capsys.readouterr().out


def test_killed_and_started_again_gives_the_same_tables(speedup: Path, tmp_path: Path) -> None:
    """Killed while runs are under way; nothing in the tables tells."""
    arguments = ["sample-speedup", "--scale", "smoke", "--tasks", "quadratic", "--seeds", "0-2", "--workers", "2"]
    command = [sys.executable, "-m", "afedpg", "reproduce", *arguments, "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(children(process.pid)) >= 3)  # two workers, and multiprocessing's own
    workers = children(process.pid)  # before there are runs: these take tenths of a second in all
    wait_until(lambda: len(list(tmp_path.glob("runs/*/run.db"))) >= 3)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not any(alive(worker) for worker in workers), what="nobody writes any more")
    assert len(list(tmp_path.glob("runs/*/run.db"))) < 12
    assert reproduce(*arguments, "--out", str(tmp_path)) == 0
    assert csvs(tmp_path) == csvs(speedup)


def test_a_run_that_stopped_half_way_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    job = RunJob(Plan(Choices("smoke", tmp_path, 1)).settings("quadratic", Method("afedpg"), 4, 0))

    def stop(fraction: float) -> None:
        if fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job.perform(tmp_path / "broken", 1, stop)
    assert not job.finished(tmp_path / "broken")
    for out in ("broken", "whole"):
        job.perform(tmp_path / out, 1, lambda fraction: None)
        assert job.finished(tmp_path / out)
    broken, whole = (read_arrivals(job.folder(tmp_path / out).database) for out in ("broken", "whole"))
    assert all(np.array_equal(broken[name], whole[name]) for name in whole)


def test_a_folder_without_a_run_in_it_is_made_anew(tmp_path: Path) -> None:
    """As a kill between the folder and its run.toml leaves it."""
    job = RunJob(Plan(Choices("smoke", tmp_path, 1)).settings("quadratic", Method("afedpg"), 2, 0, iterations=5))
    job.folder(tmp_path).path.mkdir(parents=True)
    (job.folder(tmp_path).path / ".run.toml.tmp").write_text("half")
    job.perform(tmp_path, 1, lambda fraction: None)
    assert job.finished(tmp_path)


def test_interrupted_runs_are_stored_and_the_children_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "afedpg", "reproduce", "sample-speedup", "--tasks", "hopper", "--seeds", "0"]
    process = subprocess.Popen([*command, "--out", str(tmp_path), "--workers", "2"], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: process.poll() is not None or rows_so_far(tmp_path) >= 2, 300, "two runs have rows")
    started = children(process.pid)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=90)  # it gives its runs a minute to be stored
    assert process.returncode == 130, errors
    assert "the same command goes on" in errors
    wait_until(lambda: not any(alive(child) for child in started), what="the children ended with their parent")
    runs = [summarize(run) for run in find_runs(tmp_path)]
    assert {run.state for run in runs} == {"interrupted"}
    stored = [checkpoint.load_latest(run.path / "checkpoints")[1]["server"]["gradients"] for run in runs]
    assert stored == [run.gradients for run in runs]
    assert min(stored) > 0


def rows_so_far(out: Path) -> int:
    """How many runs have a row that others can see."""
    return sum(summarize(run).gradients > 0 for run in find_runs(out))


def test_a_rule_and_a_clock_of_ones_own_stand_beside_the_papers(tmp_path: Path) -> None:
    file = tmp_path / "my_file.py"
    file.write_text(OWN)
    out = tmp_path / "out"
    own = ("--methods", f"{file}:rule", "--timing", f"{file}:model", "--out", str(out), "--workers", "2")
    assert reproduce("timeline", "--scale", "smoke", *own) == 0
    assert reproduce("communication", "--scale", "smoke", "--tasks", "quadratic", "--seeds", "0", *own) == 0
    methods = {row["method"] for row in rows_of(out / "timeline" / "timeline.csv")}
    assert methods == {"fedpg", "afedpg", "rule (my_file.py)"}
    assert {row["method"] for row in rows_of(out / "communication" / "communication.csv")} == methods
    first = rows_of(out / "timeline" / "timeline.csv")[0]
    assert float(first["finish_seconds"]) in (1.0, 2.0, 3.0, 4.0)


def test_a_figure_of_some_teams_has_those_alone(tmp_path: Path) -> None:
    arguments = (
        "--scale",
        "smoke",
        "--tasks",
        "quadratic",
        "--seeds",
        "0-2",
        "--agents",
        "4,1",
        "--out",
        str(tmp_path),
    )
    assert reproduce("sample-speedup", *arguments) == 0
    folder = tmp_path / "sample-speedup"
    assert [row["agents"] for row in rows_of(folder / "sample-speedup-ratios.csv")] == ["1", "4"]
    (verdict,) = json.loads((folder / "verdict.json").read_text())["verdicts"]
    assert (verdict["verdict"], verdict["needed"].partition(";")[0]) == ("holds", "N = 4: at most 0.3")
    assert len(find_runs(tmp_path / "runs")) == 6
