"""Which code computes gradient and critic: native kernels, or torch. The one place where that is decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.policy.mlp import MlpPolicy, Policy

if TYPE_CHECKING:  # compiled code is imported where somebody computes with it
    from afedpg.agent.compute.kernels import CriticKernels, PolicyKernels

WIDEST = 2048  # auto: up to here native products win (`afedpg bench compute`); beyond, nobody has measured


def uses_kernels(config: Config, policy: Policy, value_network: bool = False) -> bool:
    """Whether native kernels compute; otherwise torch does."""
    if config.agent.compute == "torch":
        return False
    reason = _against(config, policy, value_network)
    if reason and config.agent.compute == "native":
        raise ConfigError(f"compute: native code cannot be used here: {reason}; use --compute auto")
    agent = config.agent
    wide = max((0, *agent.hidden, *(agent.baseline_hidden if agent.baseline == "mlp" else ()))) > WIDEST
    return not reason and not (wide and agent.compute == "auto")


def build_kernels(
    config: Config, policy: Policy, own_critic: bool = False
) -> tuple[PolicyKernels, CriticKernels | None]:
    """Of the policy and, where there is one, of the critic: the mlp baseline, or an estimator's own."""
    from afedpg.agent.compute.kernels import CriticKernels, PolicyKernels

    assert isinstance(policy, MlpPolicy)
    agent = config.agent
    tanh_layers, squashed = policy.activation == "tanh", policy.mean == "tanh"
    critic = None
    if own_critic or agent.baseline == "mlp":
        critic = CriticKernels((policy.observations, *agent.baseline_hidden), own_critic and tanh_layers)
    return PolicyKernels(policy.sizes, policy.gaussian, tanh_layers, squashed), critic


def _against(config: Config, policy: Policy, value_network: bool) -> str:
    if not isinstance(policy, MlpPolicy):
        return "the policy is a module of your own, which torch differentiates"
    if policy.choices:
        return "several discrete actions at once are differentiated by torch"
    if policy.image is not None:
        return "a picture's convolutions are computed by torch"
    if value_network:
        return "policy and value parameters are differentiated together, by torch"
    if config.agent.device != "cpu":
        return f"--device {config.agent.device} is torch's"
    return ""
