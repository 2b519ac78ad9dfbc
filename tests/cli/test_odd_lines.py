"""Odd command lines: none ends in a traceback; each has its exit code and one line; what is refused leaves nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from odd_lines import rows

from afedpg import train

HERE = Path(__file__).parent
LOGGED = re.compile(r"\d{4}-\d\d-\d\d ")  # an agent's log says that it tries again


def test_no_command_line_ends_in_a_traceback(tmp_path):
    lines, runs = list(rows()), tmp_path / "runs"
    assert len(lines) >= 200
    train("quadratic", agents=2, iterations=2, out=runs / "run")
    (tmp_path / "job.json").write_text(json.dumps({"lines": lines, "runs": str(runs)}))
    command = [sys.executable, str(HERE / "odd_lines.py"), str(tmp_path / "job.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ended) == len(lines), done.stderr
    assert [row for row in ended if wrong(row)] == []


def wrong(row):
    said, code = row["said"], row["code"]
    refused = code in (1, 2)
    return (
        code not in (0, 1, 2)
        or "Traceback" in said
        or "\x1b" in said
        or (refused and len([line for line in said.splitlines() if not LOGGED.match(line)]) != 1)
        or (refused and row["left"])
    )
