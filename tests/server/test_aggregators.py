"""When there is a step, and of what it is made: laws of aggregators, groups and scalars, and of what is remembered.

A round that was open when the server stopped is void; who took part in it is waited for.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import Fold, answer

from afedpg.messages import CloseRound, Exchange, Group, Join, Leave, Moments, Restart, Revoke, Scalar, Stats
from afedpg.record import checkpoint
from afedpg.server.admission import Limits
from afedpg.server.aggregators import Aggregator, Drop, Each, Keep, Use, mean
from afedpg.server.rules import afedpg, fedpg, pg_plain
from afedpg.server.schedules import Constant
from afedpg.server.state import from_tree, to_tree

ASYNC = afedpg(Constant(0.2), Constant(0.1))
ROUNDS = fedpg(Constant(0.2), Constant(0.1))
vectors = arrays(np.float32, 3, elements=st.floats(-100, 100, width=32))
turns = st.lists(st.tuples(st.integers(0, 2), vectors), max_size=12)


@dataclass(frozen=True)
class Pairs(Aggregator):
    """The mean of every two contributions, whoever made them; its agents do not wait."""

    def start(self, parameters):
        return {"total": np.zeros(parameters)}

    def take(self, given, memory, here):
        memory.arrays["total"] += given.vector
        memory.slots[given.agent] = given.vector.astype(np.float64)
        memory.kept.append(given)
        if len(memory.kept) < 2:
            return Keep()
        reports = list(memory.kept)
        memory.kept.clear()
        return Use(mean([each.vector for each in reports]), reports)


@dataclass(frozen=True)
class Fresh(Aggregator):
    """A contribution is used unless it is late."""

    def take(self, given, memory, here):
        late = here.iteration - given.version
        return Drop(f"{late} steps late") if late else Use(given.vector, (given,), norm=given.norm)


PAIRS, FRESH = replace(ASYNC, aggregator=Pairs()), replace(ASYNC, aggregator=Fresh())


def again(server, rule):
    """The same server from its checkpoint, through a file's bytes."""
    other = Fold(rule, server.theta, agents=0, limits=server.limits)
    other.state, other.tasks = from_tree(copy.deepcopy(to_tree(server.state)), rule), dict(server.tasks)
    return other


# Each, All, and what they answer


@given(turns)
def test_each_contribution_makes_one_step_and_its_agent_alone_gets_work(turns):
    server = Fold(ASYNC, np.zeros(3), agents=3)
    for count, (agent_id, gradient) in enumerate(turns, 1):
        [task] = server.answer(agent_id, gradient)
        [arrival] = server.outcome.arrivals
        assert (task.agent_id, task.version) == (agent_id, count)
        assert (arrival.agent, arrival.gradient, arrival.iteration) == (agent_id, count, count - 1)
        assert (server.outcome.unused, server.outcome.waits) == (None, None)
    assert server.state.memory.kept == []
    assert (server.state.iteration, server.state.gradients, server.state.unused) == (len(turns), len(turns), 0)


@given(st.lists(st.sampled_from(["report", "report", "join", "leave", "close"]), max_size=30), st.data())
def test_a_round_has_one_contribution_of_each_agent_at_most(kinds, data):
    """Whoever comes back, leaves or is late: a step has each agent once, and everybody present is at work or waits."""
    server = Fold(ROUNDS, np.zeros(3), agents=3)
    for kind in kinds:
        agent_id = data.draw(st.integers(0, 2))
        if kind == "report":
            server(answer(server.tasks[agent_id], data.draw(vectors)))
        else:
            server({"join": Join(agent_id), "leave": Leave(agent_id), "close": CloseRound()}[kind])
        kept = [given.agent for given in server.state.memory.kept]
        used = [arrival.agent for arrival in server.outcome.arrivals]
        assert len(kept) == len(set(kept))
        assert used == sorted(set(used))
        assert {*kept, *server.state.outstanding} == server.state.present
        assert server.state.late <= server.state.outstanding.keys()
        assert not kept or server.state.outstanding.keys() - server.state.late  # or the round would be closed


