"""fedpg's barrier: a round closes when its last gradient arrives, its last missing agent leaves, or at a deadline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import Fold, answer

from afedpg.config import Config, ScheduleConfig
from afedpg.messages import CloseRound, Join, Leave, Restart
from afedpg.server.rules import afedpg, fedpg
from afedpg.server.schedules import Constant, schedules
from afedpg.server.state import from_tree, to_tree

RULE = fedpg(Constant(0.2), Constant(0.1))
float32 = st.floats(-(2.0**100), 2.0**100, width=32)


@given(arrays(np.float32, (4, 3), elements=float32), st.permutations(range(4)))
def test_the_average_knows_nothing_of_the_order_of_arrival(gradients, order):
    sorted_by_id, shuffled = Fold(RULE, np.zeros(3), agents=4), Fold(RULE, np.zeros(3), agents=4)
    for agent_id in range(4):
        sorted_by_id.answer(agent_id, gradients[agent_id])
    for agent_id in order:
        shuffled.answer(agent_id, gradients[agent_id])
    assert sorted_by_id.bits == shuffled.bits
    assert sorted_by_id.outcome.arrivals == shuffled.outcome.arrivals


@given(arrays(np.float32, (3, 5), elements=st.floats(-10, 10, width=32)))
def test_a_round_is_one_step_with_the_mean(gradients):
    """The same step as one agent's whose gradient is the mean, if float32 could hold it."""
    rounds = Fold(RULE, np.zeros(5), agents=3)
    for agent_id in range(3):
        tasks = rounds.answer(agent_id, gradients[agent_id])
        assert [task.agent_id for task in tasks] == ([0, 1, 2] if agent_id == 2 else [])
    mean = gradients.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(rounds.state.buffers["0.direction"], 0.2 * mean, rtol=1e-12, atol=1e-14)
    assert (rounds.state.iteration, rounds.state.gradients) == (1, 3)
    assert {task.version for task in tasks} == {1}
    assert [(a.gradient, a.agent, a.delay) for a in rounds.outcome.arrivals] == [(1, 0, 0), (2, 1, 0), (3, 2, 0)]


@given(st.lists(arrays(np.float32, 3, elements=st.floats(-100, 100, width=32)), max_size=10))
def test_a_round_of_one_is_afedpg(gradients):
    one, other = Fold(RULE, np.zeros(3)), Fold(afedpg(Constant(0.2), Constant(0.1)), np.zeros(3))
    for gradient in gradients:
        one.answer(0, gradient)
        other.answer(0, gradient)
    assert one.bits == other.bits


def test_at_the_deadline_the_server_steps_with_what_it_has():
    server = Fold(RULE, np.zeros(2), agents=3)
    server.answer(2, [1.0, 0.0])
    server.answer(0, [3.0, 0.0])
    late = server.tasks[1]
    assert [task.agent_id for task in server(CloseRound())] == [0, 2]
    np.testing.assert_allclose(server.state.buffers["0.direction"], [0.2 * 2.0, 0.0])
    before = server.bits
    [fresh] = server(answer(late, [1.0, 1.0]))  # too late: unused, but its agent is in the next round
    assert server.bits == before
    assert server.outcome.unused == (1, "late: its round closed 1 iterations ago")
    assert (server.outcome.rejected, server.outcome.arrivals, server.state.unused) == (None, [], 1)
    assert (fresh.agent_id, fresh.version) == (1, 1)
    for agent_id in range(3):
        tasks = server.answer(agent_id, [1.0, 1.0])
    assert (len(tasks), server.state.iteration, server.state.gradients) == (3, 2, 5)


def test_who_missed_a_round_is_waited_for_again_only_once_it_is_back():
    server = Fold(RULE, np.zeros(2), agents=3)
    server.answer(0, [1.0, 0.0])
    server.answer(2, [1.0, 0.0])
    late = server.tasks[1]
    server(CloseRound())
    server.state = from_tree(to_tree(server.state), RULE)
    for _ in range(3):  # rounds of two, closed by their last gradient
        assert server.answer(2, [1.0, 0.0]) == []
        assert [task.agent_id for task in server.answer(0, [1.0, 0.0])] == [0, 2]
    [fresh] = server(answer(late, [1.0, 1.0]))
    assert fresh.version == 4
    server.answer(0, [1.0, 0.0])
    assert server.answer(2, [1.0, 0.0]) == []
    assert len(server.answer(1, [1.0, 0.0])) == 3


