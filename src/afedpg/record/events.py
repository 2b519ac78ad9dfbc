"""One event as bytes: a fixed header, a small JSON part, and its arrays as they lie in memory.

    header   magic, kind, length of the JSON part, total length, sequence, seconds, checksum
    JSON     everything that is not an array
    arrays   gradient [parameters] float32, then mean [obs] and m2 [obs] float64; little-endian

The checksum covers all but itself, so a record is either exactly what was written or no record at all.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from afedpg.messages import CloseRound, Event, Join, Leave, Moments, Rejected, Report, Restart, Revoke, Stats, TaskId

MAGIC = b"\xafPG1"
_PREFIX = struct.Struct("<4sIIQQd")
_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _PREFIX.size + _CHECKSUM.size
_KINDS: tuple[type, ...] = (Join, Report, Rejected, Leave, CloseRound, Restart, Revoke)
_KIND_OF = {kind: number for number, kind in enumerate(_KINDS)}
_SINGLE, _DOUBLE = np.dtype("<f4"), np.dtype("<f8")


class Record(NamedTuple):
    """A record found in a buffer."""

    sequence: int
    seconds: float
    event: Event
    stop: int  # offset of the first byte after it


def _number(value: Any) -> Any:
    """numpy's scalars, as an agent's statistics may hold them."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"an event cannot hold a {type(value).__name__}")


_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_number).encode


def encode(event: Event, sequence: int, seconds: float) -> tuple[list[bytes | memoryview], int]:
    """The pieces of a record in the order they are written, and their total length; arrays are not copied."""
    arrays: list[NDArray[Any]] = []
    if type(event) is Report:
        arrays, fields = _report_parts(event)
    elif isinstance(event, Rejected):
        fields = {"agent_id": event.agent_id, "reason": event.reason} | ({"void": True} if event.void else {})
    else:
        fields = {} if isinstance(event, CloseRound | Restart) else {"agent_id": event.agent_id}
    text = _dumps(fields).encode()
    total = HEADER_BYTES + len(text)
    for array in arrays:
        total += array.nbytes
    prefix = _PREFIX.pack(MAGIC, _KIND_OF[type(event)], len(text), total, sequence, seconds)
    checksum = xxhash.xxh3_64(prefix)
    checksum.update(text)
    views = [array.data for array in arrays]
    for view in views:
        checksum.update(view)
    return [prefix + _CHECKSUM.pack(checksum.intdigest()) + text, *views], total


def _report_parts(report: Report) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    stats, moments = report.stats, report.moments
    fields: dict[str, Any] = {
        "task_id": report.task_id,
        "agent_id": report.agent_id,
        "version": report.version,
        "parameters": report.gradient.size,
        "steps": stats.steps,
    }
    if stats.returns or stats.lengths:
        fields["returns"], fields["lengths"] = stats.returns, stats.lengths
    if stats.extra:
        fields["extra"] = stats.extra
    arrays = [_flat(report.gradient, _SINGLE)]
    if moments is not None:
        fields["count"], fields["observations"] = moments.count, moments.mean.size
        arrays += [_flat(moments.mean, _DOUBLE), _flat(moments.m2, _DOUBLE)]
    return [array for array in arrays if array.nbytes], fields


def _flat(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Contiguous and little-endian; never another precision, or the journal would not hold what was applied."""
    if array.dtype != dtype and array.dtype.newbyteorder("<") != dtype:
        raise TypeError(f"an event's array is {array.dtype}, not {dtype}")
    if array.ndim != 1:
        raise TypeError(f"an event's array has shape {array.shape}, not one dimension")
    return np.ascontiguousarray(array, dtype)


def peek(buffer: memoryview, offset: int) -> int | None:
    """The sequence number a header at `offset` claims, unchecked; None where there is no header."""
    if offset + HEADER_BYTES > len(buffer) or buffer[offset : offset + len(MAGIC)] != MAGIC:
        return None
    sequence: int = _PREFIX.unpack_from(buffer, offset)[4]
    return sequence


def decode(buffer: memoryview, offset: int) -> Record | None:
    """The record at `offset`; None where there is none, or not the whole of one. Its arrays are its own."""
    if offset + HEADER_BYTES > len(buffer):
        return None
    magic, kind, text_bytes, total, sequence, seconds = _PREFIX.unpack_from(buffer, offset)
    body, stop = offset + HEADER_BYTES, offset + total
    if magic != MAGIC or stop > len(buffer) or body + text_bytes > stop:
        return None
    checksum = xxhash.xxh3_64(buffer[offset : offset + _PREFIX.size])
    checksum.update(buffer[body:stop])
    if _CHECKSUM.unpack_from(buffer, offset + _PREFIX.size)[0] != checksum.intdigest():
        return None
    fields = json.loads(bytes(buffer[body : body + text_bytes]))
    event = _event(_KINDS[kind], fields, buffer[body + text_bytes : stop])
    return Record(sequence, seconds, event, stop)


def _event(kind: type, fields: dict[str, Any], arrays: memoryview) -> Event:
    if kind is not Report:
        event: Event = kind(**fields)
        return event
    size = fields["parameters"]
    stats = Stats(
        fields["steps"], tuple(fields.get("returns", ())), tuple(fields.get("lengths", ())), fields.get("extra", {})
    )
    gradient = np.frombuffer(arrays, _SINGLE, size).astype(np.float32)
    moments = None
    if "count" in fields:
        rest = np.frombuffer(arrays, _DOUBLE, 2 * fields["observations"], size * _SINGLE.itemsize).astype(np.float64)
        mean, m2 = np.split(rest, 2)
        moments = Moments(fields["count"], mean, m2)
    return Report(TaskId(*fields["task_id"]), fields["agent_id"], gradient, fields["version"], moments, stats)
