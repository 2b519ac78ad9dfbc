"""No run folder decides what is imported: modules are those that the user has named, here or in an earlier run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import gymnasium
import pytest
from terminals import Terminal

from afedpg import parts
from afedpg.cli import main
from afedpg.imports import modules_in

MODULE = "payload_of_somebody"
TASK = f"{MODULE}:Payload-v0"
CODE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
open("imported", "a").write("once more")
gymnasium.register("Payload-v0", CartPoleEnv, max_episode_steps=9)
"""
PART = """
from afedpg.server.aggregators import Each
open("imported", "a").write("once more")
class Mine(Each):
    pass
"""
SETTINGS = ("--agents=1", "--iterations=1", "--steps=8", "--hidden=4", "--baseline=linear", "--evaluate-episodes=1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a module and a run of it, both of the user who is at work there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    become("me", monkeypatch)
    assert main(["train", TASK, *SETTINGS, "--out", "run"]) == 0
    forget()
    yield tmp_path
    forget()


def become(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / "state" / user))


def forget() -> None:
    """As a new process, which has imported nothing yet."""
    sys.modules.pop(MODULE, None)
    parts._module.cache_clear()
    gymnasium.registry.pop("Payload-v0", None)
    Path("imported").unlink(missing_ok=True)


COMMANDS = [["replay", "run"], ["replay", "run", "--recompute"], ["evaluate", "run", "--episodes=1"], ["resume", "run"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_run_of_ones_own_needs_no_word(folder: Path, command: list[str]) -> None:
    assert main(command) == 0
    assert Path("imported").exists()


@pytest.mark.parametrize("command", [*COMMANDS, ["evaluate", "run", "--video=film.gif"]], ids=" ".join)
def test_a_run_of_somebody_else_imports_nothing(
    folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    become("other", monkeypatch)
    capsys.readouterr()
    assert main(command) == 2
    assert not Path("imported").exists()
    assert capsys.readouterr().err == (
        f"afedpg: run.toml asks to run {MODULE} from {folder}/{MODULE}.py, which you have not run before; "
        "look at it, then add --trust-code\n"
    )


@pytest.mark.parametrize("command", [*COMMANDS, ["evaluate", "run", "--video=film.gif"]], ids=" ".join)
def test_no_part_of_somebody_elses_file_is_run(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    become("me", monkeypatch)
    Path("part.py").write_text(PART)
    assert main(["train", "CartPole-v1", *SETTINGS, "--aggregator", "part.py:Mine", "--out", "run"]) == 0
    forget()
    become("other", monkeypatch)
    capsys.readouterr()
    assert main(command) == 2
    assert not Path("imported").exists()
    assert capsys.readouterr().err == (
        f"afedpg: run.toml asks to run {tmp_path}/part.py, which you have not run before; "
        "look at it, then add --trust-code\n"
    )
    if command[0] == "replay":
        for more in (["--trust-code"], []):  # remembered
            assert main([*command, *more]) == 0
            assert Path("imported").exists()
            forget()


def test_the_flag_is_remembered_for_that_file_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    become("other", monkeypatch)
    assert main(["replay", "run", "--trust-code"]) == 0
    forget()
    assert main(["replay", "run"]) == 0
    forget()
    elsewhere = folder / "elsewhere"  # a folder that came with a run of the same task and a file of the same name
    elsewhere.mkdir()
    (elsewhere / f"{MODULE}.py").write_text(CODE)
    (folder / "run").rename(elsewhere / "run")
    monkeypatch.chdir(elsewhere)
    sys.path[:] = [place for place in sys.path if place not in ("", str(folder))]
    sys.path_importer_cache.clear()
    assert main(["replay", "run"]) == 2
    assert not Path("imported").exists()


def test_where_no_state_can_be_kept_the_flag_still_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "file"))
    assert main(["replay", "run"]) == 2
    assert main(["replay", "run", "--trust-code"]) == 0


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 2)])
def test_at_a_terminal_the_user_is_asked(folder: Path, answer: str, code: int) -> None:
    command = [sys.executable, "-m", "afedpg", "replay", "run"]
    with closing(Terminal(command, 200, XDG_STATE_HOME=str(folder / "state" / "other"))) as shown:
        shown.watch(lambda text: "Import it? [y/N]" in text)
        assert not Path("imported").exists()
        shown.type(f"{answer}\n".encode())
        assert shown.end() == code
    assert Path("imported").exists() == (code == 0)


def test_keyword_arguments_can_name_modules_too() -> None:
    named = {"env_id": "other.part:Thing-v1", "agents": {"0": {"list": ["third:X", "C-v1", "9:30", ":x"]}}, "n": 3}
    assert list(modules_in(["ale_py:ALE/Pong-v5", named])) == ["ale_py", "other.part", "third"]
    assert list(modules_in(["CartPole-v1", "ALE/Pong-v5", {}])) == []


def test_files_of_the_working_folder_are_no_packages(tmp_path: Path) -> None:
    """The command is installed; what lies beside a downloaded run must not take the place of a package."""
    for name in ("numpy", "tomli_w", "numba", "tensorboard", "nosuch"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')")
    command = [sys.executable, "-P", "-c", "from afedpg.cli import entry; entry()"]
    settings = ["train", "quadratic", "--agents=1", "--iterations=2", "--out=run"]
    subprocess.run([*command, *settings], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert not (tmp_path / "imported").exists()
