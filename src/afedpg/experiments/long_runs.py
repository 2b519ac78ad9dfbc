"""`sample-speedup` with five times the samples."""

from __future__ import annotations

from collections.abc import Sequence

from afedpg.experiments import sample_speedup
from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import RunJob
from afedpg.experiments.outcome import Outcome
from afedpg.experiments.sample_speedup import Size

SIZE = Size("long-runs", "Samples per agent, five times longer", 5, (2, 3, 5))


def jobs(choices: Choices) -> Sequence[RunJob]:
    return [run for _, run in sample_speedup.runs(choices, SIZE)]


def outcome(choices: Choices) -> Outcome:
    return sample_speedup.outcome(choices, SIZE)
