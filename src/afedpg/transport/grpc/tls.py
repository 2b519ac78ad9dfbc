"""Credentials of both sides. An identity is a folder of three files: authority.crt, own.crt, own.key."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from afedpg.errors import ConfigError
from afedpg.options import digits
from afedpg.printable import of_peer

AUTHORITY, CERTIFICATE, KEY = "authority.crt", "own.crt", "own.key"
OPERATOR = "operator"  # the name that may ask for the status, and nothing else


@dataclass(frozen=True)
class Identity:
    authority: bytes
    certificate: bytes
    key: bytes
    folder: Path | None = None  # where they were read

    @classmethod
    def read(cls, folder: Path) -> Identity:
        try:
            authority, certificate, key = ((folder / name).read_bytes() for name in (AUTHORITY, CERTIFICATE, KEY))
            return cls(authority, certificate, key, folder)
        except OSError as error:
            raise ConfigError(f"cert: cannot read {error.filename}; `afedpg certs` makes such a folder") from error

    def for_server(self) -> grpc.ServerCredentials:
        """Only clients that the authority signed for get past the handshake."""
        return grpc.ssl_server_credentials([(self.key, self.certificate)], self.authority, require_client_auth=True)

    def for_client(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.authority, self.key, self.certificate)


def common_name(authenticated: Mapping[str, Sequence[bytes]]) -> str:
    """Whose certificate a caller showed; empty where it does not have exactly one name.

    gRPC's own answer is the first of several names, and would be another than an administrator may have read.
    """
    from cryptography import x509  # 8 MB that only a server with TLS needs
    from cryptography.x509.oid import NameOID

    try:
        (pem,) = authenticated["x509_pem_cert"]
        (name,) = x509.load_pem_x509_certificate(pem).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (KeyError, ValueError):
        return ""
    return of_peer(str(name.value))


def split_address(text: str, field: str) -> tuple[str, int]:
    host, _, written = text.rpartition(":")
    port = digits(written)
    if not host or port is None or port > 65535:
        raise ConfigError(f"{field}: '{text}' is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), port


def require_loopback(host: str) -> None:
    """Without TLS anyone on the way could read and write: nothing but this machine will do."""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise ConfigError(f"insecure: {host} is not this machine; without TLS only 127.0.0.1 is allowed")
