"""What guards of a user's own parts share: whose a part is, what it may only read, and what a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import BrokenPart, ConfigError

T = TypeVar("T")
STORED = "an array of numbers"
_READ_ONLY = "read-only"  # in what numpy says of a write to such an array


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


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def asked(whose: str, method: Callable[..., T], *given: Any) -> T:
    """The part's answer. Where it writes to what it is given, the line that does so."""
    try:
        return method(*given)
    except ValueError as error:
        if _READ_ONLY not in str(error):
            raise
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})"
        raise BrokenPart(f"{whose} writes to an array that it may only read{place}; copy it first") from error


def why_not_stored(array: Any) -> str:
    """What it is, where a checkpoint could not give it back as it was."""
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__name__}"
    return "" if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8 else f"an array of {array.dtype}"
