"""What the commands share: one line for bad usage, an example each, --json and --workers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from afedpg.errors import ConfigError
from afedpg.printable import printable

RUNS = Path("runs")


class _Formatter(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """An example stays on one line, to be copied."""
        return indent + text if text.startswith("example: ") else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **settings})
        # What begins like a negative number is a value: argparse itself takes -1e3, -inf and -1,2 for options.
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """argparse drops the value of `--option=--` and hands on an empty list."""
        if action.nargs is None and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, arg_strings)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What a command does not know is answered by the command, whose help lists what it does know."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            getattr(options, "speaker", self).error(f"unrecognized arguments: {' '.join(unknown)}")
        return options

    def error(self, message: str) -> NoReturn:
        """One line, exit code 2."""
        print(printable(f"{self.prog}: {message}; see `{self.prog} --help`"), file=sys.stderr)
        sys.exit(2)


def command(
    commands: Any, name: str, help: str, example: str, run: Callable[[argparse.Namespace], int], json: bool = True
) -> Parser:
    """A subcommand with its example and --json."""
    parser: Parser = commands.add_parser(name, help=help, description=help, epilog=f"example: {example}")
    parser.set_defaults(command=run, speaker=parser)
    if json:
        parser.add_argument("--json", action="store_true", help="end with one machine-readable line")
    return parser


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run folder")


def add_which(parser: argparse.ArgumentParser) -> None:
    help = "the best evaluated theta or the last one; default: the best where there is one"
    parser.add_argument("--which", choices=("best", "last"), help=help)


def add_policy(parser: argparse.ArgumentParser) -> None:
    help = "the function that made the run's torch policy, where that is your own"
    parser.add_argument("--policy", metavar="FILE.py:NAME", help=help)


def own_policy(options: argparse.Namespace) -> Any:
    """What --policy names; naming the file on the command line is the user's word that it may be run."""
    if options.policy is None:
        return None
    from afedpg.parts import load, parse

    spec = parse("policy", options.policy) if ".py:" in options.policy else None
    if spec is None or not spec.file or spec.values:
        raise ConfigError(f"policy: '{options.policy}' is not like FILE.py:NAME")
    return load("policy", spec.file, spec.name)


def add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=int, metavar="W", help="processes that compute; default: one per core for environments"
    )


def add_accept_loss(parser: argparse.ArgumentParser) -> None:
    help = "go on though files of the run folder are gone or cut off, without what they held"
    parser.add_argument("--accept-loss", action="store_true", help=help)
