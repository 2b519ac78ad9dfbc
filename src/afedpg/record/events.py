"""One event as bytes: a fixed header, its fields, and a report's payload as it lies in memory.

    header    magic, kind, length of the fields, total length, sequence, seconds, checksum
    fields    a report's as on the wire (protocol/encoding.py), any other event's as JSON
    payload   of a report: what the agent sent

The checksum covers all but itself, so a record is either exactly what was written or no record at all.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import numpy as np
import xxhash

from afedpg.messages import (
    OBSERVATIONS,
    CloseRound,
    Event,
    Fetch,
    Join,
    Leave,
    Moments,
    Rejected,
    Report,
    Restart,
    Revoke,
    Stats,
    TaskId,
)
from afedpg.protocol import federation_pb2 as pb
from afedpg.protocol.encoding import DOUBLE, DTYPES, SINGLE, pack, unpack, unpack_moments

MAGIC = b"\xafPG2"
MARK = MAGIC[:3]  # of any version
_MAGIC_0_1_0 = b"\xafPG1"  # whose reports have JSON and up to three arrays
_PREFIX = struct.Struct("<4sIIQQd")
_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _PREFIX.size + _CHECKSUM.size
_KINDS: tuple[type, ...] = (Join, Report, Rejected, Leave, CloseRound, Restart, Revoke, Fetch)
_KIND_OF = {kind: number for number, kind in enumerate(_KINDS)}


class Record(NamedTuple):
    """A record found in a buffer."""

    sequence: int
    seconds: float
    event: Event
    stop: int  # offset of the first byte after it


_dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def encode(event: Event, sequence: int, seconds: float) -> tuple[list[bytes | memoryview], int]:
    """The pieces of a record in the order they are written, and their total length; arrays are not copied."""
    payload: bytes | memoryview = b""
    if type(event) is Report:
        content, payload = pack(event)
        text = content.SerializeToString()
    elif isinstance(event, Rejected):
        fields = {"agent_id": event.agent_id, "reason": event.reason} | ({"void": True} if event.void else {})
        text = _dumps(fields).encode()
    else:
        text = _dumps(_fields(event)).encode()
    total = HEADER_BYTES + len(text) + len(payload)
    prefix = _PREFIX.pack(MAGIC, _KIND_OF[type(event)], len(text), total, sequence, seconds)
    checksum = xxhash.xxh3_64(prefix)
    checksum.update(text)
    checksum.update(payload)
    head = prefix + _CHECKSUM.pack(checksum.intdigest()) + text
    return [head, payload] if payload else [head], total


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, Restart):
        return {} if event.awaits else {"awaits": False}
    return {} if isinstance(event, CloseRound) else {"agent_id": event.agent_id}


def peek(buffer: memoryview, offset: int) -> int | None:
    """The sequence number a header at `offset` claims, unchecked; None where there is no header."""
    if offset + HEADER_BYTES > len(buffer) or buffer[offset : offset + len(MAGIC)] not in (MAGIC, _MAGIC_0_1_0):
        return None
    sequence: int = _PREFIX.unpack_from(buffer, offset)[4]
    return sequence


def decode(buffer: memoryview, offset: int) -> Record | None:
    """The record at `offset`; None where there is none, or not the whole of one. Its arrays are its own."""
    if offset + HEADER_BYTES > len(buffer):
        return None
    magic, kind, text_bytes, total, sequence, seconds = _PREFIX.unpack_from(buffer, offset)
    body, stop = offset + HEADER_BYTES, offset + total
    if magic not in (MAGIC, _MAGIC_0_1_0) or stop > len(buffer) or body + text_bytes > stop:
        return None
    checksum = xxhash.xxh3_64(buffer[offset : offset + _PREFIX.size])
    checksum.update(buffer[body:stop])
    if _CHECKSUM.unpack_from(buffer, offset + _PREFIX.size)[0] != checksum.intdigest():
        return None
    text, rest = bytes(buffer[body : body + text_bytes]), buffer[body + text_bytes : stop]
    return Record(sequence, seconds, _event(_KINDS[kind], text, rest, magic), stop)


def _event(kind: type, text: bytes, rest: memoryview, magic: bytes) -> Event:
    if kind is Restart and magic == _MAGIC_0_1_0:
        return Restart(awaits=False)
    if kind is not Report:
        event: Event = kind(**json.loads(text))
        return event
    if magic == _MAGIC_0_1_0:
        return _report_of_0_1_0(json.loads(text), rest)
    content = pb.Report.FromString(text)
    payload = np.frombuffer(bytes(rest), DTYPES[content.dtype])
    return unpack(content, payload, content.agent, unpack_moments(content.moments))


def _report_of_0_1_0(fields: dict[str, Any], arrays: memoryview) -> Report:
    size = fields["parameters"]
    stats = Stats(
        fields["steps"], tuple(fields.get("returns", ())), tuple(fields.get("lengths", ())), fields.get("extra", {})
    )
    gradient = np.frombuffer(arrays, SINGLE, size).astype(np.float32)
    moments = {}
    if "count" in fields:
        rest = np.frombuffer(arrays, DOUBLE, 2 * fields["observations"], size * SINGLE.itemsize).astype(np.float64)
        moments[OBSERVATIONS] = Moments(fields["count"], *np.split(rest, 2))
    return Report(TaskId(*fields["task_id"]), fields["agent_id"], gradient, fields["version"], moments, stats)
