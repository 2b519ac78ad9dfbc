"""A command that stops in its middle and waits there: what is done to it meanwhile is done in time, on any machine."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from federations import wait_until

# Every event takes a millisecond at least, so that checkpoints can come on the way.
PROGRAM = """
import sys, time
from pathlib import Path

from afedpg.cli import main
from afedpg.engine.federation import Federation

gradients, here, go_on, *arguments = sys.argv[1:]
apply = Federation.apply

def held(federation, *event):
    time.sleep(0.001)
    if federation.server.gradients >= int(gradients):
        Path(here).touch()
        while not Path(go_on).exists():
            time.sleep(0.01)
    return apply(federation, *event)

Federation.apply = held
sys.exit(main(arguments))
"""


@dataclass(frozen=True)
class Hold:
    """Of a run that is held once so many gradients are applied; its two files lie in `folder`."""

    folder: Path
    gradients: int

    @property
    def program(self) -> list[str]:
        """In place of `python -m afedpg`."""
        return [sys.executable, "-c", PROGRAM, str(self.gradients), *map(str, (self._here, self._go_on))]

    def wait(self, process: subprocess.Popen[str]) -> None:
        """Also for a machine on which everything is compiled first."""
        wait_until(lambda: self._here.exists() or process.poll() is not None, 300, "the run is in its middle")
        assert self._here.exists(), process.communicate()

    def release(self) -> None:
        self._go_on.touch()

    @property
    def _here(self) -> Path:
        return self.folder / "held"

    @property
    def _go_on(self) -> Path:
        return self.folder / "go on"
