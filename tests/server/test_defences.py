"""Aggregators against liars: formulas by loops written apart, one vote per agent, and who leaves has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Fold, answer

from afedpg.messages import Exchange, Group, Leave, Report, Restart, Scalar, Suspicion, TaskId
from afedpg.server.aggregators import Drop, Given, Here, Memory, Use
from afedpg.server.defences import MEANS, QUARANTINE, Bounded, ClipCentred, Slots, centre_and_radius
from afedpg.server.robust import geometric_median
from afedpg.server.rules import afedpg
from afedpg.server.schedules import Constant
from afedpg.server.shipped import AGGREGATORS
from afedpg.server.state import from_tree, to_tree

SIZE = 3
WHOLE = Here(0, np.zeros(SIZE), 0, frozenset())
some_reports = st.lists(
    st.tuples(st.integers(0, 5), st.lists(st.integers(-20, 20), min_size=SIZE, max_size=SIZE)), min_size=1, max_size=60
)


class Server:
    """An aggregator and its memory."""

    def __init__(self, aggregator):
        self.aggregator, self.memory = aggregator, Memory(aggregator.start(SIZE))

    def __call__(self, agent, vector, here=WHOLE):
        vector = np.array(vector, np.float32)
        report = Report(TaskId(0, 0), agent, vector, 7)
        return self.aggregator.take(
            Given(report, vector, float(np.linalg.norm(vector.astype(float)))), self.memory, here
        )


def means_of(reports, beta):
    """Every agent's mean, plain at first, then of the last 1/beta or so; and how many reports it has."""
    means, counts = {}, {}
    for agent, vector in reports:
        counts[agent] = counts.get(agent, 0) + 1
        weight = max(beta, 1 / counts[agent])
        means[agent] = (1 - weight) * means.get(agent, 0.0) + weight * np.array(vector, float)
    return means, counts


@given(some_reports, st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([0.0, 0.2, 0.4]))
def test_slots_are_a_trimmed_mean_of_every_agents_mean(reports, beta, share):
    """Theta moves by it once enough of them have enough in their means, and goes on doing so when others come."""
    server, moves = Server(Slots("trimmed-mean", beta, share, fair=1e9)), False
    for index, (agent, vector) in enumerate(reports):
        use = server(agent, vector)
        means, counts = means_of(reports[: index + 1], beta)
        middle = np.median(list(counts.values()))
        ready = [count for count in counts.values() if count >= 1 / (2 * beta)]
        moves = moves or len(ready) >= (1 - share) * len(counts)
        weights = {other: min(count, max(1, middle), 1 / beta) for other, count in counts.items()}
        expected = [trimmed([(means[a][i], weights[a]) for a in means], share) for i in range(SIZE)]
        assert isinstance(use, Use)
        assert (use.version, [given.agent for given in use.reports]) == (7, [agent])
        np.testing.assert_allclose(server.memory.arrays["direction"], expected, atol=1e-6)
        np.testing.assert_allclose(use.direction, expected if moves else np.zeros(SIZE), atol=1e-6)


def trimmed(pairs, share):
    """The mean of (value, weight) without the lowest and the highest share of the weight."""
    total = sum(weight for _, weight in pairs)
    position, summed, kept = 0.0, 0.0, 0.0
    for value, weight in sorted(pairs):
        inside = max(0.0, min(position + weight, total * (1 - share)) - max(position, total * share))
        summed, kept, position = summed + inside * value, kept + inside, position + weight
    return summed / kept


@pytest.mark.parametrize("mean", MEANS)
@settings(max_examples=15)  # of hundreds of reports each
@given(st.lists(st.integers(0, 5), max_size=80), st.integers(0, 9))
def test_reporting_more_often_gains_no_weight(mean, extra, seed):
    """Agents that always say the same: how often each said it leaves no trace once all have said it ten times."""
    opinions = np.random.default_rng(seed).integers(-9, 9, (6, SIZE))
    calm, busy = Server(Slots(mean, fair=1e9)), Server(Slots(mean, fair=1e9))
    for agent in [*range(6)] * 12:
        expected = calm(agent, opinions[agent])
    for agent in [*extra, *[*range(6)] * 12]:
        found = busy(agent, opinions[agent])
    if mean == "clipped":  # goes on from where it was, and arrives there in the end
        for agent in [*range(6)] * 40:
            expected, found = calm(agent, opinions[agent]), busy(agent, opinions[agent])
    np.testing.assert_allclose(found.direction, expected.direction, atol=1e-3)


