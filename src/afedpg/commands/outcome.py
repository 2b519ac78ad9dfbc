"""What a run came to, for people or as one line of JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from afedpg.printable import printable

if TYPE_CHECKING:
    from afedpg.messages import Evaluation
    from afedpg.runs.result import Result


def show_evaluations(evaluations: Sequence[Evaluation], per_site: bool = True) -> None:
    """Where agents have environments of their own, also the mean over them and the worst; without `per_site` no more
    than that.
    """
    from afedpg.record.returns import mean_and_worst

    kinds: dict[str, dict[str, float]] = {}
    for evaluation in evaluations:
        kinds.setdefault(evaluation.kind, {})[evaluation.environment] = evaluation.mean
    several = len({evaluation.environment for evaluation in evaluations}) > 1
    for evaluation in evaluations if per_site or not several else ():
        where = f" on {evaluation.environment}" if evaluation.environment else ""
        line = f"theta, {evaluation.kind}{where}: {evaluation.mean:.6g}"
        if evaluation.low is not None and evaluation.high is not None and evaluation.episodes:
            line += f"; 95% interval of the mean {evaluation.low:.6g} to {evaluation.high:.6g}"
            line += f", deviation {evaluation.std:.4g}, {evaluation.episodes} episodes"
        print(line)
    for kind, sites in kinds.items() if several else ():
        mean, worst = mean_and_worst(sites)
        print(f"theta, {kind}, mean of {len(sites)} sites: {mean:.6g}; worst, {worst}: {sites[worst]:.6g}")


def report(options: argparse.Namespace, result: Result) -> None:
    from afedpg.record.folder import open_run, summarize
    from afedpg.record.returns import TRAINING, finite

    best = result.best
    training = None if result.out is None else summarize(open_run(result.out)).last_return
    if options.json:
        summary = {
            "out": str(result.out), "iteration": result.iteration, "gradients": result.gradients,
            "samples": result.samples, "seconds": result.seconds, "stopped": result.stopped,
            "theta_sha256": result.sha256,
            "evaluations": [dataclasses.asdict(evaluation) for evaluation in result.evaluations],
            "training_return": finite(training),
            "best": None if best is None else {
                "iteration": best.iteration, "acting": best.acting, "mean": best.mean,
                "again": [dataclasses.asdict(evaluation) for evaluation in best.again],
            },
        }  # fmt: skip
        print(json.dumps(summary))
        return
    show_evaluations(result.evaluations)
    if best is not None and result.looks > 1:
        print(best.origin("best", result.looks))
    if training is not None:
        print(f"{TRAINING}: {training:.6g}")
    clock = "virtual seconds" if result.virtual else "seconds"
    print(f"{result.gradients} gradients, {result.samples} samples, {result.seconds:.6g} {clock}{result.cut}")
    print(f"theta SHA-256 {result.sha256}")
    print(printable(f"run folder: {result.out}"))
