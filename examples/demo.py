"""`make demo`: eight agents of different speeds learn to swim, asynchronously and synchronously, in virtual time.

Both methods get the same number of environment steps. Asynchronously nobody waits, so the same learning takes about
half the time. Writes runs/demo/, with a picture of the two learning curves.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import matplotlib
import numpy as np

from afedpg.record.database import read_arrivals
from afedpg.runs.parts import configure
from afedpg.runs.train import run
from afedpg.terminal.progress import Display

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path("runs/demo")
METHODS = {"afedpg": "#0072B2", "fedpg": "#D55E00"}
GOAL = 30.0  # return from which on the swimmer swims
WINDOW = 40  # gradients over which returns are averaged


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    started = time.monotonic()
    rows = []
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for method, colour in METHODS.items():
        seconds, returns, theta = _learn(method)
        axes.plot(seconds, returns, color=colour, label=method, linewidth=2)
        reached = np.flatnonzero(returns >= GOAL)
        when = f"{seconds[reached[0]]:.0f} s" if reached.size else "not reached"
        rows.append((method, f"{returns[-1]:.1f}", f"{theta:.1f}", when, f"{seconds[-1]:.0f} s"))
    axes.axhline(GOAL, color="0.6", linestyle=":", linewidth=1)
    axes.set(xlabel="global time (virtual seconds)", ylabel="return of training episodes (mean)")
    axes.set_title("Swimmer-v4, 8 agents, the slowest takes 4 times as long as the fastest", fontsize=10)
    axes.legend(frameon=False)
    picture = OUT / "learning-curves.png"
    figure.savefig(picture, dpi=150)
    _tell(rows, picture, time.monotonic() - started)


def _learn(method: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Virtual seconds and smoothed training returns, and what theta is worth in the end."""
    settings = {"method": method, "agents": 8, "iterations": 60, "alpha": 0.1, "eta": 0.01, "steps": 2048}
    settings |= {"hidden": (64, 64), "scale_observations": False, "spread": 4.0, "evaluate_kind": "sampled"}
    config = configure("swimmer", None, settings)
    with Display(config) as display:
        result = run(config, out=OUT / method, on_arrival=display, announce=display.announce)
    arrivals = read_arrivals(OUT / method / "run.db")
    known = ~np.isnan(arrivals["mean_return"])
    returns = np.convolve(arrivals["mean_return"][known], np.ones(WINDOW) / WINDOW, "valid")
    return arrivals["seconds"][known][WINDOW - 1 :], returns, result.evaluations[0].mean


def _tell(rows: list[tuple[str, ...]], picture: Path, seconds: float) -> None:
    head = ("method", "training return", "theta's return", f"reached {GOAL:.0f} after", "virtual time")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    print()
    for row in [head, *rows]:
        print("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\nSame samples for both; {seconds:.0f} real seconds in all. The learning curves: {picture}\n")
    print("What to try next (in .venv/bin):")
    print("  afedpg train CartPole-v1 --agents 4                       any Gymnasium task")
    print("  afedpg train swimmer --timing straggler --spread 20       one agent twenty times slower than the rest")
    print(f"  afedpg replay {OUT / 'afedpg'}                            apply its gradients again: the same theta?")
    print("  afedpg train --help                                       every setting")


if __name__ == "__main__":
    main()
