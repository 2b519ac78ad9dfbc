"""`afedpg status HOST:PORT`: one question to a running server."""

from __future__ import annotations

import grpc

from afedpg.engine.grpc import federation_pb2 as pb
from afedpg.engine.grpc.calls import ask
from afedpg.errors import AfedpgError

SECONDS = 10.0


def ask_status(address: str, credentials: grpc.ChannelCredentials | None) -> str:
    channel = grpc.insecure_channel(address) if credentials is None else grpc.secure_channel(address, credentials)
    with channel:
        try:
            data = ask(channel, "Status", pb.StatusRequest().SerializeToString(), SECONDS)
        except grpc.RpcError as error:
            raise AfedpgError(f"{address}: {error.details() or error.code().name}") from error
    return pb.StatusReply.FromString(data).status
