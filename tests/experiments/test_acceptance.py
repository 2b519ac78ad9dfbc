"""When a row passes and when it falls short; how it is stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from afedpg.acceptance import __main__ as acceptance
from afedpg.acceptance import rows as acceptance_rows
from afedpg.acceptance import search
from afedpg.acceptance.rows import METHODS, ROWS, WAITING, Found, Row, final_evaluation, last_quarter
from afedpg.acceptance.search import Point
from afedpg.experiments import spent
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Plan, RunJob, Settings
from afedpg.experiments.tables import read, table
from afedpg.record.database import read_arrivals
from afedpg.record.folder import RunFolder

CHOICES = Choices("full", Path("nowhere"), 1, preset="paper")
Value = Callable[[RunJob, Path], float]


def quadratic(choices: Choices, iterations: int = 5, **more: object) -> Settings:
    return Plan(choices).settings("quadratic", Method("afedpg"), 2, 0, iterations=iterations, **more)


def test_what_a_row_reads_off_a_run(tmp_path: Path) -> None:
    job = RunJob(quadratic(CHOICES, 20))
    job.perform(tmp_path, 1, lambda fraction: None)
    returns = read_arrivals(job.folder(tmp_path).database)["mean_return"]
    assert last_quarter(job, tmp_path) == pytest.approx(returns[30:].mean())
    with pytest.raises(IndexError):
        final_evaluation(job, tmp_path)  # a synthetic problem is evaluated exactly, not sampled


# when a row passes


def by_seed(*values: float) -> Value:
    return lambda run, out: values[run.settings.config.seed]


@pytest.mark.parametrize(
    ("training", "theta", "passes"),
    [
        ((1900.0,) * 5, (1900.0,) * 5, True),
        ((1899.0,) * 5, (2500.0,) * 5, False),
        ((2500.0,) * 5, (1899.0,) * 5, False),
        ((2500.0, 2500.0, 2500.0, 2500.0, 1199.0), (2500.0,) * 5, False),
        ((2500.0,) * 5, (1199.0, 2500.0, 2500.0, 2500.0, 2500.0), False),
    ],
)
def test_hopper_needs_both_means_and_every_seed(
    monkeypatch: pytest.MonkeyPatch, training: tuple[float, ...], theta: tuple[float, ...], passes: bool
) -> None:
    monkeypatch.setattr(acceptance_rows, "last_quarter", by_seed(*training))
    monkeypatch.setattr(acceptance_rows, "final_evaluation", by_seed(*theta))
    assert ROWS["hopper-tuned"].measure(CHOICES).passes is passes


@pytest.mark.parametrize(("task", "least"), [("walker2d", 1200.0), ("humanoid", 550.0)])
def test_two_million_samples_are_spent(monkeypatch: pytest.MonkeyPatch, task: str, least: float) -> None:
    row = ROWS[f"{task}-tuned"]
    jobs = row.stages[0](CHOICES)
    assert jobs
    for job in jobs:
        assert isinstance(job, RunJob)
        config = job.settings.config
        assert 1.99e6 < config.iterations * config.agents * config.agent.steps <= 2e6
    for value in (least, least - 1):
        monkeypatch.setattr(acceptance_rows, "last_quarter", by_seed(value, value, value))
        monkeypatch.setattr(acceptance_rows, "final_evaluation", by_seed(value, value, value))
        assert row.measure(CHOICES).passes is (value == least)


@pytest.mark.parametrize(("theta", "without", "passes"), [(30.0, 22.0, True), (29.9, 10.0, False), (35.0, 27.1, False)])
def test_swimmer_needs_a_return_a_distance_and_one_setting_apart(
    monkeypatch: pytest.MonkeyPatch, theta: float, without: float, passes: bool
) -> None:
    def evaluation(run: RunJob, out: Path) -> float:
        return theta if run.settings.method.name == "afedpg" else without

    configs = {job.name: job.settings.config for job in ROWS["swimmer-paper"].stages[0](CHOICES)}  # type: ignore[attr-defined]
    monkeypatch.setattr(acceptance_rows, "final_evaluation", evaluation)
    monkeypatch.setattr(RunFolder, "config", lambda folder: configs[folder.path.name])
    found = ROWS["swimmer-paper"].measure(CHOICES)
    assert found.passes is passes
    assert found.measured["settings that differ"] == ["method"]


def pretend(monkeypatch: pytest.MonkeyPatch, best: dict[str, Point], ends: dict[str, tuple[float, ...]]) -> None:
    """Races whose searches are over, and whose finals arrive at these seconds; nobody runs longer than 800."""

    def name_of(run: RunJob) -> str:
        schedule = run.settings.config.schedule
        scaled = run.settings.method.name == "fedpg" and not schedule.literal_constants
        return run.settings.method.name + ("-scaled" if scaled else "")

    def seconds(run: RunJob, out: Path) -> float:
        return ends[name_of(run)][run.settings.config.seed]

    monkeypatch.setattr(search, "best", lambda choices, space: best.get(space.method, space.first[0]))
    monkeypatch.setattr(search, "results", lambda choices, names: table("search", [(name,) for name in names]))
    monkeypatch.setattr(search, "seconds_to_goal", seconds)
    monkeypatch.setattr(search, "last_second", lambda run, out: min(800.0, seconds(run, out)))


@pytest.mark.parametrize(
    ("fedpg", "ratio"),
    [
        ((100.0, 300.0, 500.0, 700.0, 800.0), 5.0),  # the median, not the fastest
        ((300.0, 500.0, inf, inf, inf), 8.0),  # who never arrives took at least the whole run
    ],
)
def test_the_ratio_of_the_times_is_that_of_the_medians(
    monkeypatch: pytest.MonkeyPatch, fedpg: tuple[float, ...], ratio: float
) -> None:
    pretend(monkeypatch, {}, {"afedpg": (50.0, 60.0, 100.0, 400.0, inf), "fedpg": fedpg})
    found = ROWS["global-time"].measure(CHOICES)
    assert found.measured["linear: seconds of fedpg / afedpg, medians"] == ratio
    assert found.passes
    assert found.tables["search"].column("search") == list(WAITING.names)


@pytest.mark.parametrize("race", [WAITING, METHODS])
def test_a_race_searches_for_everyone_and_then_times_the_best(
    monkeypatch: pytest.MonkeyPatch, race: acceptance_rows.Race
) -> None:
    pretend(monkeypatch, {}, dict.fromkeys(race.names, (100.0,) * 103))
    monkeypatch.setattr(search, "final_evaluation", lambda run, out: 0.0)
    first, pairs, grid, finals = ({job.name for job in stage(CHOICES)} for stage in race.stages())
    assert len(first) == 6 * len(race.names)
    assert first < pairs < grid
    assert len(grid) == 36 * len(race.names)
    assert len(finals) == 5 * len(race.names) * len(race.clocks)
    assert not finals & grid  # other seeds


def test_afedpg_must_arrive_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {}, {"afedpg": (50.0, 60.0, inf, inf, inf), "fedpg": (inf,) * 5})
    assert not ROWS["global-time"].measure(CHOICES).passes


@pytest.mark.parametrize(
    ("ours", "others", "passes"), [(100.0, 101.0, True), (100.0, 100.0, False), (inf, inf, False), (100.0, 99.0, False)]
)
def test_the_methods_race_is_won_by_being_strictly_first(
    monkeypatch: pytest.MonkeyPatch, ours: float, others: float, passes: bool
) -> None:
    ends = {name: (others if name == "a3c" else inf,) * 5 for name in METHODS.names} | {"afedpg": (ours,) * 5}
    pretend(monkeypatch, {"afedpg": (0.2, 2e-2)}, ends)
    found = ROWS["methods"].measure(CHOICES)
    assert found.passes is passes
    assert found.measured["constants of afedpg"] == {"alpha": 0.2, "eta": 2e-2, "at the edge": []}


# how it is stored


@pytest.mark.parametrize("passes", [True, False])
def test_a_row_is_stored_with_what_it_asked_and_how_it_was_made(tmp_path: Path, passes: bool) -> None:
    def stage(choices: Choices) -> list[RunJob]:
        return [RunJob(quadratic(choices))]

    found = Found(passes, {"value": float("inf"), "deep": {"er": [float("nan")]}}, {"data": table("a b", [(1, 2.5)])})
    row = Row("small", "something", (stage, stage), lambda choices: found)  # both stages ask for the same run
    choices = Choices("full", tmp_path / "out", 1)
    choices.out.mkdir()
    assert acceptance.check(row, choices, tmp_path / "store").passes is passes
    document = json.loads((tmp_path / "store" / "small.json").read_text())
    assert document["passes"] is passes
    assert document["measured"] == {"value": None, "deep": {"er": [None]}}
    assert document["runs"] == 1
    assert document["asked"] == "something"
    assert document["made_with"] == spent.made_with(choices.out, [stage(choices)[0].name])
    assert "numpy" in document["made_with"][0]
    assert list(read(tmp_path / "store" / "small-data.csv").records()) == [{"a": 1, "b": 2.5}]


def test_rows_can_be_listed_and_bad_input_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert acceptance.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name}: " in listed for name in ROWS)
    (tmp_path / "file").write_text("")
    for arguments, told in (
        (["nothing", "--out", str(tmp_path)], "row: unknown 'nothing'"),
        (["hopper-tuned", "--out", str(tmp_path), "--workers", "0"], "workers: 0; at least 1"),
        (["hopper-tuned", "--out", str(tmp_path / "file" / "in")], "out: cannot create"),
    ):
        assert acceptance.main(arguments) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1


def test_what_was_spent_adds_up_and_a_line_cut_off_is_lost(tmp_path: Path) -> None:
    first, second = (RunJob(quadratic(CHOICES, iterations)) for iterations in (3, 4))
    with spent.noting(tmp_path) as note:
        note(first, 1.5)
        note(second, 2.0)
        note(first, 0.5)
    with (tmp_path / spent.FILE).open("a") as file:
        file.write(f"{second.name},")
    assert spent.seconds(tmp_path) == {first.name: 2.0, second.name: 2.0}
    assert spent.made_with(tmp_path, [first.name]) == spent.made_with(tmp_path, [second.name])
    assert spent.made_with(tmp_path, ["unheard-of"]) == ["not recorded"]


def test_a_runs_own_versions_win_over_the_line(tmp_path: Path) -> None:
    job = RunJob(quadratic(CHOICES))
    job.perform(tmp_path, 1, lambda fraction: None)
    toml = job.folder(tmp_path).toml
    toml.write_text(toml.read_text().replace('python = "', 'python = "0.'))
    with spent.noting(tmp_path) as note:
        note(job, 1.0)
    assert spent.made_with(tmp_path, [job.name])[0].startswith("python 0.3")
