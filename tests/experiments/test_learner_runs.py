"""`afedpg reproduce learners`: its studies, and the curves that are all it keeps of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from reproducing import csvs, reproduce, rows_of

from afedpg.cli import make_parser
from afedpg.commands.reproduce import read_choices
from afedpg.errors import AfedpgError
from afedpg.experiments import learner_runs
from afedpg.experiments.choices import STUDIES, Choices
from afedpg.experiments.curves import KEPT
from afedpg.experiments.outcome import Outcome, write_outcome


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
