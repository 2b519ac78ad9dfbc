"""`afedpg completion`: a script for the shell, made from the parsers themselves. Pressing Tab starts no Python."""

from __future__ import annotations

import argparse
from typing import Any

from afedpg import config as configuration
from afedpg.commands import shells
from afedpg.commands.export import FORMATS
from afedpg.commands.parser import command
from afedpg.commands.shells import Argument, Command
from afedpg.experiments.choices import EXPERIMENTS, SCALES
from afedpg.preset import presets
from afedpg.sampling.native.tasks import GYMNASIUM

PLACES = {"RUN": "run", "RUN|HOST:PORT": "run", "FILE": "file", "DIR": "folder"}  # what a metavar stands for


def add_commands(commands: Any) -> None:
    help = "print a completion script for your shell"
    example = "afedpg completion bash > ~/.local/share/bash-completion/completions/afedpg"
    parser = command(commands, "completion", help, example, _completion, json=False)
    parser.add_argument("shell", choices=tuple(shells.SCRIPTS), help="the shell it is for")
    parser.set_defaults(commands=commands)


def _completion(options: argparse.Namespace) -> int:
    print(shells.SCRIPTS[options.shell](describe(options.commands)), end="")
    return 0


def describe(commands: Any) -> list[Command]:
    """What argparse knows, as plain data."""
    helps = {entry.dest: entry.help or "" for entry in commands._choices_actions}
    return [
        Command(name, helps.get(name, ""), tuple(_argument(action) for action in parser._actions))
        for name, parser in commands.choices.items()
    ]


def _argument(action: argparse.Action) -> Argument:
    name = str(action.metavar or action.dest).upper()
    return Argument(
        flags=tuple(action.option_strings),
        help=(action.help or "").replace("%%", "%"),
        name=name,
        takes_value=action.nargs != 0,
        words=tuple(action.choices or _words().get(action.dest, ())),
        place=PLACES.get(name, ""),
        repeats=action.nargs == "*",
    )


def _words() -> dict[str, tuple[str, ...]]:
    """Values of settings, and of what commands check for themselves; by the name argparse stores them under."""
    settings = {
        entry.name: entry.metadata["choices"] or entry.metadata["parts"] for _, entry in configuration.options()
    }
    names = dict.fromkeys(name.split(".", 1)[1] for name in presets())
    own = {"task": _tasks(), "preset": tuple(names), "id": (*EXPERIMENTS, "all"), "scale": SCALES, "to": FORMATS}
    return {**settings, **own}


def _tasks() -> tuple[str, ...]:
    """Short names, problems and native tasks: all that is known without loading Gymnasium."""
    native = []
    for name in GYMNASIUM:  # "half_cheetah_v4:HalfCheetahEnv" is HalfCheetah-v4
        module, _, kind = name.partition(":")
        native.append(f"{kind.removesuffix('Env')}-{module.rpartition('_')[2]}")
    return (*configuration.SHORT_NAMES, *configuration.PROBLEMS, *native)
