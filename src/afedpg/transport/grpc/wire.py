"""Messages as they travel: protobuf for the envelope, little-endian bytes with a checksum for vectors.

Nothing that arrives is believed: a message is exactly what the protocol allows, or it is `Refused` with a reason.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from afedpg.messages import Moments, Report, Stats, Task, TaskId
from afedpg.printable import of_peer
from afedpg.protocol import federation_pb2 as pb
from afedpg.protocol.encoding import DTYPES, SINGLE, checksum, pack, pack_moments, unpack, unpack_moments

M = TypeVar("M", bound=Message)
PROTOCOL = 2
SERVICE = "afedpg.v1.Federation"
SLACK_BYTES = 1 << 20  # of a message, beside its vectors
MOST_EPISODES = 1 << 16  # in one report, however many steps it has
MOST_EXTRA = 64
MOST_SETTINGS = 1 << 16  # characters
LARGEST_COUNT = 1 << 40  # of steps: their sum over any run still fits a database's 64 bits
LARGEST_RETURN = 1e12
LARGEST_OBSERVATION = 1e9  # |mean| and deviation: beyond, moments are an attack on the shared scaling
_TASK, _REPORT = (
    pb.FromServer.DESCRIPTOR.fields_by_name["task"].number,
    pb.FromAgent.DESCRIPTOR.fields_by_name["report"].number,
)
_THETA, _PAYLOAD = (
    pb.Task.DESCRIPTOR.fields_by_name["theta"].number,
    pb.Report.DESCRIPTOR.fields_by_name["payload"].number,
)


class Refused(Exception):
    """What was sent is not what the protocol allows; the text says why, and may quote what was sent."""

    def __init__(self, text: str) -> None:
        super().__init__(of_peer(text))


class Damaged(Refused):
    """What came is not what was sent: the line's fault, so the next try may do better."""


@dataclass(frozen=True)
class Expected:
    """What a report of this federation looks like."""

    parameters: int
    statistics: Mapping[str, int] = field(default_factory=dict)  # name -> quantities
    samples: int = LARGEST_COUNT  # environment steps behind one report, at most, and so episodes and observations
    scalars: frozenset[str] = frozenset()


def message_bytes(parameters: int) -> int:
    """No message is longer; gRPC's own default of 4 MiB would stop theta at a million parameters."""
    return 8 * parameters + SLACK_BYTES


def fingerprint(task: str, parameters: int, settings: str) -> str:
    """The same on both sides, or they are not talking about the same thing."""
    document = {"task": task, "parameters": parameters, "settings": settings}
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _enclose(envelope: int, small: bytes, vector: int, data: memoryview) -> bytes:
    """A oneof's message with its small fields and one large vector, put together by hand.

    Protobuf's own way copies the vector four times on its way into the envelope; here it is copied once. Fields may
    come in any order, so the result is what any protobuf library reads.
    """
    head = bytes((vector << 3 | 2,)) + _varint(len(data))
    total = len(small) + len(head) + len(data)
    return b"".join((bytes((envelope << 3 | 2,)), _varint(total), small, head, data))


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def encode_task(task: Task) -> bytes:
    theta = np.ascontiguousarray(task.theta, SINGLE).data.cast("B")
    statistics = pack_moments(task.statistics)
    content = pb.Task(version=task.version, checksum=checksum(theta, statistics))
    task_id = content.task_id
    task_id.epoch, task_id.counter = task.task_id
    if statistics:
        content.statistics.extend(statistics)
    return _enclose(_TASK, content.SerializeToString(), _THETA, theta)


def decode_task(content: pb.Task, agent_id: int, expected: Expected) -> Task:
    """With the statistics that this agent reads."""
    data = content.theta  # each look at a field of bytes copies it
    theta = _vector(data, SINGLE, "theta")
    statistics = _moments(content.statistics, content.checksum, data, "statistics")
    if theta.size != expected.parameters:
        raise Refused(f"theta: {theta.size} numbers, expected {expected.parameters}")
    if not np.isfinite(theta).all():
        raise Refused("theta: not finite")
    read = {name: part for name, part in statistics.items() if name in expected.statistics}
    for name, part in read.items():
        _check_statistics(part, expected.statistics[name])
    task_id = TaskId(content.task_id.epoch, content.task_id.counter)
    return Task(task_id, agent_id, theta.astype(np.float32, copy=False), content.version, read)


def encode_report(report: Report) -> bytes:
    content, payload = pack(report)
    content.checksum = checksum(payload, content.moments)
    return _enclose(_REPORT, content.SerializeToString(), _PAYLOAD, payload)


def decode_report(content: pb.Report, agent_id: int, expected: Expected) -> Report:
    """Everything that can be judged without the server's state; the server's admission judges the rest."""
    if content.dtype not in DTYPES:
        raise Refused(f"dtype: '{content.dtype[:8]}'; one of {', '.join(DTYPES)} is expected")
    data = content.payload  # each look at a field of bytes copies it
    payload = _vector(data, DTYPES[content.dtype], "payload")
    if len(content.moments) > len(expected.statistics):
        raise Refused(f"moments: {len(content.moments)} kinds, expected {len(expected.statistics)}")
    moments = _moments(content.moments, content.checksum, data, "moments")
    if moments.keys() != expected.statistics.keys():
        wanted = ", ".join(expected.statistics) or "none are shared"
        raise Refused(f"moments: {', '.join(moments) or 'missing'}; expected: {wanted}")
    for name, part in moments.items():
        _check_moments(part, expected.statistics[name], expected.samples)
    report = unpack(content, payload, agent_id, moments)
    if report.scalars.keys() != expected.scalars:
        raise Refused(f"scalars: expected {', '.join(sorted(expected.scalars)) or 'none'}")
    _check_stats(report.stats, expected)
    return report


