"""A Report as bytes, the same on the wire, in the journal and through Ray: protobuf, and its payload as it lies.

Nothing is judged here. What a peer sent is judged by transport/grpc/wire.py, which has a checksum of the vectors to
go by, and by the server's admission. The journal has a checksum of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from afedpg.messages import Moments, Report, Statistics, Stats, TaskId
from afedpg.protocol import federation_pb2 as pb

SINGLE, DOUBLE, BYTE = np.dtype("<f4"), np.dtype("<f8"), np.dtype("u1")
DTYPES: dict[str, np.dtype[Any]] = {"<f4": SINGLE, "|u1": BYTE}  # of a payload


def pack(report: Report) -> tuple[pb.Report, memoryview]:
    """Everything but the payload, and the payload's own bytes, which are not copied."""
    stats = report.stats
    dtype, payload = flat(report.payload)
    content = pb.Report(version=report.version, dtype=dtype, steps=stats.steps, agent=report.agent_id)
    task_id = content.task_id
    task_id.epoch, task_id.counter = report.task_id
    # to make an empty field costs as much as to fill it
    if report.moments:
        content.moments.extend(pack_moments(report.moments))
    if stats.returns:
        content.returns.extend(stats.returns)
    if stats.lengths:
        content.lengths.extend(stats.lengths)
    if stats.extra:
        content.extra.update(stats.extra)
    if report.scalars:
        content.scalars.update(report.scalars)
    return content, payload.data.cast("B")


def unpack(content: pb.Report, payload: NDArray[Any], agent_id: int, moments: Statistics) -> Report:
    stats = Stats(content.steps, tuple(content.returns), tuple(content.lengths), _numbers(content.extra))
    task_id = TaskId(content.task_id.epoch, content.task_id.counter)
    return Report(task_id, agent_id, payload, content.version, moments, stats, _numbers(content.scalars))


def _numbers(named: Mapping[str, float]) -> dict[str, float]:
    return dict(named) if named else {}  # protobuf takes long to walk through an empty map


def to_bytes(report: Report) -> bytes:
    """In one piece."""
    content, data = pack(report)
    content.payload = bytes(data)
    return content.SerializeToString()


def from_bytes(data: bytes) -> Report:
    """What `to_bytes` of this program wrote; its payload is a view of `data`."""
    content = pb.Report.FromString(data)
    payload = np.frombuffer(content.payload, DTYPES[content.dtype])
    return unpack(content, payload, content.agent, unpack_moments(content.moments))


def pack_moments(statistics: Statistics) -> list[pb.Moments]:
    contents = []
    for name, moments in statistics.items():
        mean, m2 = (np.ascontiguousarray(array, DOUBLE).tobytes() for array in (moments.mean, moments.m2))
        contents.append(pb.Moments(name=name, count=moments.count, mean=mean, m2=m2))
    return contents


def unpack_moments(contents: Sequence[pb.Moments]) -> dict[str, Moments]:
    """A ValueError where the bytes are no whole number of floats."""
    if not contents:
        return {}
    return {
        content.name: Moments(
            content.count, *(np.frombuffer(data, DOUBLE).astype(np.float64) for data in (content.mean, content.m2))
        )
        for content in contents
    }


def checksum(vector: bytes | memoryview, moments: Iterable[pb.Moments]) -> int:
    """Of a message's vectors, so that what a line damages is not taken for what was sent."""
    digest = xxhash.xxh3_64(vector)
    for content in moments:
        digest.update(content.mean)
        digest.update(content.m2)
    return digest.intdigest()


def flat(payload: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """Its type's name, and the payload contiguous and little-endian; never in another precision, or the journal would
    not hold what was applied.
    """
    if payload.ndim != 1:
        raise TypeError(f"a payload has shape {payload.shape}, not one dimension")
    for name, dtype in DTYPES.items():
        if payload.dtype == dtype or payload.dtype.newbyteorder("<") == dtype:
            return name, np.ascontiguousarray(payload, dtype)
    raise TypeError(f"a payload of {payload.dtype}; float32 and uint8 travel")


def nbytes(statistics: Mapping[str, Moments]) -> int:
    """Of the numbers themselves."""
    if not statistics:
        return 0
    return sum(8 + moments.mean.nbytes + moments.m2.nbytes for moments in statistics.values())
