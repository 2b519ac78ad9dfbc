"""Gradients over chosen rows of a rollout, compiled: chunk by chunk, forward and backward while it is in the cache.

All functions take the packed weights in `memory.weights` and leave the gradient packed in `memory.gradient`. Rows are
`order[begin:end]`. A chunk has as many rows as the memory was made for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.compute.heads import (
    add_entropy,
    divergence,
    fisher_metric,
    score,
    to_distribution,
    weigh_scores,
)
from afedpg.agent.compute.network import Memory, Order, Shape, Table, backward, forward, gather, part, tangent, turn
from afedpg.compiled import fast_jit, inner_jit

Row = NDArray[np.float64]


class Clipped(NamedTuple):
    """What the clipped objective is made of, and one agent's rollout."""

    advantages: Row  # [T]
    log_prob: Row  # [T] of the policy that acted
    clip: float
    entropy: float  # weight of the mean entropy
    standardize: bool  # the advantages of every minibatch


@inner_jit
def _distribution(shape: Shape, memory: Memory, observations: Table, order: Order, begin: int, rows: int) -> None:
    gather(shape, memory, observations, order, begin, rows)
    forward(shape, memory, memory.weights, rows)
    to_distribution(shape, memory, rows)


@inner_jit
def _begin_gradient(shape: Shape, memory: Memory) -> None:
    turn(shape, memory)
    for i in range(shape.sizes[-1]):
        memory.log_std_gradient[i] = 0.0


@inner_jit
def _end_gradient(shape: Shape, memory: Memory) -> None:
    if shape.gaussian:
        for i in range(shape.sizes[-1]):
            memory.gradient[shape.log_std_at + i] = np.float32(memory.log_std_gradient[i])


@fast_jit
def log_probabilities(
    shape: Shape, memory: Memory, observations: Table, actions: Table, order: Order, out: Row
) -> None:
    """out[t] = log pi(a_t | s_t) for all of `order`."""
    capacity = memory.log_prob.size
    for at in range(0, order.size, capacity):
        rows = min(capacity, order.size - at)
        _distribution(shape, memory, observations, order, at, rows)
        score(shape, memory, actions, order, at, rows)
        for r in range(rows):
            out[at + r] = memory.log_prob[r]


@fast_jit
def score_gradient(
    shape: Shape, memory: Memory, observations: Table, actions: Table, weights: Row, order: Order
) -> None:
    """sum_t w_t grad log pi(a_t | s_t)."""
    _begin_gradient(shape, memory)
    capacity = memory.log_prob.size
    for at in range(0, order.size, capacity):
        rows = min(capacity, order.size - at)
        _distribution(shape, memory, observations, order, at, rows)
        score(shape, memory, actions, order, at, rows)
        for r in range(rows):
            memory.weigh[r] = weights[order[at + r]]
        weigh_scores(shape, memory, rows)
        backward(shape, memory, rows, at == 0)
    _end_gradient(shape, memory)


@fast_jit
def clipped_gradient(
    shape: Shape,
    memory: Memory,
    observations: Table,
    actions: Table,
    given: Clipped,
    order: Order,
    begin: int,
    end: int,
) -> tuple[float, float, float, float]:
    """Uphill on the mean of min(r A, clip(r, 1 - c, 1 + c) A) + entropy H, where r = pi(a|s) / pi_old(a|s).

    Returns the objective, an estimate of KL(old || new), the share of rows outside the range, and the mean entropy.
    """
    count, mean, inverse = end - begin, 0.0, 1.0
    if given.standardize:
        mean, inverse = _standard(given.advantages, order, begin, end)
    _begin_gradient(shape, memory)
    gain = distance = outside = entropy = 0.0
    capacity = memory.log_prob.size
    for at in range(begin, end, capacity):
        rows = min(capacity, end - at)
        _distribution(shape, memory, observations, order, at, rows)
        score(shape, memory, actions, order, at, rows)
        for r in range(rows):
            t = order[at + r]
            change = memory.log_prob[r] - given.log_prob[t]
            ratio, advantage = np.exp(change), (given.advantages[t] - mean) * inverse
            bounded = min(max(ratio, 1 - given.clip), 1 + given.clip)
            flat = bounded * advantage < ratio * advantage  # the clipped side is the smaller one: no slope
            memory.weigh[r] = 0.0 if flat else ratio * advantage / count
            gain += bounded * advantage if flat else ratio * advantage
            distance += (ratio - 1) - change
            outside += abs(ratio - 1) > given.clip
        weigh_scores(shape, memory, rows)
        entropy += add_entropy(shape, memory, rows, given.entropy / count)
        backward(shape, memory, rows, at == begin)
    _end_gradient(shape, memory)
    entropy /= count
    return gain / count + given.entropy * entropy, distance / count, outside / count, entropy


