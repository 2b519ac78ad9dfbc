"""The aggregators of other methods once more, as their papers write them; no code of the server is in it.

Each hears of every report that counts and answers with a step (direction, reports, version), "dropped", or None: wait.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np

from afedpg.messages import Report

Answer = tuple[Any, list[Report], int] | str | None


def vector(report: Report) -> Any:
    return report.payload.astype(np.float64)


class SlowRennala:
    def __init__(self, batch: int = 8) -> None:
        self.M = self.per_step = batch
        self.g, self.m, self.reports = 0.0, 0, []

    def report(self, report: Report, k: int, agents: set[int]) -> Answer:
        if report.version != k:
            return "dropped"
        self.g, self.m = self.g + vector(report), self.m + 1
        self.reports.append(report)
        if self.m < self.M:
            return None
        answer = (self.g / self.M, self.reports, k)
        self.g, self.m, self.reports = 0.0, 0, []
        return answer

    def left(self, k: int, agents: set[int]) -> Answer:
        return None


class SlowMalenia:
    def __init__(self, batch: int = 8, most: int = 100) -> None:
        self.M, self.most = batch, most
        self.clear()

    def clear(self) -> None:
        self.g, self.B, self.reports = defaultdict(float), defaultdict(int), []

    def report(self, report: Report, k: int, agents: set[int]) -> Answer:
        i = report.agent_id
        if report.version != k or self.B[i] == self.most:
            return "dropped"
        self.g[i] = self.g[i] + vector(report)
        self.B[i] += 1
        self.reports.append(report)
        return self.left(k, agents)

    def left(self, k: int, agents: set[int]) -> Answer:
        n = len(agents | {i for i in self.B if self.B[i]})
        batches = [B for B in self.B.values() if B]
        if not batches or len(batches) < n:
            return None
        if 1 / (Fraction(1, n) * sum(Fraction(1, B) for B in batches)) < Fraction(self.M, n):
            return None
        direction = sum(self.g[i] / self.B[i] for i in self.B if self.B[i]) / n
        reports = [r for i in sorted(self.B) for r in self.reports if r.agent_id == i]
        self.clear()
        return direction, reports, k


class SlowFedBuff:
    def __init__(self, size: int = 8, law: str = "constant", **weights: Any) -> None:
        self.K = self.per_step = size
        self.s, self.buffer = SlowWeights(law, **weights), []

    def report(self, report: Report, k: int, agents: set[int]) -> Answer:
        self.buffer.append(report)
        if len(self.buffer) < self.K:
            return None
        buffer, self.buffer = self.buffer, []
        delta = np.mean([self.s(k - r.version) * vector(r) for r in buffer], axis=0)
        return delta, buffer, int(np.floor(np.mean([r.version for r in buffer])))

    def left(self, k: int, agents: set[int]) -> Answer:
        return None


class SlowWeights:
    """Section 5 of FedAsync's paper, with its letters: a, b."""

    def __init__(self, law: str, power: float = 0.5, slope: float = 10.0, bound: int = 6) -> None:
        self.law, self.power, self.a, self.b = law, power, slope, bound

    def __call__(self, delay: int) -> float:
        if self.law == "polynomial":
            return (delay + 1.0) ** -self.power
        if self.law == "hinge":
            return 1.0 if delay <= self.b else 1 / (self.a * (delay - self.b) + 1)
        return 1.0


class SlowFedAsync:
    per_step = 1

    def __init__(self, law: str = "polynomial", **weights: Any) -> None:
        self.s = SlowWeights(law, **weights)

    def report(self, report: Report, k: int, agents: set[int]) -> Answer:
        return self.s(k - report.version) * vector(report), [report], report.version

    def left(self, k: int, agents: set[int]) -> Answer:
        return None


class SlowRingmaster:
    per_step = 1

    def __init__(self, threshold: int = 8) -> None:
        self.R = threshold

    def report(self, report: Report, k: int, agents: set[int]) -> Answer:
        return (vector(report), [report], report.version) if k - report.version < self.R else "dropped"

    def left(self, k: int, agents: set[int]) -> Answer:
        return None


class SlowNewest:
    """The mean over agents of what each said last, if that is not too long ago."""

    per_step = 1

    def __init__(self, most: float = 20.0) -> None:
        self.most, self.said = most, {}

    def report(self, report: Report, k: int, agents: set[int]) -> Answer:
        self.said[report.agent_id] = (k, vector(report))
        if k % len(agents) == 0:
            self.said = {i: (at, g) for i, (at, g) in self.said.items() if k - at <= self.most * len(agents)}
        return np.mean([g for _, g in self.said.values()], axis=0), [report], report.version

    def left(self, k: int, agents: set[int]) -> Answer:
        self.said = {i: said for i, said in self.said.items() if i in agents}
        return None


SLOW = {
    "newest": SlowNewest,
    "rennala": SlowRennala, "malenia": SlowMalenia, "fedbuff": SlowFedBuff, "fedasync": SlowFedAsync,
    "ringmaster": SlowRingmaster,
}  # fmt: skip


def slow(text: str, agents: int) -> Any:
    """Of an aggregator as it is written on the command line."""
    name, _, values = text.partition(":")
    pairs = (pair.split("=") for pair in filter(None, values.split(",")))
    numbers = {key: value if value.isalpha() else float(value) if "." in value else int(value) for key, value in pairs}
    made = SLOW[name](**numbers)
    if name == "malenia":
        made.per_step = max(made.M, agents)
    return made
