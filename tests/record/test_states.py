"""Agents' states survive being stacked, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from afedpg.errors import BrokenPart
from afedpg.messages import AgentState
from afedpg.record import checkpoint
from afedpg.record.states import stack_states, unstack_states


@st.composite
def populations(draw: st.DrawFn) -> list[AgentState]:
    """Each key has a type and a shape past axis 0; agents differ in length, and may lack a key."""
    agents = draw(st.integers(0, 6))
    states: list[AgentState] = [{} for _ in range(agents)]
    for key in draw(st.lists(st.text(min_size=1, max_size=6), max_size=4, unique=True)):
        dtype = draw(st.sampled_from(["f8", "f4", "u8", "i8", "u1", "?"]))
        rest = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3))
        ragged = draw(st.booleans())
        optional = draw(st.booleans())
        for state in states:
            if not (optional and draw(st.booleans())):
                shape = (draw(st.integers(0, 3)), *rest) if ragged else rest
                state[key] = draw(hnp.arrays(dtype, shape))
    return states


def bits(states: list[AgentState]) -> Any:
    return [{key: (array.dtype.str, array.shape, array.tobytes()) for key, array in state.items()} for state in states]


@given(populations())
@settings(max_examples=200, deadline=None)
def test_unstacking_undoes_stacking(states: list[AgentState]) -> None:
    assert bits(unstack_states(stack_states(states))) == bits(states)


@given(populations())
@settings(max_examples=20, deadline=None)
def test_also_through_a_checkpoint(tmp_path_factory: Any, states: list[AgentState]) -> None:
    folder = tmp_path_factory.mktemp("run")
    checkpoint.save(folder, 0, {"agents": stack_states(states)}, keep=1)
    assert bits(unstack_states(checkpoint.load(folder, 0)["agents"])) == bits(states)


def test_ten_thousand_agents_are_a_few_arrays() -> None:
    states: list[AgentState] = [{"stream": np.full(6, agent, np.uint64)} for agent in range(10_000)]
    stacked = stack_states(states)
    assert stacked["stack:stream"].shape == (10_000, 6)
    assert len(stacked) == 2
    assert bits(unstack_states(stacked)) == bits(states)


def test_an_unstacked_state_owns_its_memory() -> None:
    first, second = unstack_states(stack_states([{"x": np.zeros(3)}, {"x": np.zeros(3)}]))
    first["x"][:] = 1.0
    assert not second["x"].any()
    assert first["x"].base is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros((2, 4))),
        (np.zeros(3), np.zeros((3, 1))),
        (np.zeros(()), np.zeros(1)),
    ],
)
def test_what_does_not_fit_together_is_named(one: Any, other: Any) -> None:
    with pytest.raises(BrokenPart, match=r"'critic' of the agent's state is .* for agent 0 and .* for agent 2"):
        stack_states([{"critic": one}, {}, {"critic": other}])
