"""`afedpg reproduce` from the command line, on problems that take seconds: files, restarts, a user's own code."""

from __future__ import annotations

import csv
import html
import itertools
import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from federations import alive, children, wait_until

from afedpg.cli import main, make_parser
from afedpg.commands.reproduce import read_choices
from afedpg.config import METHODS
from afedpg.errors import AfedpgError
from afedpg.experiments import learner_runs
from afedpg.experiments.choices import (
    EXPERIMENTS,
    NAMED_TIMINGS,
    OF_ONE_METHOD,
    SHOWN_TIMINGS,
    STUDIES,
    SUITABLE,
    Choices,
    Method,
    OwnPart,
    check_methods,
    check_timing,
    parse_method,
    parse_own,
    parse_seeds,
)  # fmt: skip
from afedpg.experiments.curves import KEPT
from afedpg.experiments.jobs import A3C_RATE, Plan, RunJob
from afedpg.experiments.outcome import Outcome, write_outcome
from afedpg.experiments.reproduce import experiment
from afedpg.record import checkpoint
from afedpg.record.database import read_arrivals, read_evaluations
from afedpg.record.folder import find_runs, summarize

OWN = """
from dataclasses import replace

from afedpg.server.rules import afedpg


def rule(alpha, eta):
    return afedpg(alpha, lambda iteration, version: 0.5 * eta(iteration, version))


def model(agent, n):
    return 1.0 + agent + 0.1 * (n % 3)
"""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def csvs(out: Path) -> dict[str, str]:
    """Every table of a reproduction; spent.csv is the one with real seconds in it."""
    return {str(path.relative_to(out)): path.read_text() for path in out.glob("*/*.csv")}


def reproduce(*arguments: str) -> int:
    return main(["reproduce", *arguments])


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
    for id in ("timeline", "communication"):
        assert reproduce(id, "--scale", "smoke", "--tasks", "quadratic", "--seeds", "0", *own) == 0
    methods = {row["method"] for row in rows_of(out / "timeline" / "timeline.csv")}
    assert methods == {"fedpg", "afedpg", "rule (my_file.py)"}
    assert {row["method"] for row in rows_of(out / "communication" / "communication.csv")} == methods
    first = rows_of(out / "timeline" / "timeline.csv")[0]
    assert float(first["finish_seconds"]) in (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("timing", "seconds", "told"),
    [("", "1.1 1.75 2.45 4.0", "1.1, 1.75, 2.45, 4"), ("leader", "1.0 4.0 4.0 4.0", "leader, t_max / t_min = 4")],
)
def test_the_clock_told_is_the_one_that_was_used(timing: str, seconds: str, told: str, tmp_path: Path) -> None:
    assert (
        reproduce("timeline", *(("--timing", timing) if timing else ()), "--out", str(tmp_path), "--workers", "1") == 0
    )
    rows = rows_of(tmp_path / "timeline" / "timeline.csv")
    assert [row["finish_seconds"] for row in rows[:4]] == seconds.split()
    verdict = json.loads((tmp_path / "timeline" / "verdict.json").read_text())
    assert verdict["settings"]["seconds per gradient"] == told
    assert verdict["pictures"][0]["caption"].endswith(f"4 agents; seconds per gradient: {told}.")


@pytest.mark.parametrize("timing", [*NAMED_TIMINGS, ""])
def test_an_experiment_runs_under_the_clock_named_and_no_other(timing: str) -> None:
    choices = Choices("smoke", Path(), 1, tasks=("quadratic",), seeds=(0,), timing=timing)
    ids = check_timing("all", timing)
    assert ids
    for id in ids:
        used = {job.settings.config.timing.timing for job in experiment(id).jobs(choices)}  # type: ignore[attr-defined]
        usual = {"timeline": ("list",), **SHOWN_TIMINGS}.get(id, ("linear",))
        liars = {"list"} if id == "adversaries" else set()  # whose seconds are named beside the others'
        assert used == ({timing} if timing else set(usual)) | liars


