"""Everything a run can be told, as options of the command line: made from the fields of afedpg.config."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from afedpg import config as configuration
from afedpg.errors import ConfigError
from afedpg.options import default_of
from afedpg.preset import kinds
from afedpg.toml_file import read_toml


def add_settings(parser: argparse.ArgumentParser, engine: str | None = None) -> None:
    """TASK, everything a run can be told, and --preset; of a command with an engine of its own, what that one reads."""
    for name in (None, *configuration.SECTIONS):
        add_section(parser, name, engine)
    parser.add_argument("--preset", help=f"settings to start from: {kinds()}, or a .toml file of your own")


def add_section(parser: argparse.ArgumentParser, name: str | None, engine: str | None = None) -> None:
    """The settings of one section of a configuration; None: those above all sections."""
    mine = [
        entry
        for section, entry in configuration.options()
        if section == name and entry.name not in configuration.SET_BY_RUNS
    ]
    if engine:
        mine = [entry for entry in mine if entry.name != "engine" and configuration.applies_to(engine, entry.name)]
    kind = configuration.SECTIONS[name] if name and mine else None
    group = parser.add_argument_group(name, (kind.__doc__ or "").strip()) if kind else parser
    for entry in mine:
        if entry.name == "task":
            parser.add_argument("task", metavar="TASK", help=entry.metadata["help"])
        else:
            _add_option(group, entry, configuration.hint_of(name, entry.name))


def add_own_settings(parser: argparse.ArgumentParser, *names: str) -> None:
    """Settings of a run by their names, for a command that takes only these."""
    for section, entry in configuration.options():
        if entry.name in names:
            _add_option(parser, entry, configuration.hint_of(section, entry.name))


def _add_option(group: Any, entry: dataclasses.Field[Any], hint: Any) -> None:
    flag = "--from" if entry.name == "from_run" else "--" + entry.name.replace("_", "-")
    default = default_of(entry)
    help = entry.metadata["help"].replace("%", "%%") + (
        f" (default: {_show(default)})" if default not in (None, "") else ""
    )
    common = {"dest": entry.name, "default": argparse.SUPPRESS, "help": help}
    if hint is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
    elif names := entry.metadata["choices"] or entry.metadata["parts"]:
        beside = ", or FILE.py:NAME; `afedpg parts` has their parameters" if entry.metadata["parts"] else ""
        group.add_argument(flag, metavar="NAME", **(common | {"help": f"{help}: {', '.join(names)}{beside}"}))
    else:
        group.add_argument(
            flag, type=_reader(hint), metavar=configuration.PATHS.get(entry.name, _metavar(hint)), **common
        )


def _reader(hint: Any) -> Callable[[str], Any]:
    """How a setting of that type is read from a word of the command line."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _reader(inner[0])
    if origin is tuple:
        return lambda text: _read_numbers(text, inner[0])
    if origin is dict:
        return _read_pairs
    return typing.cast(Callable[[str], Any], hint)


def _read_numbers(text: str, kind: type) -> tuple[Any, ...]:
    """Separated by commas, whole numbers also as in 64x64; an empty text is none."""
    parts = re.split("[,x]" if kind is int else ",", text) if text else []
    try:
        return tuple(kind(part) for part in parts)
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not like {'64,64' if kind is int else '1,0.5'}") from error


def _read_pairs(text: str) -> dict[str, Any]:
    """NAME=VALUE,... with values as in TOML, or the path of a TOML file."""
    import tomllib

    if text.endswith(".toml") or os.path.isfile(text):  # of another path, Path.is_file may raise
        try:
            return read_toml(Path(text), "file")
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix("file: ")) from error
    try:
        pairs: dict[str, Any] = tomllib.loads(f"pairs = {{{text}}}")["pairs"]
        return pairs
    except (ValueError, RecursionError) as error:
        message = f"'{text}' is not like name=1,other=true,text='word': values are written as in TOML"
        raise argparse.ArgumentTypeError(message) from error


def _metavar(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is tuple:
        return "A,B,..."
    if origin is dict:
        return "NAME=VALUE,..."
    return {int: "N", float: "X"}.get(typing.get_args(hint)[0] if origin is types.UnionType else hint, "TEXT")


def _show(value: Any) -> str:
    if isinstance(value, (tuple, dict)):
        return ",".join(str(part) for part in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were named on the command line, TASK aside."""
    names = {entry.name for _, entry in configuration.options()} - {"task"}
    return {name: value for name, value in vars(options).items() if name in names}
