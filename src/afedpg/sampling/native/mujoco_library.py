"""libmujoco's own functions, callable from compiled code.

Named symbols instead of ctypes pointers: a compiled loop that calls them can be cached on disk. Arguments are the
addresses of mjModel and mjData, which MuJoCo's Python objects give as `_address`.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import llvmlite.binding
from numba import types as numba_types

types: Any = numba_types
_MODEL_DATA = types.void(types.intp, types.intp)

mj_step = types.ExternalFunction("mj_step", _MODEL_DATA)
mj_forward = types.ExternalFunction("mj_forward", _MODEL_DATA)
mj_reset_data = types.ExternalFunction("mj_resetData", _MODEL_DATA)
mj_rne_post_constraint = types.ExternalFunction("mj_rnePostConstraint", _MODEL_DATA)
# (model, data, where to write, which parts): bit 0 of the parts is the simulation's time
mj_get_state = types.ExternalFunction("mj_getState", types.void(types.intp, types.intp, types.intp, types.int32))

SYMBOLS = ("mj_step", "mj_forward", "mj_resetData", "mj_rnePostConstraint", "mj_getState")
OLDEST = (3, 0, 0)  # mj_getState came with 3.0


@functools.cache
def load() -> str | None:
    """Make the symbols known to the compiler; once per process. None if all went well, else the reason why not."""
    try:
        import mujoco
    except ImportError as error:
        return f"mujoco cannot be imported ({error})"
    return load_from(Path(mujoco.__file__).parent, mujoco.__version__)


def load_from(folder: Path, version: str) -> str | None:
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if numbers < OLDEST:
        return f"mujoco {version} is older than {'.'.join(map(str, OLDEST))}"
    patterns = ("libmujoco.so*", "libmujoco*.dylib", "mujoco.dll")
    libraries = sorted(path for pattern in patterns for path in folder.glob(pattern))
    if not libraries:
        return f"no libmujoco next to the Python package in {folder}"
    path = str(libraries[0])
    try:
        library = ctypes.CDLL(path)
        missing = [name for name in SYMBOLS if not hasattr(library, name)]
        if missing:
            return f"{path} lacks {', '.join(missing)}"
        llvmlite.binding.load_library_permanently(path)
    except (OSError, RuntimeError) as error:
        return f"{path} cannot be loaded ({error})"
    return None


def skip_islands(model: Any) -> None:
    """Turns off MuJoCo's search for independent groups of constraints in a model that has one group at most.

    Bodies of one kinematic tree are one island, so the solver does the same arithmetic with and without the search,
    which takes up to 8% of a step. Several trees are solved in another order, to other last bits, and keep it.
    """
    import mujoco

    flag = getattr(mujoco.mjtDisableBit, "mjDSBL_ISLAND", 0)  # older versions search only when told to
    if model.ntree == 1 and model.opt.enableflags == 0:  # sleeping bodies, an option, need islands
        model.opt.disableflags |= int(flag)
