"""An agent's state in a file of its own, so that a restarted agent goes on where it stood."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from safetensors import SafetensorError, safe_open

from afedpg.errors import AfedpgError
from afedpg.messages import AgentState
from afedpg.record import tensors
from afedpg.record.disk import create_private

_log = logging.getLogger("afedpg")


class StateFile:
    """Written with every report; holds arrays and nothing else. `None` keeps nothing."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def save(self, agent_id: int, settings: str, state: AgentState) -> None:
        if self._file is None:
            return
        beside = self._file.with_name(f".{self._file.name}.writing")
        try:
            os.close(create_private(beside))  # it holds what the agent observed
            tensors.write(beside, state, {"agent": str(agent_id), "settings": settings})
            os.replace(beside, self._file)
        except OSError as error:
            raise AfedpgError(f"state: cannot write {self._file}: {error.strerror}") from error

    def load(self, agent_id: int, settings: str) -> AgentState | None:
        """The state, if it is this agent's under these settings."""
        if self._file is None or not self._file.exists():
            return None
        try:
            with safe_open(self._file, "np") as stream:
                metadata = stream.metadata() or {}
            if metadata != {"agent": str(agent_id), "settings": settings}:
                _log.warning("%s is of another agent or other settings; starting fresh", self._file)
                return None
            return tensors.read(self._file)
        except (OSError, SafetensorError, ValueError) as error:
            _log.warning("%s cannot be read (%s); starting fresh", self._file, error)
            return None
