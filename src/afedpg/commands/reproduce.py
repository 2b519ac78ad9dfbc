"""`afedpg reproduce` on the command line. Heavy imports happen inside, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from afedpg.commands.parser import command
from afedpg.errors import ConfigError
from afedpg.experiments.choices import (
    EXPERIMENTS,
    SCALES,
    STUDIES,
    Choices,
    check_methods,
    check_preset,
    check_taken,
    check_tasks,
    check_timing,
    parse_agents,
    parse_method,
    parse_own,
    parse_seeds,
    parse_studies,
    split_methods,
)  # fmt: skip
from afedpg.options import place
from afedpg.preset import kinds


def add_commands(commands: Any) -> None:
    help = "a figure of the paper, with its data and a verdict"
    example = "afedpg reproduce sample-speedup --scale short --tasks swimmer --seeds 0-2"
    parser = command(commands, "reproduce", help, example, _reproduce)
    parser.add_argument("id", metavar="ID", help=f"{', '.join(EXPERIMENTS)}, or all")
    help = "smoke (minutes), short (learning runs a twentieth as long), full (the paper's numbers); default: short"
    parser.add_argument("--scale", default="short", help=help)
    parser.add_argument("--tasks", metavar="A,B", help="tasks in place of the figure's own")
    parser.add_argument("--seeds", metavar="A-B", help="for example 0-4 or 0,3,7; default: the scale's")
    help = "of sample-speedup and long-runs, 1 and some more of 2,4,8: larger federations take most of the time"
    parser.add_argument("--agents", metavar="1,B", help=help)
    parser.add_argument("--studies", metavar="A,B", help=f"of learners, some of {', '.join(STUDIES['learners'])}")
    parser.add_argument(
        "--methods",
        metavar="A,B",
        help="narrows the methods, and `all` to the figures that have one; my_file.py:rule puts your own beside them",
    )
    parser.add_argument("--timing", metavar="NAME", help="timing model, or my_file.py:model of your own")
    parser.add_argument("--preset", default="", help=f"{kinds()}, or a .toml file (default: paper)")
    parser.add_argument("--out", metavar="DIR", help="default: reproduced/SCALE")
    help = "compute nothing: tables, figure and verdicts of the runs that are finished in --out"
    parser.add_argument("--finished-only", action="store_true", help=help)
    parser.add_argument("--workers", type=int, metavar="W", help="processes that compute; default: one per core")


def read_choices(options: argparse.Namespace) -> tuple[tuple[str, ...], Choices]:
    """The experiments asked for and everything else, checked before anything is computed."""
    if options.id != "all" and options.id not in EXPERIMENTS:
        raise ConfigError(f"id: unknown '{options.id}'; choose from {', '.join(EXPERIMENTS)}, all")
    if options.scale not in SCALES:
        raise ConfigError(f"scale: unknown '{options.scale}'; choose from {', '.join(SCALES)}")
    workers = (os.cpu_count() or 1) if options.workers is None else options.workers
    if workers < 1:
        raise ConfigError(f"workers: {workers}; at least 1 is needed")
    tasks = check_tasks(tuple(options.tasks.split(","))) if options.tasks else ()
    seeds = () if options.seeds is None else parse_seeds(options.seeds)
    check_taken(options.id, tasks, seeds)
    own_timing = parse_own(options.timing, "timing") if ".py" in (options.timing or "") else None
    timing = "" if own_timing else options.timing or ""
    suited = check_timing(options.id, timing, own_timing)
    methods = tuple(parse_method(text) for text in split_methods(options.methods)) if options.methods else ()
    return tuple(id for id in check_methods(options.id, methods) if id in suited), Choices(
        scale=options.scale,
        out=place("out", f"reproduced/{options.scale}" if options.out is None else options.out),
        workers=workers,
        tasks=tasks,
        seeds=seeds,
        agents=parse_agents(options.id, options.agents) if options.agents else (),
        studies=() if options.studies is None else parse_studies(options.id, options.studies),
        methods=methods,
        preset=check_preset(options.id, options.preset),
        timing=timing,
        own_timing=own_timing,
        finished_only=options.finished_only,
    )


def _say_what_is_left_out(suited: tuple[str, ...], why: str) -> None:
    if left_out := [id for id in EXPERIMENTS if id not in suited]:
        print(f"left out, as {why}: {', '.join(left_out)}", file=sys.stderr)


def _reproduce(options: argparse.Namespace) -> int:
    ids, choices = read_choices(options)
    from afedpg.experiments.reproduce import reproduce

    if options.id == "all" and not options.json:
        _say_what_is_left_out(check_methods("all", choices.methods), "they show none of the methods named")
        _say_what_is_left_out(
            check_timing("all", choices.timing, choices.own_timing), "their timing models are not the one named"
        )
    done = reproduce(ids, choices, quiet=options.json)
    if options.json:
        verdicts = {id: [verdict.to_dict() for verdict in outcome.verdicts] for id, outcome in done.items()}
        print(json.dumps({"out": str(choices.out), "report": str(choices.out / "report.html"), "verdicts": verdicts}))
        return 0
    for id, outcome in done.items():
        for verdict in outcome.verdicts:
            print(f"{id}: {verdict.verdict.upper()}: {verdict.claim}\n    {verdict.statistic}")
    print(f"report: {choices.out / 'report.html'}")
    sys.stdout.flush()
    return 0