def test_the_round_closes_when_all_leave_but_the_late_ones():
    server = Fold(RULE, np.zeros(2), agents=3)
    server.answer(0, [1.0, 0.0])
    server.answer(2, [1.0, 0.0])
    server(CloseRound())
    server.answer(0, [1.0, 0.0])
    assert [task.agent_id for task in server(Leave(2))] == [0]
    assert server(Leave(1)) == []


def test_a_deadline_without_gradients_changes_nothing():
    server = Fold(RULE, np.zeros(2), agents=2)
    before = server.bits
    assert server(CloseRound()) == []
    assert (server.bits, server.state.iteration) == (before, 0)


def test_the_round_closes_when_its_last_missing_agent_leaves():
    server = Fold(RULE, np.zeros(2), agents=3)
    server.answer(0, [1.0, 0.0])
    server.answer(1, [0.0, 1.0])
    assert [task.agent_id for task in server(Leave(2))] == [0, 1]
    np.testing.assert_allclose(server.state.buffers["0.direction"], [0.1, 0.1])


def test_an_agent_that_leaves_takes_its_gradient_along():
    server = Fold(RULE, np.zeros(2), agents=3)
    server.answer(0, [100.0, 0.0])
    assert server(Leave(0)) == []
    server.answer(1, [0.0, 1.0])
    assert [task.agent_id for task in server.answer(2, [0.0, 3.0])] == [1, 2]
    np.testing.assert_allclose(server.state.buffers["0.direction"], [0.0, 0.4])
    assert server(Leave(1)) == server(Leave(2)) == []  # nobody is left, nothing is stepped with
    assert server.state.iteration == 1


def test_who_joins_an_open_round_belongs_to_it():
    server = Fold(RULE, np.zeros(2), agents=2)
    server.answer(0, [1.0, 0.0])
    server(Join(2))
    assert server.answer(1, [1.0, 0.0]) == []
    assert len(server.answer(2, [1.0, 0.0])) == 3


@given(st.integers(1, 64), st.floats(0.001, 1), st.floats(0.001, 1), st.booleans())
def test_fedpg_makes_n_times_fewer_steps_with_n_times_the_constants(agents, alpha, eta, literal):
    chosen = ScheduleConfig("constant", alpha=alpha, eta=eta, literal_constants=literal)
    mine, step = schedules(Config("quadratic", "fedpg", agents=agents, schedule=chosen), contributions=agents)
    factor = 1 if literal else agents
    assert (mine(3, 2), step(3, 2)) == (min(1.0, factor * alpha), factor * eta)
    others, step = schedules(Config("quadratic", "afedpg", agents=agents, schedule=chosen))
    assert (others(3, 2), step(3, 2)) == (alpha, eta)


@pytest.mark.parametrize("recipe", [afedpg, fedpg])
def test_a_restart_voids_what_was_handed_out_and_what_waits(recipe):
    server = Fold(recipe(Constant(0.2), Constant(0.1)), np.zeros(2), agents=2)
    old = server.tasks[1]
    server.answer(0, [9.0, 9.0])  # fedpg: waits in the open round
    applied = server.state.gradients
    assert server(Restart()) == []
    assert (server.state.epoch, server.state.outstanding, server.state.memory.kept) == (1, {}, [])
    assert server(answer(old, [1.0, 0.0])) == []
    assert server.state.gradients == applied
    [task] = server(Join(1))
    assert task.task_id.epoch == 1
    server(Leave(0))  # nobody waits for it any more
    server.answer(1, [1.0, 0.0])
    assert [arrival.agent for arrival in server.outcome.arrivals] == [1]


@pytest.mark.parametrize("name", ["global", "fosp"])
def test_the_theorems_schedules_are_not_scaled_for_fedpg(name):
    chosen = ScheduleConfig(name, 0.25, 0.5)
    rounds, steps = (schedules(Config("quadratic", agents=8, schedule=chosen), n) for n in (8, 1))
    for k in (0, 1, 10, 1000):
        assert [schedule(k, k) for schedule in rounds] == [schedule(k, k) for schedule in steps]