def test_other_code_is_another_run(tmp_path: Path) -> None:
    file = tmp_path / "my_file.py"
    names = []
    for code in (OWN, OWN.replace("0.5", "0.25")):
        file.write_text(code)
        method = parse_method(f"{file}:rule")
        plan = Plan(Choices("smoke", tmp_path, 1))
        names.append(RunJob(plan.settings("quadratic", method, 4, 0)).name)
    assert names[0] != names[1]
    assert names[0].startswith("quadratic-rule-n4-k100-seed0-")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("nothing",), "id"),
        (("all", "--scale", "huge"), "scale"),
        (("all", "--tasks", "swimer"), "tasks"),
        (("all", "--seeds", "4-0"), "seeds"),
        (("all", "--methods", "ppo"), "methods"),
        (("all", "--methods", "missing.py:rule"), "methods"),
        (("all", "--timing", "slow"), "timing"),
        (("all", "--preset", "best"), "preset"),
        (("rivals", "--preset", "tuned"), "preset"),
        (("all", "--workers", "0"), "workers"),
        (("rivals", "--studies", "alone"), "studies"),
        (("learners", "--studies", "alone,none"), "studies"),
        (("learners", "--scale", "smoke", "--studies", "teams"), "id"),
        (("timeline", "--finished-only", "--out", "no-such-folder"), "out"),
    ],
)
def test_bad_usage_is_one_line_that_names_the_field(
    arguments: tuple[str, ...], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(*arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"afedpg: {field}: ")
    assert told.count("\n") == 1
    assert not Path("no-such-folder").exists()


def test_what_is_wrong_in_a_users_file_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_file.py"
    file.write_text("raise RuntimeError('not today')")
    assert reproduce("timeline", "--methods", f"{file}:rule", "--out", str(tmp_path / "out")) == 2
    assert "not today" in capsys.readouterr().err


def test_methods_named_narrow_down_and_own_ones_are_added() -> None:
    own = Method("own-rule", OwnPart("my_file.py", "rule", "0"))
    chosen = Choices("smoke", Path(), 1, methods=(Method("fedpg"), own))
    assert [m.name for m in chosen.pick_methods(("afedpg", "fedpg"))] == ["fedpg", "own-rule"]
    only_own = Choices("smoke", Path(), 1, methods=(own,))
    assert [m.name for m in only_own.pick_methods(("afedpg", "fedpg"))] == ["afedpg", "fedpg", "own-rule"]


@pytest.mark.parametrize(
    ("id", "methods", "error"),
    [
        ("global-time", "pg", "global-time takes afedpg, fedpg, afedpg-vanilla, a3c, not pg"),
        ("global-time", "afedpg,pg-plain", "global-time takes afedpg, fedpg, afedpg-vanilla, a3c, not pg-plain"),
        ("complexity", "a3c", "complexity takes pg-plain, pg, fedpg, afedpg, afedpg-vanilla, not a3c"),
        ("heterogeneity", "fedpg", "heterogeneity takes afedpg, afedpg-vanilla beside fedpg, not fedpg alone"),
    ],
)
def test_a_method_that_does_not_suit_the_figure_is_one_line(
    id: str, methods: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(id, "--methods", methods, "--out", str(tmp_path / "out")) == 2
    assert capsys.readouterr().err == f"afedpg: methods: {error}\n"
    assert not (tmp_path / "out").exists()


def test_a_timing_that_does_not_suit_the_figure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("heterogeneity", "--timing", "pareto") == 2
    error = "heterogeneity takes straggler, leader or FILE.py:FUNCTION, not pareto"
    assert capsys.readouterr().err == f"afedpg: timing: {error}\n"


def test_a_preset_of_ones_own_may_set_what_virtual_time_heeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text("alpha = 0.2\n[network]\ndeadline = 3.0\n")
    arguments = ("sample-speedup", "--tasks", "quadratic", "--scale", "smoke", "--preset", str(tmp_path / "mine.toml"))
    assert reproduce(*arguments, "--out", str(tmp_path / "out")) == 2
    engines = "--engine local or --engine ray or `afedpg server`"
    assert capsys.readouterr().err == f"afedpg: deadline: only used with {engines}\n"
    assert not (tmp_path / "out" / "runs").exists()


def test_a_learners_curve_is_all_that_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second machine that has the curves alone concludes the same, and computes what is missing."""
    first, second = tmp_path / "first", tmp_path / "second"
    arguments = ("learners", "--scale", "smoke", "--tasks", "CartPole-v1", "--workers", "2")
    assert reproduce(*arguments, "--out", str(first)) == 0
    shutil.copytree(first / "curves", second / "curves")
    shutil.copy(first / "spent.csv", second)
    assert reproduce(*arguments, "--out", str(second), "--finished-only") == 0
    assert csvs(second) == csvs(first)
    assert not (second / "runs").exists()
    removed = min((second / "curves").iterdir())
    removed.unlink()
    shutil.rmtree(second / "learners")
    assert reproduce(*arguments, "--out", str(second), "--finished-only") == 0
    assert len(rows_of(second / "learners" / "jobs.csv")) == len(rows_of(first / "learners" / "jobs.csv")) - 1
    assert reproduce(*arguments, "--out", str(second)) == 0
    assert csvs(second) == csvs(first)
    capsys.readouterr()
    assert reproduce("sample-speedup", "--scale", "smoke", "--out", str(second), "--finished-only") == 1
    assert "runs are not finished in" in capsys.readouterr().err


def test_what_was_concluded_stays_where_no_run_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Outcome("Learners", "What was run before.", ())
    write_outcome(before, tmp_path / "learners", "full", lambda draw, path: None, command="", made_with=[])
    concluded = (tmp_path / "learners" / "verdict.json").read_bytes()
    assert reproduce("learners", "--finished-only", "--out", str(tmp_path)) == 1
    line = f"learners: no run is finished in {tmp_path}; leave --finished-only out to compute them"
    assert capsys.readouterr().err == f"afedpg: {line}\n"
    assert (tmp_path / "learners" / "verdict.json").read_bytes() == concluded


@pytest.mark.parametrize(
    "text", ["", "samples_per_agent,seconds\n1,2\n", f"{','.join(KEPT.split())}\n1,2,x,4\n", "1,2\n"]
)
def test_a_curve_that_is_none_is_one_line(text: str, tmp_path: Path) -> None:
    run = learner_runs.jobs(Choices("smoke", tmp_path, 1, tasks=("CartPole-v1",)))[0]
    run.path(tmp_path).parent.mkdir()
    run.path(tmp_path).write_text(text)
    with pytest.raises(AfedpgError, match=r"\.csv is no curve; remove it, and it is computed again$"):
        run.curve(tmp_path)


def test_learners_can_be_kept_to_some_of_its_studies() -> None:
    every = learner_runs.cells(Choices("full", Path(), 1))
    assert tuple(dict.fromkeys(cell.study for cell in every)) == STUDIES["learners"]
    options = make_parser().parse_args(["reproduce", "learners", "--scale", "full", "--studies", "teams,alone"])
    _, choices = read_choices(options)
    assert learner_runs.cells(choices) == [cell for cell in every if cell.study in ("alone", "teams")]
    assert choices.command("learners") == "afedpg reproduce learners --scale full --studies alone,teams"


def test_all_keeps_to_the_figures_that_show_a_method_named() -> None:
    own = Method("own-rule", OwnPart("my_file.py", "rule", "0"))
    assert check_methods("all", ()) == EXPERIMENTS
    assert check_methods("all", (Method("pg"), Method("pg-plain"))) == ("complexity",)
    assert check_methods("all", (Method("a3c"),)) == (
        "sample-speedup", "global-time", "communication", "long-runs", "timeline",
    )  # fmt: skip
    everywhere = tuple(id for id in EXPERIMENTS if id not in OF_ONE_METHOD)  # where one's own suits
    assert check_methods("all", (Method("pg"), own)) == everywhere
    assert check_methods("heterogeneity", (Method("fedpg"), Method("afedpg"))) == ("heterogeneity",)


def test_figures_left_out_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[str] = []
    monkeypatch.setattr("afedpg.experiments.reproduce.reproduce", lambda ids, choices, quiet: made.extend(ids) or {})
    assert reproduce("all", "--methods", "a3c,fedpg") == 0
    assert made == [id for id in EXPERIMENTS if id not in ("heterogeneity", "rivals", "learners", "adversaries")]
    left = "left out, as they show none of the methods named: heterogeneity, rivals, learners, adversaries\n"
    assert capsys.readouterr().err == left
    made.clear()
    assert reproduce("all", "--timing", "pareto") == 0
    assert made == [id for id in EXPERIMENTS if id not in ("heterogeneity", "sites", "learners", "adversaries")]
    left = "left out, as their timing models are not the one named: heterogeneity, sites, learners, adversaries\n"
    assert capsys.readouterr().err == left


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_an_experiment_computes_what_suits_it_and_nothing_else(id: str) -> None:
    """Besides what is there in any case: fedpg, N = 1, 2, ... agents of afedpg, one agent alone."""
    always = {"heterogeneity": {"fedpg"}, "complexity": {"afedpg"}, "sample-speedup": {"pg"}, "long-runs": {"pg"}}
    for name in METHODS:
        choices = Choices("smoke", Path(), 1, tasks=("quadratic",), seeds=(0,), methods=(Method(name),))
        used = {job.settings.method.name for job in experiment(id).jobs(choices)}  # type: ignore[attr-defined]
        assert used | always.get(id, set()) == ({name} & set(SUITABLE[id])) | always.get(id, set())


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


@pytest.mark.parametrize("text", ["2,4", "1", "1,3", "1,8x", "1,,8"])
def test_teams_are_one_agent_and_some_of_the_others(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce("long-runs", "--agents", text) == 2
    assert capsys.readouterr().err == f"afedpg: agents: '{text}' is not 1 and some more of 1, 2, 4, 8, like 1,8\n"


@pytest.mark.parametrize("id", ["all", "global-time", "heterogeneity"])
def test_teams_are_refused_where_they_are_not_what_varies(id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(id, "--agents", "1,8") == 2
    assert capsys.readouterr().err == f"afedpg: agents: only for sample-speedup and long-runs, not for {id}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--tasks", "hopper", "--seeds", "0-1,5", "--preset", "tuned", "--timing", "straggler"),
        ("--tasks", "quadratic", "--methods", "a3c,afedpg,my file.py:rule", "--timing", "my file.py:model"),
    ],
)
def test_the_command_told_makes_the_same_runs(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my file.py").write_text(OWN)

    def read(*words: str) -> tuple[tuple[str, ...], Choices]:
        return read_choices(make_parser().parse_args(words))

    ids, choices = read("reproduce", "all", "--scale", "smoke", *arguments)
    assert ids
    for id in ids:
        again = read(*shlex.split(choices.command(id))[1:])
        assert again[0] == (id,)
        assert [j.name for j in experiment(id).jobs(again[1])] == [j.name for j in experiment(id).jobs(choices)]


def test_some_teams_are_told_too() -> None:
    choices = Choices("full", Path(), 1, tasks=("hopper",), agents=(1, 8), preset="tuned")
    told = "afedpg reproduce long-runs --scale full --tasks hopper --agents 1,8 --preset tuned"
    assert choices.command("long-runs") == told


def test_seeds_and_own_parts_are_read_as_written(tmp_path: Path) -> None:
    assert parse_seeds("0-2,5") == (0, 1, 2, 5)
    file = tmp_path / "f.py"
    file.write_text(OWN)
    assert parse_own(f"{file}:model", "timing").label == "model (f.py)"


def test_a3c_has_a_rate_of_its_own() -> None:
    plan = Plan(Choices("smoke", Path(), 1), "paper")
    assert plan.settings("swimmer", Method("a3c"), 4, 0).config.schedule.eta == A3C_RATE
    assert plan.settings("swimmer", Method("afedpg"), 4, 0).config.schedule.eta == 3e-4
    assert np.isclose(plan.settings("quadratic", Method("a3c"), 4, 0).config.schedule.eta, A3C_RATE)
