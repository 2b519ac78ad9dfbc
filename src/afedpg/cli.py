"""The command line: every command is a module of commands/, which imports heavy things only when it runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from afedpg import __version__
from afedpg.commands import (
    bench,
    check,
    completion,
    dashboard,
    evaluate,
    export,
    network,
    parts,
    reproduce,
    runs,
    train,
    tune,
)
from afedpg.commands.parser import Parser
from afedpg.errors import AfedpgError
from afedpg.printable import printable

# In the order of `afedpg --help`.
COMMANDS = (train, tune, evaluate, check, export, runs, dashboard, reproduce, network, parts, bench, completion)


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except AfedpgError as error:
        print(f"afedpg: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("afedpg: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        return 1
    except OSError as error:  # of a path that nobody foresaw: a name too long, a folder that may not be read
        where = f"{error.filename}: " if error.filename else ""
        print(printable(f"afedpg: {where}{error.strerror or error}"), file=sys.stderr)
        return 1


def entry() -> None:
    sys.exit(main())


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="afedpg",
        description="Asynchronous federated reinforcement learning with policy gradients.",
        epilog="example: afedpg train quadratic --agents 4 --iterations 500",
    )
    parser.add_argument("--version", action="version", version=f"afedpg {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    for module in COMMANDS:
        module.add_commands(commands)
    parser.set_defaults(parser=parser)  # for `completion`, which describes it
    return parser
