"""Exchangeable parts by name: a shipped one, or FILE.py:NAME of the user's own, each with parameters of its own.

    afedpg                                 a shipped part as it is
    fedbuff:size=4                         with its parameters: those of its dataclass, declared with `option(...)`
    rules.py:Damped:power=0.7              of a file: a dataclass with parameters, or a function without

A part from a file is code, so nobody takes one from a server or from a stranger's run folder (record/trust.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
import tomllib
import types
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

from afedpg.config import PARTS, Config
from afedpg.errors import ConfigError
from afedpg.options import check_decorated, coerce, hints_of
from afedpg.printable import of_peer
from afedpg.validation import check_entry

_FORM = re.compile(r"(?:(?P<file>.*\.py):)?(?P<name>[^:]*)(?::(?P<values>.*))?", re.DOTALL)
_WORD = re.compile(r"(?<==)\s*(?!(?:true|false|inf|nan)\b)([A-Za-z_][\w./-]*)\s*(?=,|$)")  # without quotes


class Spec(NamedTuple):
    """A part as it is written."""

    file: str  # "" for a shipped one
    name: str
    values: dict[str, Any]


def parse(kind: str, text: str) -> Spec:
    found = _FORM.fullmatch(text)
    left_over = found is not None and found["values"] is not None and not found["values"].strip()  # a colon
    if found is None or not found["name"] or left_over:
        raise ConfigError(f"{kind}: '{text}' is not like NAME, NAME:key=value or FILE.py:NAME:key=value")
    return Spec(found["file"] or "", found["name"], read_values(kind, found["values"] or ""))


def read_values(kind: str, text: str) -> dict[str, Any]:
    """key=value,... with values as in TOML; a word that is none of its values is itself."""
    for written in (text, _WORD.sub(r'"\1"', text)):
        try:
            document = tomllib.loads(f"values = {{{written}}}")
        except (ValueError, RecursionError):
            continue
        if document.keys() == {"values"}:  # a line end may have begun another setting
            return dict(document["values"])
    raise ConfigError(f"{kind}: '{of_peer(text)}' is not like key=value,other=value")


def write_values(values: Mapping[str, Any]) -> str:
    """As `read_values` reads them; None, which TOML has no word for, is left out."""
    return ",".join(f"{key}={_as_toml(value)}" for key, value in values.items() if value is not None)


def _as_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_as_toml(str(key))}={_as_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_as_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")  # JSON leaves it as it is


def absolute(kind: str, text: str) -> str:
    """The same with its file's whole path: run.toml must mean the same wherever the run is resumed from."""
    file = parse(kind, text).file
    return text if not file else str(Path(file).absolute()) + text[len(file) :]


def build(kind: str, text: str, shipped: Mapping[str, Any]) -> Any:
    """The part: a shipped factory's, or what the user's file defines; its parameters checked against their bounds."""
    spec = parse(kind, text)
    if spec.file:
        factory = load(kind, spec.file, spec.name)
        check_fields(kind, spec.name, factory, spec.values)
    elif spec.name in shipped:
        factory = shipped[spec.name]
    else:
        known = ", ".join(shipped)
        raise ConfigError(f"{kind}: unknown '{spec.name}'; choose from {known}, or give FILE.py:NAME")
    if missing := getattr(factory, "__abstractmethods__", None):
        raise ConfigError(f"{kind}: {spec.name} does not define {', '.join(sorted(missing))}")
    if not dataclasses.is_dataclass(factory):
        if spec.values:
            raise ConfigError(f"{kind}: {spec.name} has no parameters; a dataclass with fields of option(...) has")
        return factory() if isinstance(factory, type) else factory
    return make(kind, spec.name, factory, spec.values)


def make(kind: str, name: str, factory: Any, values: Mapping[str, Any]) -> Any:
    fields = {entry.name: entry for entry in parameters(factory)}
    for key in values:
        if key not in fields:
            raise ConfigError(f"{kind}: {name} has no parameter '{key}'; it has {', '.join(fields) or 'none'}")
    try:
        part = factory(**coerce(factory, values))
        for key, entry in fields.items():
            check_entry(entry, getattr(part, key))
    except ConfigError as error:
        raise ConfigError(f"{kind}: {name}: {error}") from error
    return part


