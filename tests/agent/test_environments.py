"""Environments by setting: kwargs per agent, physics of MuJoCo tasks, and failures that name the field."""

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Walk

from afedpg.agent.environments import Environments, kwargs_of, make_environment
from afedpg.config import from_settings
from afedpg.errors import ConfigError


def test_a_table_per_agent_lies_over_the_common_settings():
    settings = {"frame_skip": 4, "gravity": -9.8, "agents": {"1": {"gravity": -3.7}}}
    assert kwargs_of(settings, 0) == {"frame_skip": 4, "gravity": -9.8}
    assert kwargs_of(settings, 1) == {"frame_skip": 4, "gravity": -3.7}


def test_gravity_friction_and_wind_reach_the_model():
    plain = make_environment("Hopper-v4", {}).unwrapped.model
    moon = make_environment("Hopper-v4", {"gravity": -1.6, "friction": 0.5, "wind": 3.0}).unwrapped.model
    assert moon.opt.gravity[2] == -1.6
    np.testing.assert_allclose(moon.geom_friction[:, 0], 0.5 * plain.geom_friction[:, 0])
    np.testing.assert_array_equal(moon.opt.wind, [3, 0, 0])


def test_agents_live_under_their_own_gravity():
    agents = {str(agent): {"gravity": -float(agent + 1)} for agent in range(3)}
    environments = Environments(from_settings({"task": "hopper", "agents": 3, "env_kwargs": {"agents": agents}}))
    gravities = [environments.of(agent).env.unwrapped.model.opt.gravity[2] for agent in range(3)]
    assert gravities == [-1, -2, -3]


@pytest.mark.parametrize(
    ("task", "kwargs", "says"),
    [
        ("NoSuchTask-v0", {}, "task: NoSuchTask-v0"),
        ("CartPole-v99", {}, "task: CartPole-v99"),
        ("no_such_module:Task-v0", {}, "task: no_such_module:Task-v0"),
        ("CartPole-v1", {"colour": "red"}, "env_kwargs: CartPole-v1 does not take"),
        ("CartPole-v1", {"gravity": 3.0}, "env_kwargs: CartPole-v1 has no gravity"),
        ("Hopper-v4", {"gravity": "low"}, "env_kwargs:"),
    ],
)
def test_what_cannot_be_made_is_named(task, kwargs, says):
    with pytest.raises(ConfigError) as refusal:
        make_environment(task, kwargs)
    assert str(refusal.value).startswith(says)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("agents", [{"7": {}}, {"first": {}}, [1], {"0": 3}])
def test_tables_of_agents_that_do_not_exist_are_refused(agents):
    with pytest.raises(ConfigError, match="env_kwargs"):
        Environments(from_settings({"task": "CartPole-v1", "agents": 2, "env_kwargs": {"agents": agents}}))


def test_making_an_old_version_on_purpose_is_silent(recwarn):
    make_environment("Swimmer-v4", {}).close()
    assert not [warning for warning in recwarn if "out of date" in str(warning.message)]


def test_a_full_house_takes_environments_over_or_closes_them():
    config = from_settings({"task": "CartPole-v1", "agents": 5})
    shared = Environments(config, limit=2)
    first = shared.of(0).env
    shared.of(1)
    assert shared.of(2).env is first
    assert shared.of(2).agent_id == 2
    own = Environments(config, lambda agent: gymnasium.make("CartPole-v1"), limit=2)
    first = own.of(0).env
    own.of(1)
    assert own.of(2).env is not first


def test_an_environment_that_draws_nothing_need_not_know_render_mode():
    registered = dict(gymnasium.registry)
    gymnasium.register("NoPictures-v0", entry_point=Walk)
    try:
        make_environment("NoPictures-v0", {"length": 3}).close()
        with pytest.raises(ConfigError, match="video: NoPictures-v0 shows no pictures"):
            make_environment("NoPictures-v0", {}, render_mode="rgb_array")
    finally:
        gymnasium.registry.clear()
        gymnasium.registry.update(registered)
