"""`activation` and `mean` are the same wherever a policy is computed: formula, torch, kernels, acting, training."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from afedpg import resume, train
from afedpg.agent.compute.choice import build_kernels
from afedpg.agent.estimators.gradient import weighted_score
from afedpg.config import Config, from_settings
from afedpg.export.policy_file import load_policy
from afedpg.policy.mlp import MlpPolicy, leaves, to_torch
from afedpg.sampling.rollout import Rollout
from afedpg.transport.grpc.terms import agree, terms

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0), "tanh": np.tanh, "linear": lambda x: x,
}  # fmt: skip
KINDS = [(activation, mean) for activation in ("relu", "tanh") for mean in ("tanh", "linear")]
SMALL = {"agents": 2, "iterations": 4, "steps": 64, "hidden": (8, 8), "evaluate_episodes": 1, "seed": 5}


@dataclass(frozen=True)
class Case:
    policy: MlpPolicy
    theta: NDArray[np.float32]
    observations: NDArray[np.float32]  # [9, obs]
    noise: np.random.Generator

    def outputs(self) -> NDArray[np.float64]:
        """The last layer's, from the formula."""
        tensors, x = self.policy.layout.views(self.theta.astype(np.float64)), self.observations.astype(np.float64)
        for layer in range(self.policy.layers):
            x = FUNCTIONS[self.policy.activation](x) if layer else x
            x = x @ tensors[f"layer{layer}.weight"] + tensors[f"layer{layer}.bias"]
        return x

    def actions(self) -> NDArray[Any]:
        outputs = self.outputs()
        if not self.policy.gaussian:
            return self.noise.integers(self.policy.actions, size=len(outputs))
        return (outputs + self.noise.standard_normal(outputs.shape)).astype(np.float32)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    policy = MlpPolicy(
        draw(st.integers(1, 40)), draw(st.integers(1, 8)), draw(st.booleans()),
        tuple(draw(st.lists(st.integers(1, 70), max_size=3))), -0.5, None, *draw(st.sampled_from(KINDS)),
    )  # fmt: skip
    noise = np.random.default_rng(draw(st.integers(0, 10**6)))
    theta = policy.initial_theta(noise) + 0.2 * noise.standard_normal(policy.layout.size)
    x = noise.standard_normal((9, policy.observations)).astype(np.float32)
    return Case(policy, theta.astype(np.float32), x, noise)


@given(cases())
def test_the_policy_acts_as_the_formula(case: Case) -> None:
    actor, outputs = case.policy.actor(case.theta), case.outputs()
    found = np.array([actor.mode(row) for row in case.observations])
    if case.policy.gaussian:
        np.testing.assert_allclose(found, FUNCTIONS[case.policy.mean](outputs), rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_allclose(outputs[np.arange(9), found], outputs.max(axis=1), rtol=1e-4, atol=1e-4)


@given(cases())
def test_torchs_log_probability_is_the_formula(case: Case) -> None:
    outputs, actions = case.outputs(), case.actions()
    if case.policy.gaussian:
        log_std = case.policy.layout.views(case.theta)["log_std"].astype(np.float64)
        z = (actions - FUNCTIONS[case.policy.mean](outputs)) / np.exp(log_std)
        right = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    else:
        shifted = outputs - outputs.max(axis=1, keepdims=True)
        right = (shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))[np.arange(9), actions]
    tensors = leaves(case.policy.layout, to_torch(case.theta, torch.float64))
    kind = torch.float64 if case.policy.gaussian else torch.int64
    found = case.policy.log_prob(tensors, to_torch(case.observations, torch.float64), to_torch(actions, kind))
    np.testing.assert_allclose(found.detach().numpy(), right, rtol=1e-9, atol=1e-9)


