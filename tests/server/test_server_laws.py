"""The algorithm's laws: what must hold for every gradient, whatever the numbers."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import Fold, answer

from afedpg import train
from afedpg.messages import Join
from afedpg.problems import Quadratic
from afedpg.server.rules import a3c, afedpg, afedpg_vanilla, fedpg, pg_plain
from afedpg.server.schedules import Constant
from afedpg.server.transforms import At, Direction, Mix, Normalize

alphas = st.floats(0.01, 1)
etas = st.floats(1e-3, 10)
gradients = st.lists(arrays(np.float32, 5, elements=st.floats(-100, 100, width=32)), min_size=1, max_size=8)


def constant(recipe, alpha=0.1, eta=0.01):
    return recipe(Constant(alpha), Constant(eta))


@given(alphas, etas, gradients)
def test_the_lookahead_cancels_the_hessian_terms(alpha, eta, gradients):
    """(1 - alpha)(theta_{k-1} - theta_k) + alpha (theta~_k - theta_k) = 0, up to theta~'s float32."""
    server = Fold(constant(afedpg, alpha, eta), np.zeros(5))
    before = server.theta
    for gradient in gradients:
        before = server.theta if gradient.any() else before  # a zero gradient moves nothing: the last step stands
        [task] = server.answer(0, gradient)
        residual = (1 - alpha) * (before - server.theta) + alpha * (task.theta.astype(np.float64) - server.theta)
        assert np.all(np.abs(residual) <= alpha * 2**-23 * np.abs(task.theta) + 1e-14 * eta)


@given(alphas, etas, gradients)
def test_a_step_is_exactly_eta_long(alpha, eta, gradients):
    server = Fold(constant(afedpg, alpha, eta), np.zeros(5))
    for gradient in gradients:
        before = server.theta
        server.answer(0, gradient)
        [arrival] = server.outcome.arrivals
        moved = np.linalg.norm(server.theta - before)
        if gradient.any() and np.linalg.norm(server.state.buffers["0.direction"]) > 1e-100:
            assert moved == pytest.approx(eta, rel=1e-12)
            assert arrival.step_length == pytest.approx(eta, rel=1e-12)
            assert arrival.lookahead_length == pytest.approx((1 - alpha) / alpha * eta, rel=1e-12)


def n_pg_igt(gradient, theta, alpha, eta, steps):
    """Normalized policy gradient with implicit gradient transport, written from the paper alone."""
    ahead, d = theta.astype(np.float32), np.zeros_like(theta)
    for k in range(steps):
        g = gradient(ahead.astype(np.float64)).astype(np.float32).astype(np.float64)
        d = (1 - alpha(k)) * d + alpha(k) * g
        new = theta + eta(k) * d / np.sqrt(np.sum(d**2))
        ahead = (new + (1 - alpha(k)) / alpha(k) * (new - theta)).astype(np.float32)
        theta = new
    return theta


@given(st.floats(0.05, 1), st.floats(1e-3, 0.3), st.integers(1, 60))
def test_one_agent_is_normalized_pg_with_gradient_transport(alpha, eta, steps):
    bowl = Quadratic(6)
    server = Fold(constant(afedpg, alpha, eta), np.zeros(6))
    for _ in range(steps):
        server.answer(0, bowl.gradient(server.tasks[0].theta.astype(np.float64)))
    expected = n_pg_igt(bowl.gradient, np.zeros(6), lambda k: alpha, lambda k: eta, steps)
    np.testing.assert_allclose(server.theta, expected, rtol=1e-9, atol=1e-12)


def test_one_agent_with_the_theorems_schedule_is_that_loop_too():
    """`literal`: with one agent the version is the iteration, and the clamp never bites."""
    bowl = Quadratic(6)
    result = train("quadratic", dimension=6, noise=0.0, agents=1, iterations=300, schedule="global", eta=1.0)
    expected = n_pg_igt(bowl.gradient, np.zeros(6), lambda k: (k + 1) ** -0.8, lambda k: 1 / (k + 1), 300)
    np.testing.assert_allclose(result.theta, expected, rtol=1e-9, atol=1e-12)


