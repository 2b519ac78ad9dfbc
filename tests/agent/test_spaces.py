"""Spaces: flattened as Gymnasium does, refused by name where not supported, and stored as plain data."""

import json
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.errors import ConfigError
from afedpg.sampling.spaces import actions_of, from_json, observations_of, to_json

BOX = spaces.Box(-1, 1, (3,), np.float32)
SUPPORTED = [
    BOX,
    spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    spaces.Box(0, 255, (128,), np.uint8),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiBinary(4),
    spaces.Dict({"b": spaces.Discrete(3), "a": BOX}),
    spaces.Tuple([BOX, spaces.Dict({"x": spaces.MultiBinary(2), "y": spaces.Discrete(2)})]),
]
PICTURE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
REFUSED = [
    spaces.Box(0, 1, (8, 8, 3), np.float32),
    spaces.Box(0, 255, (2, 2, 8, 8, 3), np.uint8),
    spaces.Text(5),
    spaces.Sequence(BOX),
    spaces.Dict({"p": PICTURE}),
    spaces.Dict({}),
    spaces.Tuple([]),
    spaces.Dict({"a": BOX, "b": spaces.Dict({})}),
    spaces.Dict({"a": BOX, "b": spaces.Tuple([])}),
]


@pytest.mark.parametrize("space", SUPPORTED, ids=str)
def test_flattening_is_gymnasiums(space):
    spec = observations_of(space)
    space.seed(0)
    for _ in range(5):
        sample = space.sample()
        flat = spec.flatten(sample)
        np.testing.assert_array_equal(flat, spaces.flatten(space, sample).astype(np.float64))
        assert flat.dtype == np.float64
        assert flat.shape == (spec.size,)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(spec)).flatten(sample), flat)


@pytest.mark.parametrize("space", [*SUPPORTED, PICTURE, spaces.Box(0, 200, (8, 8), np.uint8)], ids=str)
def test_a_space_survives_json(space):
    assert from_json(json.loads(json.dumps(to_json(space)))) == space


@pytest.mark.parametrize("space", REFUSED, ids=str)
def test_unsupported_observations_are_named(space):
    with pytest.raises(ConfigError) as refusal:
        observations_of(space)
    assert str(space) in str(refusal.value)
    of_bytes = isinstance(space, spaces.Box) and space.dtype == np.uint8
    assert ("not of bytes" in str(refusal.value)) == (isinstance(space, spaces.Box) and not of_bytes)
    assert ("has 5 axes, and a picture or a stack of them 2 to 4" in str(refusal.value)) == of_bytes


@pytest.mark.parametrize("space", [spaces.Box(0, 9, (2,), np.int64), spaces.Tuple([spaces.Discrete(2)])])
def test_unsupported_actions_are_named(space):
    with pytest.raises(ConfigError) as refusal:
        actions_of(space)
    assert str(space) in str(refusal.value)


def test_infinite_bounds_are_refused():
    with pytest.raises(ConfigError, match="infinite bounds"):
        actions_of(spaces.Box(-np.inf, 1, (2,), np.float32))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-100, 100, width=32), st.floats(0, 100, width=32)), min_size=1, max_size=4),
    st.lists(st.floats(-3, 3, width=32), min_size=4, max_size=4),
)
def test_box_actions_cover_exactly_the_bounds(bounds, numbers):
    low = np.array([lower for lower, _ in bounds], np.float32)
    high = low + np.array([width for _, width in bounds], np.float32)
    space = spaces.Box(low, high, dtype=np.float32)
    actions = actions_of(space)
    u = np.array(numbers[: len(low)], np.float32)
    given_action = actions.shaped(actions.to_environment(u))
    assert space.contains(given_action)
    expected = (low.astype(float) + high) / 2 + (high.astype(float) - low) / 2 * np.clip(u, -1, 1)
    np.testing.assert_allclose(given_action, expected, rtol=1e-5, atol=1e-5)
    beyond = np.full(len(low), 7, np.float32)
    np.testing.assert_allclose(actions.to_environment(beyond), high, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(actions.to_environment(-beyond), low, rtol=1e-6, atol=1e-6)


def test_discrete_actions_begin_at_start():
    actions = actions_of(spaces.Discrete(3, start=5))
    assert [int(actions.to_environment(index)) for index in range(3)] == [5, 6, 7]
