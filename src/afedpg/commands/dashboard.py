"""`afedpg dashboard`: a page that follows runs while they go on. Heavy imports happen inside."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from afedpg.commands.parser import RUNS, command
from afedpg.errors import ConfigError

PORT = 7444


def add_commands(commands: Any) -> None:
    help = "a live page of runs: returns, who works when, delays, traffic, refused reports"
    parser = command(commands, "dashboard", help, "afedpg dashboard --port 0", _dashboard)
    help = f"run folders, or folders with runs in them, up to five levels below (default: {RUNS})"
    parser.add_argument("runs", nargs="*", metavar="RUNS", help=help)
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"0 takes a free one (default: {PORT})")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS",
        help="where to listen (default: 127.0.0.1); any other asks for a token, which the printed URL has",
    )  # fmt: skip


def _dashboard(options: argparse.Namespace) -> int:
    from afedpg.dashboard.serve import serve

    roots = [Path(name) for name in options.runs] or [RUNS]
    for root in roots:
        if options.runs and not root.is_dir():
            raise ConfigError(f"runs: there is no folder {root}")

    def ready(url: str) -> None:
        print(json.dumps({"url": url}) if options.json else f"{url}\nCtrl-C ends it; the runs go on.", flush=True)

    serve(roots, options.host, options.port, ready)
    return 0
