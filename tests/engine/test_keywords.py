"""`train` as an editor and a type checker see it: the settings of afedpg.config, all of them and no others."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Mapping
from pathlib import Path

import keywords
import pytest

import afedpg
from afedpg import config as configuration
from afedpg.runs.keywords import Settings

ROOT = Path(__file__).resolve().parents[2]
NAMED = set(inspect.signature(afedpg.train).parameters) - {"settings"}
HINTS = typing.get_type_hints(Settings)
OPTIONS = [
    (section, entry) for section, entry in configuration.options() if entry.name not in configuration.SET_BY_RUNS
]


def test_the_file_is_what_make_keywords_writes():
    assert keywords.FILE.read_text() == keywords.text()


def test_every_setting_is_a_keyword_once():
    names = {entry.name for _, entry in OPTIONS}
    assert not NAMED & set(HINTS)
    assert set(HINTS) <= names <= NAMED | set(HINTS)


def test_a_keyword_takes_what_the_setting_holds():
    for section, entry in OPTIONS:
        if entry.name in NAMED:
            continue
        taken, holds = HINTS[entry.name], configuration.hint_of(section, entry.name)
        if typing.get_origin(holds) is dict:
            holds = Mapping[typing.get_args(holds)]
        if choices := entry.metadata["choices"]:
            assert typing.get_args(taken) == choices, entry.name
        else:
            assert holds == taken or holds in typing.get_args(taken), entry.name


def test_the_docstring_names_every_argument():
    words = set(re.findall(r"\w+", afedpg.train.__doc__))
    assert {entry.name for _, entry in OPTIONS} | NAMED <= words


def test_the_package_lists_its_names():
    assert set(afedpg.__all__) <= set(dir(afedpg))
    assert {"importlib", "_HOMES", "annotations"}.isdisjoint(dir(afedpg))


@pytest.mark.parametrize("name", afedpg.__all__)
def test_every_name_has_an_example_and_explains_its_arguments(name):
    thing = getattr(afedpg, name)
    text = inspect.getdoc(thing)
    if isinstance(thing, type) and issubclass(thing, Exception):
        names, given = set(), ""
    elif dataclasses.is_dataclass(thing):
        names = {field.name for field in dataclasses.fields(thing) if field.compare}
        given = text.partition("Attributes:")[2]
    else:
        names = set(inspect.signature(thing).parameters) - {"settings"}
        given = text.partition("Args:")[2]
    assert names <= set(re.findall(r"^ {4}(\w+): \S", given, re.MULTILINE))
    told_only = name in ("AfedpgError", "Arrived", "ConfigError", "Evaluated", "Started", "Tuned")  # nobody makes one
    assert told_only or re.search(rf"^ {{4}}.*\b({name}|train)\(", text.partition("\n")[2], re.MULTILINE)


SCRIPT = """\
from afedpg import evaluate_run, train

result = train("quadratic", agents=4, iterations=2, eta=lambda k, v: 0.5 / (k + 1), late={1: 2.0}, hidden=[8, 8])
train("quadratic", agnets=4)
train("quadratic", iterations="no")
evaluate_run("runs/pole", kind="determ")
"""


def test_mypy_catches_a_wrong_name_and_a_wrong_type(tmp_path):
    """With this project's settings, whose cache `make check` has filled."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--no-pretty", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 3, done.stdout + done.stderr
    assert ":4: " in errors[0]
    assert '"agnets"' in errors[0]
    assert ":5: " in errors[1]
    assert '"iterations"' in errors[1]
    assert ":6: " in errors[2]
    assert '"kind"' in errors[2]
