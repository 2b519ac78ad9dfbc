"""The policy on one observation, compiled: what the samplers call at every step.

theta is the flat float32 vector: for each layer the weight [in, out] row-major, then the bias [out]; a Gaussian
policy's log-std [act] after the last of them. Anything behind is not looked at. Hidden activations are ReLU or tanh.

    Gaussian      u = mean + exp(log_std) z,   environment action = mid + half clip(u, -1, 1)
                  mean = tanh(MLP(x)), or MLP(x)
    categorical   p = softmax(MLP(x)),         environment action = an index; or several, each of its own logits

A step of a wide network is bound by reading its weights, so a layer walks over whole rows of the weight, leaves out the
rows whose input is zero (ReLU: about half of them), and takes eight rows per pass so that the outputs are loaded and
stored once for eight. The same inputs give the same bits: the order of every sum depends on the inputs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from afedpg.compiled import fast_jit, jit
from afedpg.messages import Floats, Vector
from afedpg.policy.tanh import tanh

Integers = NDArray[np.int64]
LIMIT = 10.0  # deviations from the mean beyond which an observation is clipped
_ZERO: Any = np.int64(0)  # typed: for a literal 0 `_add_rows` would be compiled a second time


def aligned(count: int, dtype: Any = np.float32) -> NDArray[Any]:
    """An uninitialised vector that starts on a cache line: unaligned, every load of a weight row touches two lines."""
    size = count * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype)


class Network(NamedTuple):
    """What theta's numbers are to be taken for."""

    sizes: Integers  # observations, hidden layers, actions
    tanh_layers: bool  # hidden activations: tanh, or ReLU
    squashed: bool  # a Gaussian's mean is tanh(MLP(x)), otherwise MLP(x)


def network_of(sizes: Sequence[int], activation: str = "relu", mean: str = "tanh") -> Network:
    """`activation` and `mean` as the settings of these names have them."""
    return Network(np.array(sizes, np.int64), activation == "tanh", mean == "tanh")


class Scratch(NamedTuple):
    """Working memory of one forward pass; contents mean nothing between calls."""

    outputs: Floats  # [widest]
    inputs: Floats  # [widest] the non-zero inputs of a layer
    rows: Integers  # [widest] and the weight rows they belong to


def scratch_for(sizes: Sequence[int] | Integers) -> Scratch:
    widest = int(max(sizes))
    return Scratch(aligned(widest), aligned(widest), np.empty(widest, np.int64))


def parameter_count(sizes: Sequence[int] | Integers, log_std: bool) -> int:
    """Length of theta for the layer sizes (obs, hidden..., act)."""
    layers = sum((rows + 1) * columns for rows, columns in pairwise(sizes))
    return int(layers + (sizes[-1] if log_std else 0))


@fast_jit
def _add_rows(weight: Floats, inputs: Floats, rows: Integers, count: int, outputs: Floats) -> None:
    """outputs [out] += sum_k inputs[k] weight[rows[k]], for k < count; weight [in, out]."""
    width = outputs.size
    k = 0
    while k + 8 <= count:
        w0, w1, w2, w3 = weight[rows[k]], weight[rows[k + 1]], weight[rows[k + 2]], weight[rows[k + 3]]
        w4, w5, w6, w7 = weight[rows[k + 4]], weight[rows[k + 5]], weight[rows[k + 6]], weight[rows[k + 7]]
        x0, x1, x2, x3 = inputs[k], inputs[k + 1], inputs[k + 2], inputs[k + 3]
        x4, x5, x6, x7 = inputs[k + 4], inputs[k + 5], inputs[k + 6], inputs[k + 7]
        for j in range(width):
            outputs[j] += ((x0 * w0[j] + x1 * w1[j]) + (x2 * w2[j] + x3 * w3[j])) + (
                (x4 * w4[j] + x5 * w5[j]) + (x6 * w6[j] + x7 * w7[j])
            )
        k += 8
    while k < count:
        w0, x0 = weight[rows[k]], inputs[k]
        for j in range(width):
            outputs[j] += x0 * w0[j]
        k += 1


