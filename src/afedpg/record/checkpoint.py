"""Checkpoints: a tree of arrays and plain values under a number, whole or not there at all.

    checkpoints/NAME/state.safetensors   the arrays
    checkpoints/NAME/state.json          everything else, the digests of both, and the SHA-256 of theta

A tree is nested dicts and lists; its leaves are arrays, numbers, strings, booleans and None. Tuples come back as lists.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from safetensors import SafetensorError

from afedpg.errors import AfedpgError, BrokenPart
from afedpg.record import tensors
from afedpg.record.disk import sync_folder, write_error

Tree = dict[str, Any]
FORMAT = 1
_ARRAY = "$array"  # {"$array": NAME} stands for an array of the safetensors file
_ARRAYS, _VALUES = "state.safetensors", "state.json"
_BESIDE, _REPLACED = ".writing-", ".replaced"
_log = logging.getLogger("afedpg")


def theta_sha256(theta: NDArray[np.float64]) -> str:
    """Of the little-endian float64 bytes: what `replay` compares and a run reports."""
    if theta.dtype != np.float64:
        raise TypeError(f"theta is {theta.dtype}, not float64")
    return hashlib.sha256(np.ascontiguousarray(theta, "<f8").data).hexdigest()


def save(folder: Path, name: int, tree: Tree, keep: int) -> list[int]:
    """Writes checkpoint `name`, keeps the newest `keep` and returns their names, the oldest first.

    Names past `name` are of a future that a resume has given up, and go too. After an error all is as it was.
    """
    beside = folder / f"{_BESIDE}{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob(f"{_BESIDE}*"):
            shutil.rmtree(left_over)
        beside.mkdir()
        _write(beside, tree)
        _put(beside, folder / str(name))
        sync_folder(folder)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError):
            raise write_error(error, folder / str(name), folder.parent) from error
        raise
    kept = [other for other in names(folder) if other <= name][-keep:]
    for path in folder.iterdir():
        if path.name not in map(str, kept):
            shutil.rmtree(path, ignore_errors=True)
    return kept


def names(folder: Path) -> list[int]:
    """The checkpoints there are, whole or not, the oldest first."""
    return sorted(_find(folder))


def load(folder: Path, name: int) -> Tree:
    """Checkpoint `name`, or an AfedpgError that says what is wrong with it."""
    path = _path(folder, name)
    with _damage_named(path):
        document = _document(path)
        _require(tensors.digest_of(path / _ARRAYS) == document["arrays_digest"], f"{_ARRAYS} is cut off or was changed")
        tree: Tree = _join(document["state"], tensors.read(path / _ARRAYS))
        return tree


def load_latest(folder: Path, warn: Callable[[str], None] = _log.warning) -> tuple[int, Tree]:
    """The newest checkpoint that is whole; each newer one that is not is named through `warn`."""
    found = names(folder)
    if not found:
        raise AfedpgError(f"{folder} holds no checkpoint; the run cannot be resumed, start it again")
    for name in reversed(found):
        try:
            return name, load(folder, name)
        except AfedpgError as error:
            if name == found[0]:
                raise AfedpgError(f"{error}; no whole checkpoint is left, start the run again") from error
            warn(f"{error}; going back to the one before")
    raise AssertionError("unreachable")


def _write(folder: Path, tree: Tree) -> None:
    arrays: dict[str, NDArray[Any]] = {}
    state = _split(tree, "", arrays)
    theta = next((arrays[name] for name in ("theta", "server/theta") if name in arrays), None)
    document: dict[str, Any] = {
        "format": FORMAT,
        "theta_sha256": None if theta is None else theta_sha256(theta),
        "arrays_digest": tensors.write(folder / _ARRAYS, arrays),
        "state": state,
    }
    document["digest"] = _digest(document)
    with (folder / _VALUES).open("w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(folder)


def _put(source: Path, target: Path) -> None:
    """A folder cannot be renamed over another: the old one steps aside, where `_find` still sees it."""
    old = target.with_name(target.name + _REPLACED)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        os.rename(target, old)
    os.rename(source, target)


def _find(folder: Path) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():  # NAME sorts before NAME.replaced
        stem = path.name.removesuffix(_REPLACED)
        if stem.isdecimal():
            found.setdefault(int(stem), path)
    return found


def _path(folder: Path, name: int) -> Path:
    return _find(folder).get(name, folder / str(name))


def _document(path: Path) -> dict[str, Any]:
    """state.json, once it is known to be what was written."""
    document = json.loads((path / _VALUES).read_text(encoding="utf-8"))
    _require(isinstance(document, dict) and document.get("format") == FORMAT, f"{_VALUES} is not of format {FORMAT}")
    digest = document.pop("digest", None)
    _require(digest == _digest(document), f"{_VALUES} was changed")
    return dict(document)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AfedpgError(f"checkpoint {path} cannot be read: {error.strerror}") from error
    except RecursionError as error:  # of the JSON reader, or of what walks the tree
        raise AfedpgError(f"checkpoint {path} is damaged: {_VALUES} is nested too deeply") from error
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise AfedpgError(f"checkpoint {path} is damaged: {error}") from error


def _split(value: Any, path: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """The tree as JSON holds it, its arrays collected under the path that leads to them. Only parts and callbacks
    of the user's own can bring what cannot be held.
    """
    if isinstance(value, np.ndarray):
        if path in arrays:
            raise ValueError(f"two arrays of the tree would both be called '{path}'")
        arrays[path] = value
        return {_ARRAY: path}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        wrong = [key for key in value if not isinstance(key, str) or key == _ARRAY]
        if wrong:
            raise BrokenPart(f"a checkpoint's keys are strings; '{path}' has {wrong[0]!r}")
        return {key: _split(entry, f"{path}/{key}" if path else key, arrays) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_split(entry, f"{path}/{index}", arrays) for index, entry in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise BrokenPart(f"a checkpoint cannot hold the {type(value).__name__} at '{path}'")


def _join(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return arrays[value[_ARRAY]]
        return {key: _join(entry, arrays) for key, entry in value.items()}
    if isinstance(value, list):
        return [_join(entry, arrays) for entry in value]
    return value


def _digest(document: Any) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(document).encode())


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
