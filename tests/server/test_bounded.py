"""`bounded`: no contribution moves a group of theta much further than the agents' usual ones do; and the factors by
group with which an aggregator may say so.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support import Fold, answer

from afedpg import train
from afedpg.messages import Exchange, Group, Join, Leave, Moments, Restart
from afedpg.server.aggregators import Aggregator, Each, Use
from afedpg.server.defences import Bounded
from afedpg.server.rules import afedpg, pg_plain
from afedpg.server.schedules import Constant
from afedpg.server.state import from_tree, to_tree

GROUPS = Exchange((Group("policy", 2), Group("value", 3), Group("moments", 2, "parameters")))
PLACES = {"policy": slice(0, 2), "value": slice(2, 5), "moments": slice(5, 7)}
SIZE = 7
PLAIN = pg_plain(Constant(1.0), Constant(1.0))  # a step is the contribution itself
numbers = st.sampled_from([0.0, 0.0, 1.0, -2.0, 3.5, 40.0, -1e6])
reports = st.tuples(st.integers(0, 4), st.lists(numbers, min_size=SIZE, max_size=SIZE))
lengths = st.floats(1e-3, 1e3)


def fold(aggregator, agents, rule=PLAIN, exchange=GROUPS):
    size = sum(group.size for group in exchange.groups) or SIZE
    return Fold(replace(rule, aggregator=aggregator, exchange=exchange), np.zeros(size), agents)


def middle(votes):
    """With as many above as below it; of two such, the lower."""
    return next(v for v in sorted(votes) if 2 * sum(w <= v for w in votes) >= len(votes))


@settings(max_examples=50)  # of many reports each
@given(st.lists(reports | st.sampled_from(["leave", "restart"]), min_size=20, max_size=40), st.sampled_from([1.0, 4.0]))
def test_every_group_goes_as_far_as_the_middle_agent_allows(events, factor):
    """Against a loop that keeps every agent's newest lengths in dictionaries; agent 4 leaves and comes back."""
    server, theta, newest, steps = fold(Bounded(factor), 5), np.zeros(SIZE), {}, 0
    for event in events:
        if event == "leave":
            server(Leave(4))
            server(Join(4))
            newest.pop(4, None)
            continue
        if event == "restart":
            server(Restart())
            for agent in range(5):
                server(Join(agent))
            continue
        agent, vector = event
        newest[agent] = {}
        for name, place in PLACES.items():
            move = np.array(vector[place]) - (theta[place] if name == "moments" else 0)
            newest[agent][name] = length = float(np.linalg.norm(move))
            votes = [mine[name] for mine in newest.values() if mine[name] > 0]
            if length > 0 and (steps >= 10 or len(votes) >= 3):
                theta[place] += move * min(1, factor * middle(votes) / length) ** 2
        steps += 1
        server.answer(agent, vector)
        np.testing.assert_allclose(server.theta, theta, rtol=1e-6, atol=1e-6)


@settings(max_examples=50)
@given(
    st.lists(lengths, min_size=2, max_size=6),
    st.lists(st.sampled_from([1e-30, 1e-3, 1.0, 1e3, 1e30]), min_size=1, max_size=5),
    st.integers(1, 20),
    st.booleans(),
    st.sampled_from([1.0, 2.0]),
)
def test_liars_cannot_move_the_bound_out_of_the_range_of_the_honest(honest, lies, often, first, factor):
    """Fewer than half of the agents lie, about any length and as often as they like, before the others or after: what
    they send moves theta as far as an honest one at most, and what is as short as any honest one is never shortened.
    """
    assume(len(lies) < len(honest))
    agents = len(honest) + len(lies)
    server = fold(Bounded(factor), agents, exchange=Exchange())
    speak = [(agent, length, 1) for agent, length in enumerate(honest)]
    lie = [(len(honest) + place, length, often) for place, length in enumerate(lies)]
    for turn in range(3):
        for agent, length, times in lie + speak if first else speak + lie:
            for _ in range(times):
                before = server.theta
                server.answer(agent, [length, *[0.0] * (SIZE - 1)])
                moved = np.abs(server.theta - before).max()
                if turn:  # everybody has spoken once
                    slack = 1e-6 * moved + 1e-6 * abs(before[0])
                    assert moved <= factor * max(honest) + slack
                    assert moved >= length * (1 - 1e-6) - slack or length > factor * min(honest)


@given(st.lists(st.lists(numbers, min_size=SIZE, max_size=SIZE), max_size=12), st.sampled_from([1.0, 2.0]))
def test_one_agent_alone_is_untouched_to_the_bit(vectors, factor):
    for rule in PLAIN, afedpg(Constant(0.3), Constant(0.1)):
        plain, bounded = fold(Each(), 1, rule), fold(Bounded(factor), 1, rule)
        for vector in vectors:
            plain.answer(0, vector)
            bounded.answer(0, vector)
            assert plain.bits == bounded.bits


@pytest.mark.parametrize("task", ["CartPole-v1", "quadratic"])
def test_a_whole_run_of_one_agent_is_untouched_to_the_bit(task):
    """With the statistics that it shares with nobody."""
    small = {"steps": 32, "hidden": (8,), "scale_observations": True} if task != "quadratic" else {}
    method = "afedppo" if task != "quadratic" else "afedpg"
    runs = [train(task, method=method, agents=1, iterations=8, aggregator=a, **small) for a in ("each", "bounded")]
    assert runs[0].sha256 == runs[1].sha256


