"""The server's recursion once more, written from the paper in plain Python and numpy; no code of the server is in it.

It reads a recorded journal from its beginning, makes of it what Algorithm 1 says, and compares theta, theta~ and every
row of run.db with what the server made. Which reports were refused it believes run.db; whether a report answers its
agent's newest Task, and whether it is one of a round that was closed and so is not used, it works out by itself. The
same walk gives the randomness behind every gradient that was counted, so that samples which counted twice are found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from slow_rivals import slow

from afedpg.config import Config
from afedpg.messages import CloseRound, Join, Leave, Rejected, Report, Restart
from afedpg.problems import Quadratic, make_problem
from afedpg.record import checkpoint, journal
from afedpg.record.database import read_arrivals, read_table
from afedpg.record.folder import open_run
from afedpg.runs.parts import Own

TOLERANCE = 1e-12
SAME_DRAW = 1e-4  # far above float32's rounding of a gradient, far below the distance of two draws
Vector = NDArray[np.float64]


@dataclass
class Counted:
    """A gradient that went into theta, and what run.db should say of it."""

    agent: int
    gradient: Vector
    moments: bytes
    theta_lookahead: NDArray[np.float32]  # what it was sampled with
    row: tuple[float, ...]  # iteration, agent, version, delay, alpha, eta, step length


@dataclass
class Twin:
    config: Config
    theta: Vector
    refused: set[int]  # sequence numbers
    unused: set[int]  # likewise
    k: int = 0
    epoch: int = 0
    handed_out: int = 0
    out: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # agent -> epoch, number and version of its Task
    late: set[int] = field(default_factory=set)  # those of `out` whose round was closed without them
    absent: set[int] = field(default_factory=set)  # who took part before a restart and is waited for
    round: dict[int, Report] = field(default_factory=dict)  # fedpg's, while it is open
    agents: set[int] = field(default_factory=set)  # that joined and did not leave, whatever was started again meanwhile
    counted: list[Counted] = field(default_factory=list)
    dropped: int = 0  # reports that no step was made of

    def __post_init__(self) -> None:
        self.d, self.square = np.zeros(self.theta.size), np.zeros(self.theta.size)
        self.lookahead = {0: self.theta.astype(np.float32)}  # theta~ of every version
        config = self.config
        self.slow = slow(config.aggregator, config.agents) if config.aggregator not in ("", "each", "all") else None
        self.rounds = (config.aggregator or config.method) in ("all", "fedpg")
        self.per_step = self.slow.per_step if self.slow else config.agents if self.rounds else 1

    def alpha(self, version: int) -> float:
        chosen = self.config.schedule
        power = {"global": 4 / 5, "fosp": 4 / 7}.get(chosen.schedule)
        if power is None:
            return min(1.0, chosen.alpha * (1 if chosen.literal_constants else self.per_step))
        index = version if chosen.literal else max(version, (self.k + 1) // 2)
        return (1 / (index + 1)) ** power

    def eta(self) -> float:
        chosen, config = self.config.schedule, self.config
        if chosen.schedule == "global":
            return chosen.eta / (self.k + 1)
        if chosen.schedule == "fosp":
            return chosen.eta * (1 / (self.k + 1)) ** (5 / 7)
        times = 1 if chosen.literal_constants else self.per_step
        if chosen.schedule == "constant":
            return times * chosen.eta
        steps = math.ceil(config.iterations * config.agents * config.reports / self.per_step)
        return max(times * chosen.eta_floor, times * chosen.eta * (1 - self.k / steps))

    def hand_out(self, agent: int) -> None:
        self.handed_out += 1
        self.late.discard(agent)
        self.out[agent] = (self.epoch, self.handed_out, self.k)

    def take(self, sequence: int, event: Any) -> None:
        """One event of the journal."""
        if isinstance(event, Join):
            self.absent.discard(event.agent_id)
            self.agents.add(event.agent_id)
            self.hand_out(event.agent_id)
        elif isinstance(event, Leave):
            self.agents.discard(event.agent_id)
            self.out.pop(event.agent_id, None)
            self.round.pop(event.agent_id, None)
            self.late.discard(event.agent_id)
            self.absent.discard(event.agent_id)
            if self.slow is not None:
                self.make(self.slow.left(self.k, self.agents))
            elif self.complete:
                self.close_round()
        elif isinstance(event, Restart):
            self.epoch += 1
            self.absent |= self.out.keys() | self.round.keys()
            self.out.clear()
            self.round.clear()
            self.late.clear()
        elif isinstance(event, CloseRound):
            if self.round:
                self.late = set(self.out)
                self.absent.clear()
            self.close_round()
        elif isinstance(event, Rejected):
            if event.agent_id in self.out and not event.void:
                self.hand_out(event.agent_id)
        else:
            self.take_report(sequence, event)

    @property
    def complete(self) -> bool:
        """Nobody is at work whom the open round waits for, and everybody has come back."""
        return not (self.out.keys() - self.late) and not self.absent

    def take_report(self, sequence: int, report: Report) -> None:
        answers = self.out.get(report.agent_id) == (*report.task_id, report.version)
        assert answers or sequence in self.refused, f"event {sequence} was applied, though its Task was not out"
        if sequence in self.refused:
            if answers:
                self.hand_out(report.agent_id)
            return
        del self.out[report.agent_id]
        self.late.discard(report.agent_id)
        if self.slow is not None:
            self.make(self.slow.report(report, self.k, self.agents))
            self.hand_out(report.agent_id)
            return
        dropped = self.rounds and report.version < self.k
        assert dropped == (sequence in self.unused), f"event {sequence}: a report of another round is unused, no other"
        if dropped:
            self.dropped += 1
            self.hand_out(report.agent_id)
            return
        self.round[report.agent_id] = report
        if not self.rounds or self.complete:
            self.close_round()

    def make(self, answer: Any) -> None:
        """What an aggregator of another method said."""
        if answer == "dropped":
            self.dropped += 1
        elif answer is not None:
            self.step(*answer)

    def close_round(self) -> None:
        """Algorithm 1; every asynchronous gradient is a round of its own."""
        if not self.round:
            return
        reports = [self.round[agent] for agent in sorted(self.round)]
        self.round.clear()
        g = np.sum([report.payload.astype(np.float64) for report in reports], axis=0) / len(reports)
        self.step(g, reports, reports[0].version)
        for report in reports:
            self.hand_out(report.agent_id)

    def step(self, g: Vector, reports: list[Report], version: int) -> None:
        assert g.any(), "the twin has no opinion on gradients of nothing but zeros"
        method = self.config.method
        alpha, eta = self.alpha(version), self.eta()
        if method in ("pg-plain", "afedppo"):
            step, ahead = eta * g, 0.0
        elif method == "a3c":
            self.square = 0.99 * self.square + 0.01 * g**2
            step, ahead = eta * g / np.sqrt(self.square + 1e-5), 0.0
        else:
            self.d = (1 - alpha) * self.d + alpha * g
            step = eta * self.d / math.sqrt(math.fsum(self.d**2))
            ahead = 0.0 if method == "afedpg-vanilla" else (1 - alpha) / alpha
        self.theta = self.theta + step
        has_alpha, length = method not in ("pg-plain", "a3c", "afedppo"), math.sqrt(math.fsum(step**2))
        for report in reports:
            v, gradient = report.version, report.payload.astype(np.float64)
            row = (self.k, report.agent_id, v, self.k - v, alpha if has_alpha else math.nan, eta, length)
            seen = b"".join(part.mean.tobytes() + part.m2.tobytes() for part in report.moments.values())
            self.counted.append(Counted(report.agent_id, gradient, seen, self.lookahead[v], row))
        self.k += 1
        self.lookahead[self.k] = (self.theta + ahead * step).astype(np.float32)


def check_twin(run: Path, own: Own = Own()) -> Twin:
    """The newest checkpoint and its rows are what the journal makes of them. Returns the twin at that point."""
    folder = open_run(run)
    config = folder.config()
    newest, tree = checkpoint.load_latest(folder.checkpoints)
    refused, unused = (set(read_table(folder.database, table)["sequence"].tolist()) for table in ("rejected", "unused"))
    twin = Twin(config, np.array(own.workload(config)().initial_theta(), np.float64), refused, unused)
    for sequence, _, event in journal.read(folder.journal):
        if sequence == newest:
            break
        twin.take(sequence, event)
    server = tree["server"]
    assert (twin.k, len(twin.counted)) == (server["iteration"], server["gradients"])
    assert (sorted(twin.absent), sorted(twin.late)) == (server["absent"], server["late"])
    assert twin.dropped == server["unused"]
    assert deviation(twin.theta, server["theta"]) < TOLERANCE
    assert deviation(twin.lookahead[twin.k], server["theta_lookahead"]) < 1e-6  # what travels is float32
    rows = read_arrivals(folder.database)
    names = ("iteration", "agent", "version", "delay", "alpha", "eta", "step_length")
    kept = rows["gradient"] <= server["gradients"]
    told = np.array([rows[name][kept] for name in names], np.float64).T
    made = np.array([twin.counted[number - 1].row for number in rows["gradient"][kept]], np.float64).reshape(-1, 7)
    assert np.allclose(told, made, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
    return twin


def deviation(mine: NDArray[Any], theirs: NDArray[Any]) -> float:
    return float(np.max(np.abs(mine - theirs) / np.maximum(1.0, np.abs(theirs))))


def check_draws(run: Path, own: Own = Own()) -> None:
    """No samples were counted twice, by one agent or by two, whatever was killed and resumed meanwhile."""
    twin = check_twin(run, own)
    seen = [counted.moments for counted in twin.counted if counted.moments]
    assert len(set(seen)) == len(seen), "two reports of the same observations were counted"
    problem = make_problem(twin.config) if twin.config.synthetic else None
    if isinstance(problem, Quadratic) and problem.noise and twin.counted:
        gradients = np.array([counted.gradient for counted in twin.counted])
        exact = [problem.gradient(counted.theta_lookahead.astype(np.float64)) for counted in twin.counted]
        assert_all_differ((gradients - np.array(exact)) / problem.noise, [counted.agent for counted in twin.counted])


def assert_all_differ(draws: Vector, agents: list[int]) -> None:
    """No two rows are the same up to rounding."""
    order = np.argsort(draws[:, 0])
    ordered, apart = draws[order], 1
    while apart < len(ordered):
        close = np.flatnonzero(ordered[apart:, 0] - ordered[:-apart, 0] < SAME_DRAW)
        if not close.size:
            return
        same = close[np.all(np.abs(ordered[close + apart] - ordered[close]) < SAME_DRAW, axis=1)]
        pairs = [sorted((int(order[row]) + 1, int(order[row + apart]) + 1)) for row in same]
        who = [[agents[number - 1] for number in pair] for pair in pairs]
        assert not pairs, f"gradients {pairs} of agents {who} are of the same draws"
        apart += 1