def test_who_comes_back_into_an_open_round_replaces_what_it_gave():
    server = Fold(ROUNDS, np.zeros(2), agents=2)
    server.answer(0, [100.0, 0.0])
    server(Join(0))
    server.answer(0, [0.0, 1.0])
    assert len(server.answer(1, [0.0, 3.0])) == 2
    np.testing.assert_allclose(server.state.buffers["0.direction"], [0.0, 0.2 * 2.0])
    assert [arrival.agent for arrival in server.outcome.arrivals] == [0, 1]


@given(turns)
def test_what_is_kept_takes_no_step_and_its_agent_works_on(turns):
    server, total = Fold(PAIRS, np.zeros(3), agents=3), np.zeros(3)
    for count, (agent_id, gradient) in enumerate(turns, 1):
        before = server.bits
        [task] = server.answer(agent_id, gradient)
        total += gradient
        assert task.agent_id == agent_id
        assert len(server.outcome.arrivals) == (0 if count % 2 else 2)
        assert server.state.iteration == task.version == count // 2
        assert server.bits == before or count % 2 == 0
        assert server.outcome.waits is None
    assert server.state.memory.arrays["total"].tobytes() == total.tobytes()
    assert server.state.gradients == len(turns) // 2 * 2


def test_two_contributions_of_one_agent_are_two():
    server = Fold(PAIRS, np.zeros(2))
    server.answer(0, [1.0, 0.0])
    server.answer(0, [0.0, 1.0])
    np.testing.assert_allclose(server.state.buffers["0.direction"], [0.1, 0.1])
    assert server.state.applied == {0: 2}


@given(turns)
def test_what_is_dropped_changes_nothing_but_counts(turns):
    observing = replace(FRESH, exchange=Exchange(statistics={"observations": 1}))
    server, used, dropped = Fold(observing, np.zeros(3), agents=3), 0, 0
    moments = {"observations": Moments(2.0, np.ones(1), np.zeros(1))}
    for agent_id, gradient in turns:
        late = server.state.iteration - server.tasks[agent_id].version
        before, merged = server.bits, server.state.statistics
        [task] = server(answer(server.tasks[agent_id], gradient, moments=moments, stats=Stats(5)))
        used, dropped = used + (not late), dropped + bool(late)
        if late:
            assert (server.bits, server.state.statistics) == (before, merged)
            assert server.outcome.unused == (agent_id, f"{late} steps late")
            assert server.outcome.arrivals == []
        assert server.outcome.rejected is None
        assert (task.agent_id, task.version) == (agent_id, server.state.iteration)
    state = server.state
    assert (state.gradients, state.unused, state.samples) == (used, dropped, 5 * (used + dropped))
    assert state.applied == {} if not used else sum(state.applied.values()) == used
    assert state.statistics == {} if not used else state.statistics["observations"].count == 2 * used


def test_what_an_agent_that_left_gave_stays_where_nobody_waits():
    server = Fold(PAIRS, np.zeros(2), agents=2)
    server.answer(0, [1.0, 0.0])
    server(Leave(0))
    assert (list(server.state.memory.slots), len(server.state.memory.kept)) == ([], 1)  # its vector goes with it
    server.answer(1, [0.0, 1.0])
    assert [arrival.agent for arrival in server.outcome.arrivals] == [0, 1]
    server.answer(1, [0.0, 1.0])
    server(Restart())
    assert len(server.state.memory.kept) == 1


# groups


GROUPS = Exchange(groups=(Group("policy", 3), Group("critic", 2, "parameters"), Group("scale", 1)))


