"""Parts by name: what is written, what it means, and the one line that a mistake gets."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from exercises import PARTS as FILES
from hypothesis import given
from hypothesis import strategies as st

from afedpg import config, parts
from afedpg.agent.estimators.shipped import SHIPPED
from afedpg.cli import main
from afedpg.config import PARTS, option
from afedpg.engine.timing import MODELS
from afedpg.engine.workloads import CODECS
from afedpg.errors import ConfigError
from afedpg.experiments.choices import Choices, parse_method, split_methods
from afedpg.experiments.jobs import Plan
from afedpg.printable import printable
from afedpg.server.rules import RECIPES
from afedpg.server.shipped import AGGREGATORS

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,12}", fullmatch=True)
KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
FOLDERS = st.from_regex(r"(/?[A-Za-z0-9 ._-]{1,9}){0,3}", fullmatch=True)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = NUMBERS | st.booleans() | st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=9)


@dataclass(frozen=True)
class Example:
    """An example.

    With more lines."""

    count: int = option(3, "how many", at_least=1, at_most=9)
    rate: float = option(0.5, "how fast", above=0)
    name: str = option("slow", "which", choices=("slow", "fast"))
    sizes: tuple[int, ...] = option((1, 2), "how large", at_least=1)
    on: bool = option(True, "whether")
    hidden: float = 1.0


def plain() -> str:
    return "made"


SHIPPED_HERE: dict[str, Any] = {"example": Example, "plain": plain}


def made(text: str) -> Any:
    return parts.build("codec", text, SHIPPED_HERE)


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        made(text)
    line = printable(str(error.value))
    assert line.startswith("codec: ")
    assert "\n" not in line
    return line


def as_toml(value: object) -> str:
    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip()


@given(FOLDERS, NAMES, st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_is_read(folder: str, name: str, values: dict[str, Any]) -> None:
    written = ",".join(f"{key}={as_toml(value)}" for key, value in values.items())
    for file in ("", f"{folder}own.py"):
        text = ":".join(word for word in (file, name, written) if word)
        spec = parts.parse("method", text)
        assert spec == (file, name, values)
        assert {key: type(value) for key, value in spec.values.items()} == {k: type(v) for k, v in values.items()}


@given(FOLDERS, NAMES, st.sampled_from(["", ":key=1", ":key=a.py:b"]))
def test_a_file_gets_its_whole_path_and_nothing_else_changes(folder: str, name: str, values: str) -> None:
    whole = parts.absolute("method", f"{folder}own.py:{name}{values}")
    spec, before = parts.parse("method", whole), parts.parse("method", f"{folder}own.py:{name}{values}")
    assert Path(spec.file) == Path(before.file).absolute()
    assert spec[1:] == before[1:]
    assert parts.absolute("method", whole) == whole
    assert parts.absolute("method", f"{name}{values}") == f"{name}{values}" or ".py:" in values


@given(st.text(max_size=30))
def test_any_text_is_a_part_or_gets_one_line(text: str) -> None:
    with suppress(ConfigError):
        spec = parts.parse("timing", text)
        assert spec.name
        assert f"{spec.file}:{spec.name}".lstrip(":") in text


def test_values_have_the_types_of_toml_and_of_the_field() -> None:
    assert made("example") == Example()
    assert made('example:count=4,rate=2,name="fast",sizes=[3],on=false') == Example(4, 2.0, "fast", (3,), False)
    assert type(made("example:rate=2").rate) is float
    assert made("example:name=fast").name == "fast"  # a word that is no value of TOML is itself
    assert made("example:name=fast,sizes=[4,5], count = 2") == Example(2, name="fast", sizes=(4, 5))
    assert made("plain") is plain


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nosuch", "codec: unknown 'nosuch'; choose from example, plain, or give FILE.py:NAME"),
        ("", "codec: '' is not like NAME, NAME:key=value or FILE.py:NAME:key=value"),
        (":count=1", "codec: ':count=1' is not like NAME, NAME:key=value or FILE.py:NAME:key=value"),
        ("example:", "codec: 'example:' is not like NAME, NAME:key=value or FILE.py:NAME:key=value"),
        ("example: ", "codec: 'example: ' is not like NAME, NAME:key=value or FILE.py:NAME:key=value"),
        ("mine.py:Part:", "codec: 'mine.py:Part:' is not like NAME, NAME:key=value or FILE.py:NAME:key=value"),
        ("example:nosuch=1", "codec: example has no parameter 'nosuch'; it has count, rate, name, sizes, on"),
        ("example:hidden=2.0", "codec: example has no parameter 'hidden'; it has count, rate, name, sizes, on"),
        ("example:count", "codec: 'count' is not like key=value,other=value"),
        ("example:count=1,count=2", "codec: 'count=1,count=2' is not like key=value,other=value"),
        ("example:name=slow,name=fast", "codec: 'name=slow,name=fast' is not like key=value,other=value"),
        ("example:count=1}\nrate={", "codec: 'count=1}\\nrate={' is not like key=value,other=value"),
        ("example:count=10", "codec: example: count: 10 is outside [1, 9]"),
        ("example:rate=0", "codec: example: rate: 0.0 must be above 0"),
        ("example:rate=nan", "codec: example: rate: nan is not a finite number"),
        ("example:name=other", "codec: example: name: unknown 'other'; choose from slow, fast"),
        ("example:sizes=[1, 0]", "codec: example: sizes: 0; at least 1 is needed"),
        ("example:count=1.5", "codec: example: count: 1.5 is not of type int"),
        ("example:count=true", "codec: example: count: True is not of type int"),
        ("example:on=1", "codec: example: on: 1 is not of type bool"),
        ("plain:count=1", "codec: plain has no parameters; a dataclass with fields of option(...) has"),
    ],
)
def test_a_mistake_gets_one_clear_line(text: str, line: str) -> None:
    assert refused(text) == line


@given(st.integers() | st.floats())
def test_bounds_hold_for_every_number(number: float) -> None:
    fits = 0 < number <= sys.float_info.max
    with nullcontext() if fits else pytest.raises(ConfigError, match=r"^codec: example: rate: "):
        assert parts.make("codec", "example", Example, {"rate": number}).rate == number


@pytest.mark.parametrize(
    ("content", "name", "why"),
    [
        (None, "Part", "cannot read"),
        ("Part = 1", "Part", "has no function or class 'Part'"),
        ("def part(): ...", "Part", "has no function or class 'Part'"),
        ("1 / 0", "Part", "fails: ZeroDivisionError: division by zero (line 1)"),
        (
            "import json\n\njson.loads('?')",
            "Part",
            "fails: JSONDecodeError: Expecting value: line 1 column 1 (char 0) (line 3)",
        ),
        ("def :", "Part", "fails: SyntaxError"),
    ],
)
def test_a_file_without_the_part_gets_one_line(content: str | None, name: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    if content is not None:
        file.write_text(content)
    line = refused(f"{file}:{name}")
    assert why in line
    assert str(file) in line


def test_a_part_without_fields_is_made_and_a_function_is_itself(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("class Bare: ...\ndef function(): ...\n")
    assert type(made(f"{file}:Bare")).__name__ == "Bare"
    assert made(f"{file}:function").__name__ == "function"


def test_a_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    """As a notebook needs it: run.toml has the digest of the code that ran."""
    file = tmp_path / "own.py"
    for value in (1, 2, 1):
        file.write_text(f"class Part:\n    value = {value}\n")
        assert made(f"{file}:Part").value == value


def test_the_figures_take_parts_with_parameters(tmp_path: Path) -> None:
    file = f"{FILES}/damped.py"
    texts = split_methods(f"afedpg,{file}:Damped:power=0.7,other=1,{file}:Damped")
    assert texts == ["afedpg", f"{file}:Damped:power=0.7,other=1", f"{file}:Damped"]
    half, usual = (parse_method(f"{file}:Damped{values}") for values in (":power=0.25", ""))
    assert half.label == "Damped:power=0.25 (damped.py)"
    assert half.name != usual.name
    settings = [Plan(Choices("smoke", tmp_path, 1)).settings("lq-bandit", method, 3, 0) for method in (half, usual)]
    assert [each.own().method.power for each in settings] == [0.25, 0.5]  # type: ignore[union-attr]
    assert settings[0].name != settings[1].name
    with pytest.raises(ConfigError, match=r"^methods: Damped: power: 9\.0 is outside \[0, 4\]$"):
        Plan(Choices("smoke", tmp_path, 1)).settings("lq-bandit", parse_method(f"{file}:Damped:power=9"), 3, 0)


REGISTRIES = [
    (config.METHODS, RECIPES), (config.ESTIMATORS, SHIPPED), (config.AGGREGATORS, AGGREGATORS), (config.CODECS, CODECS),
    (config.TIMINGS, MODELS),
]  # fmt: skip
NAMES = ["methods", "estimators", "aggregators", "codecs", "timings"]


@pytest.mark.parametrize(("names", "registry"), REGISTRIES, ids=NAMES)
def test_the_names_that_help_shows_are_the_parts_there_are(names: Any, registry: dict[str, Any]) -> None:
    assert tuple(names) == tuple(registry)
    for name, part in registry.items():
        assert callable(part)
        assert part.__doc__, f"`afedpg parts` has nothing to say about {name}"


def test_what_a_method_brings_along_is_a_setting_of_the_agents_or_the_schedule() -> None:
    known = {entry.name for kind in (config.AgentConfig, config.ScheduleConfig) for entry in fields(kind)}
    for method, settings in config.METHODS.items():
        assert settings.keys() <= known
        assert config.from_settings({"task": "CartPole-v1", "method": method}).method == method


def test_the_command_prints_every_part_and_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parts"]) == 0
    shown = capsys.readouterr().out
    for names, registry in [*REGISTRIES, (config.TIMINGS, {})]:
        for name in names:
            assert f"\n  {name} " in shown or f"\n  {name}\n" in shown, name
        for part in registry.values():
            for entry in parts.parameters(part) if hasattr(part, "__dataclass_fields__") else ():
                assert f"\n    {entry.name} " in shown
                assert entry.metadata["help"] in shown
    assert main(["parts", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == [kind for kind, _ in config.PARTS]
    assert "epochs" in told["estimator"]["clipped"]


def test_the_command_refuses_a_part_that_no_run_would_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a_file_whose_name_is_long.py"
    file.write_text("from dataclasses import dataclass\n@dataclass\nclass Own:\n    'Its text.'\n    size: int = 3\n")
    assert main(["parts", "codec", f"{file}:Own"]) == 2
    assert "Own: the field size is no parameter; declare it as size" in capsys.readouterr().err
    file.write_text("class Own:\n    'Its text.'\n")
    assert main(["parts", "codec", f"{file}:Own"]) == 0
    assert f"{file}:Own Its text." in capsys.readouterr().out


def test_the_command_describes_a_part_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parts", "method", f"{FILES}/damped.py:Damped"]) == 0
    shown = capsys.readouterr().out
    assert "AFedPG with late gradients damped." in shown
    assert "(float, default 0.5, at least 0, at most 4)" in shown
    for words, line in [
        (["nosuch"], f"afedpg: kind: unknown 'nosuch'; choose from {', '.join(kind for kind, _ in PARTS)}\n"),
        (["codec", "nosuch"], "afedpg: codec: unknown 'nosuch'; choose from float32, or give FILE.py:NAME\n"),
    ]:
        assert main(["parts", *words]) == 2
        assert capsys.readouterr().err == line


BAD = [
    ("--method", "Damped:power=9", "afedpg: method: Damped: power: 9.0 is outside [0, 4]"),
    ("--method", "Damped:nosuch=9", "afedpg: method: Damped has no parameter 'nosuch'; it has power"),
    ("--method", "Nosuch", "has no function or class 'Nosuch'"),
    ("--timing", "Nosuch", "has no function or class 'Nosuch'"),
    ("--codec", "Nosuch", "has no function or class 'Nosuch'"),
    ("--aggregator", "Nosuch", "has no function or class 'Nosuch'"),
]


@pytest.mark.parametrize(("flag", "name", "line"), BAD)
def test_train_refuses_before_anything_is_written(
    flag: str, name: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["lq-bandit", "--agents=2", "--iterations=2", f"{flag}={FILES}/damped.py:{name}"]
    assert main(["train", *words, f"--out={tmp_path}/run"]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("CartPole-v1", f"--method={FILES}/shared_value.py:Mixed"),
            "afedpg: method: its rule reads explained, which this estimator does not send; name one that does",
        ),
        (
            ("lq-bandit", "--estimator=reinforce"),
            "afedpg: estimator: lq-bandit draws its gradients itself; leave it out, or name a task",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused_at_the_start(
    words: tuple[str, ...], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--agents=2", "--iterations=2", f"--out={tmp_path}/run"]) == 2
    assert capsys.readouterr().err == f"{line}\n"
    assert not (tmp_path / "run").exists()


def test_presets_and_python_name_parts_as_the_command_line_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from afedpg import train

    monkeypatch.chdir(FILES)
    part = "damped.py:Damped:power=0.25"
    (tmp_path / "mine.toml").write_text(tomli_w.dumps({"method": part, "agents": 3, "iterations": 20}))
    usual = {"agents": 3, "iterations": 20}
    results = [
        train("lq-bandit", preset=tmp_path / "mine.toml"),
        train("lq-bandit", method=part, **usual),
        train("lq-bandit", method=parts.build("method", part, {}), **usual),
    ]
    assert main(["train", "lq-bandit", f"--method={part}", "--agents=3", "--iterations=20", "--json",
                 f"--out={tmp_path}/run"]) == 0  # fmt: skip
    bits = json.loads(capsys.readouterr().out.splitlines()[-1])["theta_sha256"]
    assert {result.sha256 for result in results} == {bits}
    assert train("lq-bandit", **usual).sha256 != bits
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text())["method"] == f"{FILES}/{part}"


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], bool]]:
    """A run that somebody else made with a part of a file, and whether the file was run since."""
    file = tmp_path / "payload.py"
    code = (FILES / "damped.py").read_text() + f"\nopen({str(tmp_path / 'executed')!r}, 'w')\n"
    file.write_text(code)
    environment = monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    assert environment is None
    command = [sys.executable, "-m", "afedpg", "train", "lq-bandit", f"--method={file}:Damped", "--agents=2",
               "--iterations=3", f"--out={tmp_path}/run"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (tmp_path / "executed").unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    return tmp_path / "run", (tmp_path / "executed").exists


def test_a_file_that_a_strangers_run_names_is_not_run(
    foreign: tuple[Path, Callable[[], bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    run, executed = foreign
    for command in (["replay"], ["resume"], ["evaluate"]):
        assert main([*command, str(run)]) == 2
        told = capsys.readouterr().err
        assert told == (
            f"afedpg: run.toml asks to run {run.parent}/payload.py, which you have not run before; look at it, then "
            "add --trust-code\n"
        )
        assert not executed()
    assert main(["replay", str(run), "--trust-code"]) == 0
    assert executed()
    assert main(["replay", str(run)]) == 0  # the word counts from now on
