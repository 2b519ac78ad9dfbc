"""An MLP over many rows at once: forward, backward and forward-mode derivatives, in memory that is laid out for blocks.

theta is one flat vector: for each layer the weight [in, out] row-major, then the bias; a Gaussian's log_std is last.
`pack` spreads it out: rows of a weight are padded with zeros to a multiple of 16 numbers, and so is the number of rows.
Padding stays zero through forward, backward and Adam: zero weights make zero outputs, those make zero gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.compute.blocks import COLUMNS
from afedpg.agent.compute.elementwise import relu, times_relu_slope, times_tanh_slope
from afedpg.agent.compute.products import Flat, Matrix, multiply, transpose
from afedpg.compiled import fast_jit, inner_jit
from afedpg.policy.forward import aligned
from afedpg.policy.tanh import tanh

Places = NDArray[np.int64]
Table = NDArray[np.float32]  # [T, columns]
Order = NDArray[np.int64]
# Typed: literal numbers would make another matrix type, and `multiply` be compiled again for it.
ZERO: Any = np.int64(0)
ONE: Any = np.int64(1)


class Shape(NamedTuple):
    """Where everything lies. Layer l takes sizes[l] numbers to sizes[l + 1]."""

    sizes: Places  # [L + 1]
    row: Places  # [L + 1] distance between rows of a layer's outputs, and between rows of the weight that makes them
    weight_at: Places  # [L] in a packed vector
    bias_at: Places  # [L]
    log_std_at: int  # behind the last bias
    outputs_at: Places  # [L + 1] in `outputs` and `deltas`
    transposed_at: Places  # [L] in `transposed`
    tanh_layers: bool  # hidden activations: tanh, or relu
    gaussian: bool  # otherwise categorical, or a critic, which has one output
    squashed: bool  # a Gaussian's mean is tanh(MLP(s)), otherwise MLP(s)


class Memory(NamedTuple):
    """Working memory of one network. Outside a call only padding and `one` mean anything: they are zero, and one."""

    weights: Flat  # packed, as the next four
    other: Flat  # a second theta, or the direction that a derivative is taken along
    gradient: Flat
    first: Flat  # Adam's moments
    second: Flat
    transposed: Flat
    outputs: Flat  # [rows, sizes[l]] of every layer l; 0: the observations
    deltas: Flat  # the objective's derivative by each of them before activation; or forward-mode derivatives
    zeros: Flat
    one: Flat
    log_prob: NDArray[np.float64]  # [rows]
    weigh: NDArray[np.float64]  # [rows] what each row's score is multiplied with
    scores: NDArray[np.float64]  # [rows, act] d log pi / d log_std
    slopes: NDArray[np.float64]  # [rows, act] d mean / d output
    log_std_gradient: NDArray[np.float64]  # [act]
    inverse_std: NDArray[np.float64]  # [act]


def padded(count: int) -> int:
    return -(-count // COLUMNS) * COLUMNS


def make_shape(
    sizes: Sequence[int], rows: int, tanh_layers: bool = False, gaussian: bool = False, squashed: bool = False
) -> Shape:
    """For at most `rows` rows at a time."""
    # A distance of 512 bytes or its multiples would put a column's numbers into few sets of the first cache.
    row = [padded(size) + (COLUMNS if padded(size) % 128 == 0 else 0) for size in sizes]
    weight_at, bias_at, outputs_at, transposed_at = [], [], [0], []
    place = across = 0
    for layer in range(len(sizes) - 1):
        weight_at.append(place)
        bias_at.append(place + padded(sizes[layer]) * row[layer + 1])
        place = bias_at[-1] + row[layer + 1]
        transposed_at.append(across)
        across += padded(sizes[layer + 1]) * row[layer]
        outputs_at.append(outputs_at[-1] + rows * row[layer])
    places = [np.array(part, np.int64) for part in (sizes, row, weight_at, bias_at, outputs_at, transposed_at)]
    return Shape(
        sizes=places[0], row=places[1], weight_at=places[2], bias_at=places[3], log_std_at=place, outputs_at=places[4],
        transposed_at=places[5], tanh_layers=tanh_layers, gaussian=gaussian, squashed=squashed,
    )  # fmt: skip


def make_memory(shape: Shape, rows: int) -> Memory:
    last = len(shape.sizes) - 1
    outputs = int(shape.outputs_at[last] + rows * shape.row[last])
    across = int(shape.transposed_at[last - 1] + padded(int(shape.sizes[last])) * shape.row[last - 1])
    packed, actions = shape.log_std_at + padded(int(shape.sizes[last])), int(shape.sizes[last])
    sizes = (*[packed] * 5, across, outputs, outputs, int(shape.row.max()), 1)
    arrays = [aligned(size) for size in sizes]
    for array in arrays:
        array[:] = 0
    arrays[-1][0] = 1
    sums = [np.zeros(size) for size in (rows, rows, (rows, actions), (rows, actions), actions, actions)]
    return Memory(*arrays, *sums)


@fast_jit
def pack(shape: Shape, theta: Flat, packed: Flat) -> None:
    at = 0
    for layer in range(shape.sizes.size - 1):
        row, columns = shape.row[layer + 1], shape.sizes[layer + 1]
        for i in range(shape.sizes[layer] + 1):  # the last one is the bias
            to = shape.weight_at[layer] + i * row if i < shape.sizes[layer] else shape.bias_at[layer]
            source, target = theta[at : at + columns], packed[to : to + columns]
            for j in range(columns):
                target[j] = source[j]
            at += columns
    if shape.gaussian:
        for j in range(shape.sizes[-1]):
            packed[shape.log_std_at + j] = theta[at + j]


@fast_jit
def unpack(shape: Shape, packed: Flat, theta: Flat) -> None:
    at = 0
    for layer in range(shape.sizes.size - 1):
        row, columns = shape.row[layer + 1], shape.sizes[layer + 1]
        for i in range(shape.sizes[layer] + 1):
            of = shape.weight_at[layer] + i * row if i < shape.sizes[layer] else shape.bias_at[layer]
            source, target = packed[of : of + columns], theta[at : at + columns]
            for j in range(columns):
                target[j] = source[j]
            at += columns
    if shape.gaussian:
        for j in range(shape.sizes[-1]):
            theta[at + j] = packed[shape.log_std_at + j]


@inner_jit
def gather(shape: Shape, memory: Memory, observations: Table, order: Order, begin: int, rows: int) -> None:
    """The observations of `order[begin : begin + rows]` become the network's inputs."""
    for r in range(rows):
        source = observations[order[begin + r]]
        at = r * shape.row[0]
        target = memory.outputs[at : at + shape.sizes[0]]
        for j in range(target.size):
            target[j] = source[j]