@inner_jit
def _standard(values: Row, order: Order, begin: int, end: int) -> tuple[float, float]:
    """Mean, and one over the deviation (of n - 1) plus 1e-8."""
    count, mean, square = end - begin, 0.0, 0.0
    for at in range(begin, end):
        mean += values[order[at]]
    mean /= count
    for at in range(begin, end):
        square += (values[order[at]] - mean) ** 2
    return mean, 1 / (np.sqrt(square / (count - 1)) + 1e-8) if count > 1 else 1.0


@fast_jit
def values_of(shape: Shape, memory: Memory, observations: Table, order: Order, out: Row) -> None:
    """out[t] = V(s_t) for all of `order`."""
    capacity = memory.log_prob.size
    for at in range(0, order.size, capacity):
        rows = min(capacity, order.size - at)
        gather(shape, memory, observations, order, at, rows)
        forward(shape, memory, memory.weights, rows)
        outputs = memory.outputs[part(shape, shape.sizes.size - 1, rows)]
        for r in range(rows):
            out[at + r] = outputs[r * shape.row[-1]]


@fast_jit
def value_gradient(
    shape: Shape, memory: Memory, observations: Table, targets: Row, order: Order, begin: int, end: int
) -> float:
    """Of the mean of (V(s_t) - y_t)^2, which is returned. Downhill is along minus this gradient."""
    turn(shape, memory)
    capacity, count, last, total = memory.log_prob.size, end - begin, shape.sizes.size - 1, 0.0
    for at in range(begin, end, capacity):
        rows = min(capacity, end - at)
        gather(shape, memory, observations, order, at, rows)
        forward(shape, memory, memory.weights, rows)
        outputs, deltas = memory.outputs[part(shape, last, rows)], memory.deltas[part(shape, last, rows)]
        for r in range(rows):
            error = outputs[r * shape.row[-1]] - targets[order[at + r]]
            deltas[r * shape.row[-1]] = np.float32(2 * error / count)
            total += error * error
        backward(shape, memory, rows, at == begin)
    return total / count


@fast_jit
def mean_divergence(shape: Shape, memory: Memory, observations: Table, order: Order) -> float:
    """Mean of KL(other || weights) over the rows: `other` holds the packed policy that acted."""
    capacity, last, total = memory.log_prob.size, shape.sizes.size - 1, 0.0
    for at in range(0, order.size, capacity):
        rows = min(capacity, order.size - at)
        gather(shape, memory, observations, order, at, rows)
        forward(shape, memory, memory.other, rows)
        to_distribution(shape, memory, rows)
        outputs, before = memory.outputs[part(shape, last, rows)], memory.deltas[part(shape, last, rows)]
        for i in range(before.size):
            before[i] = outputs[i]
        forward(shape, memory, memory.weights, rows)
        to_distribution(shape, memory, rows)
        total += divergence(shape, before, outputs, memory.other, memory.weights, rows)
    return total / order.size


@fast_jit
def fisher_product(shape: Shape, memory: Memory, observations: Table, order: Order) -> None:
    """F v for the packed direction v in `other`: F = mean of J^T F_s J, with J the outputs' derivative by theta and F_s
    the Fisher information of one action in state s. It is what a mean KL divergence curves like."""
    _begin_gradient(shape, memory)
    capacity, count = memory.log_prob.size, order.size
    for at in range(0, count, capacity):
        rows = min(capacity, count - at)
        _distribution(shape, memory, observations, order, at, rows)
        tangent(shape, memory, rows)
        fisher_metric(shape, memory, rows, 1 / count)
        backward(shape, memory, rows, at == 0)
    if shape.gaussian:
        for i in range(shape.sizes[-1]):
            memory.log_std_gradient[i] = 2.0 * memory.other[shape.log_std_at + i]
    _end_gradient(shape, memory)
