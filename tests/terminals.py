"""A pseudo-terminal with somebody who watches it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Callable, Sequence

import pyte

PATIENCE = 60.0


class Terminal:
    """A command on a terminal of its own; `screen` is what a person sees."""

    def __init__(self, command: Sequence[str], columns: int, rows: int = 24, **variables: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.said = b""
        self._stream = pyte.ByteStream(self.screen)
        keep = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(command[0], command, {**keep, "TERM": "xterm-256color", **variables})

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).strip()

    def watch(self, until: Callable[[str], bool] | None = None) -> None:
        """Until the screen shows it; without anything to be shown, until the command is over."""
        deadline = time.monotonic() + PATIENCE
        while until is None or not until(self.text):
            assert time.monotonic() < deadline, self.text
            if not select.select([self._file], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self._file, 65536)
            except OSError:  # how Linux says that the other side is gone
                assert until is None, f"the command is over:\n{self.text}"
                return
            self.said += data
            self._stream.feed(data)

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def end(self) -> int:
        """Exit code of a command that ends by itself."""
        self.watch()
        status = os.waitpid(self.pid, 0)[1]
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self._file)
