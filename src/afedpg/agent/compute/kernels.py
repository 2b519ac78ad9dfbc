"""The native kernels as the rest of the program calls them: flat vectors and numpy arrays in, flat vectors out.

    policy = PolicyKernels((11, 64, 64, 3), gaussian=True)
    gradient = policy.score_gradient(theta, observations, actions, weights)

theta is float32 in the layout of `MlpPolicy`; what lies behind the policy's parameters is not looked at. One object
belongs to one thread: it holds the memory that a call works in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.compute import objectives
from afedpg.agent.compute.local_steps import STATISTICS, Adam, critic_steps, local_steps
from afedpg.agent.compute.network import make_memory, make_shape, pack, unpack
from afedpg.agent.compute.objectives import Clipped, Row
from afedpg.compiled import say_if_compiling
from afedpg.policy.forward import parameter_count

CHUNK = 256  # rows at a time: the layers' outputs stay in the second cache, and a weight is read once per chunk
Vector32 = NDArray[np.float32]


class Kernels:
    """One network: memory, and the ways in and out of it."""

    def __init__(self, sizes: Sequence[int], tanh_layers: bool, gaussian: bool, squashed: bool, chunk: int) -> None:
        self.parameters = parameter_count(sizes, log_std=gaussian)
        self.shape = make_shape(sizes, chunk, tanh_layers, gaussian, squashed)
        self.memory = make_memory(self.shape, chunk)
        self._order = np.arange(0)

    def put(self, theta: NDArray[Any], packed: Vector32) -> None:
        say_if_compiling(pack)  # every call begins here
        if theta.ndim != 1 or theta.size < self.parameters:
            raise ValueError(f"theta of shape {theta.shape} does not hold this network's {self.parameters} parameters")
        pack(self.shape, np.ascontiguousarray(theta, np.float32), packed)

    def take(self, packed: Vector32) -> Vector32:
        theta = np.empty(self.parameters, np.float32)
        unpack(self.shape, packed, theta)
        return theta

    def put_learner(self, learner: Learner) -> None:
        self.put(learner.theta, self.memory.weights)
        self.put(learner.first, self.memory.first)
        self.put(learner.second, self.memory.second)

    def take_learner(self, steps: int, first_steps: int | None = None) -> Learner:
        memory = self.memory
        return Learner(self.take(memory.weights), self.take(memory.first), self.take(memory.second), steps, first_steps)

    def observations(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        return _table("observations", rows, len(rows), int(self.shape.sizes[0]))

    def rows(self, count: int) -> NDArray[np.int64]:
        """All of them, first to last."""
        if self._order.size != count:
            self._order = np.arange(count)
        return self._order


class PolicyKernels(Kernels):
    """A Gaussian or categorical MLP policy. `sizes`: observations, hidden layers, actions."""

    def __init__(
        self, sizes: Sequence[int], gaussian: bool, tanh_layers: bool = False, squashed: bool = True, chunk: int = CHUNK
    ) -> None:
        super().__init__(sizes, tanh_layers, gaussian, gaussian and squashed, chunk)

    def actions(self, actions: NDArray[Any], rows: int) -> NDArray[np.float32]:
        """[T, act], or [T] of whole numbers."""
        count = int(self.shape.sizes[-1])
        if self.shape.gaussian:
            return _table("actions", actions, rows, count)
        _check_places("actions", actions, count)
        return _table("actions", actions.reshape(-1, 1), rows, 1)

    def log_prob(self, theta: NDArray[Any], observations: NDArray[Any], actions: NDArray[Any]) -> Row:
        """log pi(a_t | s_t), [T]."""
        self.put(theta, self.memory.weights)
        out = np.empty(len(observations))
        objectives.log_probabilities(
            self.shape, self.memory, self.observations(observations), self.actions(actions, len(out)),
            self.rows(len(out)), out,
        )  # fmt: skip
        return out

    def score_gradient(
        self, theta: NDArray[Any], observations: NDArray[Any], actions: NDArray[Any], weights: NDArray[Any]
    ) -> Vector32:
        """sum_t w_t grad log pi(a_t | s_t)."""
        self.put(theta, self.memory.weights)
        objectives.score_gradient(
            self.shape, self.memory, self.observations(observations), self.actions(actions, len(observations)),
            _row("weights", weights, len(observations)), self.rows(len(observations)),
        )  # fmt: skip
        return self.take(self.memory.gradient)

    def clipped_gradient(
        self, theta: NDArray[Any], observations: NDArray[Any], actions: NDArray[Any], given: Clipped
    ) -> tuple[Vector32, dict[str, float]]:
        """Uphill on the mean clipped objective over all rows; and objective, kl, clipped share and entropy."""
        self.put(theta, self.memory.weights)
        found = objectives.clipped_gradient(
            self.shape, self.memory, self.observations(observations), self.actions(actions, len(observations)),
            _given(given, len(observations)), self.rows(len(observations)), 0, len(observations),
        )  # fmt: skip
        return self.take(self.memory.gradient), dict(zip(STATISTICS, found, strict=False))

    def divergence(self, theta_before: NDArray[Any], theta: NDArray[Any], observations: NDArray[Any]) -> float:
        """Mean of KL(before || now) over the observations."""
        self.put(theta_before, self.memory.other)
        self.put(theta, self.memory.weights)
        table = self.observations(observations)
        return objectives.mean_divergence(self.shape, self.memory, table, self.rows(len(table)))

    def fisher_product(self, theta: NDArray[Any], observations: NDArray[Any], vector: NDArray[Any]) -> Vector32:
        """F v, where F is the mean Fisher information over the observations."""
        self.put(theta, self.memory.weights)
        self.put(vector, self.memory.other)
        table = self.observations(observations)
        objectives.fisher_product(self.shape, self.memory, table, self.rows(len(table)))
        return self.take(self.memory.gradient)


class CriticKernels(Kernels):
    """A value network: `sizes` are observations and hidden layers; it has one output."""

    def __init__(self, sizes: Sequence[int], tanh_layers: bool = False, chunk: int = CHUNK) -> None:
        super().__init__((*sizes, 1), tanh_layers, False, False, chunk)

    def values(self, theta: NDArray[Any], observations: NDArray[Any]) -> Row:
        """V(s_t), [T]."""
        self.put(theta, self.memory.weights)
        table, out = self.observations(observations), np.empty(len(observations))
        objectives.values_of(self.shape, self.memory, table, self.rows(len(out)), out)
        return out

    def gradient(
        self, theta: NDArray[Any], observations: NDArray[Any], targets: NDArray[Any]
    ) -> tuple[Vector32, float]:
        """Of the mean of (V(s_t) - y_t)^2; and that mean."""
        self.put(theta, self.memory.weights)
        loss = objectives.value_gradient(
            self.shape, self.memory, self.observations(observations), _row("targets", targets, len(observations)),
            self.rows(len(observations)), 0, len(observations),
        )  # fmt: skip
        return self.take(self.memory.gradient), loss

    def fit(
        self, learner: Learner, how: Adam, observations: NDArray[Any], targets: NDArray[Any],
        passes: NDArray[np.int64], minibatches: int,
    ) -> Learner:  # fmt: skip
        """`passes` [epochs, T] over the rows, each in so many minibatches, with an Adam step downhill for each."""
        _check_places("passes", passes, len(observations))
        if not 1 <= minibatches <= passes.shape[1]:
            raise ValueError(f"minibatches: {minibatches}, for {passes.shape[1]} rows")
        self.put_learner(learner)
        critic_steps(
            self.shape, self.memory, how, self.observations(observations), _row("targets", targets, len(observations)),
            np.ascontiguousarray(passes, np.int64), minibatches, learner.steps,
        )  # fmt: skip
        return self.take_learner(learner.steps + len(passes) * minibatches)


@dataclass(frozen=True)
class Learner:
    """One network's theta and its Adam, between two optimisations: flat vectors in theta's layout."""

    theta: Vector32
    first: Vector32
    second: Vector32
    steps: int = 0  # that the second moment is made of
    first_steps: int | None = None  # that the first one is made of; None: as many

    @property
    def counts(self) -> tuple[int, int]:
        return self.steps, self.steps if self.first_steps is None else self.first_steps

    @staticmethod
    def start(theta: NDArray[Any]) -> Learner:
        zero = np.zeros(theta.size, np.float32)
        return Learner(theta.astype(np.float32), zero, zero.copy())


def optimize(
    policy: PolicyKernels, critic: CriticKernels, learners: tuple[Learner, Learner], how: tuple[Adam, Adam],
    observations: NDArray[Any], actions: NDArray[Any], given: Clipped, targets: NDArray[Any],
    passes: NDArray[np.int64], minibatch: int, max_kl: float = 0.0,
) -> tuple[Learner, Learner, dict[str, float]]:  # fmt: skip
    """All passes over a rollout: policy and critic after them, and means over the minibatches. See `local_steps`."""
    if policy.shape.sizes[0] != critic.shape.sizes[0] or minibatch < 1:
        raise ValueError("policy and critic must see the same observations, in minibatches of at least one")
    policy.put_learner(learners[0])
    critic.put_learner(learners[1])
    rows = len(observations)
    _check_places("passes", passes, rows)
    say_if_compiling(local_steps)  # much of it is not part of what a gradient alone needs
    counts = np.array([learner.counts for learner in learners], np.int64)
    steps, found = counts.T.flatten(), np.empty(len(STATISTICS))
    local_steps(
        policy.shape, policy.memory, how[0], critic.shape, critic.memory, how[1],
        policy.observations(observations), policy.actions(actions, rows), _given(given, rows),
        _row("targets", targets, rows), np.ascontiguousarray(passes, np.int64), minibatch, float(max_kl), steps, found,
    )  # fmt: skip
    told = dict(zip(STATISTICS, found.tolist(), strict=True))
    for name in ("objective", "kl", "clipped", "entropy"):
        told[name] /= max(told["policy_steps"], 1.0)
    told["value_loss"] /= max(told["critic_steps"], 1.0)
    after = [policy.take_learner(int(steps[0]), int(steps[2])), critic.take_learner(int(steps[1]), int(steps[3]))]
    return after[0], after[1], told


# Compiled loops trust their indices; so whatever comes in is measured first.


def _table(name: str, table: NDArray[Any], rows: int, columns: int) -> NDArray[np.float32]:
    if table.shape != (rows, columns):
        raise ValueError(f"{name} of shape {table.shape}, where {rows} rows of {columns} are needed")
    return np.ascontiguousarray(table, np.float32)


def _row(name: str, numbers: NDArray[Any], rows: int) -> Row:
    if numbers.shape != (rows,):
        raise ValueError(f"{name} of shape {numbers.shape}, where {rows} are needed")
    return np.ascontiguousarray(numbers, np.float64)


def _given(given: Clipped, rows: int) -> Clipped:
    advantages, log_prob = _row("advantages", given.advantages, rows), _row("log_prob", given.log_prob, rows)
    return Clipped(advantages, log_prob, float(given.clip), float(given.entropy), bool(given.standardize))


def _check_places(name: str, places: NDArray[Any], count: int) -> None:
    if places.size and not (places.min() >= 0 and places.max() < count):
        raise ValueError(f"{name} from {places.min()} to {places.max()}, where 0 to {count - 1} are meant")