@given(st.lists(arrays(np.float32, 6, elements=st.floats(-10, 10, width=32)), max_size=8), st.floats(0, 1))
def test_each_group_goes_its_own_way(contributions, weight):
    """Steps as if the group were alone; parameters towards the agent's: theta_g += w (x - theta_g), no lookahead."""
    rule = replace(ASYNC, exchange=GROUPS, mixing=lambda at: weight)
    server = Fold(rule, np.ones(6))
    policy, scale, critic = Fold(ASYNC, np.ones(3)), Fold(ASYNC, np.ones(1)), np.ones(2)
    for given_ in contributions:
        [task] = server.answer(0, given_)
        steps = [alone.answer(0, part)[0].theta for alone, part in ((policy, given_[:3]), (scale, given_[5:]))]
        critic = critic + weight * (given_[3:5].astype(np.float64) - critic)
        assert server.theta[3:5].tobytes() == critic.tobytes()
        assert task.theta[3:5].tobytes() == critic.astype(np.float32).tobytes()
        assert server.theta[:3].tobytes() == policy.theta.tobytes()
        assert server.theta[5:].tobytes() == scale.theta.tobytes()
        assert task.theta.tobytes() == np.concatenate([steps[0], task.theta[3:5], steps[1]]).tobytes()
        [arrival] = server.outcome.arrivals
        lengths = [alone.outcome.arrivals[0].step_length for alone in (policy, scale)]
        assert arrival.step_length == pytest.approx(math.hypot(*lengths), rel=1e-12)
        own = np.linalg.norm(np.delete(given_, [3, 4]).astype(np.float64))
        assert arrival.gradient_norm == pytest.approx(own, rel=1e-12)  # parameters are no steps


def test_the_mixing_weight_knows_its_group_and_its_delay():
    seen = []

    def mixing(at):
        seen.append((at.iteration - at.version, at.agent, at.theta.tolist()))
        return 0.5

    server = Fold(replace(ASYNC, exchange=GROUPS, mixing=mixing), np.ones(6), agents=2)
    server.answer(0, [0, 0, 0, 3, 5, 0])
    server.answer(1, [0, 0, 0, 2, 3, 0])
    assert seen == [(0, 0, [1.0, 1.0]), (1, 1, [2.0, 3.0])]
    assert server.theta[3:5].tolist() == [2.0, 3.0]


def test_a_round_moves_towards_the_mean_of_its_agents_parameters():
    server = Fold(replace(ROUNDS, exchange=GROUPS), np.zeros(6), agents=2)
    server.answer(0, [1, 0, 0, 1, 2, 1])
    server.answer(1, [1, 0, 0, 3, 4, 1])
    assert server.theta[3:5].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(("place", "name"), [(1, "policy"), (4, "critic"), (5, "scale")])
def test_every_group_is_bounded_by_itself(place, name):
    server = Fold(replace(ASYNC, exchange=GROUPS), np.zeros(6), limits=Limits(gradient_norm=5.0))
    for value, reason in (math.nan, f"{name}: not finite"), (6.0, f"{name}: norm 6 is above the bound 5"):
        before = server.bits
        server.answer(0, [value if index == place else 0.0 for index in range(6)])
        assert (server.bits, server.outcome.rejected.reason) == (before, reason)
    server.answer(0, [4.0, 0.0, 0.0, 0.0, 4.0, 4.0])  # longer than the bound together
    assert server.outcome.rejected is None


@given(arrays(np.float32, 5, elements=st.floats(-10, 10, width=32)))
def test_a_step_that_no_honest_agent_makes_is_shortened_and_others_keep_their_bits(contribution):
    free = Exchange((Group("policy", 2), Group("value", 3)))
    bounded = Exchange((Group("policy", 2), Group("value", 3, longest=5.0)))
    plain = pg_plain(Constant(0.2), Constant(0.5))
    one, other = (Fold(replace(plain, exchange=exchange), np.zeros(5)) for exchange in (free, bounded))
    for server in one, other:
        server.answer(0, contribution)
    size = float(np.linalg.norm(contribution[2:].astype(np.float64)))
    assert other.theta[:2].tobytes() == one.theta[:2].tobytes()
    if size <= 5:
        assert other.bits == one.bits
    else:
        np.testing.assert_allclose(other.theta[2:], one.theta[2:] * 5 / size, rtol=1e-12)
        assert np.linalg.norm(other.theta[2:]) == pytest.approx(2.5)


def test_groups_that_are_not_theta_are_refused():
    with pytest.raises(ValueError, match="the groups have 6 numbers, theta has 5"):
        Fold(replace(ASYNC, exchange=GROUPS), np.zeros(5))


# scalars


