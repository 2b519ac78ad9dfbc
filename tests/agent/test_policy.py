"""Policies: sizes of the paper, orthogonality, and one distribution seen through torch and through the sampler."""

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.errors import ConfigError
from afedpg.policy.mlp import MlpPolicy, leaves, orthogonal, to_torch
from afedpg.policy.own import ModulePolicy
from afedpg.seeding import stream

PAPER = {
    "swimmer": (8, 2, (64, 64), 4_868),
    "hopper": (11, 3, (256, 256), 69_638),
    "walker2d": (17, 6, (512, 512), 274_956),
    "humanoid": (376, 17, (512, 512, 512), 727_074),
}


@pytest.mark.parametrize("task", PAPER)
def test_parameter_counts_are_the_papers(task):
    observations, actions, hidden, count = PAPER[task]
    assert MlpPolicy(observations, actions, True, hidden).layout.size == count


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 100))
def test_layers_start_orthogonal(rows, columns, seed):
    matrix = orthogonal(rows, columns, stream(seed, "theta"))
    product = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-12)


def test_theta_starts_as_the_settings_say():
    policy = MlpPolicy(3, 2, True, (8,), log_std=-1.5, value_hidden=(8,))
    start = policy.layout.views(policy.initial_theta(stream(0, "theta")))
    assert set(start["log_std"]) == {-1.5}
    for name, gain in (("layer0", 2**0.5), ("layer1", 0.01), ("value0", 2**0.5), ("value1", 1.0)):
        np.testing.assert_allclose(np.linalg.svd(start[f"{name}.weight"], compute_uv=False), gain, rtol=1e-12)
        assert not start[f"{name}.bias"].any()


def test_initial_theta_needs_no_global_randomness():
    policy = MlpPolicy(4, 2, True, (8,))
    torch.manual_seed(1)
    first = policy.initial_theta(stream(3, "theta"))
    torch.manual_seed(2)
    np.random.seed(5)  # noqa: NPY002
    np.testing.assert_array_equal(first, policy.initial_theta(stream(3, "theta")))
    assert not np.array_equal(first, policy.initial_theta(stream(4, "theta")))


def log_prob(policy, theta, observations, actions):
    tensors = leaves(policy.layout, to_torch(theta, torch.float64))
    kind = torch.float64 if policy.gaussian else torch.int64
    return policy.log_prob(tensors, to_torch(observations, torch.float64), to_torch(actions, kind)).detach().numpy()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_gaussian_log_probability_is_the_density(seed):
    generator = stream(seed, "theta")
    policy = MlpPolicy(3, 2, True, (8, 8), log_std=-0.5)
    theta = policy.initial_theta(generator) + 0.3 * generator.standard_normal(policy.layout.size)
    x, u = generator.standard_normal((5, 3)), generator.standard_normal((5, 2))
    tensors = policy.layout.views(theta)
    hidden = x
    for layer in range(2):
        hidden = np.maximum(hidden @ tensors[f"layer{layer}.weight"] + tensors[f"layer{layer}.bias"], 0)
    mean = np.tanh(hidden @ tensors["layer2.weight"] + tensors["layer2.bias"])
    std = np.exp(tensors["log_std"])
    density = np.exp(-0.5 * ((u - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(log_prob(policy, theta, x, u), np.log(density).sum(axis=1), rtol=1e-9)


def test_the_sampler_draws_from_what_the_gradient_differentiates():
    """Frequencies of sampled actions against exp(log_prob); mean and deviation for the Gaussian."""
    generator = stream(0, "theta")
    discrete = MlpPolicy(3, 4, False, (8,))
    theta = discrete.initial_theta(generator) + 0.5 * generator.standard_normal(discrete.layout.size)
    theta = theta.astype(np.float32)
    x = np.array([0.3, -1.0, 0.5], np.float32)
    actor, noise = discrete.actor(theta), stream(0, "agent")
    counts = np.bincount([actor.sample(x, noise) for _ in range(20_000)], minlength=4) / 20_000
    expected = np.exp(log_prob(discrete, theta, np.tile(x, (4, 1)), np.arange(4)))
    np.testing.assert_allclose(counts, expected, atol=0.015)
    assert actor.mode(x) == expected.argmax()

    box = MlpPolicy(3, 2, True, (8,), log_std=-1.0)
    theta = (box.initial_theta(generator) + 0.5 * generator.standard_normal(box.layout.size)).astype(np.float32)
    actor = box.actor(theta)
    draws = np.array([actor.sample(x, noise) for _ in range(20_000)])
    deviations = np.exp(box.layout.views(theta)["log_std"])
    np.testing.assert_allclose(draws.mean(axis=0), actor.mode(x), atol=0.03)
    np.testing.assert_allclose(draws.std(axis=0), deviations, rtol=0.03)
    best = log_prob(box, theta, x[None], actor.mode(x)[None])[0]
    assert all(best > log_prob(box, theta, x[None], draw[None])[0] for draw in draws[:50])


class OwnPolicy(torch.nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.body = torch.nn.Linear(observations, actions)

    def log_prob(self, observations, actions):
        return torch.log_softmax(self.body(observations), 1).gather(1, actions[:, None])[:, 0]

    def sample(self, observations, generator):
        return torch.multinomial(torch.softmax(self.body(observations), 1), 1, generator=generator)[:, 0]

    def mode(self, observations):
        return self.body(observations).argmax(1)


SPACES = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)


def test_a_module_of_ones_own_is_a_policy():
    policy = ModulePolicy.make(lambda observations, actions: OwnPolicy(3, 2), *SPACES, stream(0, "theta"))
    again = ModulePolicy.make(lambda observations, actions: OwnPolicy(3, 2), *SPACES, stream(0, "theta"))
    theta = policy.initial_theta(stream(0, "theta"))
    np.testing.assert_array_equal(theta, again.initial_theta(stream(0, "theta")))
    actor, x = policy.actor(theta.astype(np.float32)), np.ones(3, np.float32)
    draws = [actor.sample(x, stream(0, "agent")) for _ in range(20)]
    actor = policy.actor(theta.astype(np.float32))
    assert draws == [actor.sample(x, stream(0, "agent")) for _ in range(20)]
    assert set(draws) == {0, 1}
    assert actor.mode(x) in (0, 1)


def test_a_module_without_the_methods_is_refused():
    with pytest.raises(ConfigError, match="lacks log_prob"):
        ModulePolicy(torch.nn.Linear(2, 2), SPACES[1])