@given(cases())
def test_the_kernels_that_are_chosen_give_torchs_gradient(case: Case) -> None:
    chosen = build_kernels(from_settings({"task": "t", "compute": "native", "hidden": case.policy.hidden}), case.policy)
    none, ended = np.empty(0), np.zeros(9, np.bool_)
    rollout = Rollout(
        case.observations, case.observations, case.actions(), np.zeros(9), ended, ended, none, none, (), ()
    )
    weights = case.noise.standard_normal(9)
    found = weighted_score(case.policy, case.theta, rollout, weights, kernels=chosen[0])
    right = weighted_score(case.policy, case.theta.astype(np.float64), rollout, weights)
    flat = min(np.abs(layer).min() for layer in (*_before_activations(case), np.ones(1)))
    if case.policy.activation == "tanh" or flat > 1e-5:  # on a kink of relu one side is as right as the other
        assert np.linalg.norm(found - right) <= 1e-5 * np.linalg.norm(right)


def _before_activations(case: Case) -> list[NDArray[np.float64]]:
    tensors, x, found = case.policy.layout.views(case.theta.astype(np.float64)), case.observations, []
    for layer in range(case.policy.layers - 1):
        found.append(x @ tensors[f"layer{layer}.weight"] + tensors[f"layer{layer}.bias"])
        x = FUNCTIONS[case.policy.activation](found[-1])
    return found


def test_the_settings_stay_what_they_were_where_nobody_sets_them() -> None:
    agent, policy = Config(task="CartPole-v1").agent, MlpPolicy(3, 2, True, (4,))
    assert (agent.activation, agent.mean) == (policy.activation, policy.mean) == ("relu", "tanh")
    start = [
        dataclasses.replace(policy, activation=a, mean=m).initial_theta(np.random.default_rng(0)) for a, m in KINDS
    ]
    for theta in start:
        np.testing.assert_array_equal(theta, start[0])


@pytest.mark.usefixtures("forked_workers")
@settings(max_examples=3, deadline=None)
@given(st.sampled_from(KINDS[1:]), st.sampled_from(["torch", "native"]))
def test_a_run_keeps_them(tmp_path_factory: pytest.TempPathFactory, kinds: tuple[str, str], compute: str) -> None:
    """In run.toml and in the policy; with the same bits for any workers and after an interruption."""
    folder = tmp_path_factory.mktemp("runs")
    given_settings = SMALL | {"activation": kinds[0], "mean": kinds[1], "compute": compute}
    whole = train("Pendulum-v1", out=folder / "whole", **given_settings)
    assert train("Pendulum-v1", **SMALL, compute=compute).sha256 != whole.sha256
    said = tomllib.loads((folder / "whole" / "run.toml").read_text())["agent"]
    assert (said["activation"], said["mean"]) == kinds
    assert load_policy(folder / "whole").file.policy["activation"] == kinds[0]
    assert train("Pendulum-v1", workers=2, **given_settings).sha256 == whole.sha256

    def crash(arrival: Any, seconds: float, theta: Any) -> None:
        if arrival.gradient == 5:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train("Pendulum-v1", out=folder / "cut", on_arrival=crash, **given_settings)
    assert resume(folder / "cut").sha256 == whole.sha256


@pytest.mark.parametrize("kinds", KINDS)
def test_a_server_tells_its_agents(kinds: tuple[str, str]) -> None:
    server = from_settings({"task": "Pendulum-v1", "activation": kinds[0], "mean": kinds[1]})
    agreed = agree(Config(task="Pendulum-v1"), terms(server), 0, 0).agent
    assert (agreed.activation, agreed.mean) == kinds


def test_a3cs_value_network_has_the_policys_activation() -> None:
    shared = MlpPolicy(3, 2, True, (4,), 0.0, (5,), "tanh")
    theta = shared.initial_theta(np.random.default_rng(0))
    tensors, x = shared.layout.views(theta), np.linspace(-1, 1, 6).reshape(2, 3)
    hidden = np.tanh(x @ tensors["value0.weight"] + tensors["value0.bias"])
    right = hidden @ tensors["value1.weight"] + tensors["value1.bias"]
    found = shared.values(leaves(shared.layout, to_torch(theta, torch.float64)), to_torch(x, torch.float64))
    np.testing.assert_allclose(found.detach().numpy(), right[:, 0], rtol=1e-12)