@pytest.mark.parametrize("mean", ["trimmed-mean", "ctma", "geometric-median"])
@settings(max_examples=15)  # of a thousand reports each
@given(st.integers(0, 99), st.sampled_from([1, 10]), st.sampled_from([-1e6, 1.0, 30.0, 1e30]))
def test_three_of_ten_that_lie_together_and_often(mean, seed, rate, lie):
    """The honest scatter around (1, 1, 1)."""
    generator = np.random.default_rng(seed)
    server, honest = Server(Slots(mean)), []
    for _ in range(12):
        for agent in range(7):
            honest.append((agent, 1 + 0.5 * generator.standard_normal(SIZE).astype(np.float32)))
            server(*honest[-1])
        answers = [server(7 + liar, np.full(SIZE, lie)) for _ in range(rate) for liar in range(3)]
    means = np.array(list(means_of(honest, 0.1)[0].values()))
    direction = server.memory.arrays["direction"]
    reach = np.linalg.norm(means - geometric_median(means, np.ones(7)), axis=1).max()
    assert np.linalg.norm(direction - means.mean(axis=0)) <= 5 * reach
    if mean == "trimmed-mean":
        assert ((means.min(axis=0) - 1e-6 <= direction) & (direction <= means.max(axis=0) + 1e-6)).all()
    assert any(isinstance(answer, Drop) for answer in answers) == (rate > 1)


def test_a_flood_is_not_used():
    """Neither at first nor when the flooder has left and come back; who is as fast as the others loses nothing."""
    server, answers = Server(Slots(fair=2.0)), []
    for _ in range(2):
        for _ in range(20):
            for agent in range(3):
                assert isinstance(server(agent, [1, 0, 0]), Use)
            answers += [server(3, [0, 1, 0]) for _ in range(10)]
        del server.memory.slots[3]
        server.aggregator.changed(server.memory, WHOLE)
    used = [sum(isinstance(answer, Use) for answer in part) for part in (answers[:200], answers[200:])]
    assert all(40 <= count <= 50 for count in used)
    reasons = [answer.reason for answer in answers if isinstance(answer, Drop)]
    assert all(reason.startswith("flood: ") for reason in reasons)


@pytest.mark.parametrize("rate", [1, 50])
def test_who_reports_first_does_not_lead_theta(rate):
    """Three of ten that are there from the beginning and lie before anybody else has spoken."""
    server, generator = fold(Slots(), agents=10), np.random.default_rng(0)
    for _ in range(rate):
        for liar in range(7, 10):
            server.answer(liar, [-1.0] * SIZE)
    assert not server.theta.any()
    for done in range(1, 9):
        for agent in range(7):
            server.answer(agent, 1 + 0.3 * generator.standard_normal(SIZE))
        if done < 5:  # 1/(2 beta)
            assert not server.theta.any()
    assert (server.theta > 0).all()


def test_values_of_parameters_do_not_wait():
    """A critic may learn while the policy stays."""
    exchange = Exchange((Group("policy", 2), Group("value", 1, "parameters")))
    server = fold(Slots(), agents=1, exchange=exchange)
    server.answer(0, [3.0, 4.0, -2.0])
    np.testing.assert_allclose(server.theta, [0.0, 0.0, -2.0])


def fold(aggregator, agents=4, size=SIZE, exchange=Exchange()):
    rule = replace(afedpg(Constant(1.0), Constant(1.0)), aggregator=aggregator, exchange=exchange)
    return Fold(rule, np.zeros(size), agents)


@pytest.mark.parametrize("aggregator", [Slots(), ClipCentred(), Bounded()])
def test_who_leaves_has_no_vote_and_who_is_yet_to_come_back_has(aggregator):
    server = fold(aggregator)
    for agent in range(4):
        server.answer(agent, [1.0, agent, 0.0])
    server(Leave(1))
    agents = server.state.memory.arrays["agents"]
    assert agents.tolist() == [0, 2, 3]
    assert [len(server.state.memory.arrays[table]) for table in aggregator.tables] == [3] * len(aggregator.tables)
    server(Restart())
    server(Leave(2))
    assert server.state.memory.arrays["agents"].tolist() == [0, 3]


