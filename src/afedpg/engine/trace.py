"""Real seconds per gradient as a CSV that the virtual engine's `--timing trace` plays back."""

from __future__ import annotations

from pathlib import Path


class TraceWriter:
    """Appends agent,seconds rows in the order the reports arrived; `cost` is the share of a gradient that one takes."""

    def __init__(self, file: Path, cost: float) -> None:
        self._cost = cost
        new = not file.exists()
        self._stream = file.open("a", encoding="ascii")
        if new:
            self._stream.write("agent,seconds\n")

    def add(self, agent_id: int, seconds: float) -> None:
        self._stream.write(f"{agent_id},{max(seconds / self._cost, 1e-9):.9f}\n")

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()
