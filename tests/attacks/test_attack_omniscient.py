"""What those who know everything send: formulas by hand, an optimum that no other vector beats, and what is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afedpg.agent.attacks.omniscient import (
    Adaptive,
    Adversary,
    Alie,
    FedPGAttack,
    InnerProduct,
    LargestAngle,
    Omniscient,
    Sight,
)
from afedpg.agent.attacks.shipped import SHIPPED
from afedpg.messages import Report, TaskId
from afedpg.seeding import freeze, stream

OMNISCIENT = {name: attack() for name, attack in SHIPPED.items() if issubclass(attack, Omniscient)}
federations = st.tuples(st.integers(2, 8), st.integers(2, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.integers(-40, 40).map(float))
)


def sent(attack, honest, share=0.2, centre=None, radius=np.inf, seed=0):
    return attack.send(Sight(honest, honest[0], share, centre, radius), np.random.default_rng(seed))


@given(federations)
def test_alie_stays_within_the_scatter(honest):
    lie = sent(Alie(z=1.5), honest)
    mean = sum(honest) / len(honest)
    deviation = np.sqrt(sum((row - mean) ** 2 for row in honest) / len(honest))
    np.testing.assert_allclose(lie, mean - 1.5 * deviation, atol=1e-9)


@given(federations)
def test_inner_product_manipulation(honest):
    lie = sent(InnerProduct(5.0), honest)
    np.testing.assert_allclose(lie, -5 * sum(honest) / len(honest), atol=1e-9)
    # two of ten: the mean of all has turned around
    assert (8 * honest.mean(axis=0) + 2 * lie) @ honest.mean(axis=0) <= 0


@given(federations, st.integers(0, 9))
def test_fedpg_attack_is_three_deviations_away(honest, seed):
    widest = max(np.linalg.norm(one - other) for one in honest for other in honest)
    gap = sent(FedPGAttack(), honest, seed=seed) - honest.mean(axis=0)
    assert np.linalg.norm(gap) == pytest.approx(1.5 * widest, abs=1e-5)


def angle(one, other):
    cosine = one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-300)
    return np.arccos(np.clip(cosine, -1, 1))


@given(federations, st.floats(0.02, 0.6), st.integers(0, 99))
def test_no_vector_as_long_turns_the_mean_further(honest, share, seed):
    lie = sent(LargestAngle(), honest, share)
    longest, m = np.linalg.norm(honest, axis=1).max(), (1 - share) * honest.mean(axis=0)
    assert np.linalg.norm(lie) <= longest * (1 + 1e-9)
    if np.linalg.norm(m) < 1e-6 or np.linalg.norm(m + share * lie) < 1e-6:
        return  # there is no direction to turn, or nothing is left of it
    others = np.random.default_rng(seed).standard_normal((200, m.size))
    others *= longest / np.linalg.norm(others, axis=1, keepdims=True)
    best = max(angle(m, m + share * other) for other in others)
    assert angle(m, m + share * lie) >= best - 1e-6


@given(federations, st.floats(0.1, 30), arrays(np.float64, 5, elements=st.floats(-9, 9)))
def test_the_adaptive_one_is_not_clipped_and_goes_against_the_honest(honest, radius, centre):
    centre = centre[: honest.shape[1]]
    lie = sent(Adaptive(), honest, centre=centre, radius=radius)
    assert np.linalg.norm(lie - centre) <= radius * (1 + 1e-9)
    assert (lie - centre) @ honest.mean(axis=0) <= 0


@pytest.mark.parametrize("name", OMNISCIENT)
def test_without_anything_to_go_by_it_is_finite(name):
    assert np.isfinite(sent(OMNISCIENT[name], np.zeros((3, 4)))).all()


def report(agent_id, index, gradient):
    return Report(TaskId(0, index), agent_id, np.asarray(gradient, np.float32), index)


def adversary(name):
    return Adversary(OMNISCIENT[name], frozenset({1, 3}), freeze(stream(0, "attack")))


def reports(count):
    generator = np.random.default_rng(0)
    return [report(index * 3 % 5, index, generator.standard_normal(6)) for index in range(count)]


@pytest.mark.parametrize("name", OMNISCIENT)
def test_an_adversary_changes_the_liars_reports_alone(name):
    one = adversary(name)
    for honest in reports(30):
        given = one(honest)
        assert (given is honest) == (honest.agent_id not in one.liars or not one.latest)
        assert given.payload.dtype == np.float32
    assert (one.sent, one.seen) == (12, 30)


def test_it_sees_the_latest_of_every_honest_agent():
    one = adversary("ipm")
    first = report(1, 0, np.ones(2))
    assert one(first) is first  # nobody else has said anything yet
    one(report(0, 1, [9.0, 9.0]))
    one(report(0, 2, [1.0, 0.0]))
    one(report(2, 3, [0.0, 3.0]))
    np.testing.assert_allclose(one(report(3, 4, [7.0, 7.0])).payload, [-2.5, -7.5])


@pytest.mark.parametrize("name", OMNISCIENT)
@pytest.mark.parametrize("stopped", [0, 1, 13])
def test_one_that_is_stored_goes_on_as_if_nothing_had_happened(name, stopped):
    whole, before, after = adversary(name), adversary(name), adversary(name)
    expected = [whole(honest).payload.tobytes() for honest in reports(30)]
    found = [before(honest).payload.tobytes() for honest in reports(30)[:stopped]]
    after.from_tree(before.to_tree())
    found += [after(honest).payload.tobytes() for honest in reports(30)[stopped:]]
    assert found == expected
