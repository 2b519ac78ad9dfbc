"""The command line. Heavy imports happen inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afedpg import config as configuration
from afedpg.commands import bench, network
from afedpg.errors import AfedpgError, ConfigError
from afedpg.experiments import commands as reproduction
from afedpg.experiments.choices import parse_seeds

if TYPE_CHECKING:
    from afedpg.engine.session import Result
    from afedpg.messages import Evaluation

RUNS = Path("runs")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except AfedpgError as error:
        print(f"afedpg: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("afedpg: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        return 1


def entry() -> None:
    sys.exit(main())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        """One line, exit code 2."""
        print(f"{self.prog}: {message}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="afedpg",
        description="Asynchronous federated reinforcement learning with policy gradients.",
        epilog="example: afedpg train quadratic --agents 4 --iterations 500",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    _add_train(commands)
    _add_resume(commands)
    _add_evaluate(commands)
    _add_replay(commands)
    _add_runs(commands)
    reproduction.add_commands(commands)
    network.add_commands(commands, _command, _add_settings)
    bench.add_commands(commands, _command)
    return parser


def _command(commands: Any, name: str, help: str, example: str, run: Callable[[argparse.Namespace], int]) -> _Parser:
    parser: _Parser = commands.add_parser(name, help=help, description=help, epilog=f"example: {example}")
    parser.set_defaults(command=run)
    parser.add_argument("--json", action="store_true", help="end with one machine-readable line")
    return parser


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=int, metavar="W", help="processes that compute; default: one per core for environments"
    )


# train


def _add_train(commands: Any) -> None:
    example = "afedpg train lq-bandit --method afedpg --agents 8 --iterations 1000 --schedule global --eta 1"
    parser = _command(commands, "train", "train a policy", example, _train)
    _add_settings(parser)
    parser.add_argument("--seeds", metavar="A-B", help="one run per seed, for example 0-4 or 0,3,7")
    parser.add_argument("--out", metavar="DIR", help="run folder; default: runs/TASK-METHOD-seedS")
    _add_workers(parser)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """TASK, everything a run can be told, and --preset."""
    groups: dict[str | None, Any] = {None: parser}
    for name, kind in configuration.SECTIONS.items():
        groups[name] = parser.add_argument_group(name, (kind.__doc__ or "").strip())
    for section, entry in configuration.options():
        if entry.name == "task":
            parser.add_argument("task", metavar="TASK", help=entry.metadata["help"])
        elif entry.name != "own":
            _add_option(groups[section], entry, configuration.hint_of(section, entry.name))
    parser.add_argument("--preset", help="settings to start from: paper, tuned, or a .toml file of your own")


def _add_option(group: Any, entry: dataclasses.Field[Any], hint: Any) -> None:
    flag = "--from" if entry.name == "from_run" else "--" + entry.name.replace("_", "-")
    default = configuration.default_of(entry)
    help = entry.metadata["help"].replace("%", "%%") + (
        f" (default: {_show(default)})" if default not in (None, "") else ""
    )
    common = {"dest": entry.name, "default": argparse.SUPPRESS, "help": help}
    if hint is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
    elif entry.metadata["choices"]:
        group.add_argument(
            flag, metavar="NAME", **(common | {"help": f"{help}: {', '.join(entry.metadata['choices'])}"})
        )
    else:
        group.add_argument(flag, type=_reader(hint), metavar=_metavar(hint), **common)


def _reader(hint: Any) -> Callable[[str], Any]:
    """How a setting of that type is read from a word of the command line."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _reader(inner[0])
    if origin is tuple:
        return lambda text: _read_numbers(text, inner[0])
    if origin is dict:
        return _read_pairs
    return typing.cast(Callable[[str], Any], hint)


def _read_numbers(text: str, kind: type) -> tuple[Any, ...]:
    try:
        return tuple(kind(part) for part in text.replace("x", ",").split(",") if part)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is not like 64,64") from error