# Messages as they come from a peer. Text in them is cleaned here, before anything else sees it.


def from_agent(data: bytes) -> pb.FromAgent:
    message = _parse(pb.FromAgent, data)
    if message.HasField("join"):
        message.join.name = of_peer(message.join.name)
    return message


def from_server(data: bytes) -> pb.FromServer:
    message = _parse(pb.FromServer, data)
    if message.HasField("refusal"):
        message.refusal.reason = of_peer(message.refusal.reason)
    return message


def settings_request(data: bytes) -> pb.SettingsRequest:
    request = _parse(pb.SettingsRequest, data)
    request.name = of_peer(request.name)
    return request


def settings_reply(data: bytes) -> pb.SettingsReply:
    reply = _parse(pb.SettingsReply, data)
    if len(reply.settings) > MOST_SETTINGS:
        raise Refused(f"settings: {len(reply.settings)} characters")
    return reply


def status_reply(data: bytes) -> dict[str, Any]:
    """Of a server that describes itself in JSON; what is in it is looked at by whoever shows it."""
    try:
        document = json.loads(_parse(pb.StatusReply, data).status)
    except (ValueError, RecursionError) as error:
        raise Refused("status: not JSON") from error
    if not isinstance(document, dict):
        raise Refused("status: not of this protocol")
    return document


def details(error: Any) -> str:
    """What a failed call says, without gRPC's preamble: the peer's words, or gRPC's own."""
    return of_peer((error.details() or error.code().name).rpartition("last error: ")[2])


def _parse(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Damaged("message: not of this protocol") from error


def _vector(data: bytes, dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    """A view of the message's own bytes: nothing is copied."""
    if len(data) % dtype.itemsize:
        raise Refused(f"{what}: {len(data)} bytes are no whole number of {dtype.itemsize * 8} bit floats")
    return np.frombuffer(data, dtype)


def _moments(contents: Sequence[pb.Moments], sent: int, vector: bytes, what: str) -> dict[str, Moments]:
    """Unpacked, once the checksum over `vector` and them agrees."""
    try:
        moments = unpack_moments(contents)
    except ValueError as error:
        raise Refused(f"{what}: no whole number of 64 bit floats") from error
    if len(contents) != len(moments):
        raise Refused(f"{what}: {', '.join(moments)} came twice")
    if sent != checksum(vector, contents):
        raise Damaged("checksum: the vectors are not what was sent")
    return moments


def _check_moments(moments: Moments, quantities: int, samples: int) -> None:
    """Shared scaling is worth an attack: one report with absurd moments would blind every agent."""
    if not moments.mean.size == moments.m2.size == quantities:
        sizes = f"{moments.mean.size} and {moments.m2.size}"
        raise Refused(f"moments: {sizes} numbers, expected {quantities}")
    if not 1 <= moments.count <= samples:
        raise Refused(f"moments: a count of {moments.count:.3g}, a report has at most {samples} samples")
    deviation = np.sqrt(np.abs(moments.m2) / moments.count)
    inside = (np.abs(moments.mean) <= LARGEST_OBSERVATION) & (deviation <= LARGEST_OBSERVATION)  # NaN is outside
    if not inside.all():
        raise Refused(f"moments: beyond {LARGEST_OBSERVATION:.0e} or not finite")


def _check_statistics(statistics: Moments, quantities: int) -> None:
    """An agent's compiled code reads as many numbers as an observation has, and divides by their deviations."""
    count, mean, m2 = statistics.count, statistics.mean, statistics.m2
    if not mean.size == m2.size == quantities:
        raise Refused(f"statistics: {mean.size} and {m2.size} numbers, expected {quantities}")
    if not 0 < count < math.inf:
        raise Refused(f"statistics: a count of {count:.3g}")
    # of reports that each keep the bound; merging moves their means apart, which adds to the deviation
    inside = (np.abs(mean) <= 2 * LARGEST_OBSERVATION) & (m2 >= 0) & (m2 <= (2 * LARGEST_OBSERVATION) ** 2 * count)
    if not inside.all():  # NaN is outside, too
        raise Refused(f"statistics: beyond {LARGEST_OBSERVATION:.0e}, negative or not finite")


def _check_stats(stats: Stats, expected: Expected) -> None:
    """Only recorded, but a number that does not fit a database would stop the record, and many would fill it."""
    steps, returns, lengths, extra = stats
    if max(len(returns), len(lengths)) > min(expected.samples, MOST_EPISODES) or len(extra) > MOST_EXTRA:
        raise Refused(f"stats: {len(returns)} returns, {len(lengths)} lengths and {len(extra)} other numbers")
    if max(steps, *lengths, 0) > LARGEST_COUNT:
        raise Refused("stats: more steps than a run can have")
    if not all(abs(value) <= LARGEST_RETURN for value in returns):
        raise Refused(f"stats: a return beyond {LARGEST_RETURN:.0e} or not finite")
    named = (math.isfinite(value) and len(name) <= 64 and name.isprintable() for name, value in extra.items())
    if extra and not all(named):
        raise Refused("stats: a value that is not finite, or a name that is too long or cannot be printed")
