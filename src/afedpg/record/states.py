"""Many agents' states as a few arrays: 10,000 agents are 10,000 rows, not 10,000 files.

Per key of the states, with `agents` = N:

    stack:KEY     [N, ...]        where all shapes agree
    ragged:KEY    [sum n_i, ...]  where they differ in the first axis only, with lengths:KEY [N]
    holders:KEY   [M]             the agents that have the key, where not all N do; the above then has M rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import BrokenPart
from afedpg.messages import AgentState


def stack_states(states: Sequence[AgentState]) -> dict[str, NDArray[Any]]:
    stacked: dict[str, NDArray[Any]] = {"agents": np.array(len(states), np.int64)}
    keys = dict.fromkeys(key for state in states for key in state)
    for key in keys:
        holders = [agent for agent, state in enumerate(states) if key in state]
        arrays = [states[agent][key] for agent in holders]
        if len(holders) < len(states):
            stacked[f"holders:{key}"] = np.array(holders, np.int64)
        _check(key, holders, arrays)
        if len({array.shape for array in arrays}) == 1:
            stacked[f"stack:{key}"] = np.stack(arrays)
        else:
            stacked[f"ragged:{key}"] = np.concatenate(arrays)
            stacked[f"lengths:{key}"] = np.array([len(array) for array in arrays], np.int64)
    return stacked


def unstack_states(stacked: Mapping[str, NDArray[Any]]) -> list[AgentState]:
    """The states, each with arrays of its own: one that is replaced frees its memory."""
    agents = int(stacked["agents"])
    states: list[AgentState] = [{} for _ in range(agents)]
    for name, array in stacked.items():
        form, _, key = name.partition(":")
        if form not in ("stack", "ragged"):
            continue
        holders = stacked.get(f"holders:{key}", np.arange(agents))
        if form == "stack":
            rows: Sequence[NDArray[Any]] = [array[row] for row in range(len(holders))]
        else:
            rows = np.split(array, np.cumsum(stacked[f"lengths:{key}"])[:-1])
        for agent, row in zip(holders.tolist(), rows, strict=True):
            states[agent][key] = np.array(row)
    return states


def _check(key: str, holders: list[int], arrays: list[NDArray[Any]]) -> None:
    """One type per key, and shapes that differ in the first axis at most: anything else could not come back exactly."""
    first = arrays[0]
    for agent, array in zip(holders, arrays, strict=True):
        rest = array.shape[1:] == first.shape[1:] and array.ndim == first.ndim
        if array.dtype != first.dtype or not rest:
            raise BrokenPart(
                f"estimator: '{key}' of the agent's state is {first.dtype}{list(first.shape)} for agent {holders[0]} "
                f"and {array.dtype}{list(array.shape)} for agent {agent}; it needs one type and one shape past axis 0"
            )