SCALARS = Exchange(scalars=(Scalar("weight", 0.0, 1.0), Scalar("rows", 1.0, 100.0)))
AWRY = {
    "below": {"weight": -1e-9, "rows": 1.0},
    "above": {"weight": 1.0, "rows": 100.1},
    "nan": {"weight": math.nan, "rows": 1.0},
    "infinite": {"weight": 1.0, "rows": math.inf},
    "missing": {"weight": 1.0},
    "none": {},
    "too many": {"weight": 1.0, "rows": 1.0, "more": 0.5},
    "another": {"weight": 1.0, "lines": 1.0},
}


@pytest.mark.parametrize("rule", [ASYNC, ROUNDS], ids=["each", "all"])
@pytest.mark.parametrize("scalars", AWRY.values(), ids=AWRY)
def test_scalars_outside_of_their_bounds_are_refused(rule, scalars):
    server = Fold(replace(rule, exchange=SCALARS), np.zeros(2), agents=2)
    before = server.bits
    [task] = server(answer(server.tasks[1], [1.0, 1.0], scalars=scalars))
    assert (server.bits, server.state.memory.kept, task.agent_id) == (before, [], 1)
    assert server.outcome.rejected.reason.startswith("scalars: ")


def test_scalars_that_nobody_asked_for_are_refused():
    server = Fold(ASYNC, np.zeros(2))
    server(answer(server.tasks[0], [1.0, 1.0], scalars={"weight": 1.0}))
    assert server.outcome.rejected.reason == "scalars: weight given, expected none"


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_rule_sees_the_scalars_or_their_means(one, other):
    seen = []

    def eta_of(rule):
        class Seen(type(rule.step)):
            def update(self, direction, buffers, at):
                seen.append(dict(at.scalars))
                return super().update(direction, buffers, at)

        return replace(rule, step=Seen(*rule.step.parts), exchange=SCALARS)

    for rule in ASYNC, ROUNDS:
        server = Fold(eta_of(rule), np.zeros(2), agents=2)
        for agent_id, weight in enumerate((one, other)):
            server(answer(server.tasks[agent_id], [1.0, 1.0], scalars={"weight": weight, "rows": 2.0}))
            assert server.outcome.rejected is None
    means = {"weight": (one + other) / 2, "rows": 2.0}
    assert seen == [{"weight": one, "rows": 2.0}, {"weight": other, "rows": 2.0}, means]


# who was there before the server was started again


def test_the_first_that_comes_back_does_not_close_the_round():
    server = Fold(ROUNDS, np.zeros(2), agents=3)
    server.answer(2, [9.0, 9.0])  # void: the round was open when the server stopped
    server(Restart())
    assert (server.state.absent, server.state.present, server.state.memory.kept) == ({0, 1, 2}, set(), [])
    server(Join(0))
    assert server.answer(0, [1.0, 0.0]) == []
    assert server.outcome.waits == 0
    server(Join(1))
    assert server.answer(1, [3.0, 0.0]) == []
    server(Join(2))
    assert [task.agent_id for task in server.answer(2, [2.0, 0.0])] == [0, 1, 2]
    np.testing.assert_allclose(server.state.buffers["0.direction"], [0.2 * 2.0, 0.0])


@pytest.mark.parametrize("goodbye", [Leave(1), Revoke(1), CloseRound()], ids=["leave", "revoke", "deadline"])
def test_the_round_closes_once_nobody_absent_is_waited_for(goodbye):
    server = Fold(ROUNDS, np.zeros(2), agents=2)
    server(Restart())
    server(Join(0))
    assert server.answer(0, [1.0, 0.0]) == []
    server.state = from_tree(copy.deepcopy(to_tree(server.state)), ROUNDS)  # a checkpoint knows whom it waits for
    assert [task.agent_id for task in server(goodbye)] == [0]
    assert (server.state.iteration, server.state.absent) == (1, set())
    assert len(server.answer(0, [1.0, 0.0])) == 1  # the next round is its own