def test_groups_are_judged_each_for_itself():
    """A liar in one group is believed in the other."""
    exchange = Exchange((Group("policy", 2), Group("value", 1)))
    whole, parts = Server(Slots("geometric-median", beta=1.0)), Server(Slots("geometric-median", beta=1.0))
    places = WHOLE._replace(groups=tuple(zip(exchange.groups, (slice(0, 2), slice(2, 3)), strict=True)))
    for agent, vector in enumerate([[1, 0, 5], [1.1, 0, 5.2], [0.9, 0.1, 99], [40, 40, 5.1], [1, 0.2, 4.9]]):
        together, apart = whole(agent, vector), parts(agent, vector, places)
    assert apart.direction[2] == pytest.approx(5.1, abs=1e-3)
    assert np.linalg.norm(apart.direction[:2] - [1, 0.05]) < 0.2
    assert together.direction[2] != pytest.approx(5.1, abs=1e-3)
    server = fold(Slots("geometric-median", beta=1.0), agents=1, exchange=exchange)
    server.answer(0, [3.0, 4.0, -2.0])
    np.testing.assert_allclose(server.theta, [0.6, 0.8, -1.0])


@given(some_reports)
def test_clipping_that_never_clips_is_no_aggregator_to_the_bit(reports):
    plain, clipped = fold(AGGREGATORS["each"](), 6), fold(ClipCentred(reach=1e9, fair=1e9), 6)
    for agent, vector in reports:
        plain.answer(agent, vector)
        clipped.answer(agent, vector)
    assert plain.bits == clipped.bits


@given(some_reports, st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.1, 0.7]))
def test_nothing_is_further_from_the_centre_than_the_radius(reports, reach, beta):
    server = Server(ClipCentred(beta=beta, reach=reach))
    gaps, counts = {}, {}
    for agent, vector in reports:
        centre = server.memory.arrays["centre"].astype(float)
        gap = np.linalg.norm(np.array(vector) - centre)
        counts.setdefault(agent, 0.0)
        counts = {other: count * (1 - 0.1 / len(counts)) for other, count in counts.items()}
        counts[agent] += 1
        gaps[agent] = gaps.get(agent, 0.0) + (gap - gaps.get(agent, 0.0)) * max(beta, 1 / counts[agent])
        radius = reach * np.median(list(gaps.values()))
        weight = min(1.0, np.median(list(counts.values())) / counts[agent])
        use = server(agent, vector)
        expected = centre + weight * (np.array(vector) - centre) * (1 if gap <= radius else radius / gap)
        np.testing.assert_allclose(use.direction, expected, atol=1e-5)
        assert centre_and_radius(server.memory)[1] == pytest.approx(radius, abs=1e-5)
        after = (1 - beta) * centre + beta * np.array(expected)
        np.testing.assert_allclose(server.memory.arrays["centre"], after, atol=1e-5)


def test_a_flood_counts_as_much_as_the_middle_agent():
    """Three that say (1, 0, 0) against one that says the opposite a hundred times as often."""
    server = Server(ClipCentred())
    for _ in range(60):
        for agent in range(3):
            server(agent, [1, 0, 0])
        for _ in range(100):
            server(3, [-1, 0, 0])
    assert server.memory.arrays["centre"][0] > 0


@pytest.mark.parametrize("name", ["slots", "clip-centred"])
def test_the_memory_that_is_announced_is_the_memory_it_takes(name):
    aggregator, size = AGGREGATORS[name](), 1000
    memory = Memory(aggregator.start(size))
    here = WHOLE._replace(theta=np.zeros(size))
    for agent in range(8):
        vector = np.full(size, agent, np.float32)
        aggregator.take(Given(Report(TaskId(0, 0), agent, vector, 0), vector, 1.0), memory, here)
    taken = sum(array.nbytes for array in [*memory.arrays.values(), *memory.slots.values()])
    assert taken <= aggregator.vectors(8) * 8 * size


