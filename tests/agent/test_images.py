"""Observations that are pictures: bytes from the environment to the checkpoint, convolutions in policy and critic."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from environments_for_tests import Corners
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation

from afedpg import Own, load_policy, replay, resume, train
from afedpg.agent.estimators.shipped import Clipped, Gae
from afedpg.agent.estimators.torch_ppo import PICTURES, values_in_torch
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Task, TaskId
from afedpg.policy.image import Image
from afedpg.policy.mlp import Layers, MlpPolicy, leaves
from afedpg.runs.check import check_task
from afedpg.sampling.spaces import image_of, observations_of

SMALL = {"agents": 2, "iterations": 3, "steps": 30, "hidden": (8,), "baseline_hidden": (8,), "evaluate_episodes": 2}


def make_corners(agent):
    return Corners()


def make_stack(agent):
    return FrameStackObservation(Corners(), 3)


def nature(channels, outputs):
    """As others write it."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(channels, 32, 8, 4), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 4, 2), torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3, 1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(outputs, 5),
    ).double()  # fmt: skip


def test_large_pictures_go_through_the_network_of_mnih_and_others():
    image = Image((84, 84, 4))
    assert (image.planes, image.features) == ((4, 84, 84), 3136)
    layers = Layers(84 * 84 * 4, (), 5, image=image)
    theirs = nature(4, 3136)
    linear = theirs[7].weight.detach().T
    values = [p.detach() for p in theirs.parameters()]
    values[6] = linear
    tensors = {name: value for (name, shape), value in zip(layers.shapes, values, strict=True)}
    assert [tuple(value.shape) for value in values] == [shape for _, shape in layers.shapes]
    rows = torch.tensor(np.random.default_rng(0).integers(0, 256, (3, 84 * 84 * 4)), dtype=torch.float64)
    seen = rows.view(3, 84, 84, 4).permute(0, 3, 1, 2) / 255
    torch.testing.assert_close(layers(tensors, rows), theirs(seen))


@pytest.mark.parametrize(
    ("shape", "planes"),
    [
        ((84, 84, 3), (3, 84, 84)), ((3, 84, 84), (3, 84, 84)), ((84, 84), (1, 84, 84)), ((210, 160, 3), (3, 210, 160)),
        ((4, 84, 84), (4, 84, 84)), ((4, 84, 84, 3), (12, 84, 84)), ((2, 3, 64, 48), (6, 64, 48)),
        ((7, 7, 20), (20, 7, 7)), ((20, 7, 7), (20, 7, 7)), ((1, 1), (1, 1, 1)),
    ],
)  # fmt: skip
def test_channels_are_found_and_pictures_of_a_stack_lie_side_by_side(shape, planes):
    image = Image(shape)
    assert image.planes == planes
    assert image.features > 0
    whole = np.arange(np.prod(shape)).reshape(shape)
    seen = image.pictures(torch.tensor(whole.reshape(1, -1).astype(np.float64))).numpy()[0] * 255
    assert seen.shape == planes
    places = {(84, 84, 3): (5, 7, 2), (4, 84, 84, 3): (1, 5, 7, 2), (84, 84): (5, 7), (2, 3, 64, 48): (1, 2, 5, 7)}
    if shape in places:
        channel = {(84, 84, 3): 2, (4, 84, 84, 3): 3 + 2, (84, 84): 0, (2, 3, 64, 48): 3 + 2}[shape]
        assert seen[channel, 5, 7] == pytest.approx(whole[places[shape]])


