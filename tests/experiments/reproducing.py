"""`afedpg reproduce` for tests: the command, its tables, and a file with code of one's own."""

from __future__ import annotations

import csv
from pathlib import Path

from afedpg.cli import main

OWN = """
from dataclasses import replace

from afedpg.server.rules import afedpg


def rule(alpha, eta):
    return afedpg(alpha, lambda iteration, version: 0.5 * eta(iteration, version))


def model(agent, n):
    return 1.0 + agent + 0.1 * (n % 3)
"""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def csvs(out: Path) -> dict[str, str]:
    """Every table of a reproduction; spent.csv is the one with real seconds in it."""
    return {str(path.relative_to(out)): path.read_text() for path in out.glob("*/*.csv")}


def reproduce(*arguments: str) -> int:
    return main(["reproduce", *arguments])
