"""Completion scripts in the shells they are for. Nothing here starts Python when Tab is pressed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminals import Terminal

from afedpg.cli import main, make_parser
from afedpg.config import METHODS, PROBLEMS, SHORT_NAMES

# What is typed, the last word unfinished -> what is offered.
CASES = {
    "tr": {"train"},
    "train quad": {"quadratic"},
    "train Ho": {"Hopper-v4", "Hopper-v5"},
    "train --method afedpg-": {"afedpg-vanilla"},
    "train swimmer --preset pa": {"paper"},
    "train swimmer --preset ti": {"times.csv"},
    "train swimmer --evaluate-ki": {"--evaluate-kind"},
    "train swimmer --evaluate-kind d": {"deterministic"},
    "train --from sweep/seed": {"sweep/seed0", "sweep/seed1"},
    "train --timing trace --trace ti": {"times.csv"},
    "resume sweep/s": {"sweep/seed0", "sweep/seed1"},
    "resume --workers 2 runs/l": {"runs/lq"},
    "export runs/lq --to on": {"onnx"},
    "export --policy a.py runs/l": {"runs/lq"},
    "export runs/lq --to onnx ti": {"times.csv"},
    "runs --compare runs/lq sweep/seed1": {"sweep/seed1"},
    "check Ho": {"Hopper-v4", "Hopper-v5"},
    "bench sa": {"sampler"},
    "reproduce comp": {"complexity"},
    "reproduce complexity --scale sm": {"smoke"},
    "completion z": {"zsh"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for run in ("runs/lq", "sweep/seed0", "sweep/seed1"):
        Path(run).mkdir(parents=True)
        Path(run, "run.toml").touch()
    Path("times.csv").touch()
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        Path(f"script.{shell}").write_text(capsys.readouterr().out)
    return tmp_path


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def output(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [line for line in done.stdout.splitlines() if line]


BASH = """source script.bash; PATH=/nowhere
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _afedpg; echo "= $*"; printf '%s\\n' "${COMPREPLY[@]}"; }
"""


def offers(lines: list[str]) -> dict[str, set[str]]:
    """What came after each line `= afedpg ...`; a folder with its slash or without."""
    found: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("= afedpg "):
            newest = found.setdefault(line.removeprefix("= afedpg "), set())
        else:
            newest.add(line.split("\t")[0].removesuffix("/"))
    return found


def bash(*typed: str) -> dict[str, set[str]]:
    return offers(output(shell("bash"), "--norc", "-c", BASH + "\n".join(f"try afedpg {words}" for words in typed)))


def test_bash(folder):
    assert bash(*CASES) == CASES


def test_bash_offers_all_there_is_where_nothing_is_typed(folder):
    typed = ("''", "-", "train ''", "train --method ''", "train --method = a3", "train --alpha ''", "resume ''")
    found = bash(*typed, "resume x --")
    assert {"train", "resume", "export", "completion"} < found[""]
    assert found["-"] == {"-h", "--help", "--version"}
    assert {*SHORT_NAMES, *PROBLEMS} < found["train "]
    assert found["train --method "] == set(METHODS)
    assert found["train --method = a3"] == {"a3c"}  # as bash splits --method=a3
    assert found["train --alpha "] == set()  # a number is the user's own
    assert found["resume "] == {"runs/lq"}
    cluster = {"--ray-address", "--agent-cpus", "--agent-gpus"}
    usual = {"--help", "--json", "--workers", "--accept-loss", "--trust-code", "--iterations"}
    assert found["resume x --"] == usual | cluster


def test_fish(folder):
    lines = [f"echo '= afedpg {typed}'; complete -C 'afedpg {typed}'" for typed in CASES]
    found = offers(output(shell("fish"), "--no-config", "-c", "\n".join(["source script.fish", *lines])))
    assert found == CASES


def complete_all(command: list[str], setup: str, cases: dict[str, set[str]]) -> None:
    """Types each into an interactive shell, presses Tab, waits for the whole line, and wipes it out."""
    window = Terminal(command, 100, rows=50, HOME=str(Path.cwd()), PS1="> ", PROMPT="> ")
    try:
        window.watch(lambda text: ">" in text)
        window.type(f"{setup}; echo ready\n".encode())
        window.watch(lambda text: text.endswith("ready\n>"))
        for typed, (offered,) in cases.items():
            whole = " ".join([">", "afedpg", *typed.split(" ")[:-1], offered])
            window.type(f"afedpg {typed}\t".encode())
            window.watch(lambda text, whole=whole: text.splitlines()[-1].rstrip("/") == whole)
            window.type(b"\x15")
            window.watch(lambda text: text.splitlines()[-1] == ">")
    finally:
        window.close()


SINGLE = {typed: offered for typed, offered in CASES.items() if len(offered) == 1}


def test_interactive_bash(folder):
    complete_all([shell("bash"), "--norc", "-i"], "source script.bash", SINGLE)


def test_interactive_zsh(folder):
    setup = "autoload -U compinit; compinit -u -d dump; source ./script.zsh"
    complete_all([shell("zsh"), "-f", "-i"], setup, SINGLE)


def test_the_script_knows_every_flag(folder):
    """Made from the parser: a setting that is added is completed without further ado."""
    [commands] = [action for action in make_parser()._actions if hasattr(action, "_choices_actions")]
    for name in ("bash", "zsh", "fish"):
        script = Path(f"script.{name}").read_text()
        assert all(command in script for command in commands.choices)
        for flag in commands.choices["train"]._option_string_actions:
            assert (flag if name != "fish" else flag.lstrip("-")) in script
