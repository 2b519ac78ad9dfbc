"""Environments by setting: kwargs per agent, physics of MuJoCo tasks, and failures that name the field."""

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Walk

from afedpg import Own, train
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import AgentConfig, from_settings
from afedpg.errors import ConfigError
from afedpg.runs.evaluate import evaluate_run
from afedpg.sampling.environments import Environments, kwargs_of, make_environment, time_limit
from afedpg.sampling.gymnasium import GymnasiumSampler


def test_a_table_per_agent_lies_over_the_common_settings():
    settings = AgentConfig(env_kwargs={"frame_skip": 4, "gravity": -9.8, "agents": {"1": {"gravity": -3.7}}})
    assert kwargs_of(settings, 0) == {"frame_skip": 4, "gravity": -9.8}
    assert kwargs_of(settings, 1) == {"frame_skip": 4, "gravity": -3.7}


@pytest.mark.parametrize("task", ["Hopper-v4", "CartPole-v1", "CliffWalking-v1"])
def test_a_setting_limits_an_episodes_steps(task):
    """Instead of the task's own limit, which may be shorter; what env_kwargs say of one agent goes before it."""
    own = {"agents": {"1": {"max_episode_steps": 7}}}
    environments = Environments(
        from_settings({"task": task, "agents": 2, "max_episode_steps": 5000, "env_kwargs": own})
    )
    assert [time_limit(environments.of(agent).env) for agent in range(2)] == [5000, 7]


def test_a_setting_limits_the_episodes_of_environments_of_ones_own():
    environments = Environments(from_settings({"task": "walks", "max_episode_steps": 9}), lambda agent: Walk(500))
    assert time_limit(environments.make(3)) == 9


@pytest.mark.parametrize(("task", "native"), [("Hopper-v4", True), ("Pendulum-v1", False)])
def test_both_samplers_truncate_after_as_many_steps(task, native):
    settings = {"task": task, "steps": 64, "max_episode_steps": 10, "hidden": (4,), "log_std": -20.0}
    work = EnvironmentWorkload(from_settings(settings))
    assert isinstance(work._sampler, GymnasiumSampler) is not native
    theta = work.initial_theta().astype(np.float32)
    _, rollout, _ = work._sampler.sample(0, work.start(0), theta, None)
    assert max(rollout.lengths) == 10
    assert rollout.truncated.sum() > 0
    assert len(rollout.cut_steps) >= rollout.truncated.sum()


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


