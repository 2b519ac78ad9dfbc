"""Every command's --help ends with an example that works, and costs next to nothing."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import afedpg
from afedpg import train
from afedpg.cli import main, make_parser
from afedpg.commands.reproduce import read_choices
from afedpg.config import PARTS
from afedpg.preset import presets
from afedpg.record.folder import find_runs
from afedpg.runs.parts import configure

TOP = make_parser()
[COMMANDS] = [action.choices for action in TOP._actions if isinstance(action.choices, dict)]
# others wait, or are slow
QUICK = ("train", "resume", "evaluate", "replay", "check", "export", "runs", "certs", "completion")


def example_of(parser) -> list[str]:
    """The words behind `afedpg` in the last line of its --help."""
    last = parser.format_help().rstrip().splitlines()[-1]
    assert last.startswith("example: afedpg ")
    command, _, _ = last.removeprefix("example: ").partition(" > ")  # the shell's part
    return shlex.split(command)[1:]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_parser_takes_every_example(name):
    words = example_of(COMMANDS[name])
    assert words[0] == name
    options = TOP.parse_args(words)
    if name in ("train", "server"):  # what is named must exist
        configure(options.task, options.preset, {})
    if name == "reproduce":
        read_choices(options)


def test_the_help_of_parts_names_every_kind():
    said = COMMANDS["parts"].description
    assert not [kind for kind, _ in PARTS if kind not in said]


def test_the_help_of_the_dashboard_says_how_deep_it_looks(tmp_path):
    for levels in (5, 6):
        run = tmp_path.joinpath(str(levels), *"abcde"[: levels - 2], "run")
        run.mkdir(parents=True)
        (run / "run.toml").touch()
    [found] = find_runs(tmp_path)  # what the dashboard looks through
    assert len(found.path.relative_to(tmp_path).parts) == 5
    assert "up to five levels below" in " ".join(COMMANDS["dashboard"].format_help().split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the runs are that examples speak of."""
    root = tmp_path_factory.mktemp("examples")
    here = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main(example_of(TOP)) == 0
        settings = {"agents": 2, "iterations": 1, "steps": 64, "evaluate_episodes": 1}
        train("swimmer", **settings, out="runs/swimmer-afedpg-seed0")
    assert Path.cwd() == here
    return root


@pytest.mark.parametrize("name", QUICK)
def test_the_quick_examples_run(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = example_of(COMMANDS[name])
    if "--video" in words:  # filming without a graphics card takes a minute, and has a test of its own
        words = words[: words.index("--video")]
    assert main(words) == 0
    assert capsys.readouterr().out
    if name == "certs":  # the federation's examples belong together
        for other in ("server", "agent"):
            assert Path(TOP.parse_args(example_of(COMMANDS[other])).cert).is_dir()


def test_help_of_every_command_loads_nothing_heavy():
    code = (
        "import json, sys\nfrom afedpg.cli import make_parser\nparser = make_parser()\n"
        "[commands] = [action.choices for action in parser._actions if isinstance(action.choices, dict)]\n"
        "for one in (parser, *commands.values()): assert 'example: afedpg' in one.format_help()\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "torch", "numba", "gymnasium", "mujoco", "rich", "matplotlib", "grpc", "google.protobuf", "onnx"}
    heavy |= {"_hashlib", "sqlite3", "asyncio", "multiprocessing"}  # of the standard library, tenths of a second each
    assert not heavy & set(json.loads(done.stdout))


def test_the_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"afedpg {afedpg.__version__}\n"


def test_help_names_every_preset_that_ships():
    names = {name.partition(".")[2] for name in presets()}
    assert names == set(re.findall(r"preset: settings to start from: (.*), or a", train.__doc__)[0].split(", "))
    for command in ("train", "tune", "server", "reproduce"):
        [told] = [action.help for action in COMMANDS[command]._actions if action.dest == "preset"]
        assert names == set(told.partition(", or a .toml")[0].rpartition(": ")[2].split(", ")), command
