"""What a sampler hands to the gradient: one agent's T steps, in flat arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rollout:
    """Arrays may be views of buffers that the sampler's next rollout overwrites.

    An episode ends after step t where terminated[t] or truncated[t]. A value is needed beyond step t where the rollout
    or an episode was cut off without termination: `cut_steps` names those steps, `cut_observations` what came after.
    """

    raw: NDArray[Any]  # [T, obs] as the environment gave them (for the moments): float64, or a picture's bytes
    observations: NDArray[Any]  # [T, obs] what the policy saw: scaled, float32; of pictures `raw` itself
    actions: NDArray[Any]  # [T, act] float32 in the policy's own units, before clipping; or [T] or [T, choices] int64
    rewards: NDArray[np.float64]  # [T]
    terminated: NDArray[np.bool_]  # [T]
    truncated: NDArray[np.bool_]  # [T]
    cut_steps: NDArray[np.int64]  # [cuts] increasing; the last step is among them unless its episode terminated there
    cut_observations: NDArray[Any]  # [cuts, obs] as `observations`
    returns: tuple[float, ...]  # undiscounted, of the episodes that ended here
    lengths: tuple[int, ...]
    restarted: bool = False  # its first step begins an episode, although the rollout before it ended within one
    reward_scale: float = 1.0  # what the rewards were divided by

    @property
    def steps(self) -> int:
        return len(self.rewards)


_ARRAYS = (
    "raw", "observations", "actions", "rewards", "terminated", "truncated", "cut_steps", "cut_observations",
)  # fmt: skip


def rollout_to_state(rollout: Rollout, extra: dict[str, float]) -> dict[str, NDArray[Any]]:
    """As arrays of an agent's state, copied: a sampler's next rollout overwrites its buffers."""
    kept = _ARRAYS[1:] if rollout.raw is rollout.observations else _ARRAYS
    state = {f"rollout_{name}": np.array(getattr(rollout, name)) for name in kept}
    state["rollout_returns"] = np.array(rollout.returns, np.float64)
    state["rollout_lengths"] = np.array(rollout.lengths, np.int64)
    for name, value in extra.items():
        state[f"rollout_extra_{name}"] = np.array(value, np.float64)
    return state


def rollout_from_state(state: dict[str, NDArray[Any]]) -> tuple[Rollout, dict[str, float]]:
    arrays: dict[str, Any] = {name: state[f"rollout_{name}"] for name in _ARRAYS[1:]}
    arrays["raw"] = state.get("rollout_raw", arrays["observations"])
    returns, lengths = state["rollout_returns"].tolist(), state["rollout_lengths"].tolist()
    start = "rollout_extra_"
    extra = {key[len(start) :]: float(value) for key, value in state.items() if key.startswith(start)}
    return Rollout(**arrays, returns=tuple(returns), lengths=tuple(lengths)), extra