def parameters(factory: Any) -> Iterator[dataclasses.Field[Any]]:
    """A part's own, which are those of its fields that were declared with `option(...)`; no dataclass has none."""
    fields = dataclasses.fields(factory) if dataclasses.is_dataclass(factory) else ()
    return (entry for entry in fields if "help" in entry.metadata)


def helps(factory: Any) -> dict[str, str]:
    return {entry.name: entry.metadata["help"] for entry in parameters(factory)}


def values_of(part: Any) -> dict[str, Any]:
    """Of all its parameters, whether they were named or left at their defaults."""
    return {entry.name: getattr(part, entry.name) for entry in parameters(part)}


def check_fields(kind: str, name: str, factory: Any, names: Container[str] | None = None) -> None:
    """Fields of a user's own class that were declared without `option(...)`: nobody can set them, and run.toml does not
    have their values. Those with these names are refused, or all. And that it is a dataclass, frozen, if it has any.
    """
    if isinstance(factory, type):
        check_decorated(kind, factory)
    for entry in dataclasses.fields(factory) if dataclasses.is_dataclass(factory) else ():
        if "help" not in entry.metadata and entry.init and (names is None or entry.name in names):
            how = f'{entry.name}: {_type_name(entry.type)} = option(DEFAULT, "what it is")'
            raise ConfigError(
                f"{kind}: {name}: the field {entry.name} is no parameter; declare it as {how}, or as a ClassVar"
            )
    declared = getattr(factory, "__dataclass_params__", None)
    if declared is not None and not declared.frozen:
        raise ConfigError(
            f"{kind}: {name} is a dataclass that can be written to, and a checkpoint has nothing of that; write "
            "@dataclass(frozen=True)"
        )


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)


def describe(name: str, factory: Any) -> str:
    """A part's help: its first line, and a line per parameter."""
    doc = (factory.__doc__ or "").strip().partition("\n")[0]
    lines = [f"{name:23} {doc}"]
    for entry in parameters(factory):
        hint = hints_of(factory)[entry.name]
        told = f"{_type_name(hint)}, default {entry.default}{_bounds(entry.metadata)}"
        lines.append(f"    {entry.name:19} {entry.metadata['help']} ({told})")
    return "\n".join(lines)


def _bounds(metadata: Mapping[str, Any]) -> str:
    words = {"above": "above", "at_least": "at least", "at_most": "at most"}
    texts = [f"{word} {metadata[key]}" for key, word in words.items() if metadata[key] is not None]
    texts += [f"one of {', '.join(metadata['choices'])}"] if metadata["choices"] else []
    return "".join(f", {text}" for text in texts)


def load(kind: str, file: str, name: str) -> Callable[..., Any]:
    """What the file defines under that name. The file is executed once per process, and again where it was changed."""
    path = Path(file).absolute()
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{kind}: cannot read {path}: {error.strerror}") from error
    part = getattr(_module(kind, str(path), source), name, None)
    if not callable(part):
        raise ConfigError(f"{kind}: {file} has no function or class '{name}'")
    return part  # type: ignore[no-any-return]


@cache
def _module(kind: str, path: str, source: bytes) -> types.ModuleType:
    """Without Python's cache of compiled files, which takes two versions of the same second and size for one."""
    digest = hashlib.sha256(path.encode() + b"\0" + source).hexdigest()[:12]
    module = types.ModuleType(f"afedpg_parts_{digest}_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # a dataclass in the file looks its own module up
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except Exception as error:  # whatever a user's file raises, they want to know where
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path]
        place = f" (line {lines[-1]})" if lines else ""  # a SyntaxError has its own
        raise ConfigError(f"{kind}: {path} fails: {type(error).__name__}: {error}{place}") from error
    return module


def chosen(config: Config) -> dict[str, str]:
    """The parts of a configuration as they are written; "" is left out: the method's own."""
    texts = {kind: getattr(config if section is None else getattr(config, section), kind) for kind, section in PARTS}
    return {kind: text for kind, text in texts.items() if text}


def files(config: Config) -> dict[str, str]:
    """The files that a configuration's parts come from, by kind."""
    return {kind: spec.file for kind, text in chosen(config).items() if (spec := parse(kind, text)).file}


def code_of(kind: str, file: str) -> str:
    """A short digest of a file's content: a changed one is worth a warning."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigError(f"{kind}: cannot read {file}: {error.strerror}") from error
