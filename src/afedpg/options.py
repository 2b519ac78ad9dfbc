"""A setting: its help, its bounds, and the type that a given value must have."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from afedpg.errors import ConfigError

MOST_DIGITS = 18  # int() refuses more than 4,300


def option(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    term: bool = False,
    parts: tuple[str, ...] = (),
) -> Any:
    """A setting with its help and its bounds; those of a tuple hold for each of its entries. `parts` are the shipped
    ones of a setting that also takes FILE.py:NAME.

    A `term` is what a server tells its agents, who agree to no more than the bounds allow. It is never a path, a device
    or anything to import.
    """
    metadata = {
        "help": help, "choices": choices, "above": above, "at_least": at_least, "at_most": at_most, "term": term,
        "parts": parts,
    }  # fmt: skip
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check_decorated(setting: str, kind: type) -> None:
    """The options of a class become fields by its decorator alone; without it each of them is its own declaration."""
    left = [key for part in kind.__mro__ for key, entry in vars(part).items() if isinstance(entry, dataclasses.Field)]
    if left:
        names = ", ".join(left)
        raise ConfigError(
            f"{setting}: {kind.__name__} declares {names} with option(...) and has no decorator; write "
            "@dataclass(frozen=True) above the class"
        )


def default_of(entry: dataclasses.Field[Any]) -> Any:
    return entry.default_factory() if entry.default_factory is not dataclasses.MISSING else entry.default


@cache
def hints_of(kind: type) -> Mapping[str, Any]:
    """The type of every setting of `kind`. Annotations are text until they are evaluated, all of them at once: a
    parser that asked for each setting anew would spend most of its time on that.
    """
    return typing.get_type_hints(kind)


def coerce(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """TOML's lists become tuples, whole numbers become floats where a float is meant, numpy's scalars and arrays
    become Python's own; anything else must fit.
    """
    hints = hints_of(kind)
    return {name: fit(name, value, hints[name]) for name, value in values.items()}


def whole(name: str, value: Any, at_least: int) -> int:
    """An argument of a function, which is no field of a configuration, as the whole number that is meant."""
    number: int = fit(name, value, int)
    if number < at_least:
        negative = f"{number} is negative" if at_least == 0 else f"{number}; at least {at_least} is needed"
        raise ConfigError(f"{name}: {negative}")
    return number


def digits(text: str) -> int | None:
    """The number that 0 to 9 alone write; None of any other text, and of more digits than a setting has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def place(name: str, value: Any) -> Path:
    """The same of a path."""
    path = fspath(value) if isinstance(value, (str, PathLike)) else None
    if not isinstance(path, str) or not path:  # a PathLike may also stand for bytes
        raise ConfigError(f"{name}: {value!r} is no path")
    if "\0" in path:
        raise ConfigError(f"{name}: {value!r} has a NUL in it, which no path may have")
    return Path(path)


def fit(name: str, value: Any, hint: Any) -> Any:
    """The value as that type, where nothing is lost by it."""
    origin = typing.get_origin(hint)
    if hasattr(value, "tolist"):  # numpy, which is not imported here
        value = value.tolist()
    if origin is types.UnionType:  # a setting that may be left open
        return None if value is None else fit(name, value, typing.get_args(hint)[0])
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        if isinstance(value, (list, tuple)):
            return tuple(fit(name, entry, inner) for entry in value)
    elif origin is dict:
        inner = typing.get_args(hint)[1]
        if isinstance(value, Mapping):
            return {str(key): entry if inner is Any else fit(name, entry, inner) for key, entry in value.items()}
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError(f"{name}: a whole number of {len(str(value))} digits is no float") from error
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    wanted = hint.__name__ if isinstance(hint, type) and not isinstance(hint, types.GenericAlias) else hint
    raise ConfigError(f"{name}: {value!r} is not of type {wanted}")