def _read_pairs(text: str) -> dict[str, Any]:
    """NAME=VALUE,... with values as in TOML, or the path of a TOML file."""
    import tomllib

    if text.endswith(".toml"):
        try:
            return tomllib.loads(Path(text).read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise argparse.ArgumentTypeError(f"cannot read {text}: {error}") from error
    try:
        pairs: dict[str, Any] = tomllib.loads(f"pairs = {{{text}}}")["pairs"]
        return pairs
    except tomllib.TOMLDecodeError as error:
        message = f"'{text}' is not like name=1,other=true,text='word': values are written as in TOML"
        raise argparse.ArgumentTypeError(message) from error


def _metavar(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is tuple:
        return "A,B,..."
    if origin is dict:
        return "NAME=VALUE,..."
    return {int: "N", float: "X"}.get(typing.get_args(hint)[0] if origin is types.UnionType else hint, "TEXT")


def _show(value: Any) -> str:
    if isinstance(value, (tuple, dict)):
        return ",".join(str(part) for part in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _train(options: argparse.Namespace) -> int:
    given = vars(options)
    names = {entry.name for _, entry in configuration.options()} - {"task"}
    settings = {name: given[name] for name in names if name in given}
    if not options.seeds:
        _train_one(options, settings, several=False)
        return 0
    if "seed" in settings:
        raise ConfigError("seeds: give either --seed or --seeds")
    seeds = parse_seeds(options.seeds)
    for seed in seeds:
        _train_one(options, {**settings, "seed": seed}, several=len(seeds) > 1)
    return 0


def _train_one(options: argparse.Namespace, settings: dict[str, Any], several: bool) -> None:
    from afedpg.display import Display
    from afedpg.engine.training import configure, default_workers, run
    from afedpg.record.folder import default_path

    config = configure(options.task, options.preset, settings)
    out = Path(options.out) if options.out else default_path(RUNS, config)
    if several and options.out:
        out = out / f"seed{config.seed}"
    workers = _workers(options, default_workers(config))
    with Display(config, quiet=options.json) as display:
        result = run(config, out=out, workers=workers, on_arrival=display.arrived, announce=display.announce)
    _report(options, result)


def _workers(options: argparse.Namespace, default: int) -> int:
    workers: int = default if options.workers is None else options.workers
    if workers < 1:
        raise ConfigError(f"workers: {workers}; at least 1 is needed")
    return workers


def _show_evaluations(evaluations: Sequence[Evaluation]) -> None:
    for evaluation in evaluations:
        where = f" on {evaluation.environment}" if evaluation.environment else ""
        line = f"theta, {evaluation.kind}{where}: {evaluation.mean:.6g}"
        if evaluation.low is not None and evaluation.high is not None and evaluation.episodes:
            line += f"; 95% interval of the mean {evaluation.low:.6g} to {evaluation.high:.6g}"
            line += f", deviation {evaluation.std:.4g}, {evaluation.episodes} episodes"
        print(line)


def _report(options: argparse.Namespace, result: Result) -> None:
    if options.json:
        summary = {
            "out": str(result.out), "iteration": result.iteration, "gradients": result.gradients,
            "samples": result.samples, "seconds": result.seconds, "theta_sha256": result.sha256,
            "evaluations": [dataclasses.asdict(evaluation) for evaluation in result.evaluations],
        }  # fmt: skip
        print(json.dumps(summary))
        return
    _show_evaluations(result.evaluations)
    clock = "virtual seconds" if result.virtual else "seconds"
    print(f"{result.gradients} gradients, {result.samples} samples, {result.seconds:.6g} {clock}")
    print(f"theta SHA-256 {result.sha256}")
    print(f"run folder: {result.out}")


# resume, evaluate, replay, runs


def _add_resume(commands: Any) -> None:
    parser = _command(commands, "resume", "go on with a run", "afedpg resume runs/quadratic-afedpg-seed0", _resume)
    parser.add_argument("run", metavar="RUN", help="the run folder")
    _add_workers(parser)


def _resume(options: argparse.Namespace) -> int:
    from afedpg.display import Display
    from afedpg.engine.training import default_workers, resume
    from afedpg.record.folder import open_run

    config = open_run(Path(options.run)).config()
    with Display(config, quiet=options.json) as display:
        workers = _workers(options, default_workers(config))
        result = resume(options.run, workers=workers, on_arrival=display.arrived, warn=display.warn)
    _report(options, result)
    return 0


def _add_evaluate(commands: Any) -> None:
    example = "afedpg evaluate runs/swimmer-afedpg-seed0 --episodes 20 --video swim.gif"
    parser = _command(commands, "evaluate", "how good is a run's theta", example, _evaluate)
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--episodes", type=int, default=50, metavar="N", help="episodes of each kind (default: 50)")
    kinds = ("both", "sampled", "deterministic")
    parser.add_argument("--kind", choices=kinds, default="both", help="how theta acts (default: both)")
    parser.add_argument("--seed", type=int, metavar="S", help="other episodes than the run's own seed gives")
    parser.add_argument("--video", metavar="FILE", help="also film one deterministic episode, as .mp4 or .gif")


def _evaluate(options: argparse.Namespace) -> int:
    from afedpg.engine.evaluation import evaluate_run, film_run

    if options.video:  # first: a video that cannot be made says so before the episodes are spent
        filmed = film_run(options.run, Path(options.video))
        if not options.json:
            print(f"{options.video}: one episode, return {filmed:.6g}", flush=True)
    evaluations = evaluate_run(options.run, options.episodes, options.kind, options.seed)
    if options.json:
        print(json.dumps([dataclasses.asdict(evaluation) for evaluation in evaluations]))
    else:
        _show_evaluations(evaluations)
    return 0


def _add_replay(commands: Any) -> None:
    help = "fold a run's journal again and compare theta bit for bit"
    parser = _command(commands, "replay", help, "afedpg replay runs/quadratic-afedpg-seed0", _replay)
    parser.add_argument("run", metavar="RUN", help="the run folder")
    parser.add_argument("--recompute", action="store_true", help="recompute the whole run instead, agents included")
    _add_workers(parser)


def _replay(options: argparse.Namespace) -> int:
    from afedpg.engine.replay import recompute, replay

    done = recompute(options.run, workers=_workers(options, 1)) if options.recompute else replay(options.run)
    if options.json:
        print(json.dumps({**dataclasses.asdict(done), "agrees": done.agrees}))
    elif done.agrees:
        how = "recomputed" if options.recompute else f"{done.events} events folded again"
        print(f"same bits: {how}, {done.gradients} gradients, theta SHA-256 {done.recorded}")
    if not done.agrees:
        raise AfedpgError(f"theta differs: recorded {done.recorded}, replayed {done.replayed}")
    return 0


def _add_runs(commands: Any) -> None:
    parser = _command(commands, "runs", "list the runs in a folder", "afedpg runs", _runs)
    parser.add_argument("folder", nargs="?", default=str(RUNS), help=f"where to look (default: {RUNS})")


def _runs(options: argparse.Namespace) -> int:
    from afedpg.record.folder import list_runs

    root = Path(options.folder)
    if not root.is_dir():
        raise ConfigError(f"folder: there is no folder {root}")
    summaries = list_runs(root)
    if options.json:
        print(json.dumps([{**dataclasses.asdict(summary), "path": str(summary.path)} for summary in summaries]))
        return 0
    if not summaries:
        print(f"no runs in {root}; `afedpg train quadratic` makes one")
    for run in summaries:
        value = "" if run.last_return is None else f"return {run.last_return:.4g}"
        done = f"{run.gradients}/{run.total}"
        print(
            f"{run.path}  {run.state}  {run.method} x{run.agents} seed {run.seed}  {done} gradients  {value}".rstrip()
        )
    return 0
