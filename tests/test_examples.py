"""The examples do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_agents_own_environment_is_learned(tmp_path):
    command = [sys.executable, EXAMPLES / "own_environment.py"]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300).stdout
    returns = [[float(number) for number in re.findall(r"-?\d+\.\d", line)] for line in out.splitlines()]
    assert len(returns) == 4
    assert all(after > before + 10 for before, after in returns)
