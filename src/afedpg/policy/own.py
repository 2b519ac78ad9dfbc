"""A policy of one's own: any torch.nn.Module with three methods. It is sampled through torch, so it is slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from afedpg.errors import ConfigError
from afedpg.messages import Floats, Vector
from afedpg.params import Layout
from afedpg.policy.acting import Actor
from afedpg.policy.mlp import Tensors, to_torch


class OwnModule(Protocol):
    """What a module must offer. Actions are normalized to [-1, 1] for a Box, indices from 0 for Discrete, and a row of
    indices for MultiDiscrete and MultiBinary, [n, choices].

    `observations` are flat and scaled: [n, obs].
    """

    def log_prob(self, observations: Tensor, actions: Tensor) -> Tensor:
        """[n, obs], [n, act] or [n] -> [n]"""

    def sample(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """[n, obs] -> [n, act] or [n]; all randomness comes from `generator`."""

    def mode(self, observations: Tensor) -> Tensor:
        """The deterministic action: [n, obs] -> [n, act] or [n]"""


MakePolicy = Callable[[Space[Any], Space[Any]], torch.nn.Module]


class _Method(torch.nn.Module):
    """functional_call only calls forward; this makes a method of the module its forward."""

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self._name = name

    def forward(self, *arguments: Any) -> Any:
        return getattr(self.module, self._name)(*arguments)


class ModulePolicy:
    """Adapts such a module; its parameters, in the order of named_parameters, are theta."""

    def __init__(self, module: torch.nn.Module) -> None:
        missing = [name for name in ("log_prob", "sample", "mode") if not hasattr(module, name)]
        if missing:
            raise ConfigError(f"policy: {type(module).__name__} lacks {', '.join(missing)}; see OwnModule")
        self._module = module
        shapes = tuple((name, tuple(parameter.shape)) for name, parameter in module.named_parameters())
        self._layout = Layout(shapes)

    @classmethod
    def make(
        cls, make_policy: MakePolicy, observations: Space[Any], actions: Space[Any], generator: np.random.Generator
    ) -> ModulePolicy:
        """The module's own initialization, seeded; torch's global stream stays where it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(2**63)))
            return cls(make_policy(observations, actions))

    @property
    def layout(self) -> Layout:
        return self._layout

    def initial_theta(self, generator: np.random.Generator) -> Vector:
        tensors = {name: parameter.detach().numpy() for name, parameter in self._module.named_parameters()}
        theta: Vector = self._layout.flatten(tensors, np.float64)
        return theta

    def log_prob(self, tensors: Tensors, observations: Tensor, actions: Tensor) -> Tensor:
        return cast(Tensor, self._call("log_prob", tensors, observations, actions))

    def _call(self, name: str, tensors: Tensors, *arguments: Any) -> Any:
        named = {f"module.{key}": tensor for key, tensor in tensors.items()}
        return torch.func.functional_call(_Method(self._module, name), named, arguments)

    def actor(self, theta: Floats) -> Actor:
        views = self._layout.views(theta)
        return _ModuleActor(self, {name: to_torch(view, torch.float32) for name, view in views.items()})

    def deterministic(self, theta: Floats) -> torch.nn.Module:
        """[n, obs] -> the deterministic actions, as a module with these parameters."""
        with torch.no_grad():
            for name, view in self._layout.views(theta).items():
                self._module.get_parameter(name).copy_(torch.tensor(view))
        return _Method(self._module, "mode").eval()

    def describe(self) -> dict[str, Any]:
        return {"kind": "own", "module": type(self._module).__name__}


class _ModuleActor:
    def __init__(self, policy: ModulePolicy, tensors: Tensors) -> None:
        self._policy = policy
        self._tensors = tensors
        self._generator: torch.Generator | None = None

    def sample(self, observation: Floats, generator: np.random.Generator) -> Any:
        if self._generator is None:  # once per rollout, from the agent's stream
            self._generator = torch.Generator()
            self._generator.manual_seed(int(generator.integers(2**63)))
        return self._action("sample", observation, self._generator)

    def mode(self, observation: Floats) -> Any:
        return self._action("mode", observation)

    def _action(self, name: str, observation: Floats, *more: Any) -> Any:
        with torch.no_grad():
            actions: Tensor = self._policy._call(name, self._tensors, to_torch(observation[None], torch.float32), *more)
        if actions.dtype.is_floating_point:
            return actions[0].numpy().astype(np.float32)
        return int(actions[0]) if actions.ndim == 1 else actions[0].numpy().astype(np.int64)