def scattered(generator, agent, lie):
    return 1 + 0.3 * generator.standard_normal(SIZE) if agent < 4 else np.full(SIZE, lie)


@pytest.mark.parametrize("aggregator", [Slots(), ClipCentred(), Bounded()])
def test_who_is_far_from_the_others_is_suspect(aggregator):
    server, generator = fold(aggregator, agents=5), np.random.default_rng(0)
    for _ in range(20):
        for agent in range(5):
            server.answer(agent, scattered(generator, agent, -9.0))
            suspicion = server.outcome.suspicion
            assert suspicion == Suspicion(agent, aggregator.suspicions(server.state.memory)[agent])
    found = aggregator.suspicions(server.state.memory)
    assert found.keys() == set(range(5))
    assert max(found[agent] for agent in range(4)) < 3 < 5 < found[4]
    server.answer(0, [0.0] * SIZE)  # also where nothing moves
    assert server.outcome.suspicion.agent_id == 0
    server(Leave(4))
    assert 4 not in aggregator.suspicions(server.state.memory)


def test_what_an_attacker_knows_of_slots():
    server = Server(Slots())
    assert centre_and_radius(server.memory) is None
    for agent in [0, 1, 2] * 30:
        server(agent, [3.0 * agent, 0, 0])
    centre, radius = centre_and_radius(server.memory)
    np.testing.assert_allclose(centre, server.memory.arrays["direction"])
    assert radius == pytest.approx(np.median(server.memory.arrays["gaps"]))
    assert centre_and_radius(Memory()) is None
    bounded = Server(Bounded())  # has a bound on the length, and no centre
    bounded(0, [1.0, 0, 0])
    assert centre_and_radius(bounded.memory) is None


def test_undefended_nobody_is_judged():
    server = fold(AGGREGATORS["each"]())
    server.answer(0, [1.0] * SIZE)
    assert server.outcome.suspicion is None


@pytest.mark.parametrize("aggregator", [Slots(quarantine=3.0), ClipCentred(quarantine=3.0), Bounded(quarantine=3.0)])
def test_who_is_in_quarantine_is_not_used_until_it_is_like_the_others(aggregator):
    server, generator = fold(aggregator, agents=5), np.random.default_rng(0)
    for _ in range(20):
        for agent in range(5):
            server.answer(agent, scattered(generator, agent, -9.0))
    assert server.outcome.unused == (4, QUARANTINE)
    before = server.theta
    server.state = from_tree(to_tree(server.state), server.rule)  # as a checkpoint has it
    server.answer(4, [-9.0] * SIZE)
    assert server.outcome.unused is not None
    assert (server.theta == before).all()
    for _ in range(60):
        for agent in range(5):
            server.answer(agent, scattered(generator, agent, 1.0))
    assert server.outcome.unused is None
    assert server.outcome.arrivals


@pytest.mark.parametrize("quarantine", [0.01, 1.0])
@given(some_reports)
def test_never_is_everybody_in_quarantine(quarantine, reports):
    for kind in (Slots, ClipCentred, Bounded):
        server = Server(kind(quarantine=quarantine))
        for agent, vector in reports:
            server(agent, vector)
        gaps = server.memory.arrays["gaps"]
        assert 2 * server.aggregator.kept_out(gaps).sum() <= len(gaps)


def test_the_middle_of_what_agents_say_beside_their_gradients_counts():
    """Scalars reach the rule's parts as the median over the agents' newest, from the first step on."""
    seen = []
    rule = replace(afedpg(Constant(1.0), Constant(1.0)), aggregator=Slots(beta=1.0), broadcast=Noticed(seen))
    server = Fold(replace(rule, exchange=Exchange(scalars=(Scalar("drift", 0.0, 9.0),))), np.zeros(SIZE), 3)
    for agent, drift in enumerate([1.0, 9.0, 2.0, 3.0]):
        server(answer(server.tasks[agent % 3], [1.0] * SIZE, scalars={"drift": drift}))
    np.testing.assert_allclose(seen, [2.0, 3.0])


class Noticed:
    def __init__(self, seen):
        self.seen = seen

    def stretch(self, at):
        self.seen.append(at.scalars["drift"])
        return 0.0
