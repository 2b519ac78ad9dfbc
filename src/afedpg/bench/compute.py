"""How close the native kernels come to the core's arithmetic, and how far they leave torch behind.

Three things take turns in one process, one thread, round after round:

    arithmetic limit     the operation's multiply-adds at the core's peak, operands in the first cache
    native kernels       the operation itself
    torch                the same operation, eager, as everybody writes it

Networks are named after their hidden layers; observations and actions are Hopper's. Multiply-adds are counted without
the zeros that pad a layer to vectors. Time is the thread's own processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from afedpg.agent.compute.blocks import COLUMNS, ROWS
from afedpg.agent.compute.kernels import CriticKernels, Learner, PolicyKernels, optimize
from afedpg.agent.compute.local_steps import Adam
from afedpg.agent.compute.objectives import Clipped
from afedpg.agent.compute.products import Flat, Matrix, multiply
from afedpg.bench.compute_torch import TorchSide
from afedpg.bench.rows import compared, processor_seconds
from afedpg.compiled import fast_jit
from afedpg.errors import ConfigError
from afedpg.policy.forward import aligned

NETWORKS = ("64x64", "256x256", "512x512")
STEPS = {"64x64": 2048}  # timesteps of a report
OBSERVATIONS, ACTIONS, MINIBATCH = 11, 3, 64
LIMIT, OURS, USUAL = "arithmetic limit", "native kernels", "torch"
SHORTEST = 0.02  # seconds that one measurement takes at least

Operations = dict[str, tuple[Callable[[], Any], Callable[[], Any], float]]  # ours, torch's, multiply-adds


def run(tasks: Sequence[str] = NETWORKS, rounds: int = 9) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    torch.set_num_threads(1)
    sizes = [_hidden(task) for task in tasks]
    rows: list[dict[str, Any]] = []
    for task, hidden in zip(tasks, sizes, strict=True):
        operations = _operations(hidden, STEPS.get(task, 1024))
        for name, speeds in _measure(operations, rounds).items():
            for reference in (LIMIT, USUAL):
                label, both = f"{task}, {name}", (speeds[OURS], speeds[reference])
                rows.append(compared("compute", label, OURS, reference, *both, "per second"))
    return rows


def _hidden(task: str) -> tuple[int, ...]:
    widths = task.split("x")
    if not all(width.isdecimal() and int(width) > 0 for width in widths):
        raise ConfigError(f"tasks: {task!r} is no network; name hidden layers, such as {','.join(NETWORKS)}")
    return tuple(map(int, widths))


def _measure(operations: Operations, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Operations per second, by operation and side, one entry per round."""
    speeds: dict[str, dict[str, list[float]]] = {name: {LIMIT: [], OURS: [], USUAL: []} for name in operations}
    repeats = {}
    for name, sides in operations.items():
        for side, work in zip((OURS, USUAL), sides[:2], strict=True):
            work()  # compiles, and warms caches and allocators
            repeats[name, side] = 1 + int(SHORTEST / processor_seconds(work, 1))
    for _ in range(rounds):
        peak = multiply_adds_per_second()
        for name, (ours, usual, multiply_adds) in operations.items():
            speeds[name][LIMIT].append(peak / multiply_adds)
            for side, work in ((OURS, ours), (USUAL, usual)):
                speeds[name][side].append(1 / processor_seconds(work, repeats[name, side]))
    return speeds


@fast_jit
def _peak_loop(a: Flat, b: Flat, c: Flat, depth: int, times: int) -> None:
    """One block's product again and again: `depth` rows of `b` stay in the first cache, all sums in registers."""
    for _ in range(times):
        multiply(
            Matrix(a, 0, depth, 1), Matrix(b, 0, COLUMNS, 1), Matrix(c, 0, COLUMNS, 1), Matrix(c, 0, COLUMNS, 1),
            ROWS, COLUMNS, depth,
        )  # fmt: skip


def multiply_adds_per_second() -> float:
    """The core's peak as it is now."""
    depth, times = 128, 4000
    a, b, c = aligned(ROWS * depth), aligned(depth * COLUMNS), aligned(ROWS * COLUMNS)
    a[:], b[:], c[:] = 1e-3, 1e-3, 0
    _peak_loop(a, b, c, depth, 1)
    best = min(processor_seconds(lambda: _peak_loop(a, b, c, depth, times), 1) for _ in range(5))
    return ROWS * COLUMNS * depth * times / best


def _operations(hidden: tuple[int, ...], steps: int) -> Operations:
    generator = np.random.default_rng(0)
    sizes = (OBSERVATIONS, *hidden, ACTIONS)
    policy = PolicyKernels(sizes, gaussian=True, tanh_layers=True, squashed=False)
    critic = CriticKernels(sizes[:-1], tanh_layers=True)
    theta, values = (_start(generator, (*sizes[:-1], last)) for last in (ACTIONS, 1))
    theta = np.concatenate([theta, np.zeros(ACTIONS, np.float32)])
    x, a = (generator.normal(size=(steps, width)).astype(np.float32) for width in (OBSERVATIONS, ACTIONS))
    advantages, targets = generator.normal(size=steps), generator.normal(size=steps)
    given = Clipped(advantages, policy.log_prob(theta, x, a), clip=0.2, entropy=0.0, standardize=False)
    rows = 16 * MINIBATCH
    passes = generator.permutation(steps)[None, :rows]
    learners = Learner.start(theta), Learner.start(values)
    usual = TorchSide(sizes, theta, values, x, a, given, targets, passes[0].reshape(-1, MINIBATCH))

    forward, backward = _multiply_adds(sizes)
    valued = _multiply_adds((*sizes[:-1], 1))
    step = MINIBATCH * (forward + backward + sum(valued))
    tangents = 2 * forward - sizes[0] * sizes[1]
    adams = (Adam(3e-4), Adam(1e-3))
    return {
        f"16 steps of {MINIBATCH} rows": (
            lambda: optimize(policy, critic, learners, adams, x, a, given, targets, passes, MINIBATCH),
            usual.minibatches,
            16 * step,
        ),
        f"gradient, T={steps}": (
            lambda: policy.score_gradient(theta, x, a, advantages),
            usual.score_gradient,
            steps * (forward + backward),
        ),
        "Fisher-vector product": (
            lambda: policy.fisher_product(theta, x, theta),
            usual.fisher_product,
            steps * (forward + tangents + backward),
        ),
        "log-probabilities": (lambda: policy.log_prob(theta, x, a), usual.log_prob, steps * forward),
        "values": (lambda: critic.values(values, x), usual.values, steps * valued[0]),
    }


def _multiply_adds(sizes: Sequence[int]) -> tuple[int, int]:
    """Of one row, forward and backward: products for the weights and, past the first layer, for the inputs."""
    layers = [inputs * outputs for inputs, outputs in pairwise(sizes)]
    return sum(layers), 2 * sum(layers) - layers[0]


def _start(generator: np.random.Generator, sizes: Sequence[int]) -> NDArray[np.float32]:
    parts = []
    for inputs, outputs in pairwise(sizes):
        parts += [generator.normal(0, inputs**-0.5, inputs * outputs), np.zeros(outputs)]
    return np.concatenate(parts).astype(np.float32)
