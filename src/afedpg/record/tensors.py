"""Named arrays in one safetensors file, written without copying them, and their digest."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from safetensors.numpy import load_file

from afedpg.errors import BrokenPart

_NAMES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
}  # fmt: skip
_CHUNK = 1 << 22


def write(file: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> str:
    """Writes the file through to the disk and returns its digest.

    The library's own writer keeps a second copy of everything in older versions, and reports a full disk as text;
    the format is a length, a JSON header and the arrays one after another.
    """
    ordered = sorted(arrays.items(), key=lambda entry: (-entry[1].dtype.itemsize, entry[0]))  # keeps each aligned
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    stop = 0
    for name, array in ordered:
        if array.dtype.name not in _NAMES:
            raise BrokenPart(f"'{name}' holds {array.dtype}, which a safetensors file cannot")
        start, stop = stop, stop + array.nbytes
        shape = list(array.shape)
        header[name] = {"dtype": _NAMES[array.dtype.name], "shape": shape, "data_offsets": [start, stop]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = xxhash.xxh3_128()
    with file.open("wb", buffering=0) as stream:
        _write_all(stream.fileno(), memoryview(len(text).to_bytes(8, "little") + text), digest)
        for _, array in ordered:
            _write_all(stream.fileno(), _bytes(array), digest)
        os.fsync(stream.fileno())
    return digest.hexdigest()


def read(file: Path) -> dict[str, NDArray[Any]]:
    return load_file(file)


def digest_of(file: Path) -> str:
    digest = xxhash.xxh3_128()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _bytes(array: NDArray[Any]) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little.reshape(-1).view(np.uint8).data


def _write_all(handle: int, rest: memoryview, digest: xxhash.xxh3_128) -> None:
    digest.update(rest)
    while rest:
        rest = rest[os.write(handle, rest) :]
