"""A TCP proxy that misbehaves on demand. It sits between an agent and its server, in a thread of its own."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from dataclasses import dataclass, field

CHUNK = 1 << 16


@dataclass
class FaultyProxy:
    """`fault` is looked at before every piece of data.

    none       passes everything on
    stall      accepts and holds everything back, in both directions
    half-open  passes on what the agent says, and nothing of what the server answers
    slow       passes on at most `bytes_per_second`
    cut        closes every connection with a reset, new ones too
    """

    target: int
    fault: str = "none"
    bytes_per_second: float = 20_000.0
    port: int = 0
    bytes_up: int = 0  # agent -> server
    bytes_down: int = 0
    _links: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)
    _stopping: bool = False

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> FaultyProxy:
        return self

    def __exit__(self, *details: object) -> None:
        self._stopping = True
        self._thread.join()
        self._listener.close()
        for link in self._links:
            _reset(*link)

    def _accept(self) -> None:
        while not self._stopping:
            with contextlib.suppress(TimeoutError, OSError):
                near, _ = self._listener.accept()
                if self.fault == "cut":
                    _reset(near)
                    continue
                far = socket.create_connection(("127.0.0.1", self.target), 1)
                self._links.append((near, far))
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not self._stopping:
                if self.fault == "cut":
                    break
                ready = [] if self.fault == "stall" else select.select([near, far], [], [], 0.05)[0]
                if self.fault == "stall":
                    time.sleep(0.05)
                for source in ready:
                    if not self._pass_piece(source, far if source is near else near, up=source is near):
                        return _reset(near, far)
        return _reset(near, far)

    def _pass_piece(self, source: socket.socket, sink: socket.socket, up: bool) -> bool:
        size = 2048 if self.fault == "slow" else CHUNK
        data = source.recv(size)
        if not data:
            return False
        if up:
            self.bytes_up += len(data)
        else:
            self.bytes_down += len(data)
        if self.fault == "slow":
            time.sleep(len(data) / self.bytes_per_second)
        if not (self.fault == "half-open" and not up):
            sink.sendall(data)
        return True


def _reset(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        end.close()
