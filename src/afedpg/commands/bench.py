"""`afedpg bench`: the benchmarks, as ratios measured in one run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from afedpg.commands.parser import command
from afedpg.errors import ConfigError

NAMES = ("sampler", "compute", "train", "iteration", "workers", "server", "virtual", "network", "ray", "dashboard")


def add_commands(commands: Any) -> None:
    help = "measure speed as ratios: sampler and training against the physics, the server against a copy"
    parser = command(commands, "bench", help, "afedpg bench sampler --tasks Hopper-v4", _bench)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one of them; default: all")
    parser.add_argument("--tasks", metavar="A,B,...", help="tasks to measure, as the benchmark names them")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of which the median counts")
    parser.add_argument("--out", metavar="FILE", help="also write the rows as JSON")


def _bench(options: argparse.Namespace) -> int:
    from afedpg.engine.process import one_thread
    from afedpg.record.folder import current_versions

    if options.rounds is not None and options.rounds < 1:
        raise ConfigError(f"rounds: {options.rounds}; at least 1 is needed")
    if options.out is not None and (os.path.isdir(options.out) or not os.path.isdir(Path(options.out).parent)):
        raise ConfigError(f"out: '{options.out}' is no file that could be written; name one in a folder that exists")
    if importlib.util.find_spec("afedpg.bench") is None:
        raise ConfigError("bench: benchmarks are part of the source tree, not of the package; use a clone of it")
    one_thread()
    chosen: dict[str, Any] = {}
    if options.tasks:
        chosen["tasks"] = options.tasks.split(",")
    if options.rounds:
        chosen["rounds"] = options.rounds
    rows: list[dict[str, Any]] = []
    for name in (options.name,) if options.name else NAMES:
        rows += importlib.import_module(f"afedpg.bench.{name}").run(**chosen)
    if options.out:
        document = {"versions": current_versions(), "rows": rows}  # the commit among them, in a checkout
        Path(options.out).write_text(json.dumps(document, indent=1) + "\n")
    if options.json:
        print(json.dumps(rows))
    return 0
