"""An MLP as baseline: torch, with Adam and its moments in the agent's flat arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from afedpg.agent.policy import initial_mlp, leaves, mlp, to_torch
from afedpg.messages import AgentState, Floats
from afedpg.params import Layout, mlp_shapes
from afedpg.seeding import freeze, thaw

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

    @property
    def layout(self) -> Layout:
        return Layout(tuple(mlp_shapes("layer", self._widths)))

    @property
    def _widths(self) -> tuple[int, ...]:
        return (self.observations, *self.hidden, 1)

    def start(self, generator: np.random.Generator) -> AgentState:
        weights = self.layout.flatten(initial_mlp("layer", self._widths, 0.01, generator))
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
        with torch.no_grad():
            tensors = leaves(self.layout, to_torch(state["baseline"], torch.float32, self.device))
            output = mlp(tensors, "layer", len(self.hidden) + 1, to_torch(observations, torch.float32, self.device))
        values: Row = mean + deviation * output[:, 0].cpu().numpy().astype(np.float64)
        return values

    def fit(self, state: AgentState, observations: Floats, targets: Row) -> AgentState:
        """`epochs` passes of Adam over the rollout in shuffled minibatches."""
        followed = self._follow(state["baseline_targets"], targets)
        flat, first, second = (
            to_torch(state[name], torch.float32, self.device)
            for name in ("baseline", "baseline_mean", "baseline_square")
        )
        updates = int(state["baseline_updates"][0])
        tensors = leaves(self.layout, flat)
        x = to_torch(observations, torch.float32, self.device)
        y = to_torch((targets - followed[0]) / (followed[1] + 1e-8), torch.float32, self.device)
        shuffle = thaw(state["baseline_stream"])
        for _ in range(self.epochs):
            for rows in np.array_split(shuffle.permutation(len(targets)), min(MINIBATCHES, len(targets))):
                chosen = to_torch(rows, torch.int64, self.device)
                error = mlp(tensors, "layer", len(self.hidden) + 1, x[chosen])[:, 0] - y[chosen]
                gradients = torch.autograd.grad((error * error).mean(), list(tensors.values()))
                updates += 1
                self._adam(flat, torch.cat([g.reshape(-1) for g in gradients]), first, second, updates)
        return {
            "baseline": flat.cpu().numpy().copy(),
            "baseline_mean": first.cpu().numpy().copy(),
            "baseline_square": second.cpu().numpy().copy(),
            "baseline_updates": np.array([updates], np.int64),
            "baseline_targets": followed,
            "baseline_stream": freeze(shuffle),
        }

    def _follow(self, before: Row, targets: Row) -> Row:
        now = np.array([targets.mean(), targets.std()])
        return MEMORY * before + (1 - MEMORY) * now if before.any() else now

    def _adam(
        self, flat: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor, updates: int
    ) -> None:
        with torch.no_grad():
            first.mul_(DECAY).add_(gradient, alpha=1 - DECAY)
            second.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
            deviation = (second / (1 - SQUARE_DECAY**updates)).sqrt_().add_(EPSILON)
            flat.addcdiv_(first, deviation, value=-self.rate / (1 - DECAY**updates))