def test_after_a_restart_of_0_1_0_the_first_that_comes_back_closes_the_round():
    """So its journals fold to the theta they made."""
    server = Fold(ROUNDS, np.zeros(2), agents=3)
    server(Restart(awaits=False))
    assert server.state.absent == set()
    server(Join(0))
    assert [task.agent_id for task in server.answer(0, [1.0, 0.0])] == [0]


def test_a_second_restart_forgets_nobody():
    server = Fold(ROUNDS, np.zeros(2), agents=2)
    server(Restart())
    server(Join(0))
    server(Restart())
    assert (server.state.absent, server.state.epoch) == ({0, 1}, 2)
    server(Join(1))
    assert server.answer(1, [1.0, 0.0]) == []
    server(Leave(0))
    assert [arrival.agent for arrival in server.outcome.arrivals] == [1]


def test_nobody_waits_for_the_absent_where_every_contribution_is_a_step():
    server = Fold(ASYNC, np.zeros(2), agents=3)
    server(Restart())
    server(Join(1))
    assert len(server.answer(1, [1.0, 0.0])) == 1
    assert server.state.iteration == 1


# what is remembered


@given(turns, turns, st.sampled_from(["each", "all", "pairs", "groups"]))
def test_a_checkpoint_holds_all_that_the_aggregator_remembers(before, after, which):
    groups = (Group("policy", 2), Group("critic", 1, "parameters"))
    rule = {
        "each": ASYNC,
        "all": ROUNDS,
        "pairs": PAIRS,
        "groups": replace(PAIRS, exchange=Exchange(groups=groups)),
    }[which]
    server = Fold(rule, np.zeros(3), agents=3)
    for agent_id, gradient in before:
        server(answer(server.tasks[agent_id], gradient, stats=Stats(1, (2.0,), (1,), {"unstable": 1.0})))
    other = again(server, rule)
    assert other.state.memory.arrays.keys() == server.state.memory.arrays.keys()
    for agent_id, slot in server.state.memory.slots.items():
        assert other.state.memory.slots[agent_id].tobytes() == slot.tobytes()
    assert [g.norm for g in other.state.memory.kept] == [g.norm for g in server.state.memory.kept]
    for agent_id, gradient in after:
        for each in server, other:
            each(answer(each.tasks[agent_id], gradient))
        assert other.bits == server.bits
        assert other.outcome.arrivals == server.outcome.arrivals
    mine, theirs = server.state.memory, other.state.memory
    assert {name: array.tobytes() for name, array in mine.arrays.items()} == {
        name: array.tobytes() for name, array in theirs.arrays.items()
    }
    assert {agent: slot.tobytes() for agent, slot in mine.slots.items()} == {
        agent: slot.tobytes() for agent, slot in theirs.slots.items()
    }


def test_it_is_the_same_from_the_disk(tmp_path):
    server = Fold(PAIRS, np.zeros(3), agents=2)
    for agent_id in (0, 1, 1):
        server.answer(agent_id, [1.0, 2.0, agent_id])
    checkpoint.save(tmp_path, 3, {"server": to_tree(server.state)}, keep=1)
    _, tree = checkpoint.load_latest(tmp_path)
    state = from_tree(tree["server"], PAIRS)
    assert state.memory.arrays["total"].tolist() == [3.0, 6.0, 2.0]
    assert {agent: slot.tolist() for agent, slot in state.memory.slots.items()} == {
        0: [1.0, 2.0, 0.0],
        1: [1.0, 2.0, 1.0],
    }
    [kept] = state.memory.kept
    assert (kept.agent, kept.version, kept.vector.tolist()) == (1, 1, [1.0, 2.0, 1.0])
    other = Fold(PAIRS, np.zeros(3), agents=0)
    other.state, other.tasks = state, dict(server.tasks)
    for each in server, other:
        each.answer(0, [5.0, 0.0, 0.0])
    assert (other.bits, other.outcome.arrivals) == (server.bits, server.outcome.arrivals)


def test_a_plain_rule_uses_what_the_aggregator_says():
    server = Fold(replace(pg_plain(Constant(0.2), Constant(0.5)), aggregator=Each()), np.zeros(2))
    server.answer(0, [2.0, 4.0])
    assert server.theta.tolist() == [1.0, 2.0]
