"""`afedpg runs`: the runs in a folder, as a list or side by side."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afedpg.commands.parser import RUNS, command
from afedpg.errors import ConfigError
from afedpg.printable import printable
from afedpg.terminal.text import GAP

if TYPE_CHECKING:
    from afedpg.record.folder import RunSummary


def add_commands(commands: Any) -> None:
    parser = command(commands, "runs", "list runs, or compare them", "afedpg runs --compare runs", _runs)
    parser.add_argument("folders", nargs="*", metavar="RUN", help=f"run folders, or folders of runs (default: {RUNS})")
    help = "side by side: the settings that differ and the results, with 95%% intervals over the seeds"
    parser.add_argument("--compare", action="store_true", help=help)


def _runs(options: argparse.Namespace) -> int:
    from afedpg.record.folder import find_runs, read_each, summarize

    roots = [Path(folder) for folder in options.folders] or [RUNS]
    for root in roots:
        if os.path.isfile(root):  # of a name that is too long, Path.is_file raises
            raise ConfigError(f"folder: {root} is a file; name run folders, or folders of runs")
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
            print(json.dumps([_plain(summary) for summary in summaries]))
        elif summaries:
            print(_table(summaries))
    return 0


def _plain(run: RunSummary) -> dict[str, Any]:
    from afedpg.record.returns import finite

    theta = {kind: finite(value) for kind, value in run.theta.items()}
    return {
        **dataclasses.asdict(run), "path": str(run.path), "last_return": finite(run.last_return), "theta": theta,
    }  # fmt: skip


def _table(runs: Sequence[RunSummary]) -> str:
    """A head and a line per run; two blanks or more between columns, never two within one."""
    from afedpg.record.returns import TRAINING

    head = ("run", "state", "task", "method", "agents", "seed", "gradients", TRAINING, "theta")
    rows = [head, *(_row(run) for run in runs)]
    if any(run.unused for run in runs):
        texts, place = ("unused", *(str(run.unused) for run in runs)), head.index(TRAINING)
        rows = [(*row[:place], text, *row[place:]) for row, text in zip(rows, texts, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(GAP.join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(run: RunSummary) -> tuple[str, ...]:
    kind, theta = next(iter(run.theta.items()), ("", None))
    return (
        printable(str(run.path)), run.state, printable(run.task), run.method, str(run.agents), str(run.seed),
        f"{run.gradients}/{run.total}", "-" if run.last_return is None else f"{run.last_return:.4g}",
        "-" if theta is None else f"{theta:.4g} {printable(kind)}",
    )  # fmt: skip


def _warn(text: str) -> None:
    print(printable(f"warning: {text}"), file=sys.stderr)
