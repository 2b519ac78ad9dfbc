"""Real federations for tests: processes, certificates, sockets on loopback. Whatever is started is ended, by its id."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from afedpg.transport.grpc.certs import make_certificates

START_SECONDS = 90.0  # what a process may take to come up on a busy machine


def reserved_port() -> tuple[int, socket.socket]:
    """A port, and what keeps it from being given to anyone else until it is closed: bound, but not listening, it is in
    the way of nobody who reuses addresses, as gRPC's server does.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    port = int(keeper.getsockname()[1])
    if sys.platform != "linux":  # elsewhere it would be in the way
        keeper.close()
    return port, keeper


def wait_until(holds: Callable[[], Any], seconds: float = START_SECONDS, what: str = "") -> float:
    """Returns how long it took."""
    started = time.monotonic()
    while not holds():
        if time.monotonic() - started > seconds:
            raise AssertionError(f"not within {seconds} s: {what or holds}")
        time.sleep(0.02)
    return time.monotonic() - started


class Site:
    """One federation: a run folder, a port, and the processes that were started for it."""

    def __init__(
        self, folder: Path, *settings: object, task: str = "quadratic", agents: int = 2, tls: bool = False
    ) -> None:
        self.folder, self.run = folder, folder / "run"
        self.task, self.agents, self.tls = task, agents, tls
        self.settings = settings
        self.port, self._port_keeper = reserved_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.files = 0  # how many a process may have open; 0: as many as this one
        self.certs = folder / "certs"
        if tls:
            make_certificates(self.certs, ["127.0.0.1"], [f"agent-{number}" for number in range(agents)], 1)

    def command(self, name: str, *arguments: object, log: str = "") -> subprocess.Popen[bytes]:
        log_file = (self.folder / (log or f"{name}.log")).open("ab")
        command = [sys.executable, "-m", "afedpg", name, *map(str, arguments)]
        if self.files:
            command = ["sh", "-c", f'ulimit -n {self.files}; exec "$@"', "sh", *command]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file, start_new_session=True, cwd=self.folder
        )
        log_file.close()
        self.processes.append(process)
        return process

    def server(self, *more: object) -> subprocess.Popen[bytes]:
        """Starts it, or goes on with its run, and waits until it listens."""
        how = ("--cert", self.certs / "server") if self.tls else ("--insecure",)
        process = self.command(
            "server", self.task, "--agents", self.agents, "--listen", f"127.0.0.1:{self.port}", "--out", self.run,
            "--resume", *how, *self.settings, *more,
        )  # fmt: skip
        wait_until(lambda: self._listens() or process.poll() is not None, what="the server listens")
        return process

    def agent(self, number: int, *more: object, port: int | None = None) -> subprocess.Popen[bytes]:
        how = (
            ("--cert", self.certs / "agents" / f"agent-{number}")
            if self.tls
            else ("--insecure", "--name", f"agent-{number}")
        )
        return self.command(
            "agent", self.task, "--connect", f"127.0.0.1:{port or self.port}", *how, *more, log=f"agent-{number}.log"
        )

    def log(self, name: str = "server") -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def status(self) -> dict[str, Any]:
        """As the server last wrote it into run.db; of nobody until it has."""
        with contextlib.suppress(sqlite3.Error):
            for (text,) in self.query("SELECT value FROM notes WHERE key = 'status'"):
                return dict(json.loads(text))
        return {"gradients": 0, "epoch": -1, "agents": [], "sites": []}

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.run / 'run.db'}?mode=ro", uri=True)) as connection:
            return connection.execute(text).fetchall()

    def gradients(self) -> int:
        with contextlib.suppress(sqlite3.Error):
            return int(self.query("SELECT coalesce(max(gradient), 0) FROM arrivals")[0][0])
        return 0

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2):
            return True
        return False

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
                    process.kill()
            process.wait()
        self._port_keeper.close()


@contextlib.contextmanager
def site(folder: Path, *settings: object, **how: Any) -> Iterator[Site]:
    folder.mkdir(parents=True, exist_ok=True)
    made = Site(folder, *settings, **how)
    try:
        yield made
    finally:
        made.close()


def children(pid: int, which: Callable[[psutil.Process], bool] = lambda child: True) -> list[psutil.Process]:
    """Those alive of which this holds; one that ends while it is asked is gone, not an error."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if alive(child) and which(child):
                    found.append(child)
    return found


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
