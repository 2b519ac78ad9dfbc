"""`afedpg parts`: the exchangeable parts of a run, with the parameters of each."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping
from typing import Any

from afedpg.commands.parser import command
from afedpg.config import PARTS
from afedpg.errors import ConfigError

KINDS = tuple(kind for kind, _ in PARTS)
SHIPPED = {  # where those of each kind lie
    "method": "server.rules:RECIPES",
    "aggregator": "server.shipped:AGGREGATORS",
    "estimator": "agent.estimators.shipped:SHIPPED",
    "codec": "engine.workloads:CODECS",
    "timing": "engine.timing:MODELS",
    "sites": "sampling.sites:FAMILIES",
    "attack": "agent.attacks.shipped:SHIPPED",
}


def add_commands(commands: Any) -> None:
    help = "list methods, aggregators, codecs, estimators, timing models, attacks and sites, and the parameters of each"
    parser = command(commands, "parts", help, "afedpg parts aggregator", _parts)
    parser.add_argument("kind", nargs="?", metavar="KIND", help=f"one of {', '.join(KINDS)}; default: all")
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of them, or FILE.py:NAME of your own")


def _parts(options: argparse.Namespace) -> int:
    from afedpg.parts import check_fields, describe, helps, load, parse

    if options.kind is not None and options.kind not in KINDS:
        raise ConfigError(f"kind: unknown '{options.kind}'; choose from {', '.join(KINDS)}")
    found: dict[str, dict[str, Any]] = {}
    for kind in (options.kind,) if options.kind else KINDS:
        shipped = _shipped(kind)
        if options.name is not None:
            file, name, _ = parse(kind, options.name)
            if not file and name not in shipped:
                raise ConfigError(f"{kind}: unknown '{name}'; choose from {', '.join(shipped)}, or give FILE.py:NAME")
            shipped = {options.name: load(kind, file, name) if file else shipped[name]}
            if file:
                check_fields(kind, name, shipped[options.name])
        found[kind] = dict(shipped)
    if options.json:
        print(json.dumps({kind: {name: helps(part) for name, part in of.items()} for kind, of in found.items()}))
        return 0
    for kind, parts in found.items():
        print(f"--{kind}")
        for name, part in parts.items():
            print(describe(f"  {name}", part))
    return 0


def _shipped(kind: str) -> Mapping[str, Any]:
    module, _, name = SHIPPED[kind].partition(":")
    found: Mapping[str, Any] = getattr(importlib.import_module(f"afedpg.{module}"), name)
    return found
