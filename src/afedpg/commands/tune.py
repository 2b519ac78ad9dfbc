"""`afedpg tune`: a search for settings, and the best of them as a preset."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from afedpg.commands.parser import add_workers, command
from afedpg.commands.settings import add_settings, given_settings
from afedpg.printable import printable


def add_commands(commands: Any) -> None:
    help = "search for good settings with Optuna, on seeds of their own, and write the best ones as a preset"
    example = "afedpg tune CartPole-v1 --agents 4 --iterations 20 --trials 10"
    parser = command(commands, "tune", help, example, _tune)
    add_settings(parser)
    parser.add_argument("--trials", type=int, metavar="N", help="end once the study has so many (default: 20)")
    parser.add_argument("--minutes", type=float, metavar="X", help="begin no trial after so many minutes")
    parser.add_argument("--out", metavar="DIR", help="folder of the study; default: tuned/TASK-METHOD")
    add_workers(parser)


def _tune(options: argparse.Namespace) -> int:
    from afedpg.runs.tune import tune

    found = tune(
        options.task, out=options.out, trials=options.trials, minutes=options.minutes, preset=options.preset,
        workers=options.workers, say=_say,
        **given_settings(options),
    )  # fmt: skip
    if options.json:
        told = {"value": found.value, "trials": found.trials, "pruned": found.pruned, "settings": found.settings}
        print(json.dumps({**told, "preset": str(found.preset)}))
        return 0
    print(f"best of {found.trials} trials, {found.pruned} of them cut short: {found.value:.6g} with")
    for key, value in found.settings.items():
        print(printable(f"  {key} = {value}"))
    print(printable(f"judge it on other seeds: afedpg train {options.task} --preset {found.preset} --seeds 0-2"))
    return 0


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)
