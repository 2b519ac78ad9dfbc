"""`make keywords`: writes the types of `train`'s keywords, runs/keywords.py, from the fields of afedpg.config.

Editors and mypy read a file and run nothing, so the settings must stand in one; a test compares it with this.
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from afedpg import config as configuration
from afedpg.options import default_of
from afedpg.runs.train import train

FILE = Path(__file__).resolve().parents[1] / "src/afedpg/runs/keywords.py"
GIVEN = {
    *inspect.signature(train).parameters,
    *configuration.SET_BY_RUNS,
}  # arguments that `train` names itself, and what it sets itself
HEAD = '''"""The settings of a run as typed keywords of `train`; written from afedpg.config by `make keywords`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

Kind = KIND  # how theta acts when evaluated


class Settings(TypedDict, total=False):
    """Everything else a run can be told. What is left out has its default, or what preset and method bring."""
'''


def text() -> str:
    sections = (None, *configuration.SECTIONS)
    kind = next(entry for _, entry in configuration.options() if entry.name == "evaluate_kind")
    head = HEAD.replace("KIND", _type(kind, str))
    return head + "".join(line for section in sections for line in _section(section))


def _section(section: str | None) -> Iterator[str]:
    mine = [entry for home, entry in configuration.options() if home == section and entry.name not in GIVEN]
    title = (configuration.SECTIONS[section].__doc__ or "").strip() if section else "The run."
    yield f"\n    # {title}\n"
    for entry in mine:
        yield f"    {entry.name}: {_type(entry, configuration.hint_of(section, entry.name))}\n"
        default = default_of(entry)
        help = entry.metadata["help"] + ("" if default is None else f" (default: {default!r})")
        lines = textwrap.wrap(f'"""{help}"""', 116, break_on_hyphens=False)
        yield "".join(f"    {line}\n" for line in lines)


def _type(entry: dataclasses.Field[Any], hint: Any) -> str:
    """What `train` takes for a setting of that type: TOML's and JSON's lists, any mapping, paths."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if entry.metadata["choices"]:
        return f"Literal[{', '.join(_quoted(name) for name in entry.metadata['choices'])}]"
    if entry.name in configuration.PATHS:
        return "str | Path"
    if origin is types.UnionType:
        return " | ".join(one.__name__.replace("NoneType", "None") for one in inner)
    if origin is tuple:
        return f"tuple[{inner[0].__name__}, ...] | list[{inner[0].__name__}]"
    if origin is dict:
        return "Mapping[str, Any]" if inner[1] is Any else "Mapping[str, float] | Mapping[int, float]"
    return str(hint.__name__)


def _quoted(name: str) -> str:
    return f'"{name}"'


if __name__ == "__main__":
    FILE.write_text(text())
