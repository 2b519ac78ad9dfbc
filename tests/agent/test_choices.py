"""Several discrete actions at once, MultiDiscrete and MultiBinary: a product of categoricals from policy to file."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from environments_for_tests import Dials
from gymnasium import spaces
from torch.distributions import Bernoulli, Categorical

from afedpg import Own, load_policy, replay, resume, train
from afedpg.agent.estimators.estimator import Tools
from afedpg.agent.estimators.natural import fisher
from afedpg.config import AgentConfig
from afedpg.errors import ConfigError
from afedpg.policy.mlp import MlpPolicy, leaves
from afedpg.runs.check import check_task
from afedpg.sampling.rollout import Rollout
from afedpg.sampling.spaces import actions_of

POLICY = MlpPolicy(3, 9, False, (8,), choices=(3, 2, 4))
BITS = MlpPolicy(3, 6, False, (8,), choices=(2, 2, 2))
SPACES = {
    "multidiscrete": spaces.MultiDiscrete([3, 2, 4]),
    "matrix": spaces.MultiDiscrete([[3, 2], [2, 4]], start=[[-1, 0], [5, 2]]),
    "multibinary": spaces.MultiBinary(3),
    "binary matrix": spaces.MultiBinary((2, 2)),
}
SMALL = {"agents": 2, "iterations": 4, "steps": 40, "hidden": (8,), "evaluate_episodes": 2}


def make_dials(agent):
    return Dials()


def made(policy, states=25):
    generator = np.random.default_rng(5)
    theta = policy.initial_theta(generator) + 0.5 * generator.normal(size=policy.layout.size)
    observations = torch.tensor(generator.normal(size=(states, 3)))
    actions = torch.tensor(np.stack([generator.integers(n, size=states) for n in policy.choices], 1))
    return theta, leaves(policy.layout, torch.tensor(theta)), observations, actions


def logits_of(tensors, x):
    hidden = torch.relu(x @ tensors["layer0.weight"] + tensors["layer0.bias"])
    return hidden @ tensors["layer1.weight"] + tensors["layer1.bias"]


def categoricals(policy, tensors, observations):
    outputs = logits_of(tensors, observations)
    return [Categorical(logits=part) for part in outputs.split(policy.choices, 1)]


@pytest.mark.parametrize("policy", [POLICY, BITS], ids=["many", "of two each"])
def test_log_probability_and_entropy_are_those_of_independent_categoricals(policy):
    _, tensors, observations, actions = made(policy)
    each = categoricals(policy, tensors, observations)
    expected = sum(one.log_prob(actions[:, i]) for i, one in enumerate(each))
    torch.testing.assert_close(policy.log_prob(tensors, observations, actions), expected)
    torch.testing.assert_close(policy.entropy(tensors, observations), sum(one.entropy() for one in each))


def test_a_choice_of_two_is_a_bernoulli():
    _, tensors, observations, actions = made(BITS)
    outputs = logits_of(tensors, observations)
    bits = Bernoulli(logits=outputs[:, 1::2] - outputs[:, 0::2])
    torch.testing.assert_close(BITS.log_prob(tensors, observations, actions), bits.log_prob(actions.double()).sum(1))
    torch.testing.assert_close(BITS.entropy(tensors, observations), bits.entropy().sum(1))


def test_actions_are_drawn_with_their_probabilities_and_independently():
    theta, tensors, observations, _ = made(POLICY)
    actor, generator = POLICY.actor(theta.astype(np.float32)), np.random.default_rng(0)
    row = observations[0].numpy().astype(np.float32)
    draws = np.stack([actor.sample(row, generator) for _ in range(20_000)])
    each = categoricals(POLICY, tensors, observations[:1])
    p = np.einsum("i,j,k->ijk", *(one.probs[0].detach().numpy() for one in each)).reshape(-1)
    counts = np.bincount(np.ravel_multi_index(draws.T, POLICY.choices), minlength=24)
    expected = len(draws) * p
    assert ((counts - expected) ** 2 / expected).sum() < 49.73  # chi-square, 23 degrees of freedom, p = 0.001
    np.testing.assert_array_equal(actor.mode(row), [int(one.probs.argmax()) for one in each])


def test_the_natural_gradient_knows_their_fisher_information():
    """Against the mean outer product of the score, every action weighted by its probability."""
    theta, _, observations, _ = made(POLICY, states=4)
    seen = observations.numpy().astype(np.float32)
    no = np.zeros(4, np.bool_)
    rollout = Rollout(seen.astype(float), seen, np.zeros((4, 3), np.int64), np.zeros(4), no, no,
                      np.array([3]), seen[:1], (), ())  # fmt: skip
    flat = torch.tensor(theta, requires_grad=True)
    dense = np.zeros((theta.size, theta.size))
    for state in torch.tensor(seen).double():
        for action in itertools.product(*map(range, POLICY.choices)):
            views, at = {}, 0
            for name, shape in POLICY.layout.shapes:
                views[name] = flat[at : (at := at + int(np.prod(shape)))].view(shape)
            log_prob = POLICY.log_prob(views, state[None], torch.tensor([action]))[0]
            score = torch.autograd.grad(log_prob, flat)[0].numpy()
            dense += np.exp(float(log_prob)) * np.outer(score, score) / 4
    vector = np.random.default_rng(1).normal(size=theta.size)
    found = fisher(Tools(POLICY, AgentConfig(), 3), theta, rollout)(vector)
    np.testing.assert_allclose(found, dense @ vector, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_environment_gets_actions_of_its_space(space):
    actions, generator = actions_of(space), np.random.default_rng(0)
    indices = [np.array([generator.integers(n) for n in actions.choices]) for _ in range(50)]
    given = [actions.shaped(actions.to_environment(index)) for index in indices]
    assert all(space.contains(action) for action in given)
    highest = actions.shaped(actions.to_environment(np.array(actions.choices) - 1))
    assert not space.contains((highest + 1).astype(space.dtype))


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("estimator", ["gae", "reinforce", "a3c", "clipped", "natural"])
def test_every_estimator_learns_from_them_and_a_run_is_repeatable(tmp_path, estimator):
    settings = {**SMALL, "estimator": estimator, "keep_reports": True}
    result = train("dials", **settings, make_env=make_dials, out=tmp_path / "run")
    assert replay(tmp_path / "run", Own(make_env=make_dials)).agrees
    again = train("dials", **settings, make_env=make_dials, workers=2)
    assert again.sha256 == result.sha256


def test_a_run_in_mid_episode_goes_on_with_the_same_bits(tmp_path):
    settings = {**SMALL, "steps": 33, "checkpoint_seconds": 1e-9, "keep_checkpoints": 9}
    whole = train("dials", **settings, make_env=make_dials)

    class Killed(Exception):
        pass

    def kill(arrival, seconds, theta):
        if arrival.gradient == 5:
            raise Killed

    with pytest.raises(Killed):
        train("dials", **settings, make_env=make_dials, out=tmp_path / "run", on_arrival=kill)
    assert resume(tmp_path / "run", Own(make_env=make_dials)).sha256 == whole.sha256


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("method", ["afedpg", "afedppo"])
def test_small_tasks_of_each_space_train_and_act(tmp_path, name, method):
    space = SPACES[name]
    train("dials", **SMALL, method=method, make_env=lambda agent: Dials(space), out=tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    space.seed(0)
    rows = np.stack([space.sample() for _ in range(5)])
    one, many = policy.act(rows[0], deterministic=True), policy.predict(rows, deterministic=True)[0]
    assert space.contains(one)
    assert many.shape == (5, *space.shape)
    np.testing.assert_array_equal(many[0], one)
    sampled = policy.predict(rows, deterministic=False)[0]
    assert all(space.contains(row) for row in sampled)


@pytest.mark.parametrize("method", ["afedpg", "afedppo"])
def test_the_dials_are_learned(method):
    """24 settings of three dials: acting at random earns 3.6 of 10."""
    result = train("dials", method=method, agents=2, iterations=40, steps=256, make_env=make_dials)
    best = {evaluation.kind: evaluation.mean for evaluation in result.evaluations}
    assert best["deterministic"] > 9.5


def test_native_code_says_that_it_does_not_know_them():
    with pytest.raises(ConfigError, match="several discrete actions at once are differentiated by torch"):
        train("dials", **SMALL, compute="native", make_env=make_dials)


def test_check_names_the_choices():
    assert check_task("dials", make_env=make_dials).policy == "categorical MLP, 9-64-64-9 (3+2+4)"