def test_what_is_no_picture_stays_numbers_or_is_refused_by_name():
    assert image_of(spaces.Box(0, 255, (128,), np.uint8)) is None
    assert image_of(spaces.Box(0, 9, (7, 7, 3), np.uint8)).brightest == 9
    with pytest.raises(ConfigError, match=r"not of bytes; make it uint8 from 0 to 255"):
        observations_of(spaces.Box(0, 1, (8, 8, 3), np.float32))
    with pytest.raises(ConfigError, match=r"a picture among other things"):
        observations_of(spaces.Dict({"camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)}))


def test_a_picture_that_is_not_of_bytes_is_refused_with_its_type():
    """0.5 would become 0."""

    class Wrong(Corners):
        def _look(self):
            return super()._look() / 255

    with pytest.raises(AfedpgError, match=r"none of its space.*of float64, not of uint8"):
        train("wrong", **SMALL, make_env=lambda agent: Wrong())


def test_bytes_stay_bytes_and_nothing_is_scaled_by_statistics():
    work = EnvironmentWorkload(from_settings({"task": "corners", **SMALL, "method": "afedppo"}), make_corners)
    assert (work.exchange.statistics.keys(), work._tools.image) == ({"returns"}, Image((8, 8, 1)))
    theta = work.initial_theta().astype(np.float32)
    state = work.start(0)
    for _ in range(2):
        state, report = work.work(work.prepare(state, 0), Task(TaskId(0, 0), 0, theta, 0))
    assert "observations" not in report.moments
    pictures = {name: array for name, array in state.items() if array.size >= 64 and name.endswith("observations")}
    assert pictures
    assert all(array.dtype == np.uint8 for array in pictures.values())
    assert state["episode_observation"].dtype == np.uint8
    waiting = work.prepare(state, 0)
    assert waiting["rollout_observations"].dtype == np.uint8
    assert "rollout_raw" not in waiting


def test_an_environment_that_paints_over_its_picture_is_seen_as_it_was():
    """What was seen at the end of an episode is not what the next one begins with."""

    class Canvas(Corners):
        canvas = np.zeros((8, 8, 1), np.uint8)

        def _look(self):
            self.canvas[...] = super()._look()
            return self.canvas

    found = []
    for make in (make_corners, lambda agent: Canvas()):
        work = EnvironmentWorkload(from_settings({"task": "corners", **SMALL, "seed": 3}), make)
        _, rollout, _ = work._sampler.sample(0, work.start(0), work.initial_theta().astype(np.float32), None)
        found.append(rollout)
    assert found[0].truncated.any()
    for name in ("observations", "cut_observations", "actions", "rewards"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))


def test_what_is_sampled_is_what_is_differentiated():
    policy = MlpPolicy(64, 4, False, (8,), image=Image((8, 8, 1)))
    generator = np.random.default_rng(0)
    theta = (policy.initial_theta(generator) + 0.1 * generator.normal(size=policy.layout.size)).astype(np.float32)
    row, actor = generator.integers(0, 256, 64).astype(np.uint8), policy.actor(theta)
    tensors = leaves(policy.layout, torch.tensor(theta))
    rows = torch.tensor(row, dtype=torch.float32).expand(4, -1)
    p = policy.log_prob(tensors, rows, torch.arange(4)).exp().detach().numpy()
    draws = np.bincount([actor.sample(row, generator) for _ in range(5000)], minlength=4)
    assert ((draws - 5000 * p) ** 2 / (5000 * p)).sum() < 16.27  # chi-square, 3 degrees of freedom, p = 0.001
    assert actor.mode(row) == p.argmax()


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("estimator", ["gae", "reinforce", "a3c", "clipped", "natural"])
def test_every_estimator_takes_pictures_and_a_run_is_repeatable(tmp_path, estimator):
    settings = {**SMALL, "estimator": estimator, "keep_reports": True}
    result = train("corners", **settings, make_env=make_corners, out=tmp_path / "run")
    assert replay(tmp_path / "run", Own(make_env=make_corners)).agrees
    assert train("corners", **settings, make_env=make_corners, workers=2).sha256 == result.sha256


@pytest.mark.parametrize("method", ["afedpg", "afedppo"])
def test_a_killed_run_of_stacked_pictures_goes_on_with_the_same_bits(tmp_path, method):
    settings = {**SMALL, "method": method, "checkpoint_seconds": 1e-9}
    whole = train("stack", **settings, make_env=make_stack)

    class Killed(Exception):
        pass

    def kill(arrival, seconds, theta):
        if arrival.gradient == 3:
            raise Killed

    with pytest.raises(Killed):
        train("stack", **settings, make_env=make_stack, out=tmp_path / "run", on_arrival=kill)
    assert resume(tmp_path / "run", Own(make_env=make_stack)).sha256 == whole.sha256


def test_real_processes_send_what_pictures_taught_them(tmp_path):
    settings = {**SMALL, "engine": "local", "method": "afedppo"}
    result = train("corners", **settings, make_env=make_corners, out=tmp_path / "run")
    assert result.gradients == 6
    assert replay(tmp_path / "run", Own(make_env=make_corners)).agrees


def test_the_policy_file_acts_on_pictures(tmp_path):
    train("stack", **SMALL, make_env=make_stack, out=tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    env = make_stack(0)
    seen, _ = env.reset(seed=1)
    assert env.action_space.contains(policy.act(seen))
    actions, _ = policy.predict(np.stack([seen] * 3))
    assert actions.tolist() == [policy.act(seen)] * 3
    beside = (tmp_path / "run" / "policy.safetensors").stat().st_size - 4 * policy.file.theta.size
    assert beside < 3000  # bounds are stored once, not for every pixel
    with pytest.raises(ConfigError, match="of float64, not of uint8"):
        policy.act(seen / 255)


def test_critics_see_pictures_too():
    for estimator, name in ((Gae(), "baseline"), (Clipped(), "")):
        work = EnvironmentWorkload(from_settings({"task": "corners", **SMALL}), make_corners, estimator=estimator)
        found = work.start(0)["baseline"].size if name else estimator.groups(work._tools)[1].size
        assert found == Layers(64, (8,), 1, image=Image((8, 8, 1))).layout.size


def test_values_of_many_pictures_are_computed_in_blocks():
    work = EnvironmentWorkload(from_settings({"task": "corners", **SMALL, "method": "afedppo"}), make_corners)
    tools, network = work._tools, work._tools.critic_network
    value = work.initial_theta()[tools.parameters :][: network.layout.size]
    for count in (0, 1, PICTURES, 2 * PICTURES + 5):
        rows = np.random.default_rng(0).integers(0, 256, (count, 64)).astype(np.uint8)
        tensors = leaves(network.layout, torch.tensor(value))
        expected = network(tensors, torch.tensor(rows, dtype=torch.float64))[:, 0].detach().numpy()
        np.testing.assert_allclose(values_in_torch(tools, value, rows), expected, rtol=1e-4, atol=1e-5)


def test_pictures_take_four_epochs_unless_others_are_asked_for():
    settings = {**SMALL, "method": "afedppo", "make_env": make_corners}
    ways = ("clipped", "clipped:epochs=4", "clipped:epochs=10")
    default, four, ten = (train("corners", **settings, estimator=how).sha256 for how in ways)
    assert four == default != ten


@pytest.mark.parametrize(
    "settings", [{"eta": 0.1, "iterations": 60}, {"method": "afedppo", "iterations": 30}], ids=["afedpg", "afedppo"]
)
def test_corners_are_learned_from_pictures(settings):
    """Acting at random earns about a fourth."""
    result = train("corners", **settings, agents=2, steps=128, make_env=make_corners)
    best = max(evaluation.mean for evaluation in result.evaluations)
    assert best > 0.9 * Corners.STEPS


def test_native_code_says_that_it_knows_no_pictures():
    with pytest.raises(ConfigError, match="a picture's convolutions are computed by torch"):
        train("corners", **SMALL, compute="native", make_env=make_corners)


def test_agents_whose_pictures_differ_in_shape_are_refused():
    class Turned(Corners):
        observation_space = spaces.Box(0, 255, (1, 8, 8), np.uint8)

    with pytest.raises(ConfigError, match="one policy serves all agents"):
        train("mixed", **SMALL, make_env=lambda agent: [Corners, Turned][agent]())


def test_check_says_that_it_is_a_cnn():
    found = check_task("corners", make_env=make_corners)
    assert (found.policy, found.scale_observations, found.warnings) == (
        "categorical CNN of 1x8x8, 128-64-64-4",
        False,
        (),
    )


def test_gymnasium_makes_pictures_of_other_tasks():
    pytest.importorskip("pygame")

    def make(agent):
        env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
        env = gymnasium.wrappers.AddRenderObservation(env)
        env = gymnasium.wrappers.ResizeObservation(gymnasium.wrappers.GrayscaleObservation(env), (40, 60))
        return FrameStackObservation(env, 2)

    pytest.importorskip("cv2")
    result = train("pictured", **{**SMALL, "steps": 16, "iterations": 1}, make_env=make)
    assert result.gradients == 2
