"""A Report as bytes, the same on the wire, in the journal and through Ray: protobuf, and its payload as it lies.

Nothing is judged here. What a peer sent is judged by transport/grpc/wire.py and by the server's admission.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    payload = flat(report.payload)
    data = payload.data.cast("B")
    moments, parts = pack_moments(report.moments)
    content = pb.Report(
        task_id=pb.TaskId(epoch=report.task_id.epoch, counter=report.task_id.counter),
        version=report.version,
        dtype=payload.dtype.str,
        moments=moments,
        checksum=checksum((data, *parts)),
        steps=stats.steps,
        returns=stats.returns,
        lengths=stats.lengths,
        extra=stats.extra,
        scalars=report.scalars,
        agent=report.agent_id,
    )
    return content, data


def unpack(content: pb.Report, payload: NDArray[Any], agent_id: int) -> Report:
    stats = Stats(content.steps, tuple(content.returns), tuple(content.lengths), dict(content.extra))
    task_id = TaskId(content.task_id.epoch, content.task_id.counter)
    moments, _ = unpack_moments(content.moments)
    return Report(task_id, agent_id, payload, content.version, moments, stats, dict(content.scalars))


def to_bytes(report: Report) -> bytes:
    """In one piece."""
    content, data = pack(report)
    content.payload = bytes(data)
    return content.SerializeToString()


def from_bytes(data: bytes) -> Report:
    """What `to_bytes` of this program wrote; its payload is a view of `data`."""
    content = pb.Report.FromString(data)
    return unpack(content, np.frombuffer(content.payload, DTYPES[content.dtype]), content.agent)


def pack_moments(statistics: Statistics) -> tuple[list[pb.Moments], list[bytes]]:
    """And the bytes a checksum goes over."""
    contents, parts = [], []
    for name, moments in statistics.items():
        mean, m2 = (np.ascontiguousarray(array, DOUBLE).tobytes() for array in (moments.mean, moments.m2))
        contents.append(pb.Moments(name=name, count=moments.count, mean=mean, m2=m2))
        parts += [mean, m2]
    return contents, parts


def unpack_moments(contents: Iterable[pb.Moments]) -> tuple[dict[str, Moments], list[bytes]]:
    """A ValueError where the bytes are no whole number of floats."""
    statistics: dict[str, Moments] = {}
    parts: list[bytes] = []
    for content in contents:
        mean, m2 = content.mean, content.m2
        arrays = (np.frombuffer(data, DOUBLE).astype(np.float64) for data in (mean, m2))
        statistics[content.name] = Moments(content.count, *arrays)
        parts += [mean, m2]
    return statistics, parts


def checksum(parts: Iterable[bytes | memoryview]) -> int:
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()


def flat(payload: NDArray[Any]) -> NDArray[Any]:
    """Contiguous and little-endian; never another precision, or the journal would not hold what was applied."""
    if payload.ndim != 1:
        raise TypeError(f"a payload has shape {payload.shape}, not one dimension")
    for dtype in DTYPES.values():
        if payload.dtype == dtype or payload.dtype.newbyteorder("<") == dtype:
            return np.ascontiguousarray(payload, dtype)
    raise TypeError(f"a payload of {payload.dtype}; float32 and uint8 travel")


def nbytes(statistics: Mapping[str, Moments]) -> int:
    """Of the numbers themselves."""
    if not statistics:
        return 0
    return sum(8 + moments.mean.nbytes + moments.m2.nbytes for moments in statistics.values())