@given(st.data())
def test_mix_is_the_closed_form_of_its_weights(data):
    """d = sum_j alpha_j prod_{i > j} (1 - alpha_i) g_j, alpha taken at each gradient's version."""
    count = data.draw(st.integers(1, 12))
    gradients = data.draw(arrays(np.float32, (count, 3), elements=st.floats(-10, 10, width=32)))
    alpha = data.draw(st.lists(st.floats(0.001, 1), min_size=count, max_size=count))
    versions = data.draw(st.permutations(range(count)))
    mix = Mix(lambda iteration, version: alpha[version])
    buffers = mix.buffers(3)
    for iteration, (gradient, version) in enumerate(zip(gradients, versions, strict=True)):
        mix.update(Direction(gradient), buffers, At(iteration, version))
    used = [alpha[version] for version in versions]
    weights = [a * np.prod([1 - later for later in used[j + 1 :]]) for j, a in enumerate(used)]
    expected = sum(w * g.astype(np.float64) for w, g in zip(weights, gradients, strict=True))
    np.testing.assert_allclose(buffers["direction"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("recipe", [afedpg, afedpg_vanilla, fedpg, pg_plain, a3c])
def test_a_zero_direction_leaves_theta(recipe):
    server = Fold(constant(recipe), [1.0, -2.0, 1e-7])
    before = server.theta
    [task] = server.answer(0, np.zeros(3))
    assert server.theta.tobytes() == before.tobytes()
    assert task.theta.tobytes() == before.astype(np.float32).tobytes()
    assert (task.version, server.state.gradients, server.outcome.arrivals[0].step_length) == (1, 1, 0.0)


@pytest.mark.parametrize("recipe", [afedpg, afedpg_vanilla, fedpg, pg_plain, a3c])
def test_a_zero_gradient_moves_nothing_and_counts_as_an_arrival(recipe):
    server = Fold(constant(recipe), [1.0, -2.0, 1e-7])
    server.answer(0, [3.0, -1.0, 2.0])
    before, old = server.bits, server.tasks[0]
    [task] = server.answer(0, np.zeros(3))
    assert server.bits == before
    assert task.theta.tobytes() == old.theta.tobytes()
    [arrival] = server.outcome.arrivals
    assert (arrival.gradient, arrival.step_length, arrival.lookahead_length) == (2, 0.0, 0.0)


def test_a_round_whose_gradients_cancel_moves_nothing():
    server = Fold(constant(fedpg), [1.0, -2.0], agents=2)
    for gradients in ([1.0, 1.0], [2.0, 0.0]), ([3.0, -1.0], [-3.0, 1.0]):
        before = server.bits
        for agent_id, gradient in enumerate(gradients):
            server.answer(agent_id, gradient)
    assert server.bits == before
    assert server.state.gradients == 4


@pytest.mark.parametrize("length", [0.0, 1e-45])
def test_no_step_is_longer_than_eta_however_short_the_direction_becomes(length):
    """Ten thousand gradients of nothing, or of next to nothing, after an honest one."""
    server = Fold(constant(afedpg, alpha=0.1, eta=0.01), np.zeros(3))
    server.answer(0, [1.0, -2.0, 0.5])
    for _ in range(4_000):
        before = server.theta
        server.answer(0, [length, 0.0, length])
        assert np.linalg.norm(server.theta - before) <= 0.01 * (1 + 1e-12)


@pytest.mark.parametrize("length", [1e-160, 1e-200, 1e-299, 1e-310, 5e-324, 1e160, 1e300])
def test_a_direction_of_any_length_is_normalized_or_left_out(length):
    vector = length * np.array([0.6, 0.0, -0.8])
    direction = Normalize().update(Direction(vector), {}, At(0, 0))
    step = direction.factor * vector
    assert np.linalg.norm(step) == pytest.approx(1.0 if length > 1e-300 else 0.0, rel=1e-12)


@given(gradients, alphas)
def test_gradients_point_uphill_and_alpha_weighs_the_new_one(gradients, alpha):
    server = Fold(constant(afedpg, alpha), np.zeros(5))
    server.answer(0, gradients[0])
    assert server.theta @ gradients[0].astype(np.float64) >= 0
    np.testing.assert_array_equal(server.state.buffers["0.direction"], alpha * gradients[0].astype(np.float64))


def test_alpha_belongs_to_the_version_and_eta_to_the_iteration():
    """Agent 1's gradient is taken at iteration 0 and applied at iteration 2: delay 2."""
    server = Fold(afedpg(lambda k, v: 1 / (v + 1), lambda k, v: 10.0**-k), np.zeros(2), agents=2)
    for agent_id, expected in [(0, (0, 0, 0, 1.0, 1.0)), (0, (1, 1, 0, 0.5, 0.1)), (1, (2, 0, 2, 1.0, 0.01))]:
        server.answer(agent_id, [1.0, 1.0])
        [a] = server.outcome.arrivals
        assert (a.iteration, a.version, a.delay, a.alpha, a.eta) == expected
        assert a.step_length == pytest.approx(a.eta, rel=1e-12)
    assert server.tasks[1].version == 3


def test_a_late_gradients_lookahead_is_stretched_by_its_own_alpha():
    """Taken at version 0, applied at iteration 2: alpha is 1/2, not 1/4, and (1 - alpha)/alpha is 1."""
    server = Fold(afedpg(lambda k, v: 1 / (v + 2), lambda k, v: 0.1), np.zeros(2), agents=2)
    server.answer(0, [1.0, 0.0])
    server.answer(0, [1.0, 0.0])
    before = server.theta
    [task] = server.answer(1, [0.0, 1.0])
    assert server.outcome.arrivals[0].lookahead_length == pytest.approx(0.1, rel=1e-12)
    np.testing.assert_allclose(task.theta, 2 * server.theta - before, rtol=1e-6)


@given(gradients, alphas, etas)
def test_the_vanilla_server_sends_theta_itself(gradients, alpha, eta):
    server = Fold(constant(afedpg_vanilla, alpha, eta), np.zeros(5))
    ahead = Fold(constant(afedpg, alpha, eta), np.zeros(5))
    for gradient in gradients:
        [task] = server.answer(0, gradient)
        ahead.answer(0, gradient)
        assert task.theta.tobytes() == server.theta.astype(np.float32).tobytes()
    assert server.theta.tobytes() == ahead.theta.tobytes()  # the same gradients make the same steps


@given(gradients, etas)
def test_plain_policy_gradient_is_theta_plus_eta_g(gradients, eta):
    server, theta = Fold(constant(pg_plain, eta=eta), np.zeros(5)), np.zeros(5)
    for gradient in gradients:
        server.answer(0, gradient)
        theta = theta + eta * gradient.astype(np.float64)
    assert server.theta.tobytes() == theta.tobytes()


@given(gradients, etas)
def test_a3c_shares_rmsprop_statistics_among_all_agents(gradients, eta):
    server, theta, square = Fold(constant(a3c, eta=eta), np.zeros(5), agents=3), np.zeros(5), np.zeros(5)
    for turn, gradient in enumerate(gradients):
        server.answer(turn % 3, gradient)
        g = gradient.astype(np.float64)
        square = 0.99 * square + 0.01 * g**2 if g.any() else square
        theta = theta + eta * g / np.sqrt(square + 1e-5)
    np.testing.assert_allclose(server.theta, theta, rtol=1e-12, atol=1e-12)


tasks = st.sampled_from(["quadratic", "lq-bandit", "saturating-bandit"])


@settings(max_examples=25)
@given(tasks, st.sampled_from(["constant", "linear", "global", "fosp"]), alphas, etas, st.integers(0, 2**31))
def test_with_one_agent_afedpg_and_fedpg_are_pg_bit_for_bit(task, schedule, alpha, eta, seed):
    def theta(method):
        more = {"schedule": schedule, "alpha": alpha, "eta": eta, "seed": seed}
        return train(task, method=method, agents=1, iterations=20, **more).sha256

    assert theta("afedpg") == theta("fedpg") == theta("pg")


def test_the_server_holds_float64_and_only_messages_are_float32():
    """A step of 1e-9 at theta = 1 would vanish in float32, whose spacing there is 1.2e-7."""
    server = Fold(constant(afedpg, 0.001, 1e-9), [1.0])
    for count in range(1, 4):
        [task] = server.answer(0, [1.0])
        assert server.theta[0] - 1 == pytest.approx(count * 1e-9, abs=1e-15)
    # theta~ is built from the step itself: 999 steps ahead of theta
    assert task.theta[0] == np.float32(server.theta[0] + 999 * 1e-9)
    assert server.state.theta.dtype == server.state.buffers["0.direction"].dtype == np.float64
    assert task.theta.dtype == np.float32


def test_the_lookahead_is_built_from_the_step_not_from_a_difference():
    """At theta = 1 a difference knows a step of 1e-13 to three digits only."""
    server = Fold(constant(afedpg, 1e-11, 1e-13), [1.0, 1.0])
    [task] = server.answer(0, [3.0, 4.0])
    np.testing.assert_allclose(task.theta - 1, 1e11 * 1e-13 * np.array([0.6, 0.8]), rtol=3e-5)


@pytest.mark.parametrize("recipe", [afedpg, afedpg_vanilla, pg_plain, a3c])
def test_a_gradient_of_humanoids_length_is_applied_without_allocating(recipe):
    size = 727_074
    server = Fold(constant(recipe), np.zeros(size))
    reports = [answer(server.tasks[0], np.full(size, 1e-3, np.float32))]
    server(reports[0])
    report = answer(server.tasks[0], reports[0].payload)
    from afedpg.server.fold import step

    tracemalloc.start()
    try:
        step(server.rule, server.state, report)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert server.state.gradients == 2
    assert peak < 20_000


def test_a_joining_agent_gets_the_latest_theta_lookahead():
    server = Fold(constant(afedpg), np.zeros(2))
    [newest] = server.answer(0, [1.0, 2.0])
    [joined] = server(Join(7))
    assert (joined.version, joined.agent_id) == (1, 7)
    assert joined.theta.tobytes() == newest.theta.tobytes()
    assert joined.task_id != newest.task_id