@inner_jit
def part(shape: Shape, layer: int, rows: int) -> slice:
    """A layer's part of `outputs` or `deltas`, padding included."""
    return slice(shape.outputs_at[layer], shape.outputs_at[layer] + rows * shape.row[layer])


@inner_jit
def forward(shape: Shape, memory: Memory, weights: Flat, rows: int) -> None:
    """h_l+1 = activation(h_l W_l + b_l), the last layer without activation."""
    layers, out = shape.sizes.size - 1, memory.outputs
    for layer in range(layers):
        row = shape.row[layer + 1]
        multiply(
            Matrix(out, shape.outputs_at[layer], shape.row[layer], ONE),
            Matrix(weights, shape.weight_at[layer], row, ONE),
            Matrix(weights, shape.bias_at[layer], ZERO, ONE),
            Matrix(out, shape.outputs_at[layer + 1], row, ONE),
            rows, shape.sizes[layer + 1], shape.sizes[layer],
        )  # fmt: skip
        if layer < layers - 1:
            hidden = out[part(shape, layer + 1, rows)]
            if shape.tanh_layers:
                tanh(hidden)
            else:
                relu(hidden)


@inner_jit
def times_slope(shape: Shape, memory: Memory, layer: int, rows: int) -> None:
    """deltas *= activation'(.) of a hidden layer."""
    deltas, outputs = memory.deltas[part(shape, layer, rows)], memory.outputs[part(shape, layer, rows)]
    if shape.tanh_layers:
        times_tanh_slope(deltas, outputs)
    else:
        times_relu_slope(deltas, outputs)


