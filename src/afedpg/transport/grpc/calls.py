"""gRPC calls whose messages stay bytes: our own code parses them, and gRPC's type stubs know no such calls."""

from __future__ import annotations

from typing import Any

import grpc

from afedpg.transport.grpc.wire import SERVICE

EOF: Any = vars(grpc.aio)["EOF"]  # what a stream's `read` returns at its end
TOKEN = "afedpg-token"  # metadata: the secret of a server without TLS
Metadata = tuple[tuple[str, str], ...]


def open_work(channel: Any, metadata: Metadata = ()) -> Any:
    """The Work stream, with `read` and `write`."""
    return channel.stream_stream(f"/{SERVICE}/Work")(metadata=metadata)


def ask(channel: Any, method: str, request: bytes, seconds: float, metadata: Metadata = ()) -> Any:
    """One question: the answer, or something to await for it, as the channel is."""
    return channel.unary_unary(f"/{SERVICE}/{method}")(request, timeout=seconds, metadata=metadata)
