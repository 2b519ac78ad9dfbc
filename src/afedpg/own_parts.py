"""What guards of a user's own parts share: whose a part is, what it may only read, and what a checkpoint can hold."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import AfedpgError, BrokenPart, ConfigError, FailedPart

T = TypeVar("T")
STORED = "an array of numbers"
_PACKAGE = str(Path(__file__).parent) + os.sep
_INSTALLED = ("site-packages", str(Path(traceback.__file__).parent) + os.sep, _PACKAGE)
_READ_ONLY = "read-only"  # in what numpy says of a write to such an array
_WRONG_PATHS = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # trying again brings the same


def is_own(part: Any) -> bool:
    """Not of this package: a function, an object or a class of the user's."""
    return str(getattr(part, "__module__", "")).partition(".")[0] != "afedpg"


def name_of(part: Any) -> str:
    return str(getattr(part, "__name__", type(part).__name__))


def check_part(kind: str, part: Any, base: type) -> Any:
    """The part itself, where it is an object of a class that inherits from `base`."""
    name = name_of(part)
    if isinstance(part, type):
        raise ConfigError(f"{kind}: {name} is a class; give an object of it, as {name}()")
    if not isinstance(part, base):
        whole = f"{base.__module__}.{base.__name__}"
        raise ConfigError(f"{kind}: {name} does not inherit from {whole}; write class {name}({base.__name__})")
    return part


def check_tuple(what: str, given: Any, of: type) -> tuple[Any, ...]:
    """As a tuple. Where the comma after a single one is forgotten, Python makes that one of it, and no tuple."""
    kind = type(given).__name__
    if isinstance(given, of) or not isinstance(given, tuple | list):
        one = repr(given) if isinstance(given, of) else f"{of.__name__}(...)"
        raise ConfigError(f"{what} is a {kind}, not a tuple of {of.__name__}; a tuple of one is written ({one},)")
    for entry in given:
        if not isinstance(entry, of):
            raise ConfigError(f"{what} has a {type(entry).__name__} in it, not {of.__name__} alone")
    return tuple(given)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def asked(whose: str, method: Callable[..., T], *given: Any) -> T:
    """The part's answer. Where its code fails, or writes to what it is given, one line that names the place."""
    try:
        return method(*given)
    except AfedpgError:
        raise
    except Exception as error:
        place = _place(error)
        if isinstance(error, ValueError) and _READ_ONLY in str(error):
            raise BrokenPart(f"{whose} writes to an array that it may only read{place}; copy it first") from error
        text = " ".join(f"{type(error).__name__}: {error}".split())  # torch's go over many lines
        kind = FailedPart if _may_pass(error) else BrokenPart
        raise kind(f"{whose} raised {text.removesuffix(':')}{place}") from error


def _may_pass(error: Exception) -> bool:
    """torch's lack of memory is known by its name: this module does not import torch."""
    if isinstance(error, _WRONG_PATHS):
        return False
    return isinstance(error, MemoryError | OSError) or type(error).__name__ == "OutOfMemoryError"


def _place(error: Exception) -> str:
    """The innermost line outside of Python's library and installed packages: a user's, unless the part is installed.
    Empty where the part does not take what it is given: none of its lines ran.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(folder in frame.filename for folder in _INSTALLED)]
    last = (own or frames)[-1]
    return "" if last.filename.startswith(_PACKAGE) else f" ({last.filename}, line {last.lineno})"


def why_not_stored(array: Any) -> str:
    """What it is, where a checkpoint could not give it back as it was."""
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__name__}"
    return "" if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8 else f"an array of {array.dtype}"
