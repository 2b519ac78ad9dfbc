"""`afedpg status HOST:PORT`: one question to a running server."""

from __future__ import annotations

from typing import Any

import grpc

from afedpg.errors import AfedpgError
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.calls import ask
from afedpg.transport.grpc.probe import misfit
from afedpg.transport.grpc.tls import Identity

SECONDS = 10.0


def ask_status(address: str, identity: Identity | None) -> dict[str, Any]:
    with _channel(address, identity) as channel:
        try:
            return wire.status_reply(ask(channel, "Status", pb.StatusRequest().SerializeToString(), SECONDS))
        except grpc.RpcError as error:
            folder = None if identity is None else identity.folder
            wrong = "" if folder is None else misfit(address, folder)
            raise AfedpgError(f"{address}: {wrong or wire.details(error)}") from error
        except wire.Refused as error:
            raise AfedpgError(f"{address}: {error}") from error


def _channel(address: str, identity: Identity | None) -> grpc.Channel:
    return grpc.insecure_channel(address) if identity is None else grpc.secure_channel(address, identity.for_client())
