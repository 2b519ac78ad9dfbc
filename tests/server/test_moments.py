"""Merged moments are the moments of everything together."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import Fold, answer

from afedpg.messages import Exchange, Leave, Moments, Revoke
from afedpg.server.defences import Bounded, ClipCentred, Slots
from afedpg.server.moments import Observed, Slot, merge, outliers, take, together, why_not
from afedpg.server.rules import afedpg
from afedpg.server.schedules import Constant
from afedpg.server.state import begin_with, from_tree, to_tree


def observing(quantities):
    return replace(afedpg(Constant(0.1), Constant(0.1)), exchange=Exchange(statistics={"observations": quantities}))


def two_pass(observations):
    """[n, obs] -> count, mean and sum of squared deviations, as defined."""
    mean = observations.mean(axis=0)
    return Moments(float(len(observations)), mean, ((observations - mean) ** 2).sum(axis=0))


numbers = st.floats(-1e3, 1e3)
blocks = st.lists(st.integers(1, 6).flatmap(lambda n: arrays(float, (n, 2), elements=numbers)), min_size=1, max_size=8)


@given(blocks, st.randoms())
def test_blocks_merged_in_any_order_are_the_whole(blocks, random):
    whole = two_pass(np.concatenate(blocks))
    random.shuffle(blocks)
    merged = None
    for block in blocks:
        part = two_pass(block)
        assert why_not(merged, part) is None
        merged = merge(merged, part)
    assert merged.count == whole.count
    np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(merged.m2, whole.m2, rtol=1e-9, atol=1e-6)


def test_a_small_spread_far_from_zero_survives():
    """Sums of squares would lose it: 1e8 squared has no room for a variance of 1."""
    generator = np.random.default_rng(0)
    blocks = [1e8 + generator.standard_normal((1000, 3)) for _ in range(20)]
    merged = None
    for block in blocks:
        merged = merge(merged, two_pass(block))
    whole = np.concatenate(blocks)
    np.testing.assert_allclose(merged.m2 / merged.count, whole.var(axis=0), rtol=1e-6)


def test_the_merged_statistics_go_out_with_the_next_task():
    server = Fold(observing(1), np.zeros(2), agents=2)
    first, second = np.array([[1.0], [3.0]]), np.array([[5.0]])
    [task] = server(answer(server.tasks[0], [1.0, 0.0], moments={"observations": two_pass(first)}))
    assert task.statistics["observations"].count == 2
    [task] = server(answer(server.tasks[1], [1.0, 0.0], moments={"observations": two_pass(second)}))
    whole = two_pass(np.concatenate([first, second]))
    merged = task.statistics["observations"]
    assert (merged.count, *merged.mean, *merged.m2) == (3, *whole.mean, *whole.m2)
    assert server.outcome.arrivals[0].bytes_up == 2 * 4 + 3 * 8
    assert server.outcome.arrivals[0].bytes_down == 2 * 4 + 3 * 8


RULE = observing(3)
USUAL = np.array([1.0, 0.05, 0.0])  # deviations; the last quantity never changes
LIES = {
    "a huge mean": Moments(1024.0, np.full(3, 1e9), np.zeros(3)),
    "ten and ten": Moments(1024.0, np.full(3, 10.0), np.full(3, 1024 * 100.0)),
    "one quantity alone": Moments(1024.0, np.zeros(3), 1024 * np.array([1.0, 1e4, 0.0])),
}


def honest(generator):
    return two_pass(generator.standard_normal((1024, 3)) * USUAL)


def told(server, agent_id, moments):
    server(answer(server.tasks[agent_id], [1.0, 0.0], moments={"observations": moments}))
    assert server.outcome.rejected is None


def deviation(server):
    statistics = server.state.statistics["observations"]
    return np.sqrt(statistics.m2 / statistics.count)


def rounds(server, agents, count, generator):
    for _ in range(count):
        for agent_id in agents:
            told(server, agent_id, honest(generator))


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("first", [True, False], ids=["before all others", "later"])
@pytest.mark.parametrize("agents", [2, 3, 8])
def test_one_lie_does_not_change_how_observations_are_scaled(lie, first, agents):
    """The liar leaves after it. Before all others nobody can tell; later the others do."""
    server, generator = Fold(RULE, np.zeros(2), agents), np.random.default_rng(0)
    liar, others = agents - 1, range(agents - 1)
    if not first:
        rounds(server, range(agents), 20, generator)
        rounds(server, others, 2, generator)  # of two agents, the one that has reported more is believed
    told(server, liar, lie)
    if not first:
        np.testing.assert_allclose(deviation(server), USUAL, rtol=0.2)  # at once
    server(Leave(liar))
    rounds(server, others, 20, generator)
    assert server.state.observed["observations"].aside == {liar}
    np.testing.assert_allclose(deviation(server), USUAL, rtol=0.2)
    np.testing.assert_allclose(server.state.statistics["observations"].mean, 0, atol=0.2)


def test_a_fast_liar_that_observes_nothing_does_not_hide_what_the_others_observe():
    server, generator = Fold(RULE, np.zeros(2), 4), np.random.default_rng(0)
    for _ in range(20):
        rounds(server, range(3), 1, generator)
        for _ in range(200):
            told(server, 3, Moments(2048.0, np.zeros(3), np.full(3, 1e-20)))
    np.testing.assert_allclose(deviation(server), USUAL, rtol=0.2)


def test_honest_agents_are_merged_as_they_arrive_bit_for_bit():
    """Speeds differ by twenty, means by a deviation, and one quantity is another constant for everybody."""
    server, generator, merged = Fold(RULE, np.zeros(2), 3), np.random.default_rng(0), None
    for turn in range(400):
        agent_id = 1 if turn % 20 == 0 else 2 if turn % 20 == 10 else 0
        part = two_pass(agent_id * np.array([1.0, 0.05, 9.81]) + generator.standard_normal((64, 3)) * USUAL)
        told(server, agent_id, part)
        merged = merge(merged, part)
    assert server.state.observed["observations"].aside == frozenset()
    assert server.state.statistics["observations"].mean.tobytes() == merged.mean.tobytes()
    assert server.state.statistics["observations"].m2.tobytes() == merged.m2.tobytes()


def test_a_revoked_agents_moments_are_taken_out():
    server, without = (Fold(RULE, np.zeros(2), 3) for _ in range(2))
    for each, agents in (server, range(3)), (without, range(2)):
        generators = [np.random.default_rng(agent_id) for agent_id in range(3)]
        for _ in range(10):
            for agent_id in agents:
                told(each, agent_id, honest(generators[agent_id]))
    assert server(Revoke(2)) == []
    assert (server.state.statistics["observations"].count, 2 in server.state.outstanding) == (20 * 1024, False)
    np.testing.assert_allclose(
        server.state.statistics["observations"].m2, without.state.statistics["observations"].m2, rtol=1e-12
    )
    np.testing.assert_allclose(
        server.state.statistics["observations"].mean,
        without.state.statistics["observations"].mean,
        rtol=1e-9,
        atol=1e-15,
    )
    server(Revoke(0))
    server(Revoke(1))
    assert server.state.statistics == {}


def test_statistics_that_a_run_began_with_have_a_vote_and_stay():
    server, generator = Fold(RULE, np.zeros(2), 2), np.random.default_rng(0)
    begin_with(server.state, {"observations": honest(generator)})
    rounds(server, range(2), 10, generator)
    told(server, 1, LIES["a huge mean"])
    assert server.state.observed["observations"].aside == {1}
    server(Revoke(0))
    server(Revoke(1))
    assert server.state.statistics["observations"].count == 1024


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_checkpoint_knows_whose_moments_are_whose(lie):
    server, generator = Fold(RULE, np.zeros(2), 3), np.random.default_rng(0)
    rounds(server, range(3), 5, generator)
    told(server, 2, lie)
    again = Fold(RULE, np.zeros(2), 0)
    again.state, again.tasks = from_tree(copy.deepcopy(to_tree(server.state)), RULE), dict(server.tasks)
    for each in server, again:
        rounds(each, range(3), 5, np.random.default_rng(1))
        each(Revoke(1))
    assert again.state.observed["observations"].aside == server.state.observed["observations"].aside
    assert again.state.statistics["observations"].m2.tobytes() == server.state.statistics["observations"].m2.tobytes()


def test_an_older_checkpoint_has_all_moments_in_one():
    server, generator = Fold(RULE, np.zeros(2), 3), np.random.default_rng(0)
    rounds(server, range(3), 5, generator)
    tree = to_tree(server.state)
    del tree["observed"]
    again = from_tree(tree, RULE)
    assert again.statistics["observations"].m2.tobytes() == server.state.statistics["observations"].m2.tobytes()
    assert list(again.observed["observations"].slots) == [-1]


# Honest agents on Humanoid (asynchronous PPO, seed 102, N = 8, reports of 128 steps), 56 reports after the start: two
# forces that only who falls on one side feels. Observations and variances, per agent; the means are next to nothing.
OBSERVED = [1920, 1280, 1024, 768, 640, 640, 512, 384]
FORCES = [(4.18e-3, 2.35), (0.228, 20.9), (1.53e-2, 39.0), (2.76e-6, 1.27e-2), (0, 0), (0, 0), (0, 0), (0, 0)]


def felt(longer, steps, last=None):
    """Slots of agents that have observed `longer` times as much, in reports of so many steps."""
    parts = [
        Moments(float(longer * n), np.zeros(2), longer * n * np.array(row))
        for n, row in zip(OBSERVED, FORCES, strict=True)
    ]
    parts[-1] = last or parts[-1]
    return {agent_id: Slot(max(1, int(part.count) // steps), part) for agent_id, part in enumerate(parts)}


@pytest.mark.parametrize("longer", [1, 4, 40])
def test_who_feels_a_force_before_the_others_is_no_outlier(longer):
    assert outliers(felt(longer, steps=128)) == frozenset()


@given(st.integers(1, 40), st.integers(16, 4096), st.floats(-1e6, 1e6), st.floats(0, 1e18))
def test_it_does_not_matter_in_how_many_reports_something_was_observed(longer, steps, mean, m2):
    told = Moments(1024.0, np.full(2, mean), np.full(2, m2))
    assert outliers(felt(longer, steps, told)) == outliers(felt(longer, 128, told))


@pytest.mark.parametrize("count", [1.0, 2048.0, 1e6])
def test_a_liar_does_not_choose_how_far_it_may_be_from_the_others(count):
    """However few observations, or many, it says its mean is of, and with no variance of its own."""
    parts = [two_pass(np.random.default_rng(seed).standard_normal((20000, 3)) * USUAL) for seed in range(7)]
    parts.append(Moments(count, np.array([0.0, 1e4, 0.0]), np.zeros(3)))
    assert outliers({agent_id: Slot(20, part) for agent_id, part in enumerate(parts)}) == {7}


@pytest.mark.parametrize("far", [1e6, 1e200])
def test_a_lie_about_everything_is_seen_where_the_others_agree(far):
    """Its square may be infinite."""
    honest = [slot.moments for slot in felt(40, steps=128).values()]
    slots = {
        agent_id: Slot(99, Moments(part.count, np.append(part.mean, 0.0), np.append(part.m2, part.count)))
        for agent_id, part in enumerate(honest)
    }
    assert outliers(slots) == frozenset()
    slots[7] = Slot(99, Moments(1024.0, np.full(3, far), np.zeros(3)))
    with np.errstate(over="ignore"):
        assert outliers(slots) == {7}


def touching(generator, steps):
    """Something that always changes, and three things at one step in 50, 1,000 and 5,000, of any magnitude."""
    often = np.array([1, 0.02, 1e-3, 2e-4])
    force = np.where(often < 1, 10 ** generator.uniform(-2, 1.5, (steps, 4)), 1) * generator.standard_normal((steps, 4))
    return two_pass(np.where(generator.random((steps, 4)) < often, force, 0))


@pytest.mark.parametrize("steps", [32, 128, 1024])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_set_aside_for_what_rarely_changes_and_a_liar_is(seed, steps):
    """The first of eight agents is four times as fast as the last."""
    generator, observed, shared = np.random.default_rng(seed), Observed(), None
    seconds = steps * np.linspace(1, 4, 8)
    for _, agent_id in sorted((each * n, a) for a, each in enumerate(seconds) for n in range(1, int(40000 / each))):
        shared = take(observed, shared, agent_id, touching(generator, steps))
        assert observed.aside == frozenset()
    take(observed, shared, 7, Moments(float(steps), np.zeros(4), steps * np.array([1e6, 0, 0, 0])))
    assert observed.aside == {7}


def seeing(*variances, count=1e6):
    """Slots of agents that have observed as much as each other, with these variances of one quantity."""
    return {
        agent_id: Slot(99, Moments(count, np.zeros(2), count * np.array([variance, 1.0])))
        for agent_id, variance in enumerate(variances)
    }


@pytest.mark.parametrize("count", [1e5, 1e6, 1e7])
@pytest.mark.parametrize(
    "others", [(0, 1), (0, 1, 1), (0, 0, 1, 1, 1, 1, 1), (0, 0, 0, 0, 0, 1, 1), (0, 0, 0, *[1] * 6)], ids=str
)
def test_one_liar_is_seen_where_others_see_no_change(others, count):
    """Be they honest, or liars that help it."""
    observed, shared, liar = Observed(), None, len(others)
    for agent_id, slot in seeing(*others, 1e12, count=count).items():
        shared = take(observed, shared, agent_id, slot.moments)
    assert observed.aside == {liar}
    assert (shared.m2 / shared.count <= 1).all()


def test_who_feels_the_strongest_of_a_few_forces_is_in_until_the_others_have_had_time_to():
    """A hundred times as strong, at one agent; three others have felt weaker ones."""
    felt_by = [0, 0, 0, 0, 1e-4, 1e-4, 1e-4, 1]
    assert outliers(seeing(*felt_by, count=25600)) == frozenset()
    assert outliers(seeing(*felt_by, count=1e7)) == {7}


def test_a_liar_that_says_little_does_not_shut_out_the_one_agent_that_feels_a_force():
    assert outliers(seeing(0, 0, 0, 0, 0, 0, 1e-9, 1)) == frozenset()


def test_who_is_set_aside_makes_nobody_elses_share_small():
    """One liar says so many observations that of the other one, by its share, next to nothing would be seen."""
    slots = seeing(1, 1, 1, 1, 1, 1, 1, 1, 1e9)
    slots[9] = Slot(99, Moments(1e17, np.full(2, 1e9), np.zeros(2)))
    assert outliers(slots) == {8, 9}


liars_moments = st.builds(
    lambda count, mean, variance: Moments(float(count), np.array([mean]), count * np.array([variance])),
    st.integers(1, 10**12), st.sampled_from([0.0, 1e3, -1e9]),
    st.one_of(st.sampled_from([0.0, 1e-11, 1e3]), st.floats(0, 1e18)),
)  # fmt: skip


@given(st.integers(3, 12), st.data())
def test_few_liars_do_not_make_a_scale_much_larger_than_all_honest_ones(agents, data):
    """Up to a quarter of the agents, or one, in any way; where more lie than one, most agents honestly see a change.

    Two honest ones are enough against one liar.
    """
    liars = data.draw(st.integers(1, max(1, (agents - 1) // 4)), "liars")
    least = 2 if liars == 1 else (agents + 1) // 2
    still = data.draw(st.integers(0, agents - liars - least), "honest agents that see no change")
    moving = agents - liars - still
    variances = [0.0] * still + data.draw(st.lists(st.floats(0.5, 2), min_size=moving, max_size=moving))
    counts = data.draw(st.lists(st.integers(10**7, 4 * 10**7), min_size=moving + still, max_size=moving + still))
    parts = [Moments(float(n), np.zeros(1), n * np.array([v])) for n, v in zip(counts, variances, strict=True)]
    parts += data.draw(st.lists(liars_moments, min_size=liars, max_size=liars), "lies")
    observed = Observed({agent_id: Slot(99, part) for agent_id, part in enumerate(parts)})
    observed.aside = outliers(observed.slots)
    assert all(agent_id >= moving + still for agent_id in observed.aside)
    shared = together(observed)
    assert (shared.m2 / shared.count <= (1 + 31 * liars) * max(variances)).all()


def test_nobody_is_an_outlier_alone():
    assert outliers({}) == outliers({3: server_slot()}) == frozenset()


def server_slot():
    server = Fold(RULE, np.zeros(2), 1)
    told(server, 0, LIES["a huge mean"])
    return server.state.observed["observations"].slots[0]


DEFENDED = [Slots(), ClipCentred(), Bounded()]
wide = st.floats(-1e9, 1e9)
lies = st.builds(
    lambda count, mean, m2: Moments(float(count), np.array(mean), np.array(m2)),
    st.integers(2, 2048), st.tuples(wide, wide, wide), st.tuples(*[st.floats(0, 1e18)] * 3),
)  # fmt: skip


@pytest.mark.parametrize("aggregator", DEFENDED)
@given(
    st.integers(3, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(max(0, 5 - n), n - 1))),
    st.lists(lies, min_size=1, max_size=9), st.integers(0, 99), st.booleans(),
)  # fmt: skip
def test_liars_cannot_move_a_shared_scale_out_of_the_range_of_the_honest(aggregator, sizes, told_lies, seed, first):
    """Fewer than half of at least five agents lie, in any way and as often as anybody, before the others or after."""
    honest_agents, liars = sizes
    agents, generator = honest_agents + liars, np.random.default_rng(seed)
    server = Fold(replace(RULE, aggregator=aggregator), np.zeros(2), agents)
    own = {}
    for turn in range(3):
        order = range(agents) if not first else reversed(range(agents))
        for agent_id in order:
            if agent_id < honest_agents:
                new = two_pass(generator.standard_normal((16, 3)) * USUAL * (1 + agent_id))
                own[agent_id] = merge(own.get(agent_id), new)
            else:
                new = told_lies[(turn * liars + agent_id) % len(told_lies)]
            told(server, agent_id, new)
    shared = server.state.statistics["observations"]
    means = np.array([part.mean for part in own.values()])
    variances = np.array([part.m2 / part.count for part in own.values()])
    for value, rows in ((shared.mean, means), (shared.m2 / shared.count, variances)):
        slack = 1e-9 * (1 + np.abs(rows).max(axis=0))
        assert (rows.min(axis=0) - slack <= value).all()
        assert (value <= rows.max(axis=0) + slack).all()


def test_the_middle_knows_who_is_revoked():
    server, generator = Fold(replace(RULE, aggregator=Slots()), np.zeros(2), 3), np.random.default_rng(0)
    rounds(server, range(3), 2, generator)
    slots = server.state.observed["observations"].slots
    without = [slots[agent_id].moments for agent_id in (0, 2)]
    server(Revoke(1))
    shared = server.state.statistics["observations"]
    np.testing.assert_allclose(shared.mean, np.mean([part.mean for part in without], axis=0), rtol=1e-9, atol=1e-12)
    assert shared.count == sum(part.count for part in without)
