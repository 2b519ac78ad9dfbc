"""Merged moments are the moments of everything together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import Fold, answer

from afedpg.messages import Moments
from afedpg.server.moments import merge, why_not
from afedpg.server.rules import afedpg
from afedpg.server.schedules import Constant


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
    server = Fold(afedpg(Constant(0.1), Constant(0.1)), np.zeros(2), agents=2)
    first, second = np.array([[1.0], [3.0]]), np.array([[5.0]])
    [task] = server(answer(server.tasks[0], [1.0, 0.0], moments=two_pass(first)))
    assert task.statistics.count == 2
    [task] = server(answer(server.tasks[1], [1.0, 0.0], moments=two_pass(second)))
    whole = two_pass(np.concatenate([first, second]))
    assert (task.statistics.count, *task.statistics.mean, *task.statistics.m2) == (3, *whole.mean, *whole.m2)
    assert server.state.arrivals[0].bytes_up == 2 * 4 + 3 * 8
    assert server.state.arrivals[0].bytes_down == 2 * 4 + 3 * 8
