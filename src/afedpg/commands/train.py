"""`afedpg train` and `resume`. Heavy imports happen inside, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afedpg.commands.outcome import report
from afedpg.commands.parser import RUNS, add_accept_loss, add_run, add_workers, command
from afedpg.commands.settings import add_section, add_settings, given_settings
from afedpg.commands.trust import add_trust_code, trusts_code
from afedpg.errors import ConfigError
from afedpg.experiments.choices import parse_seeds
from afedpg.printable import printable

if TYPE_CHECKING:
    from afedpg.config import Config


def add_commands(commands: Any) -> None:
    example = "afedpg train lq-bandit --method afedpg --agents 8 --iterations 1000 --schedule global --eta 1"
    parser = command(commands, "train", "train a policy", example, _train)
    add_settings(parser)
    parser.add_argument("--seeds", metavar="A-B", help="one run per seed, for example 0-4 or 0,3,7")
    parser.add_argument("--out", metavar="DIR", help="run folder; default: runs/TASK-METHOD-seedS")
    add_workers(parser)
    parser = command(commands, "resume", "go on with a run", "afedpg resume runs/quadratic-afedpg-seed0", _resume)
    add_run(parser)
    help = "of a finished run: how many it shall have in all, or +200 for so many more"
    parser.add_argument("--iterations", dest="longer", metavar="N", help=help)
    add_section(parser, "ray")  # the cluster of a later day may be another one
    add_workers(parser)
    add_accept_loss(parser)
    add_trust_code(parser)


def _train(options: argparse.Namespace) -> int:
    settings = given_settings(options)
    if options.seeds is None:
        _train_one(options, settings, several=False)
        return 0
    if "seed" in settings:
        raise ConfigError("seeds: give either --seed or --seeds")
    from afedpg.engine.process import Interrupted

    seeds = parse_seeds(options.seeds)
    for number, seed in enumerate(seeds, start=1):
        try:
            _train_one(options, {**settings, "seed": seed}, several=len(seeds) > 1)
        except Interrupted as error:
            if len(seeds) == 1:
                raise
            raise Interrupted(f"{error}{_other_seeds(options, seeds[number:])}") from error
    return 0


def _other_seeds(options: argparse.Namespace, left: Sequence[int]) -> str:
    """What brings those that have not begun; folders of names of our own would be taken anew."""
    if options.out is not None:
        return "; the same command again goes on with all seeds"
    return f"; then --seeds {','.join(map(str, left))} for the others" if left else ""


def _train_one(options: argparse.Namespace, settings: dict[str, Any], several: bool) -> None:
    from afedpg.options import place
    from afedpg.record.folder import default_path
    from afedpg.runs.parts import configure
    from afedpg.runs.train import run
    from afedpg.terminal.progress import Display

    config = configure(options.task, options.preset, settings)
    out = default_path(RUNS, config) if options.out is None else place("out", options.out)
    if several and options.out is not None:
        out = out / f"seed{config.seed}"
        if _begun(out, config):
            _go_on(options, out)
            return
    with Display(config, quiet=options.json) as display:
        result = run(
            config, out=out, workers=options.workers, on_arrival=display, announce=display.announce,
            numbered=options.out is None,
        )  # fmt: skip
    report(options, result)


def _begun(out: Path, config: Config) -> bool:
    """By the same command, which was interrupted: its settings are the same."""
    from afedpg.record.folder import open_run

    return (out / "run.toml").is_file() and open_run(out).config() == config


def _go_on(options: argparse.Namespace, out: Path) -> None:
    from afedpg.record.folder import open_run, summarize
    from afedpg.runs.train import resume
    from afedpg.terminal.progress import Display

    run = open_run(out)
    if summarize(run).state == "finished":
        print(printable(f"{out} is finished"), file=sys.stderr)
        return
    with Display(run.config(), quiet=options.json) as display:
        result = resume(out, workers=options.workers, on_arrival=display, warn=display.warn, announce=display.announce)
    report(options, result)


def _resume(options: argparse.Namespace) -> int:
    from afedpg.record.folder import open_run
    from afedpg.runs.extend import extend
    from afedpg.runs.parts import Own
    from afedpg.runs.train import check_resume, resume
    from afedpg.terminal.progress import Display

    trust, cluster = trusts_code(options), given_settings(options)
    check_resume(open_run(Path(options.run)).config(), options.workers, cluster)
    longer = None if options.longer is None else extend(options.run, options.longer, trust_code=trust)
    config = open_run(Path(options.run)).config()
    with Display(config, quiet=options.json) as display:
        if longer is not None:
            display.say(longer)
        result = resume(
            options.run, Own(), options.workers, display, display.warn, display.announce,
            cluster, options.accept_loss, trust,
        )  # fmt: skip
    report(options, result)
    return 0
