"""`afedpg status HOST:PORT`: one question to a running server."""

from __future__ import annotations

from typing import Any

import grpc

from afedpg.engine.grpc import federation_pb2 as pb
from afedpg.engine.grpc import wire
from afedpg.engine.grpc.calls import ask
from afedpg.errors import AfedpgError

SECONDS = 10.0


def ask_status(address: str, credentials: grpc.ChannelCredentials | None) -> dict[str, Any]:
    channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    with channel:
        try:
            return wire.status_reply(ask(channel, "Status", pb.StatusRequest().SerializeToString(), SECONDS))
        except grpc.RpcError as error:
            raise AfedpgError(f"{address}: {wire.details(error)}") from error
        except wire.Refused as error:
            raise AfedpgError(f"{address}: {error}") from error
