"""The agent's own value estimate: it lowers the gradient's variance, is fitted on the agent's data and never sent.

Values for a rollout are predicted before the rollout is fitted: otherwise the fit would explain away its own noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import AgentState, Floats

Row = NDArray[np.float64]


class Baseline(Protocol):
    def start(self, generator: np.random.Generator) -> AgentState: ...

    def values(self, state: AgentState, observations: Floats) -> Row:
        """[n, obs] scaled -> [n]"""

    def fit(self, state: AgentState, observations: Floats, targets: Row) -> AgentState:
        """The arrays that are new; those of `state` are left as they are."""


@dataclass(frozen=True)
class NoBaseline:
    def start(self, generator: np.random.Generator) -> AgentState:
        return {}

    def values(self, state: AgentState, observations: Floats) -> Row:
        return np.zeros(len(observations))

    def fit(self, state: AgentState, observations: Floats, targets: Row) -> AgentState:
        return {}


@dataclass(frozen=True)
class LinearBaseline:
    """V(s) = w . (s, s^2, 1), refitted at every report: min |X w - y|^2 + T ridge |w - w_before|^2.

    Pulling towards the last fit, not towards 0, keeps what earlier rollouts taught where this one says nothing.
    """

    observations: int
    ridge: float = 1e-2

    def start(self, generator: np.random.Generator) -> AgentState:
        return {"baseline": np.zeros(2 * self.observations + 1)}

    def values(self, state: AgentState, observations: Floats) -> Row:
        return _features(observations) @ state["baseline"]

    def fit(self, state: AgentState, observations: Floats, targets: Row) -> AgentState:
        features = _features(observations)  # X [T, F]
        before = state["baseline"]
        missing = targets - features @ before
        pull = self.ridge * len(targets)
        if features.shape[1] <= len(targets):
            gram = features.T @ features + pull * np.eye(features.shape[1])
            change = np.linalg.solve(gram, features.T @ missing)
        else:  # the same solution through the smaller [T, T] system
            gram = features @ features.T + pull * np.eye(len(targets))
            change = features.T @ np.linalg.solve(gram, missing)
        return {"baseline": before + change}


def _features(observations: Floats) -> Row:
    x = observations.astype(np.float64)
    return np.concatenate([x, x * x, np.ones((len(x), 1))], axis=1)