@fast_jit
def forward(theta: Floats, network: Network, observation: Floats, scratch: Scratch) -> Floats:
    """The last layer's outputs before any tanh or softmax: a view [act] of `scratch`."""
    sizes, count = network.sizes, _ZERO
    zero = np.float32(-2 if network.tanh_layers else 0)  # activations up to here add nothing: no tanh is below -1
    for i in range(sizes[0]):  # without a branch: which inputs are zero cannot be predicted
        scratch.inputs[count] = observation[i]
        scratch.rows[count] = i
        count += observation[i] != 0
    start = 0
    for layer in range(sizes.size - 1):
        rows, columns = sizes[layer], sizes[layer + 1]
        bias = start + rows * columns
        weight = theta[start:bias].reshape(rows, columns)
        outputs = scratch.outputs[:columns]
        for j in range(columns):  # a slice assignment would compile for seconds: it carries its error messages along
            outputs[j] = theta[bias + j]
        _add_rows(weight, scratch.inputs, scratch.rows, count, outputs)
        start = bias + columns
        if network.tanh_layers and layer < sizes.size - 2:
            tanh(outputs)
        count = _ZERO
        for j in range(columns):  # ReLU: what is not positive is left out; NaN stays
            scratch.inputs[count] = outputs[j]
            scratch.rows[count] = j
            count += not (outputs[j] <= zero)
    return scratch.outputs[: sizes[-1]]


@jit
def scale_observation(raw: Vector, mean: Vector, deviation: Vector, out: Floats) -> None:
    """(raw - mean)/deviation clipped to [-LIMIT, LIMIT], float64 until the last; with an empty `mean` raw as it is."""
    if mean.size == 0:
        for i in range(raw.size):
            out[i] = np.float32(raw[i])
        return
    for i in range(raw.size):
        value = (raw[i] - mean[i]) / deviation[i]
        if value > LIMIT:
            value = LIMIT
        elif value < -LIMIT:
            value = -LIMIT
        out[i] = np.float32(value)


@jit
def to_environment(action: Floats, middle: Vector, half: Vector, low: Floats, high: Floats, out: Floats) -> None:
    """mid + half clip(u, -1, 1) in float64, rounded to what the environment is given. NaN stays NaN."""
    for i in range(action.size):
        u = action[i]
        if u > 1:
            u = np.float32(1)
        elif u < -1:
            u = np.float32(-1)
        exact = np.float32(middle[i] + half[i] * u)
        if exact < low[i]:  # rounding may overshoot a bound by one unit in the last place
            exact = low[i]
        elif exact > high[i]:
            exact = high[i]
        out[i] = exact


@fast_jit
def mean_gaussian(theta: Floats, network: Network, observation: Floats, scratch: Scratch, action: Floats) -> None:
    """Deterministic: action [act] = mean, in the policy's own units, unclipped."""
    outputs = forward(theta, network, observation, scratch)
    for i in range(action.size):
        action[i] = np.tanh(outputs[i]) if network.squashed else outputs[i]


@fast_jit
def sample_gaussian(
    theta: Floats, network: Network, observation: Floats, generator: Generator, scratch: Scratch, action: Floats
) -> None:
    """action [act] = mean + exp(log_std) z, in the policy's own units, unclipped; z is drawn left to right."""
    mean_gaussian(theta, network, observation, scratch, action)
    sizes, start = network.sizes, 0
    for layer in range(sizes.size - 1):
        start += (sizes[layer] + 1) * sizes[layer + 1]
    log_std = theta[start : start + action.size]  # a3c's theta goes on with a value network
    for i in range(action.size):
        action[i] += np.exp(log_std[i]) * np.float32(generator.standard_normal())


@jit
def mode_choices(
    theta: Floats, network: Network, observation: Floats, choices: Integers, scratch: Scratch, action: Integers
) -> None:
    """Deterministic: of each choice the first of the largest logits."""
    logits, start = forward(theta, network, observation, scratch), 0
    for choice in range(choices.size):
        best = start
        for i in range(start + 1, start + choices[choice]):
            if logits[i] > logits[best]:
                best = i
        action[choice] = best - start
        start += choices[choice]


@jit
def sample_choices(
    theta: Floats, network: Network, observation: Floats, choices: Integers, generator: Generator, scratch: Scratch,
    action: Integers,
) -> None:  # fmt: skip
    """Of each choice an index with probability softmax of its logits."""
    logits, start = forward(theta, network, observation, scratch), 0
    for choice in range(choices.size):
        action[choice] = _draw(logits[start : start + choices[choice]], generator)
        start += choices[choice]


@jit
def _draw(logits: Floats, generator: Generator) -> int:
    """One uniform number through the inverse of the cumulated sum."""
    largest = logits[0]
    for i in range(1, logits.size):
        largest = max(largest, logits[i])
    total = 0.0
    for i in range(logits.size):
        total += np.exp(np.float64(logits[i]) - largest)
    rest = generator.random() * total
    for i in range(logits.size - 1):
        rest -= np.exp(np.float64(logits[i]) - largest)
        if rest < 0.0:
            return i
    return int(logits.size - 1)