@given(st.lists(st.tuples(st.integers(2, 99), st.floats(-9, 9), st.floats(0, 9)), min_size=1, max_size=9))
def test_one_agents_statistics_are_what_merging_gives_to_the_bit(told):
    exchange, found = Exchange(statistics={"observations": 1}), []
    for aggregator in Each(), Bounded():
        server = fold(aggregator, 1, exchange=exchange)
        for count, mean, m2 in told:
            moments = {"observations": Moments(float(count), np.array([mean]), np.array([m2]))}
            server(answer(server.tasks[0], [1.0] * SIZE, moments=moments))
        merged = server.state.statistics["observations"]
        found.append((merged.count, merged.mean.tobytes(), merged.m2.tobytes()))
    assert found[0] == found[1]


def test_what_is_shortened_is_mixed_in_as_it_is_then():
    """The direction of a rule with a memory; the record keeps the length that was sent."""
    server = fold(Bounded(2.0), 3, afedpg(Constant(0.5), Constant(1.0)), Exchange())
    for agent in range(3):
        server.answer(agent, [1.0, *[0.0] * (SIZE - 1)])
    before = server.state.buffers["0.direction"].copy()
    server.answer(0, [0.0, 10.0, *[0.0] * (SIZE - 2)])
    after = server.state.buffers["0.direction"]
    np.testing.assert_allclose(after[:2], [0.5 * before[0], 0.5 * 10.0 * 0.2**2])
    assert server.outcome.arrivals[0].gradient_norm == 10.0


def test_whoever_reports_first_waits_for_others_and_not_for_ever():
    """Until three agents have something to compare, group by group; where the others are silent, for 2 N steps."""
    server = fold(Bounded(), 4)
    server.answer(0, [1e6] * SIZE)
    server.answer(1, [0, 0, 1, 1, 1, 1, 1])  # nothing about the policy
    assert not server.theta.any()
    server.answer(2, [0, 0, 1, 1, 1, 1, 1])
    np.testing.assert_allclose(server.theta, [0, 0, 1, 1, 1, 1, 1])
    server.answer(0, [1e6] * SIZE)
    assert not server.theta[:2].any()
    assert np.linalg.norm(server.theta) < 10
    alone = fold(Bounded(), 4)
    for step in range(8):
        alone.answer(3, [1.0] * SIZE)
        assert not alone.theta.any(), step
    alone.answer(3, [1.0] * SIZE)
    assert alone.theta.all()


def test_what_is_rare_counts():
    """Where most contributions are zeros, one that is not is compared with those that are not."""
    server = fold(Bounded(), 5)
    for agent in [*range(5)] * 2:
        server.answer(agent, [0.0] * SIZE)
    server.answer(0, [1.0] * SIZE)
    assert server.theta.tolist() == [1.0] * SIZE


def test_two_agents_are_bounded_by_the_shorter():
    server = fold(Bounded(2.0), 2, exchange=Exchange())
    server.answer(1, [1.0] + [0.0] * (SIZE - 1))
    server.answer(0, [0.0, 1e9] + [0.0] * (SIZE - 2))
    np.testing.assert_allclose(server.theta[:2], [0.0, 4e-9])


@given(st.lists(reports, min_size=1, max_size=30), st.integers(0, 29))
def test_a_checkpoint_has_all_of_it(events, cut):
    whole, resumed = fold(Bounded(), 5), fold(Bounded(), 5)
    for index, (agent, vector) in enumerate(events):
        if index == cut:
            resumed.state = from_tree(copy.deepcopy(to_tree(resumed.state)), resumed.rule)
        whole.answer(agent, vector)
        resumed.answer(agent, vector)
        assert whole.bits == resumed.bits


def test_it_remembers_a_number_per_agent_and_group():
    server = fold(Bounded(), 6)
    for agent in [*range(6)] * 3:
        server.answer(agent, np.arange(SIZE) + agent)
    memory = server.state.memory
    assert sum(array.size for array in [*memory.arrays.values(), *memory.slots.values()]) == 6 * (3 + 2)
    assert Bounded().vectors(6) == 0


@dataclass(frozen=True)
class Shares(Aggregator):
    """So much of what each group would move by."""

    factors: tuple[float, ...]

    def take(self, given, memory, here):
        return Use(given.vector, (given,), norm=given.norm, factors=self.factors)


@given(st.lists(st.floats(-10, 10, width=32), min_size=SIZE, max_size=SIZE), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_groups_factor_is_of_its_step_or_of_its_way_and_others_keep_their_bits(vector, factor):
    rule = replace(PLAIN, mixing=lambda at: 0.5)
    whole = fold(Each(), 1, rule)
    whole.answer(0, vector)
    for place, at in enumerate(PLACES.values()):
        server = fold(Shares(tuple(factor if other == place else 1.0 for other in range(3))), 1, rule)
        server.answer(0, vector)
        np.testing.assert_allclose(server.theta[at], factor * whole.theta[at], rtol=1e-12)
        assert np.delete(server.theta, at).tobytes() == np.delete(whole.theta, at).tobytes()


def test_a_factor_of_zero_makes_no_step_along_the_old_direction():
    server = fold(Shares((1.0,)), 1, afedpg(Constant(0.5), Constant(1.0)), Exchange())
    server.answer(0, np.eye(SIZE)[0])
    before = server.bits
    server.rule = replace(server.rule, aggregator=Shares((0.0,)))
    server.answer(0, np.eye(SIZE)[1])
    assert (server.bits, server.outcome.arrivals[0].gradient_norm) == (before, 1.0)
