"""`afedpg evaluate` and `replay`: what a finished run is worth, and whether it can be repeated."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from afedpg.commands.outcome import show_evaluations
from afedpg.commands.parser import add_policy, add_run, add_which, add_workers, command, own_policy
from afedpg.commands.settings import add_own_settings, given_settings
from afedpg.commands.trust import add_trust_code, trusts_code
from afedpg.errors import AfedpgError, ConfigError
from afedpg.printable import printable


def add_commands(commands: Any) -> None:
    example = "afedpg evaluate runs/swimmer-afedpg-seed0 --episodes 20 --video swim.gif"
    parser = command(
        commands, "evaluate", "evaluate a trained policy, in episodes that training never played", example, _evaluate
    )
    add_run(parser)
    parser.add_argument("--episodes", type=int, default=50, metavar="N", help="episodes of each kind (default: 50)")
    kinds = ("both", "sampled", "deterministic")
    parser.add_argument("--kind", choices=kinds, default="both", help="how theta acts (default: both)")
    parser.add_argument("--seed", type=int, metavar="S", help="other episodes; without it the same ones every time")
    add_which(parser)
    parser.add_argument("--task", metavar="TASK", help="another task, with observations and actions of the same sizes")
    add_own_settings(parser, "env_kwargs")
    add_policy(parser)
    parser.add_argument("--video", metavar="FILE", help="also film the first deterministic episode, as .mp4 or .gif")
    help = "every site by itself, where agents' environments differ; without it the mean and the worst"
    parser.add_argument("--per-site", action="store_true", help=help)
    add_trust_code(parser)
    help = "reapply every recorded gradient and check that the parameters are identical"
    parser = command(commands, "replay", help, "afedpg replay runs/quadratic-afedpg-seed0", _replay)
    add_run(parser)
    parser.add_argument("--recompute", action="store_true", help="compute the whole run again instead, agents included")
    add_workers(parser)
    add_trust_code(parser)


def _evaluate(options: argparse.Namespace) -> int:
    from afedpg.runs.evaluate import Elsewhere, evaluate_run, film_run
    from afedpg.runs.parts import Own

    trust, own = trusts_code(options), Own(make_policy=own_policy(options))
    elsewhere = Elsewhere(options.task, given_settings(options).get("env_kwargs"))
    if options.video:  # first: a video that cannot be made says so before the episodes are spent
        filmed = film_run(options.run, Path(options.video), own, options.seed, trust, options.which, elsewhere)
        if not options.json:
            print(f"{options.video}: one episode, return {filmed:.6g}", flush=True)
    said: list[str] = []
    evaluations = evaluate_run(
        options.run, options.episodes, options.kind, options.seed, own, trust, options.which, *elsewhere, said.append
    )
    if not options.json:
        print(printable(said[0]))
    if options.json:
        which = said[0].partition(" ")[0]
        print(json.dumps([{**dataclasses.asdict(evaluation), "which": which} for evaluation in evaluations]))
    else:
        show_evaluations(evaluations, options.per_site)
    return 0


def _replay(options: argparse.Namespace) -> int:
    from afedpg.record.disk import to_copy
    from afedpg.runs.replay import recompute, replay

    trust = trusts_code(options)
    if options.recompute:
        done = recompute(options.run, workers=options.workers, trust_code=trust)
    elif options.workers is not None:
        raise ConfigError("workers: only used with --recompute; the journal is reapplied by one process")
    else:
        done = replay(options.run, trust_code=trust)
    compared = bool(done.gradients and (options.recompute or done.events))
    if options.json:
        print(json.dumps({**dataclasses.asdict(done), "agrees": done.agrees}))
    elif done.agrees and compared:
        how = "recomputed" if options.recompute else f"{done.events} recorded events reapplied"
        print(f"same bits: {how}, {done.gradients} gradients, theta SHA-256 {done.recorded}")
    if not done.agrees:
        raise AfedpgError(f"theta differs: recorded {done.recorded}, replayed {done.replayed}")
    if not compared:  # two thetas that nothing has moved are one, whatever the run is worth
        then = f"; go on with: {to_copy('resume', options.run)}" if not done.gradients else ""
        raise AfedpgError(f"{options.run}: no gradient lies between its first checkpoint and its newest{then}")
    return 0