def test_a_module_of_ones_own_may_take_gravity_itself(tmp_path, monkeypatch):
    """Nothing has imported the module when its constructor is asked what it takes."""
    lines = [
        "import gymnasium",
        "from gymnasium.envs.classic_control import CartPoleEnv",
        "class Site(CartPoleEnv):",
        "    def __init__(self, gravity=9.8):",
        "        super().__init__()",
        "        self.gravity = gravity",
        "gymnasium.register('Site-v0', entry_point=Site)",
    ]
    (tmp_path / "own_gravity_module.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert make_environment("own_gravity_module:Site-v0", {"gravity": 3.7}).unwrapped.gravity == 3.7


@pytest.mark.parametrize(
    ("task", "kwargs", "says"),
    [
        ("NoSuchTask-v0", {}, "task: NoSuchTask-v0"),
        ("CartPole-v99", {}, "task: CartPole-v99"),
        ("no_such_module:Task-v0", {}, "task: no_such_module:Task-v0"),
        ("CartPole-v1", {"colour": "red"}, "env_kwargs: CartPole-v1 does not take"),
        (
            "CartPole-v1",
            {"gravity": 3.0},
            "env_kwargs: CartPole-v1 has no gravity that is set as an argument; --sites gravity multiplies its own",
        ),
        ("Acrobot-v1", {"gravity": 3.0}, "env_kwargs: Acrobot-v1 has no gravity that is set as an argument"),
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


def test_32_agents_keep_their_environments_where_they_stand():
    """One that is taken over replays its episode in every rollout; with 32 agents that took four fifths of a run."""
    environments = Environments(from_settings({"task": "CartPole-v1", "agents": 32}))
    first = [environments.of(agent) for agent in range(32)]
    assert all(environments.of(agent) is live for agent, live in enumerate(first))


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


class Wide(Walk):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)


class Sized(Walk):
    def __init__(self, size=2):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)


SHORT = {"agents": 3, "iterations": 2, "steps": 16, "hidden": (2,), "evaluate_episodes": 1}


def test_agents_of_different_spaces_are_noticed_before_anything_is_computed(tmp_path):
    def differing(agent):
        return Wide() if agent == 2 else Walk()

    arrived = []
    settings = SHORT | {"on_arrival": lambda *arrival: arrived.append(arrival)}
    with pytest.raises(ConfigError, match=r"^make_env: agent 2 has observations Box.*agent 0 has Box"):
        train("walks", **settings, make_env=differing, out=tmp_path / "run")
    assert not arrived
    assert not (tmp_path / "run").exists()


def test_so_are_agents_whose_arguments_make_different_spaces(tmp_path):
    registered = dict(gymnasium.registry)
    gymnasium.register("Sized-v0", entry_point=Sized)
    try:
        with pytest.raises(ConfigError, match=r"^env_kwargs: agent 1 has observations"):
            train("Sized-v0", **SHORT, env_kwargs={"agents": {"1": {"size": 3}}}, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
    finally:
        gymnasium.registry.clear()
        gymnasium.registry.update(registered)


class Around(gymnasium.Wrapper):
    """As Walk, but another object around it."""


def shared(among):
    """make_env that gives `among(agent)` the same walk."""
    walks = {}
    return lambda agent: walks.setdefault(among(agent), Walk())


@pytest.mark.parametrize(
    ("among", "agent"), [(lambda agent: 0, 1), (lambda agent: (agent + 1) // 2, 2), (lambda agent: agent % 2, 2)]
)
@pytest.mark.parametrize("around", [False, True])
def test_one_environment_for_several_agents_is_noticed_before_anything_is_computed(tmp_path, among, agent, around):
    """They would step one another's episodes: other results, and no error."""
    make = shared(among)
    with pytest.raises(
        ConfigError, match=rf"^make_env: agent {agent} got a Walk that was given out before.*make a new one"
    ):
        train("walks", **SHORT, make_env=lambda a: Around(make(a)) if around else make(a), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_agents_environment_is_not_evaluated_in_while_it_is_in_use():
    with pytest.raises(ConfigError, match=r"^make_env: agent 0 got a Walk that was given out before"):
        train("walks", **SHORT | {"agents": 1}, make_env=shared(lambda agent: agent))


def test_sites_that_give_out_one_environment_are_noticed():
    walk = Walk()
    with pytest.raises(ConfigError, match=r"^sites: agent 1 got a Walk that was given out before"):
        train("CartPole-v1", **SHORT, sites=lambda env, agent: walk)


def test_environments_that_made_room_are_made_anew():
    """Objects may then lie where others were."""
    environments = Environments(from_settings({"task": "walks", "agents": 9}), lambda agent: Walk(), limit=2)
    for agent in (0, 1, 2, 3) * 20:
        assert environments.of(agent).agent_id == agent
        environments.make(agent).close()


@pytest.mark.parametrize("name", ["\u0663", "03", "+3", "4", "-1", "9" * 5000])
def test_an_agent_is_named_as_its_settings_are_found(name):
    """Another writing of 3 would be a table that nobody has, and no word of it."""
    with pytest.raises(ConfigError, match=r"^env_kwargs: there is no agent .{1,32}; agents are 0 to 3$"):
        train("CartPole-v1", **SHORT | {"agents": 4}, env_kwargs={"agents": {name: {"nonsense": 3}}})
    for setting in ("late", "drop"):
        with pytest.raises(ConfigError, match=rf"^{setting}: there is no agent .{{1,32}}; agents are 0 to 3$"):
            train("quadratic", agents=4, iterations=1, **{setting: {name: 2.0}})


def test_an_agents_number_that_is_no_text_is_one_line():
    with pytest.raises(ConfigError, match=r"^env_kwargs: agents\.0: a int; name agents by text, as '0'$"):
        train("CartPole-v1", **SHORT, env_kwargs={"agents": {0: {"nonsense": 3}}})


def test_an_environment_that_cannot_be_watched_is_taken():
    """`unwrapped` may be anything, also what no weak reference can be made to."""

    class Core:
        __slots__, spec = (), None

    class Own(Walk):
        unwrapped = Core()

    assert train("walks", **SHORT, make_env=lambda agent: Own()).gradients == 6


KINDS = dict.fromkeys(range(3), Walk)


def changing(agent):
    return KINDS[agent]()


def test_theta_is_not_evaluated_where_it_does_not_fit(tmp_path, monkeypatch):
    train("walks", **SHORT, make_env=changing, out=tmp_path / "run")
    monkeypatch.setitem(KINDS, 1, Wide)
    with pytest.raises(ConfigError, match="make_env: agent 1 has observations"):
        evaluate_run(tmp_path / "run", episodes=1, own=Own(make_env=changing))


def test_environments_are_made_for_the_comparison_only_where_they_may_differ():
    """One per kind of arguments, one at a time: ten thousand agents alike cost nothing."""
    opened = []

    class Noted(Walk):
        def __init__(self):
            super().__init__()
            opened.append(self)

        def close(self):
            opened.remove(self)

    own = Environments(from_settings({"task": "walks", "agents": 500}), lambda agent: Noted())
    own.compare_all()
    assert len(opened) == 1  # agent 0's; the others were closed again
    alike = Environments(from_settings({"task": "CartPole-v1", "agents": 10_000}))
    alike.make = None  # would be called for any but agent 0's
    alike.compare_all()
