"""An MLP as baseline, with Adam and its moments in the agent's flat arrays; native kernels or torch compute it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import AgentState, Floats
from afedpg.params import Layout
from afedpg.policy.image import Image
from afedpg.policy.mlp import Layers, gradient_of, leaves, to_torch
from afedpg.seeding import freeze, thaw

if TYPE_CHECKING:
    from afedpg.agent.compute.kernels import CriticKernels, Learner
    from afedpg.agent.compute.local_steps import Adam

Row = NDArray[np.float64]
MINIBATCHES = 8  # per pass
DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual constants
MEMORY = 0.9  # of the targets' mean and deviation, per report


@dataclass(frozen=True)
class MlpBaseline:
    """V(s) = mean + deviation MLP(s), where mean and deviation of the targets are followed from report to report."""

    observations: int
    hidden: tuple[int, ...]
    rate: float
    epochs: int
    device: str = "cpu"
    kernels: CriticKernels | None = None  # without them torch computes
    image: Image | None = None  # of observations that are pictures

    @property
    def _network(self) -> Layers:
        return Layers(self.observations, self.hidden, 1, image=self.image)

    @property
    def layout(self) -> Layout:
        return self._network.layout

    def start(self, generator: np.random.Generator) -> AgentState:
        weights = self.layout.flatten(self._network.initial(0.01, generator))
        return {
            "baseline": weights,
            "baseline_mean": np.zeros_like(weights),  # Adam's
            "baseline_square": np.zeros_like(weights),
            "baseline_updates": np.zeros(1, np.int64),
            "baseline_targets": np.array([0.0, 0.0]),  # mean and deviation of what it is fitted to
            "baseline_stream": freeze(generator),
        }

    def values(self, state: AgentState, observations: Floats) -> Row:
        mean, deviation = state["baseline_targets"]
        values: Row = mean + deviation * self._outputs(state["baseline"], observations)
        return values

    def fit(self, state: AgentState, observations: Floats, targets: Row) -> AgentState:
        """`epochs` passes of Adam over the rollout in shuffled minibatches."""
        from afedpg.agent.compute.kernels import Learner
        from afedpg.agent.compute.local_steps import Adam

        followed = self._follow(state["baseline_targets"], targets)
        shuffle = thaw(state["baseline_stream"])
        passes = np.stack([shuffle.permutation(len(targets)) for _ in range(self.epochs)])
        before = Learner(
            state["baseline"], state["baseline_mean"], state["baseline_square"], int(state["baseline_updates"][0])
        )
        scaled = (targets - followed[0]) / (followed[1] + 1e-8)
        minibatches = min(MINIBATCHES, len(targets))
        how = Adam(self.rate, 0.0, DECAY, SQUARE_DECAY, EPSILON)
        fit = self._fit_in_torch if self.kernels is None else self.kernels.fit
        after = fit(before, how, observations, scaled, passes, minibatches)
        return {
            "baseline": after.theta,
            "baseline_mean": after.first,
            "baseline_square": after.second,
            "baseline_updates": np.array([after.steps], np.int64),
            "baseline_targets": followed,
            "baseline_stream": freeze(shuffle),
        }

    def _outputs(self, weights: Floats, observations: Floats) -> Row:
        if self.kernels is not None:
            return self.kernels.values(weights, observations)
        import torch

        with torch.no_grad():
            tensors = leaves(self.layout, to_torch(weights, torch.float32, self.device))
            output = self._network(tensors, to_torch(observations, torch.float32, self.device))
        values: Row = output[:, 0].cpu().numpy().astype(np.float64)
        return values

    def _fit_in_torch(
        self, before: Learner, how: Adam, observations: Floats, targets: Row, passes: NDArray[np.int64], parts: int
    ) -> Learner:
        import torch

        from afedpg.agent.compute.torch_steps import Moving

        moving = Moving(before, how, self.device)
        x, y = (to_torch(array, torch.float32, self.device) for array in (observations, targets))
        for order in passes:
            for rows in np.array_split(order, parts):
                chosen = to_torch(rows, torch.int64, self.device)
                tensors = leaves(self.layout, moving.theta)
                error = self._network(tensors, x[chosen])[:, 0] - y[chosen]
                moving.step(gradient_of((error * error).mean(), tensors), 1.0)
        return moving.learner()

    def _follow(self, before: Row, targets: Row) -> Row:
        now = np.array([targets.mean(), targets.std()])
        return MEMORY * before + (1 - MEMORY) * now if before.any() else now
