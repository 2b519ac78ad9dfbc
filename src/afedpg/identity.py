"""Which function is it? A qualified name and the parameters it carries, as text that run.toml keeps.

Two functions with the same name and other numbers are not the same: a partial's arguments, a closure's variables,
defaults and the fields of an object are part of the text, and so is the code of a lambda, which has no name.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

DEPTH = 5  # of values within values
LONGEST = 200  # characters
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class Identity(NamedTuple):
    text: str
    certain: bool  # False: it holds something whose value has no text


def identity(part: Any, depth: int = DEPTH) -> Identity:
    """Of a function, a class or a callable object."""
    if depth == 0:
        return Identity("...", False)
    if isinstance(part, functools.partial):
        return _with(identity(part.func, depth - 1), list(enumerate(part.args)) + list(part.keywords.items()), depth)
    if isinstance(part, types.MethodType):
        return _with(Identity(part.__func__.__qualname__, True), [("self", part.__self__)], depth)
    if isinstance(part, types.FunctionType):
        return _with(Identity(_name(part), True), _carried(part), depth)
    if isinstance(part, type | types.BuiltinFunctionType):
        return Identity(part.__qualname__, True)
    fields = {name: getattr(part, name) for name in getattr(part, "__slots__", ()) if hasattr(part, name)}
    known = hasattr(part, "__dict__") or hasattr(type(part), "__slots__")
    return _with(
        Identity(type(part).__qualname__, known), [*fields.items(), *getattr(part, "__dict__", {}).items()], depth
    )


def _with(name: Identity, values: Iterable[tuple[str | int, Any]], depth: int) -> Identity:
    """name(1, alpha=0.5)"""
    told = [(key, _value(value, depth - 1)) for key, value in values]
    if not told:
        return name
    words = ", ".join(value.text if isinstance(key, int) else f"{key}={value.text}" for key, value in told)
    certain = name.certain and all(value.certain for _, value in told)
    return Identity(name.text + (f"({words})" if len(words) <= LONGEST else f"(#{_digest(words)})"), certain)


def _value(value: Any, depth: int) -> Identity:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return Identity(repr(value), True)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return Identity(f"array {value.dtype}{list(value.shape)} #{_digest(value.tobytes())}", True)
    if depth <= 0:
        return Identity("...", False)
    if isinstance(value, Mapping):
        return _with(Identity("", True), [(repr(key), entry) for key, entry in value.items()], depth)
    if isinstance(value, list | tuple):
        return _with(Identity("", True), enumerate(value), depth)
    return identity(value, depth)


def _name(function: types.FunctionType) -> str:
    """With its code where it has no name of its own."""
    name = function.__qualname__
    return f"{name} #{_digest(_code(function.__code__))}" if function.__name__ == "<lambda>" else name


def _code(code: types.CodeType) -> str:
    constants = [_code(entry) if isinstance(entry, types.CodeType) else repr(entry) for entry in code.co_consts]
    return repr((code.co_code, constants, code.co_names))


def _carried(function: types.FunctionType) -> list[tuple[str | int, Any]]:
    """Variables of a closure, and defaults; not those of a function of a module, which stand in its file."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    closure: list[tuple[str | int, Any]] = [(name, _content(cell)) for name, cell in cells]
    if "<" not in function.__qualname__:
        return closure
    return closure + list(enumerate(function.__defaults__ or ())) + list((function.__kwdefaults__ or {}).items())


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _digest(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:12]
