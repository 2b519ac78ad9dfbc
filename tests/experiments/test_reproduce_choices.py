"""What `afedpg reproduce` can be told, and what it refuses before anything is computed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from reproducing import OWN, reproduce, rows_of

from afedpg.cli import make_parser
from afedpg.commands.reproduce import read_choices
from afedpg.config import METHODS
from afedpg.errors import ConfigError
from afedpg.experiments import adversaries
from afedpg.experiments.choices import (
    EXPERIMENTS,
    NAMED_TIMINGS,
    OF_ONE_METHOD,
    SHOWN_TIMINGS,
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
from afedpg.experiments.jobs import Plan, RunJob
from afedpg.experiments.learning import LearningPlan
from afedpg.experiments.reproduce import experiment
from afedpg.preset import presets


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
    error = "heterogeneity takes straggler, leader or FILE.py:FUNCTION, not pareto; or leave --timing out"
    assert capsys.readouterr().err == f"afedpg: timing: {error}\n"


@pytest.mark.parametrize(
    ("id", "timing", "takes"),
    [
        ("sites", "pareto", "none, as it sets its own speeds"),
        ("sites", "my_file.py:model", "none, as it sets its own speeds"),
        ("learners", "my_file.py:model", "linear"),
        ("adversaries", "my_file.py:model", "equal"),
    ],
)
def test_no_other_clock_where_a_figure_is_about_its_own_speeds(
    id: str, timing: str, takes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_file.py").write_text(OWN)
    with pytest.raises(ConfigError, match=f"^timing: {id} takes {takes}, not {timing}; or leave --timing out$"):
        read_choices(make_parser().parse_args(["reproduce", id, "--timing", timing]))
    kept = set(EXPERIMENTS) - {"learners", "sites", "adversaries"}
    assert set(check_timing("all", "", parse_own("my_file.py:model", "timing"))) == kept


def test_adversaries_tells_the_speeds_that_were_run(tmp_path: Path) -> None:
    told = {}
    for timing in ("", "equal"):
        outcome = adversaries.outcome(Choices("smoke", tmp_path, 1, timing=timing, finished_only=True))
        told[timing] = (outcome.text, outcome.pictures[0].caption)
    assert "those that lie take 10 or 1 or 0.1." in told[""][0]
    assert "those that lie take 1." in told["equal"][0]
    assert told["equal"][1].endswith("and their speed (equal).")


def test_a_preset_of_ones_own_may_set_what_virtual_time_heeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text("alpha = 0.2\n[network]\ndeadline = 3.0\n")
    arguments = ("sample-speedup", "--tasks", "quadratic", "--scale", "smoke", "--preset", str(tmp_path / "mine.toml"))
    assert reproduce(*arguments, "--out", str(tmp_path / "out")) == 2
    engines = "--engine local or --engine ray or `afedpg server`"
    assert capsys.readouterr().err == f"afedpg: deadline: only used with {engines}\n"
    assert not (tmp_path / "out" / "runs").exists()


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


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("timeline --tasks hopper --seeds 3-5", "tasks: timeline takes none, as it has its own; leave --tasks out"),
        ("timeline --seeds 3-5", "seeds: timeline takes none, as it has its own; leave --seeds out"),
        ("heterogeneity --tasks hopper", "tasks: heterogeneity takes none, as it has its own; leave --tasks out"),
        ("heterogeneity --seeds 3", "seeds: heterogeneity takes none, as it has its own; leave --seeds out"),
        ("complexity --tasks hopper", "tasks: complexity takes none, as it has its own; leave --tasks out"),
        (
            "communication --tasks walker2d,hopper",
            "tasks: communication takes a single one, not walker2d,hopper; name one",
        ),
        ("communication --seeds 3,4", "seeds: communication takes a single one, not 3,4; name one"),
    ],
)
def test_all_that_is_named_for_a_figure_counts(
    arguments: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(*arguments.split(), "--finished-only", "--out", str(tmp_path / "none")) == 2
    assert capsys.readouterr().err == f"afedpg: {error}\n"


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_tasks_and_seeds_change_what_is_run_unless_they_are_refused(id: str) -> None:
    def told(flag: str, value: str) -> set[str] | None:
        try:
            _, choices = read_choices(make_parser().parse_args(["reproduce", id, "--scale", "smoke", flag, value]))
        except ConfigError:
            return None
        return {job.name for job in experiment(id).jobs(choices)}

    for flag, one, other in (("--tasks", "CartPole-v1", "hopper"), ("--seeds", "0", "1")):
        first = told(flag, one)
        assert first is None or first != told(flag, other)


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_an_experiment_computes_what_suits_it_and_nothing_else(id: str) -> None:
    """Besides what is there in any case: fedpg, N = 1, 2, ... agents of afedpg, one agent alone."""
    always = {"heterogeneity": {"fedpg"}, "complexity": {"afedpg"}, "sample-speedup": {"pg"}, "long-runs": {"pg"}}
    for name in METHODS:
        choices = Choices("smoke", Path(), 1, tasks=("quadratic",), seeds=(0,), methods=(Method(name),))
        used = {job.settings.method.name for job in experiment(id).jobs(choices)}  # type: ignore[attr-defined]
        assert used | always.get(id, set()) == ({name} & set(SUITABLE[id])) | always.get(id, set())


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


@pytest.mark.parametrize("id", ["sample-speedup", "global-time", "long-runs"])
def test_the_papers_figures_are_of_the_tasks_that_have_its_constants(id: str) -> None:
    jobs = experiment(id).jobs(Choices("smoke", Path(), 1))
    tasks = {job.settings.config.task for job in jobs}  # type: ignore[attr-defined]
    assert tasks == {name.removesuffix(".paper") for name in presets() if name.endswith(".paper")}


def test_a_task_without_the_paper_preset_is_told_to_have_the_defaults() -> None:
    def told(task: str, preset: str = "") -> str:
        plan = LearningPlan(Choices("smoke", Path(), 1, preset=preset))
        every = [RunJob(plan.settings(task, Method(name), 4, 0)) for name in ("afedpg", "a3c")]
        mine, other = (plan.describe(every)[f"{task}, {name}, K 3 per agent"] for name in ("afedpg", "a3c"))
        assert mine.startswith("the defaults") == other.startswith("the defaults")
        return str(mine)

    assert told("ant").startswith("the defaults, as paper has nothing for it: linear schedule, alpha ")
    assert told("hopper").startswith("constant schedule, alpha ")
    assert not told("ant", "ppo").startswith("the defaults")


def test_a3c_has_a_rate_of_its_own() -> None:
    plan = Plan(Choices("smoke", Path(), 1), "paper")
    assert plan.settings("swimmer", Method("a3c"), 4, 0).config.schedule.eta == 7e-4
    assert plan.settings("swimmer", Method("afedpg"), 4, 0).config.schedule.eta == 3e-4
    assert np.isclose(plan.settings("quadratic", Method("a3c"), 4, 0).config.schedule.eta, 7e-4)
