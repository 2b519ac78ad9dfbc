"""A policy of one's own: any torch.nn.Module with three methods. It is sampled through torch, so it is slower."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import Space
from torch import Tensor

from afedpg.errors import BrokenPart, ConfigError
from afedpg.messages import Floats, Vector
from afedpg.own_parts import asked, name_of
from afedpg.params import Layout
from afedpg.policy.acting import Actor
from afedpg.policy.actions import Wanted, told, wanted_of
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
_METHODS = ("log_prob", "sample", "mode")


class _Method(torch.nn.Module):
    """functional_call only calls forward; this makes a method of the module its forward."""

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self._name = name

    def train(self, mode: bool = True) -> _Method:
        """What exporters call. It stops here: a `train` of the user's own may do anything."""
        self.training = mode
        return self

    def forward(self, *arguments: Any) -> Any:
        return getattr(self.module, self._name)(*arguments)


class ModulePolicy:
    """Adapts such a module; its parameters, in the order of named_parameters, are theta.

    It stays in evaluation mode: what dropout does when it trains would be neither drawn from the agent's stream nor the
    same when actions are drawn and when their log-probabilities are computed.
    """

    def __init__(self, module: torch.nn.Module, actions: Space[Any]) -> None:
        _check_module(module)
        self.wanted: Wanted = wanted_of(actions)
        for part in module.modules():  # not `module.eval()`, which calls a `train` of the user's own
            part.training = False
        self._module = module
        shapes = tuple((name, tuple(parameter.shape)) for name, parameter in module.named_parameters())
        self._layout = Layout(shapes)

    @classmethod
    def make(
        cls, make_policy: MakePolicy, observations: Space[Any], actions: Space[Any], generator: np.random.Generator
    ) -> ModulePolicy:
        """The module's own initialization, seeded; torch's global stream stays where it was."""
        if isinstance(make_policy, torch.nn.Module) or not callable(make_policy):
            given = repr(make_policy) if isinstance(make_policy, str) else f"a {type(make_policy).__name__}"
            function = "the function that makes one, (observation_space, action_space) -> torch.nn.Module"
            raise ConfigError(f"make_policy: {given} makes no policy; give {function}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator.integers(2**63)))
            return cls(asked(f"make_policy: {name_of(make_policy)}", make_policy, observations, actions), actions)

    @property
    def layout(self) -> Layout:
        return self._layout

    def initial_theta(self, generator: np.random.Generator) -> Vector:
        tensors = {name: parameter.detach().numpy() for name, parameter in self._module.named_parameters()}
        theta: Vector = self._layout.flatten(tensors, np.float64)
        return theta

    def log_prob(self, tensors: Tensors, observations: Tensor, actions: Tensor) -> Tensor:
        found, n = self.call("log_prob", tensors, observations, actions), len(observations)
        if not isinstance(found, Tensor) or found.shape != (n,):  # [n, 1] times [n] weights would be [n, n]
            raise BrokenPart(
                f"{self.whose('log_prob')} gave {told(found)} for {n} observations; return one number for each, [n]"
            )
        if torch.is_grad_enabled() and not found.requires_grad:
            raise BrokenPart(
                f"{self.whose('log_prob')} does not depend on the parameters; keep what it computes in torch"
            )
        return found

    def call(self, name: str, tensors: Tensors, *arguments: Any) -> Any:
        named = {f"module.{key}": tensor for key, tensor in tensors.items()}
        method = _Method(self._module, name)
        return asked(self.whose(name), torch.func.functional_call, method, named, arguments)

    def whose(self, method: str) -> str:
        return f"make_policy: {type(self._module).__name__}'s {method}"

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
            found = self._policy.call(name, self._tensors, to_torch(observation[None], torch.float32), *more)
        wanted = self._policy.wanted
        if not wanted.fits(found):
            raise BrokenPart(f"{self._policy.whose(name)} gave {told(found)} for 1 observation; return {wanted}")
        action = wanted.row(found)
        return action if wanted.shape else int(action)


def _check_module(module: Any) -> None:
    kind = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"make_policy: it returned a {kind}; return a torch.nn.Module with {', '.join(_METHODS)}")
    if missing := [name for name in _METHODS if not hasattr(module, name)]:
        raise ConfigError(f"make_policy: {kind} lacks {', '.join(missing)}; see OwnModule")
    if not any(True for _ in module.parameters()):
        raise ConfigError(f"make_policy: {kind} has no parameters; there is nothing to train")
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise ConfigError(f"make_policy: {kind}'s {name} has no shape yet; give its layer the number of its inputs")
        if not parameter.requires_grad:  # theta is one vector, and the server steps all of it
            raise ConfigError(
                f"make_policy: {kind}'s {name} is not to be trained; keep it as a buffer, not a parameter"
            )
    for name, part in module.named_modules():
        # its statistics are no part of theta: no agent would share them, and of one observation there are none
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) or getattr(part, "track_running_stats", False):
            raise ConfigError(
                f"make_policy: {kind}'s {name} ({type(part).__name__}) needs statistics of training, which agents do "
                "not share; use LayerNorm or GroupNorm"
            )
