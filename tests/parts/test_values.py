"""A run knows all parameters of a part from a file, those that nobody named included."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from afedpg import parts, train
from afedpg.cli import main
from afedpg.errors import ConfigError
from afedpg.record import checkpoint

CODE = """
from dataclasses import dataclass
from afedpg.config import option
from afedpg.server.aggregators import Aggregator, Use


@dataclass(frozen=True)
class Part(Aggregator):
    share: float = option({share}, "which share")
    words: tuple[str, ...] = option(("a", "b\\"c"), "some words")
{more}
    def take(self, given, memory, here):
        return Use((1 - self.share) * given.vector, [given])
"""
KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
PLAIN = st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = PLAIN | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


@given(st.dictionaries(KEYS, PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text("ab. "), PLAIN, max_size=2)))
def test_what_is_written_is_read_again(values: dict[str, Any]) -> None:
    text = parts.write_values(values)
    assert parts.read_values("method", text) == values
    assert json.dumps(parts.read_values("method", text)) == json.dumps(values)  # 1 is not 1.0, nor True


class Place:
    """A file with a part, and a run that was made with it."""

    def __init__(self, folder: Path) -> None:
        self.file, self.run = folder / "own.py", folder / "run"
        self.write()

    def write(self, share: object = 0.25, more: str = "") -> None:
        self.file.write_text(CODE.format(share=share, more=more))

    def train(self, values: str = "") -> int:
        words = ["lq-bandit", "--agents=2", "--iterations=9", f"--out={self.run}", "--json"]
        return main(["train", *words, f"--aggregator={self.file}:Part{values}"])

    @property
    def own(self) -> list[str]:
        return list(tomllib.loads((self.run / "run.toml").read_text())["own"])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


COMMANDS = (["resume"], ["replay"], ["replay", "--recompute"], ["resume", "--iterations=+5"])


@pytest.mark.parametrize(
    ("values", "change", "said"),
    [
        ("", {"share": 0.4}, "has share=0.4 now, but the run was made with share=0.25;"),
        (":words=['c']", {"share": 0.4}, "has share=0.4 now, but the run was made with share=0.25;"),
        (
            "",
            {"more": '    least: int = option(3, "how many")'},
            "has least=3 now, but the run was made with no least;",
        ),
    ],
)
def test_another_default_is_refused_by_name(
    place: Place, values: str, change: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.train(values) == 0
    words = '["c"]' if values else r'["a","b\"c"]'
    assert place.own[1] == f"values of aggregator: share=0.25,words={words}"
    before = (place.run / "run.toml").read_text()
    place.write(**change)
    capsys.readouterr()
    for command, *options in COMMANDS:
        assert main([command, str(place.run), *options]) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert re.match(
            rf"afedpg: aggregator: Part of {re.escape(str(place.file))} {re.escape(said)} put it back", told
        )
    assert (place.run / "run.toml").read_text() == before
    place.write()
    for command, *options in COMMANDS:
        assert main([command, str(place.run), *options]) == 0


def test_a_named_value_does_not_care_for_the_default(place: Place) -> None:
    assert place.train(":share=0.1") == 0
    place.write(share=0.4)
    assert main(["resume", str(place.run)]) == 0
    assert main(["replay", str(place.run)]) == 0


def test_a_run_of_an_earlier_version_has_what_was_named_and_is_read(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.train(":share=0.1") == 0
    file = place.run / "run.toml"
    document = tomllib.loads(file.read_text())
    document["own"] = document["own"][:1]
    assert document["own"][0].startswith("code of ")
    name, tree = checkpoint.load_latest(place.run / "checkpoints")
    tree["settings"]["own"] = document["own"]
    checkpoint.save(place.run / "checkpoints", name, tree, keep=1)
    file.write_text(tomli_w.dumps(document))
    for command, *options in COMMANDS:
        assert main([command, str(place.run), *options]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("most: int = 3", "most: int"),
        ("most: float", "most: float"),
        ("most: tuple[int, ...] = ()", "most: tuple[int, ...]"),
    ],
)
@pytest.mark.parametrize("values", ["", ":most=4"])
def test_a_field_without_an_option_is_refused(
    place: Place, field: str, shown: str, values: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place.file.write_text(CODE.format(share=0.25, more="").replace("    share:", f"    {field}\n    share:"))
    assert place.train(values) == 2
    line = f"afedpg: aggregator: Part: the field most is no parameter; declare it as {shown} = option(DEFAULT, "
    told = capsys.readouterr().err
    assert told.startswith(line)
    assert told.count("\n") == 1
    assert not place.run.exists()


def test_a_constant_is_no_field(place: Place) -> None:
    constants = "    most = 3\n    other: ClassVar[int] = 4\n    made: int = field(default=5, init=False)\n"
    text = place.file.read_text().replace("    share:", f"{constants}    share:", 1)
    place.file.write_text(f"from dataclasses import field\nfrom typing import ClassVar\n{text}")
    assert place.train() == 0
    assert main(["replay", str(place.run)]) == 0


UNDECORATED = """
from dataclasses import dataclass
from afedpg.config import option
from afedpg.server.aggregators import Aggregator, Use

class Part(Aggregator):
    size: int = option(3, "how many")

    def take(self, given, memory, here):
        return Use(given.vector, [given])

@dataclass(frozen=True)
class Whole(Aggregator):
    size: int = option(3, "how many")

    def take(self, given, memory, here):
        return Use(given.vector, [given])

class Below(Whole):
    more: int = option(3, "how many")
"""


@pytest.mark.parametrize(("name", "field"), [("Part", "size"), ("Below", "more")])
def test_a_decorator_that_was_forgotten(
    name: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.py"
    file.write_text(UNDECORATED)
    line = f"aggregator: {name} declares {field} with option(...) and has no decorator; write @dataclass(frozen=True) "
    for words in (
        ["parts", "aggregator", f"{file}:{name}"],
        ["train", "lq-bandit", f"--aggregator={file}:{name}", f"--out={tmp_path}/run"],
    ):
        assert main(words) == 2
        assert capsys.readouterr().err.startswith(f"afedpg: {line}")
    part = parts.load("aggregator", str(file), name)
    with pytest.raises(ConfigError, match=re.escape(line)):
        train("lq-bandit", aggregator=part(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_dataclass_that_could_be_written_to(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(UNDECORATED.replace("(frozen=True)", ""))
    line = r"^aggregator: Whole is a dataclass that can be written to, .*; write @dataclass\(frozen=True\)$"
    with pytest.raises(ConfigError, match=line):
        parts.build("aggregator", f"{file}:Whole", {})
