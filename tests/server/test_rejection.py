"""What the server refuses: theta stays as it is, bit for bit, and fresh work goes out exactly where it is due."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Fold, answer

from afedpg.config import from_settings
from afedpg.messages import Exchange, Fetch, Join, Leave, Moments, Rejected, Report, Restart, Stats, TaskId
from afedpg.server.admission import Limits
from afedpg.server.rules import afedpg, fedpg
from afedpg.server.schedules import Constant
from afedpg.server.state import from_tree, to_tree

RULE = afedpg(Constant(0.1), Constant(0.01))
ROUNDS = fedpg(Constant(0.1), Constant(0.01))
FINE = [1.0, 2.0, 3.0]


def server_with_history(rule=RULE, limits=Limits()):
    """Three agents, the first has answered twice: delays differ."""
    server = Fold(rule, np.zeros(3), agents=3, limits=limits)
    if not rule.synchronous:
        server.answer(0, FINE)
        server.answer(0, FINE)
    return server


NONSENSE = {
    "nan": ([1.0, math.nan, 1.0], "not finite"),
    "infinite": ([1.0, 1.0, -math.inf], "not finite"),
    "short": ([1.0, 1.0], "2 numbers, theta has 3"),
    "long": ([1.0] * 4, "4 numbers, theta has 3"),
    "matrix": ([FINE], "3 numbers"),
}


@pytest.mark.parametrize("rule", [RULE, ROUNDS], ids=["afedpg", "fedpg"])
@pytest.mark.parametrize(("gradient", "reason"), NONSENSE.values(), ids=NONSENSE)
def test_a_gradient_that_is_none_changes_nothing_and_its_agent_gets_fresh_work(rule, gradient, reason):
    server = server_with_history(rule)
    before, old = server.bits, server.tasks[1]
    [task] = server(answer(old, gradient))
    assert server.bits == before
    assert reason in server.outcome.rejected.reason
    assert server.outcome.arrivals == []
    assert (task.agent_id, task.version) == (1, server.state.iteration)
    assert task.task_id != old.task_id
    assert server(answer(old, FINE)) == []  # what it was given before is void
    assert server.bits == before
    server.answer(1, FINE)
    assert server.outcome.rejected is None


def test_a_gradient_above_the_bound_is_refused():
    server = server_with_history(limits=Limits(gradient_norm=5.0))
    before = server.bits
    [task] = server.answer(1, [3.0, 4.0, 0.1])
    assert (server.bits, task.version) == (before, 2)
    assert "norm 5 is above the bound 5" in server.outcome.rejected.reason
    server.answer(2, [3.0, 4.0, 0.0])
    assert server.state.gradients == 3


def test_a_stale_report_is_refused_beyond_the_bound_alone():
    server = server_with_history(limits=Limits(delay=1))
    before = server.bits
    [task] = server.answer(1, FINE)  # version 0 at iteration 2
    assert (server.bits, task.version) == (before, 2)
    assert "stale: delay 2" in server.outcome.rejected.reason
    server.answer(0, FINE)
    server.answer(1, FINE)  # delay 1
    assert server.state.gradients == 4


OBSERVING = replace(RULE, exchange=Exchange(statistics={"observations": 2}))


def observing_server():
    """One report with moments was merged."""
    server = Fold(OBSERVING, np.zeros(3), agents=3)
    server(answer(server.tasks[2], FINE, moments={"observations": Moments(4, np.ones(2), np.ones(2))}))
    assert server.state.statistics["observations"].count == 4
    return server


IMPOSSIBLE = {
    "no count": Moments(0, np.zeros(2), np.zeros(2)),
    "half a count": Moments(1.5, np.zeros(2), np.zeros(2)),
    "infinite count": Moments(math.inf, np.zeros(2), np.zeros(2)),
    "nan mean": Moments(5, np.array([0.0, math.nan]), np.zeros(2)),
    "infinite m2": Moments(5, np.zeros(2), np.array([math.inf, 0])),
    "negative m2": Moments(5, np.zeros(2), np.array([-1e-9, 1.0])),
    "one observation that varies": Moments(1, np.zeros(2), np.array([0.1, 0.0])),
    "another number of quantities": Moments(5, np.zeros(3), np.zeros(3)),
    "shapes apart": Moments(5, np.zeros(2), np.zeros(3)),
    "a matrix": Moments(5, np.zeros((2, 2)), np.zeros((2, 2))),
}


@pytest.mark.parametrize("moments", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_moments_are_refused_with_their_gradient(moments):
    server = observing_server()
    before, statistics = server.bits, server.state.statistics
    [task] = server(answer(server.tasks[1], FINE, moments={"observations": moments}))
    assert server.bits == before
    assert server.state.statistics is task.statistics is statistics
    assert server.outcome.rejected.reason.startswith("moments: ")


@pytest.mark.parametrize("names", [(), ("rewards",), ("observations", "rewards")], ids=["none", "others", "too many"])
def test_moments_of_other_things_than_expected_are_refused(names):
    server = observing_server()
    before, statistics = server.bits, server.state.statistics
    moments = {name: Moments(4, np.ones(2), np.ones(2)) for name in names}
    [task] = server(answer(server.tasks[1], FINE, moments=moments))
    assert (server.bits, task.agent_id) == (before, 1)
    assert server.state.statistics is statistics
    assert server.outcome.rejected.reason.endswith("; expected are those of observations")


def test_the_first_moments_have_as_many_quantities_as_the_workload_says():
    server = Fold(OBSERVING, np.zeros(3), agents=3)
    server(answer(server.tasks[2], FINE, moments={"observations": Moments(4, np.ones(3), np.ones(3))}))
    assert server.outcome.rejected.reason == "moments: 3 quantities of observations, expected 2"
    assert server.state.statistics == {}


@pytest.mark.parametrize("share", [0.4, 0.5, 0.8])
def test_no_agent_makes_up_more_than_its_share(share):
    """Agent 0 answers a hundred times as often as the other two, with nothing; refusals cost the budget nothing."""
    server = Fold(RULE, np.zeros(3), agents=3, limits=Limits(share=share))
    for _ in range(100):
        for _ in range(100):
            server.answer(0, [0.0, 0.0, 0.0])
        server.answer(1, FINE)
        server.answer(2, FINE)
    applied, gradients = server.state.applied, server.state.gradients
    assert (sum(applied.values()), applied[1], applied[2]) == (gradients, 100, 100)
    assert share * gradients - 1 <= applied[0] <= share * gradients + 10
    for _ in range(20):
        server.answer(0, FINE)
    assert server.outcome.rejected.reason.startswith("share: ")
    assert server.state.gradients < gradients + 20


def test_a_share_counts_on_after_a_checkpoint():
    server = Fold(RULE, np.zeros(3), agents=2, limits=Limits(share=0.5))
    for _ in range(30):
        server.answer(0, FINE)
    server.state = from_tree(to_tree(server.state), RULE)
    server.answer(0, FINE)
    assert (server.state.gradients, server.state.applied) == (20, {0: 20})
    assert server.outcome.rejected.reason == "share: 21 of 21 gradients would be this agent's, above the bound 0.5"


UNTOLD = {
    "more steps than a report has": (Stats(2049), "2049 steps, a report has at most 2048"),
    "2^40 steps": (Stats(2**40), "a report has at most 2048"),
    "negative steps": (Stats(-1), "-1 steps"),
    "more episodes than steps": (Stats(2, (1.0,) * 3, (1,) * 3), "3 returns and 3 lengths of episodes in 2 steps"),
    "a length too many": (Stats(9, (1.0,), (1, 2)), "1 returns and 2 lengths"),
    "episodes longer than the report": (Stats(9, (1.0,) * 3, (100, 5, 4)), "109 steps together do not end in 9 steps"),
    "an episode of no step": (Stats(9, (1.0,) * 2, (1, 0)), "do not end in 9 steps"),
    "a return that is none": (Stats(9, (1.0, math.nan), (1, 2)), "a return is not finite"),
}


@pytest.mark.parametrize("rule", [RULE, ROUNDS], ids=["afedpg", "fedpg"])
@pytest.mark.parametrize(("stats", "reason"), UNTOLD.values(), ids=UNTOLD)
def test_numbers_that_no_rollout_has_are_refused(rule, stats, reason):
    server = server_with_history(rule, Limits.of(from_settings({"task": "CartPole-v1"})))
    before, samples = server.bits, server.state.samples
    [task] = server(answer(server.tasks[1], FINE, stats=stats))
    assert (server.bits, server.state.samples, task.agent_id) == (before, samples, 1)
    assert reason in server.outcome.rejected.reason


TOLD = {
    "nothing ended": Stats(1024),
    "an episode from long ago ended": Stats(1024, (500.0, 1.0), (10**6, 1023)),
    "whole episodes, the last of them long": Stats(2047, (1.0, 1.0), (1023, 1024)),
    "an episode every step": Stats(4, (1.0,) * 4, (1,) * 4),
    "lengths are not told": Stats(4, (1.0,) * 4),
}


@pytest.mark.parametrize("stats", TOLD.values(), ids=TOLD)
def test_numbers_that_a_rollout_can_have_are_believed(stats):
    server = server_with_history(limits=Limits.of(from_settings({"task": "CartPole-v1"})))
    server(answer(server.tasks[1], FINE, stats=stats))
    assert server.outcome.rejected is None


@pytest.mark.parametrize(
    ("settings", "steps"),
    [({"task": "swimmer"}, 2048), ({"task": "swimmer", "method": "a3c"}, 64), ({"task": "quadratic"}, 2)],
)
def test_the_bound_on_steps_is_twice_what_a_report_takes(settings, steps):
    assert Limits.of(from_settings(settings)).steps == steps


@pytest.mark.parametrize("rule", [RULE, ROUNDS], ids=["afedpg", "fedpg"])
def test_a_report_sent_twice_is_applied_once_and_makes_no_second_task(rule):
    server = server_with_history(rule)
    report = answer(server.tasks[1], FINE)
    server(report)
    before, gradients, waiting = server.bits, server.state.gradients, len(server.state.memory.kept)
    assert server(report) == []
    assert (server.bits, server.state.gradients, len(server.state.memory.kept)) == (before, gradients, waiting)
    assert "not outstanding" in server.outcome.rejected.reason


def test_reports_for_unknown_work_make_no_task():
    server = server_with_history()
    before, task = server.bits, server.tasks[1]
    unknown = Report(TaskId(0, 999), 1, np.ones(3, np.float32), task.version)
    another_epoch = Report(TaskId(1, task.task_id.counter), 1, np.ones(3, np.float32), task.version)
    stranger = Report(task.task_id, 9, np.ones(3, np.float32), task.version)
    another_version = Report(task.task_id, 1, np.ones(3, np.float32), 1)
    for report in (unknown, another_epoch, stranger, another_version):
        assert server(report) == []
        assert server.bits == before
    assert server.answer(1, FINE)


def test_an_agent_that_joined_again_has_only_its_newest_work():
    server = server_with_history()
    old = server.tasks[1]
    server(Join(1))
    assert server(answer(old, FINE)) == []
    assert len(server.answer(1, FINE)) == 1
    assert server.state.gradients == 3


def test_an_agent_that_left_is_forgotten():
    server = server_with_history()
    assert server(Leave(1)) == []
    before = server.bits
    assert server.answer(1, FINE) == []
    assert server(Rejected(1, "cut off on the wire")) == []
    assert server.bits == before
    [task] = server(Rejected(2, "cut off on the wire"))
    assert (task.agent_id, server.outcome.rejected.reason) == (2, "cut off on the wire")


@pytest.mark.parametrize("rule", [RULE, ROUNDS], ids=["afedpg", "fedpg"])
@given(st.data())
def test_every_task_is_applied_at_most_once_whatever_is_sent_again(rule, data):
    """Any report ever made may arrive any number of times, in any order, between joins and leaves."""
    server = Fold(rule, np.zeros(3), agents=3)
    known, applied = list(server.tasks.values()), []
    for _ in range(data.draw(st.integers(1, 25))):
        kind = data.draw(st.sampled_from(["report", "report", "report", "join", "leave"]))
        agent_id = data.draw(st.integers(0, 2))
        if kind == "report":
            tasks = server(answer(data.draw(st.sampled_from(known)), FINE))
        else:
            tasks = server(Join(agent_id) if kind == "join" else Leave(agent_id))
        known += tasks
        applied += [arrival.task_id for arrival in server.outcome.arrivals]
    assert len(set(applied)) == len(applied) == server.state.gradients
    assert len({task.task_id for task in known}) == len(known)


LATE = replace(RULE, exchange=Exchange(late_fetch=True))


@pytest.mark.parametrize(
    ("rule", "happened", "reason"),
    [
        (RULE, [], "get their Tasks unasked"),
        (LATE, [], "a Task is outstanding"),
        (LATE, [Leave(1)], "has not joined"),
        (LATE, [Restart()], "has not joined"),
    ],
)
def test_a_fetch_that_is_not_due_is_refused_and_makes_no_task_void(rule, happened, reason):
    server = Fold(rule, np.zeros(3), agents=2)
    for event in happened:
        server(event)
    before = server.bits, dict(server.state.outstanding), set(server.state.present)
    assert server(Fetch(1)) == []
    assert reason in server.outcome.rejected.reason
    assert (server.bits, dict(server.state.outstanding), set(server.state.present)) == before


def test_a_fetch_is_answered_once_by_the_newest_theta():
    server = Fold(LATE, np.zeros(3), agents=2)
    assert server.answer(0, FINE) == []  # it samples first
    server.answer(1, FINE)
    [task] = server(Fetch(0))
    assert (task.agent_id, task.version) == (0, 2)
    assert server(Fetch(0)) == []
    server.answer(0, FINE)  # the Task it was given is still its own
    assert (server.outcome.rejected, server.state.gradients) == (None, 3)
    [task] = server(Rejected(0, "nonsense")) or server(Fetch(0))
    assert task.version == 3
