"""`afedpg runs`: the runs in a folder."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from afedpg.commands.parser import RUNS, command
from afedpg.errors import ConfigError


def add_commands(commands: Any) -> None:
    parser = command(commands, "runs", "list the runs in a folder", "afedpg runs", _runs)
    parser.add_argument("folder", nargs="?", default=str(RUNS), help=f"where to look (default: {RUNS})")


def _runs(options: argparse.Namespace) -> int:
    from afedpg.record.folder import list_runs

    root = Path(options.folder)
    if not root.is_dir():
        raise ConfigError(f"folder: there is no folder {root}")
    summaries = list_runs(root)
    if options.json:
        print(json.dumps([{**dataclasses.asdict(summary), "path": str(summary.path)} for summary in summaries]))
        return 0
    if not summaries:
        print(f"no runs in {root}; `afedpg train quadratic` makes one")
    for run in summaries:
        value = "" if run.last_return is None else f"return {run.last_return:.4g}"
        done = f"{run.gradients}/{run.total}"
        print(
            f"{run.path}  {run.state}  {run.method} x{run.agents} seed {run.seed}  {done} gradients  {value}".rstrip()
        )
    return 0
