"""From a network's last outputs to probabilities, their derivatives, and distances between policies.

    Gaussian       a ~ N(mean, exp(log_std)^2), mean = tanh(MLP(s)) or MLP(s); log_std is one for all states
    categorical    a ~ softmax(MLP(s))

A row's sums are made in float64: they cost little, and ratios of probabilities are exponentials of them. A discrete
action is a whole number in the first column of `actions`.
"""

from __future__ import annotations

import math

import numpy as np

from afedpg.agent.compute.network import Memory, Order, Shape, Table, part
from afedpg.agent.compute.products import Flat
from afedpg.compiled import inner_jit

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@inner_jit
def _squash(shape: Shape, memory: Memory, outputs: Flat, rows: int) -> None:
    """Outputs x become tanh x; its slope comes from x, as 1 - tanh^2 would lose its bits where tanh is nearly 1."""
    for r in range(rows):
        for i in range(shape.sizes[-1]):
            x = np.float64(outputs[r * shape.row[-1] + i])
            e = np.exp(-2 * abs(x))
            mean = -np.expm1(-2 * abs(x)) / (1 + e)
            outputs[r * shape.row[-1] + i] = np.float32(mean if x > 0 else -mean)
            memory.slopes[r, i] = 4 * e / ((1 + e) * (1 + e))


@inner_jit
def to_distribution(shape: Shape, memory: Memory, rows: int) -> None:
    """The last layer's outputs become means, or the logarithms of all actions' probabilities."""
    outputs = memory.outputs[part(shape, shape.sizes.size - 1, rows)]
    if shape.gaussian:
        if shape.squashed:
            _squash(shape, memory, outputs, rows)
        return
    for r in range(rows):
        logits = outputs[r * shape.row[-1] : r * shape.row[-1] + shape.sizes[-1]]
        largest = np.float64(logits[0])
        for i in range(1, logits.size):
            largest = max(largest, np.float64(logits[i]))
        total = 0.0
        for i in range(logits.size):
            total += np.exp(logits[i] - largest)
        shift = largest + np.log(total)
        for i in range(logits.size):
            logits[i] = np.float32(logits[i] - shift)


@inner_jit
def _inverse_std(shape: Shape, memory: Memory) -> None:
    if shape.gaussian:
        for i in range(shape.sizes[-1]):
            memory.inverse_std[i] = np.exp(-np.float64(memory.weights[shape.log_std_at + i]))


@inner_jit
def score(shape: Shape, memory: Memory, actions: Table, order: Order, begin: int, rows: int) -> None:
    """After `to_distribution`: log pi of the actions, its derivative by the network's outputs as `deltas`, and by
    log_std as `scores`."""
    last, count = shape.sizes.size - 1, shape.sizes[-1]
    outputs, deltas = memory.outputs[part(shape, last, rows)], memory.deltas[part(shape, last, rows)]
    log_std, inverse = memory.weights[shape.log_std_at : shape.log_std_at + count], memory.inverse_std
    _inverse_std(shape, memory)
    for r in range(rows):
        at, action = r * shape.row[-1], actions[order[begin + r]]
        if shape.gaussian:
            total = -count * HALF_LOG_TWO_PI
            for i in range(count):
                mean = np.float64(outputs[at + i])
                z = (action[i] - mean) * inverse[i]
                slope = memory.slopes[r, i] if shape.squashed else 1.0
                deltas[at + i] = np.float32(z * inverse[i] * slope)
                memory.scores[r, i] = z * z - 1
                total -= 0.5 * z * z + log_std[i]
            memory.log_prob[r] = total
        else:
            chosen = int(action[0])
            for i in range(count):
                deltas[at + i] = -np.float32(np.exp(np.float64(outputs[at + i])))
            deltas[at + chosen] += np.float32(1)
            memory.log_prob[r] = outputs[at + chosen]


@inner_jit
def weigh_scores(shape: Shape, memory: Memory, rows: int) -> None:
    """sum_r weigh[r] d log pi: deltas become derivatives of that sum, and log_std's part is added up."""
    count = shape.sizes[-1]
    deltas = memory.deltas[part(shape, shape.sizes.size - 1, rows)]
    for r in range(rows):
        at, weight = r * shape.row[-1], memory.weigh[r]
        for i in range(count):
            deltas[at + i] = np.float32(weight * deltas[at + i])
        if shape.gaussian:
            for i in range(count):
                memory.log_std_gradient[i] += weight * memory.scores[r, i]


@inner_jit
def add_entropy(shape: Shape, memory: Memory, rows: int, weight: float) -> float:
    """Adds weight * (sum of the rows' entropies) to what `weigh_scores` left; returns that sum without the weight."""
    count = shape.sizes[-1]
    if shape.gaussian:
        each = count * (HALF_LOG_TWO_PI + 0.5)
        for i in range(count):
            each += memory.weights[shape.log_std_at + i]
            memory.log_std_gradient[i] += weight * rows
        return float(rows * each)
    last, whole = shape.sizes.size - 1, 0.0
    outputs, deltas = memory.outputs[part(shape, last, rows)], memory.deltas[part(shape, last, rows)]
    for r in range(rows):
        at, entropy = r * shape.row[-1], 0.0
        for i in range(count):
            entropy -= np.exp(np.float64(outputs[at + i])) * outputs[at + i]
        if weight != 0.0:
            for i in range(count):
                log_p = np.float64(outputs[at + i])
                deltas[at + i] -= np.float32(weight * np.exp(log_p) * (log_p + entropy))
        whole += entropy
    return whole


@inner_jit
def fisher_metric(shape: Shape, memory: Memory, rows: int, weight: float) -> None:
    """deltas u, derivatives of the outputs, become weight F u: F is the Fisher information of one action."""
    last, count = shape.sizes.size - 1, shape.sizes[-1]
    _inverse_std(shape, memory)
    outputs, deltas = memory.outputs[part(shape, last, rows)], memory.deltas[part(shape, last, rows)]
    for r in range(rows):
        at = r * shape.row[-1]
        if shape.gaussian:
            for i in range(count):
                slope = memory.slopes[r, i] if shape.squashed else 1.0
                scale = slope * memory.inverse_std[i]
                deltas[at + i] = np.float32(weight * scale * scale * deltas[at + i])
        else:
            mean = 0.0
            for i in range(count):
                mean += np.exp(np.float64(outputs[at + i])) * deltas[at + i]
            for i in range(count):
                p = np.exp(np.float64(outputs[at + i]))
                deltas[at + i] = np.float32(weight * p * (deltas[at + i] - mean))


@inner_jit
def divergence(shape: Shape, before: Flat, after: Flat, weights_before: Flat, weights: Flat, rows: int) -> float:
    """The sum over rows of KL(before || after), both as `to_distribution` leaves them."""
    count, whole = shape.sizes[-1], 0.0
    for r in range(rows):
        for i in range(count):
            at = r * shape.row[-1] + i
            old, new = np.float64(before[at]), np.float64(after[at])
            if shape.gaussian:
                log_old = np.float64(weights_before[shape.log_std_at + i])
                log_new = np.float64(weights[shape.log_std_at + i])
                spread = np.expm1(2 * (log_old - log_new)) - 2 * (log_old - log_new)
                whole += 0.5 * (spread + (old - new) ** 2 * np.exp(-2 * log_new))
            else:
                whole += np.exp(old) * (np.expm1(new - old) - (new - old))  # no term is negative
    return whole
