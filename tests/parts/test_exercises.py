"""Whoever has an idea writes one file outside the package: these run as shipped parts do, by the same commands.

Each is killed in mid-run once. What is killed is a process; the commands that look at what it left run in this one.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from exercises import EXERCISES, PARTS, RECORD, SAMPLED, Exercise, code_lines
from federations import site
from held import Hold

from afedpg.cli import main
from afedpg.record import checkpoint
from afedpg.record.database import read_arrivals, read_table


def rows(run: Path) -> str:
    tables = [read_table(run / "run.db", table) for table in ("arrivals", "episodes", "evaluations")]
    return repr([{name: column.tolist() for name, column in table.items()} for table in tables])


class Killed:
    """A run that was killed in its middle, in the folder that its part's file lies in."""

    def __init__(self, exercise: Exercise, folder: Path) -> None:
        self.exercise, self.folder, self.run = exercise, folder, folder / "run"
        self.words = exercise.copied(folder)
        middle = Hold(folder, exercise.gradients // 2)
        process = subprocess.Popen(
            [*middle.program, "train", *self.words, *RECORD, "--out=run"], cwd=folder,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            middle.wait(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        assert len(read_arrivals(self.run / "run.db")["gradient"]) > 0
        _, tree = checkpoint.load_latest(self.run / "checkpoints")
        assert tree["server"]["gradients"] > 0  # it was stored on the way

    def copy(self, folder: Path) -> Path:
        """The run alone: what is done to it leaves this one as it is."""
        return Path(shutil.copytree(self.run, folder / "run"))


@pytest.fixture(scope="module", params=EXERCISES.values(), ids=EXERCISES)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    yield Killed(request.param, tmp_path_factory.mktemp("exercise"))
    sys.modules.pop("balance", None)
    gymnasium.registry.pop("Balance-v0", None)


@pytest.fixture
def at_home(killed: Killed, monkeypatch: pytest.MonkeyPatch) -> Killed:
    """In the folder where the run was started, as the module of its task lies there."""
    monkeypatch.chdir(killed.folder)
    monkeypatch.syspath_prepend(str(killed.folder))
    return killed


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return dict(json.loads(capsys.readouterr().out.splitlines()[-1]))


def test_it_goes_on_after_kill_9_with_the_bits_of_an_uninterrupted_run(
    at_home: Killed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, whole = at_home.copy(tmp_path), tmp_path / "whole"
    assert main(["resume", str(run), "--workers=1", "--json"]) == 0
    resumed = said(capsys)
    assert main(["train", *at_home.words, *RECORD, f"--out={whole}"]) == 0
    assert resumed["theta_sha256"] == said(capsys)["theta_sha256"]
    assert rows(run) == rows(whole)
    assert (read_arrivals(whole / "run.db")["step_length"] > 0).all()  # or the example would show nothing
    assert main(["replay", str(run)]) == 0
    assert resumed["theta_sha256"] in capsys.readouterr().out


def test_another_parameter_is_refused_with_one_line(
    at_home: Killed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, (old, new) = at_home.copy(tmp_path), at_home.exercise.written
    text = (run / "run.toml").read_text()
    assert old in text
    for places in (1, -1):  # where it is named, and in the values of all its parameters as well
        (run / "run.toml").write_text(text.replace(old, new, places))
        assert main(["resume", str(run)]) == 2
        told = capsys.readouterr().err
        settings = f"({at_home.exercise.setting}|own)"  # the first of them in the alphabet
        assert re.fullmatch(rf"afedpg: {settings}: .*but the run was made with.*\n", told), told


def test_a_changed_file_warns(
    at_home: Killed, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = at_home.copy(tmp_path), at_home.folder / at_home.exercise.file
    before = file.read_text()
    assert main(["replay", str(run)]) == 0
    assert "changed" not in caplog.text
    file.write_text(before + "\nSPARE = 1\n")
    try:
        assert main(["replay", str(run)]) == 0
    finally:
        file.write_text(before)
    assert "its file was changed since the run was made; the bits may differ" in caplog.text


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_it_is_short(exercise: Exercise) -> None:
    file = PARTS / exercise.file
    command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length=120", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout
    assert code_lines(file.read_text()) <= exercise.lines


@pytest.mark.parametrize("page", ["extending.md", "native-tasks.md"])
def test_the_documentation_shows_the_files_as_they_are(page: str) -> None:
    text = (PARTS.parents[1] / "docs" / page).read_text()
    shown = dict(re.findall(r"```python title=\"(\S+)\"\n(.*?)```", text, re.DOTALL))
    files = {name: code for name, code in shown.items() if (PARTS / name).exists()}
    assert files
    for name, code in files.items():
        assert ast.unparse(without_docstring(code)) == ast.unparse(without_docstring((PARTS / name).read_text())), name


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
def test_its_commands_train_what_is_trained_here(exercise: Exercise) -> None:
    """A part that works on one task may show nothing on another."""
    file, page = PARTS / exercise.file, "native-tasks.md" if exercise.file == "balance.py" else "extending.md"
    task = exercise.words[0].replace("MODULE", file.stem)
    parts = {word.partition(":")[2].partition(":")[0] for word in exercise.words if "FILE" in word} or {task}
    for text in (file.read_text(), (PARTS.parents[1] / "docs" / page).read_text()):
        commands = re.findall(r"^.*afedpg train .*$", text, re.MULTILINE)
        found = [command for command in commands if any(f"{part}" in command for part in parts)]
        assert found
        assert all(f"train {task} " in f"{command} " for command in found), found


def without_docstring(text: str) -> ast.Module:
    module = ast.parse(text)
    return ast.Module(module.body[1:], []) if ast.get_docstring(module) is not None else module


def test_the_count_of_lines_can_fail() -> None:
    text = '"""Doc."""\n\nimport os  # why\n\n# -\n\ndef f():\n    """Doc\n    on."""\n    return [\n        1\n    ]\n'
    assert code_lines(text) == 5


def test_the_warning_is_seen_by_who_types_the_command(tmp_path: Path) -> None:
    words = EXERCISES["a rule with a parameter"].copied(tmp_path)
    command = [sys.executable, "-m", "afedpg"]
    how = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True, "timeout": 120}
    short = [word.replace("100", "3") for word in words]
    subprocess.run([*command, "train", *short, "--out=run", "--json"], **how)
    (tmp_path / "damped.py").write_text((tmp_path / "damped.py").read_text() + "\nSPARE = 1\n")
    done = subprocess.run([*command, "replay", "run"], **how)
    assert re.fullmatch(r"(warning: )?code of method: its file was changed .*\n", done.stderr), done.stderr


COPY = """
from dataclasses import replace

from afedpg.server.aggregators import All
from afedpg.server.rules import afedpg


def copied(alpha, eta):
    return replace(afedpg(alpha, eta), aggregator=All())
"""


@pytest.mark.parametrize("schedule", ["linear", "global"])
def test_a_copy_of_fedpg_is_fedpg(schedule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "copy.py").write_text(COPY)
    bits = []
    for number, method in enumerate(["fedpg", f"{tmp_path}/copy.py:copied", "afedpg"]):
        words = ["lq-bandit", f"--method={method}", "--agents=8", "--iterations=20", f"--schedule={schedule}", "--json"]
        assert main(["train", *words, f"--out={tmp_path}/{number}"]) == 0
        bits.append(said(capsys)["theta_sha256"])
    assert bits[0] == bits[1] != bits[2]


SHARED = ("--iterations=30", "--max-share=0.5")  # neither agent can do all of it, however late the other comes
FEDERATIONS = {
    "a codec": (
        "quadratic", SHARED, ("--codec=FILE:EightBits:block=4",), ("--codec=FILE:EightBits:block=5",),
        r"codec: the federation has EightBits\(block=4\), this agent {}",
        ("float32", r"EightBits\(block=5\)"),
    ),
    "a group and a scalar": (
        "CartPole-v1", ("--method=FILE:Mixed", *SHARED, *SAMPLED[2:-1]),
        ("--estimator=FILE:SharedValue:ridge=2.0",), ("--estimator=FILE:SharedValue:ridge=3.0",),
        r"estimator: the federation has SharedValue\(ridge=2.0\), this agent {}",
        ("gae", r"SharedValue\(ridge=3.0\)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEDERATIONS)
def test_it_crosses_the_network_where_both_sides_have_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, settings, part, other, line, theirs = FEDERATIONS[name]
    file = str(PARTS / EXERCISES[name].file)
    words, part, other = ([word.replace("FILE", file) for word in some] for some in (settings, part, other))
    with site(tmp_path / "site", *words, *part, "--json", task=task) as federation:
        server = federation.server()
        strangers = [federation.agent(7), federation.agent(8, *other)]
        for number, process, given in zip((7, 8), strangers, theirs, strict=True):
            assert process.wait(60) == 3
            told = federation.log(f"agent-{number}").splitlines()[-1]
            assert re.fullmatch(f"afedpg: .*{line.format(given)}.*", told), told
        agents = [federation.agent(number, *part) for number in range(2)]
        assert [process.wait(300) for process in (server, *agents)] == [0, 0, 0], federation.log()
        assert main(["replay", str(federation.run)]) == 0
        assert "same bits" in capsys.readouterr().out
        counts = federation.query("SELECT count(*), count(DISTINCT gradient), count(DISTINCT agent) FROM arrivals")
        assert counts == [(60, 60, 2)]
