"""--trust-code: a run folder may name a module to import; whose it is, the user knows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_trust_code(parser: argparse.ArgumentParser) -> None:
    help = "run the code that run.toml names (a task's module, a part's file), though you have not run it before"
    parser.add_argument("--trust-code", action="store_true", help=help)


def trusts_code(options: argparse.Namespace) -> bool:
    """As the flag says; without it, whoever sits at a terminal is asked."""
    from afedpg.printable import printable
    from afedpg.record.folder import open_run
    from afedpg.record.trust import unknown_code

    if options.trust_code:
        return True
    code = unknown_code(open_run(Path(options.run)).config())
    if code is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{options.run} asks to import {printable(code)}, which you have not run before.", file=sys.stderr)
    print("Import it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
