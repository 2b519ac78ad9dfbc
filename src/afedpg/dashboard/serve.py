"""The socket, the URL, and serving until interrupted."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from afedpg.dashboard.app import make_app
from afedpg.dashboard.guard import bracketed
from afedpg.errors import ConfigError


def serve(roots: Sequence[Path], host: str, port: int, ready: Callable[[str], None]) -> None:
    """Returns when interrupted. `ready` is given the page's URL once it answers."""
    with _listen(host, port) as listener:
        token = None if is_loopback(host) else secrets.token_urlsafe(24)
        port = listener.getsockname()[1]
        app = make_app(roots, host, port, token)
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
        try:
            _Server(config, lambda: ready(url(host, port, token))).run(sockets=[listener])
        except KeyboardInterrupt:  # the way to end it
            return


class _Server(uvicorn.Server):
    """Says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url(host: str, port: int, token: str | None) -> str:
    wild = host in ("0.0.0.0", "::")
    name = socket.gethostname() if wild else bracketed(host)
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"port: cannot listen on {host}:{port}: {reason}; --port 0 takes a free one") from error
