"""Liars among honest agents: what each lie does, that it touches nobody else, and that it is as repeatable as work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afedpg import train
from afedpg.agent.attacks.reports import Copies, FalseDrift, Lie, Noise, PoisonedMoments, RandomValues, SignFlip, Zeros
from afedpg.agent.attacks.shipped import SHIPPED
from afedpg.config import from_settings
from afedpg.engine.attacked import Attacked
from afedpg.engine.workloads import check_local
from afedpg.errors import ConfigError
from afedpg.messages import Exchange, Group, Moments, Report, Scalar, Task, TaskId
from afedpg.problems import ProblemWorkload, make_problem
from afedpg.seeding import stream

EXCHANGE = Exchange((Group("policy", 1), Group("value", 3)), (Scalar("drift", 0.0, 2.0),), {"observations": 1})
LIES = {name: attack().fitted(EXCHANGE) for name, attack in SHIPPED.items() if issubclass(attack, Lie)}
BESIDE = {"poisoned-moments", "false-drift"}  # lies about what comes with the gradient
gradients = arrays(np.float32, 6, elements=st.floats(-1e6, 1e6, width=32))


def report(gradient, **moments):
    return Report(TaskId(0, 1), 2, np.array(gradient, np.float32), 5, moments)


def told(lie, *reports):
    """What a liar sends instead of these."""
    state, sent = lie.start(stream(0, "attack", 2)), []
    for honest in reports:
        state, lied = lie.tell(state, honest)
        sent.append(lied)
    return sent


@given(gradients, st.sampled_from([1.0, 2.5]))
def test_sign_flip(gradient, scale):
    [sent] = told(SignFlip(scale), report(gradient))
    np.testing.assert_allclose(sent.payload, -scale * gradient.astype(np.float64), rtol=1e-6)


@given(gradients)
def test_zeros(gradient):
    assert not told(Zeros(), report(gradient))[0].payload.any()


@given(gradients)
def test_noise_is_as_long_as_what_it_replaces(gradient):
    length = np.linalg.norm(gradient.astype(np.float64))
    one, other = told(Noise(), report(gradient), report(gradient))
    for sent in (one, other):
        np.testing.assert_allclose(np.linalg.norm(sent.payload.astype(np.float64)), length, rtol=1e-5, atol=1e-30)
    assert length < 1e-30 or not np.array_equal(one.payload, other.payload)


def test_noise_has_no_direction():
    lies = told(Noise(), *[report(np.eye(6)[0])] * 4000)
    assert np.abs(np.mean([sent.payload for sent in lies], axis=0)).max() < 0.03


@given(gradients, gradients)
def test_copies_of_the_first(first, second):
    for sent in told(Copies(), report(first), report(second), report(second)):
        assert sent.payload.tobytes() == first.tobytes()


def test_poisoned_moments_leave_the_gradient():
    moments = Moments(4.0, np.array([1.0, 2.0]), np.array([16.0, 0.0]))
    [sent] = told(PoisonedMoments(shift=10, spread=3), report([1, 2], observations=moments, returns=moments))
    assert sent.payload.tolist() == [1, 2]
    assert sent.moments.keys() == {"observations", "returns"}
    for poisoned in sent.moments.values():
        assert poisoned.count == 4
        assert poisoned.mean.tolist() == [21, 2]
        assert poisoned.m2.tolist() == [144, 0]


@pytest.mark.parametrize(("to", "drift"), [("lowest", 0.0), ("highest", 2.0)])
def test_false_drift_is_at_its_bound(to, drift):
    honest = Report(TaskId(0, 1), 2, np.ones(4, np.float32), 5, scalars={"drift": 0.3})
    [sent] = told(FalseDrift(to).fitted(EXCHANGE), honest)
    assert sent.scalars == {"drift": drift}
    assert sent.payload is honest.payload


@given(gradients)
def test_random_values_leave_the_policy(gradient):
    [sent] = told(RandomValues(scale=2.0).fitted(EXCHANGE), report(gradient))
    kept = [0, 4, 5]
    assert sent.payload[kept].tobytes() == gradient[kept].tobytes()
    length = np.linalg.norm(gradient[1:4].astype(np.float64))
    np.testing.assert_allclose(np.linalg.norm(sent.payload[1:4].astype(np.float64)), 2 * length, rtol=1e-5, atol=1e-30)


def test_random_values_of_a_group_with_parts_are_of_all_its_parts():
    names = ("policy", "moments.second", "moments.steps", "other")
    lie = RandomValues(group="moments").fitted(Exchange(tuple(Group(name, 2) for name in names)))
    [sent] = told(lie, report(np.ones(8)))
    assert (sent.payload == 1).tolist() == [True] * 2 + [False] * 4 + [True] * 2
    with pytest.raises(ConfigError, match="no group 'mom'; its groups are policy, value"):
        RandomValues(group="mom").fitted(EXCHANGE)


def test_a_lie_about_what_is_not_sent_is_refused():
    for lie, reason in (
        (FalseDrift(), "false-drift needs an estimator whose reports carry numbers"),
        (RandomValues(), "theta has no group 'value'; its groups are none; use --method afedppo"),
        (PoisonedMoments(), "poisoned-moments needs agents that report moments"),
    ):
        with pytest.raises(ConfigError, match=reason):
            lie.fitted(Exchange())


@pytest.mark.parametrize("engine", ["virtual", "local"])
@pytest.mark.parametrize("name", ["Other", "function", "All"])
def test_what_is_no_attack_is_refused_where_its_agents_would_be_honest(name, engine, tmp_path):
    text = "from afedpg.server.aggregators import All\nclass Other: pass\ndef function(report): return report\n"
    (tmp_path / "mine.py").write_text(text)
    what = f"attack: {name} does not inherit from Lie, World or Omniscient"
    with pytest.raises(ConfigError, match=what):
        train("quadratic", agents=2, attackers=(1,), attack=f"{tmp_path / 'mine.py'}:{name}", engine=engine)
    with pytest.raises(ConfigError, match=what):  # as `afedpg agent` finds out
        check_local(from_settings({"task": "quadratic", "attack": f"{tmp_path / 'mine.py'}:{name}"}))


@pytest.mark.parametrize("name", LIES)
@given(gradient=arrays(np.float32, 6, elements=st.floats(-(2.0**127), 2.0**127, width=32)))
def test_whatever_is_sent_can_travel(name, gradient):
    """A lie that the server refuses for its form is no attack."""
    [sent] = told(LIES[name], report(gradient))
    assert sent.payload.dtype == np.float32
    assert np.isfinite(sent.payload).all()
    assert (sent.task_id, sent.agent_id, sent.version) == (TaskId(0, 1), 2, 5)


def problem_workload(name="lq-bandit"):
    return ProblemWorkload(make_problem(from_settings({"task": name})), seed=3)


def follow(work, agent_id, state, first, count):
    sent = []
    for index in range(first, first + count):
        theta = np.full(work.parameters, 0.01 * index, np.float32)
        before = {name: array.copy() for name, array in state.items()}
        new, lied = work.work(state, Task(TaskId(0, index), agent_id, theta, index))
        assert all(np.array_equal(state[name], before[name]) for name in before)  # the arguments stay as they are
        state = new
        sent.append(lied.payload.tobytes())
    return state, sent


@pytest.mark.parametrize("name", LIES)
def test_who_does_not_lie_keeps_its_bits(name):
    honest = problem_workload()
    attacked = Attacked(honest, frozenset({1, 4}), 3, LIES[name])
    assert attacked.start(0).keys() == honest.start(0).keys()
    assert follow(attacked, 0, attacked.start(0), 0, 20)[1] == follow(honest, 0, honest.start(0), 0, 20)[1]


@pytest.mark.parametrize("name", LIES)
def test_a_liar_that_is_moved_tells_the_same_lies(name):
    """Its memory is in the state alone."""
    attacked = Attacked(problem_workload(), frozenset({1}), 3, LIES[name])
    _, whole = follow(attacked, 1, attacked.start(1), 0, 9)
    state, part = follow(attacked, 1, attacked.start(1), 0, 4)
    again = Attacked(problem_workload(), frozenset({1}), 3, LIES[name])
    assert part + follow(again, 1, state, 4, 5)[1] == whole


@pytest.mark.parametrize("name", sorted(set(LIES) - BESIDE))
def test_a_liar_does_not_send_what_the_honest_one_finds(name):
    honest = problem_workload()
    attacked = Attacked(honest, frozenset({1}), 3, LIES[name])
    assert follow(attacked, 1, attacked.start(1), 0, 9)[1] != follow(honest, 1, honest.start(1), 0, 9)[1]


def test_liars_make_noise_of_their_own_and_another_one_in_another_life():
    attacked = Attacked(problem_workload(), frozenset({1, 2}), 3, Noise())
    state = attacked.start(1)
    streams = [attacked.start(2), attacked.renew(state, 1), attacked.renew(state, 2), state]
    assert len({entry["attack_stream"].tobytes() for entry in streams}) == 4
    assert len({entry["stream"].tobytes() for entry in streams}) == 4


def test_everything_else_is_the_honest_workload():
    honest = problem_workload()
    attacked = Attacked(honest, frozenset({0}), 3, Zeros())
    assert attacked.exchange == honest.exchange
    assert (attacked.parameters, attacked.cost, attacked.steps) == (honest.parameters, honest.cost, honest.steps)
    theta = honest.initial_theta().astype(np.float32)
    assert attacked.initial_theta().tobytes() == honest.initial_theta().tobytes()
    assert attacked.evaluate(theta, {}, 3) == honest.evaluate(theta, {}, 3)
    assert attacked.export(theta, {})[1] == honest.export(theta, {})[1]
    attacked.check()
