"""`afedpg runs`: the runs in a folder, as a list or side by side."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from afedpg.commands.parser import RUNS, command
from afedpg.errors import ConfigError
from afedpg.terminal import printable


def add_commands(commands: Any) -> None:
    parser = command(commands, "runs", "list runs, or compare them", "afedpg runs --compare runs", _runs)
    parser.add_argument("folders", nargs="*", metavar="RUN", help=f"run folders, or folders of runs (default: {RUNS})")
    help = "side by side: the settings that differ and the results, with 95%% intervals over the seeds"
    parser.add_argument("--compare", action="store_true", help=help)


def _runs(options: argparse.Namespace) -> int:
    from afedpg.record.folder import find_runs, read_each, summarize

    roots = [Path(folder) for folder in options.folders] or [RUNS]
    for root in roots:
        if not root.is_dir():
            raise ConfigError(f"folder: there is no folder {root}")
    runs = find_runs(*roots)
    if not runs and not options.json:
        print(f"no runs in {', '.join(str(root) for root in roots)}; `afedpg train quadratic` makes one")
    elif options.compare:
        from afedpg.experiments.comparison import compare

        compared = compare(runs, _warn)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(json.dumps(compared.to_dict()) if options.json else compared.table(width))
    else:
        summaries = read_each(runs, summarize, _warn)
        if options.json:
            print(json.dumps([{**dataclasses.asdict(summary), "path": str(summary.path)} for summary in summaries]))
            return 0
        for run in summaries:
            value = "" if run.last_return is None else f"return {run.last_return:.4g}"
            done, who = f"{run.gradients}/{run.total} gradients", f"{run.method} x{run.agents} seed {run.seed}"
            print(printable(f"{run.path}  {run.state}  {who}  {done}  {value}".rstrip()))
    return 0


def _warn(text: str) -> None:
    print(printable(f"warning: {text}"), file=sys.stderr)