@inner_jit
def turn(shape: Shape, memory: Memory) -> None:
    """The weights' transposes, which `backward` needs; the first layer's are not needed."""
    for layer in range(1, shape.sizes.size - 1):
        transpose(
            Matrix(memory.weights, shape.weight_at[layer], shape.row[layer + 1], ONE),
            Matrix(memory.transposed, shape.transposed_at[layer], shape.row[layer], ONE),
            shape.sizes[layer], shape.sizes[layer + 1],
        )  # fmt: skip


@inner_jit
def backward(shape: Shape, memory: Memory, rows: int, fresh: bool) -> None:
    """From the last layer's deltas: dW_l = h_l^T d_l+1, db_l = 1^T d_l+1 and d_l = d_l+1 W_l^T activation'.

    Added to `gradient`, or with `fresh` in its place.
    """
    layers, zeros = shape.sizes.size - 1, Matrix(memory.zeros, ZERO, ZERO, ONE)
    for layer in range(layers - 1, -1, -1):
        inputs, outputs = shape.sizes[layer], shape.sizes[layer + 1]
        row, below = shape.row[layer + 1], shape.row[layer]
        delta = Matrix(memory.deltas, shape.outputs_at[layer + 1], row, ONE)
        weight = Matrix(memory.gradient, shape.weight_at[layer], row, ONE)
        bias = Matrix(memory.gradient, shape.bias_at[layer], row, ONE)
        seen = Matrix(memory.outputs, shape.outputs_at[layer], ONE, below)  # transposed
        multiply(seen, delta, zeros if fresh else weight, weight, inputs, outputs, rows)
        multiply(Matrix(memory.one, ZERO, ZERO, ZERO), delta, zeros if fresh else bias, bias, ONE, outputs, rows)
        if layer:
            multiply(
                delta, Matrix(memory.transposed, shape.transposed_at[layer], below, ONE), zeros,
                Matrix(memory.deltas, shape.outputs_at[layer], below, ONE), rows, inputs, outputs,
            )  # fmt: skip
            times_slope(shape, memory, layer, rows)


@inner_jit
def tangent(shape: Shape, memory: Memory, rows: int) -> None:
    """After `forward`: deltas become the outputs' derivative along the direction in `other`.

    r_l+1 = (r_l W_l + h_l V_l + v_l) activation', with r_0 = 0.
    """
    layers = shape.sizes.size - 1
    for layer in range(layers):
        row = shape.row[layer + 1]
        moved = Matrix(memory.deltas, shape.outputs_at[layer + 1], row, ONE)
        inputs, outputs = shape.sizes[layer], shape.sizes[layer + 1]
        multiply(
            Matrix(memory.outputs, shape.outputs_at[layer], shape.row[layer], ONE),
            Matrix(memory.other, shape.weight_at[layer], row, ONE),
            Matrix(memory.other, shape.bias_at[layer], ZERO, ONE), moved, rows, outputs, inputs,
        )  # fmt: skip
        if layer:
            multiply(
                Matrix(memory.deltas, shape.outputs_at[layer], shape.row[layer], ONE),
                Matrix(memory.weights, shape.weight_at[layer], row, ONE), moved, moved, rows, outputs, inputs,
            )  # fmt: skip
        if layer < layers - 1:
            times_slope(shape, memory, layer + 1, rows)
