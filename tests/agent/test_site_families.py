"""Sites: environments that differ between agents, by name or of one's own; whose scaling; what is stored of each."""

from __future__ import annotations

import gymnasium
import mujoco
import numpy as np
import pytest
from environments_for_tests import Walk

from afedpg import Own, resume, train
from afedpg.agent.work import EnvironmentWorkload
from afedpg.cli import main
from afedpg.config import SITES, from_settings
from afedpg.errors import ConfigError
from afedpg.messages import Task, TaskId
from afedpg.record.database import read_evaluations
from afedpg.record.folder import open_run
from afedpg.runs.evaluate import evaluate_run
from afedpg.runs.parts import configure
from afedpg.sampling.environments import Environments, make_environment
from afedpg.sampling.normalizer import moments_of
from afedpg.sampling.sites import FAMILIES, Site, Sites
from afedpg.server.moments import merge

SMALL = {"agents": 3, "iterations": 2, "steps": 64, "hidden": (8,), "evaluate_episodes": 2, "workers": 1}


def environments(task: str, sites: str, agents: int = 3) -> Environments:
    return Environments(configure(task, None, {"agents": agents, "sites": sites}))


def inner(task: str, sites: str, agent_id: int = 0):
    return environments(task, sites).of(agent_id).env.unwrapped


def test_the_names_are_those_of_the_settings():
    assert tuple(FAMILIES) == SITES


def test_factors_go_from_low_to_high_agent_by_agent_or_are_taken_in_turn():
    def gravities(sites, agents):
        made = environments("hopper", sites, agents)
        return [made.of(agent).env.unwrapped.model.opt.gravity[2] / -9.81 for agent in range(agents)]

    np.testing.assert_allclose(gravities("gravity", 3), [0.5, 1.0, 1.5])
    np.testing.assert_allclose(gravities("gravity:low=1,high=2,count=2", 4), [1, 2, 1, 2])
    np.testing.assert_allclose(gravities("gravity:values=[0.3,3]", 3), [0.3, 3, 0.3])


def test_every_family_changes_what_it_says_and_nothing_else():
    plain = make_environment("Hopper-v4", {}).unwrapped
    rough = inner("hopper", "friction:values=[0.5]").model
    np.testing.assert_allclose(rough.geom_friction[:, 0], 0.5 * plain.model.geom_friction[:, 0])
    np.testing.assert_array_equal(rough.opt.gravity, plain.model.opt.gravity)
    windy = inner("hopper", "wind:values=[-3]").model.opt
    assert (windy.wind.tolist(), windy.density) == ([-3, 0, 0], 1.2)
    assert inner("swimmer", "wind:values=[-3]").model.opt.density == 4000  # it swims in something already
    paid = inner("hopper", "reward:weight=control,values=[4]")
    assert (paid._ctrl_cost_weight, paid._forward_reward_weight) == (4 * plain._ctrl_cost_weight, 1)
    pole = inner("CartPole-v1", "length:values=[2]")
    assert (pole.length, pole.polemass_length, pole.gravity) == (1.0, 0.1, 9.8)
    assert inner("CartPole-v1", "gravity:values=[2]").gravity == 19.6
    swing = inner("Pendulum-v1", "gravity:values=[0.5]")
    assert (swing.g, swing.l) == (5.0, 1.0)
    assert inner("Pendulum-v1", "length:values=[3]").l == 3


@pytest.mark.parametrize("task", ["Hopper-v4", "Walker2d-v5", "Swimmer-v4", "InvertedPendulum-v4"])
def test_another_length_is_the_model_that_mujoco_compiles_at_that_scale(task):
    """The oracle: the XML with every length of its moving bodies multiplied, compiled anew."""
    factor = 1.3
    spec = mujoco.MjSpec.from_file(make_environment(task, {}).unwrapped.fullpath)
    for body in spec.bodies[1:]:
        body.pos = np.array(body.pos) * factor
        for geom in body.geoms:
            ends = np.array(geom.fromto) * factor
            geom.size, geom.pos = np.array(geom.size) * factor, np.array(geom.pos) * factor
            if not np.isnan(ends[0]):
                geom.fromto = ends
        for each in (*body.joints, *body.sites):
            each.pos = np.array(each.pos) * factor
    compiled = spec.compile()
    scaled = inner(task, f"length:values=[{factor}]").model
    bodies = ("body_pos", "body_ipos", "body_mass", "body_inertia", "body_invweight0", "bvh_aabb")
    geoms = ("geom_size", "geom_pos", "geom_rbound", "geom_aabb")
    for name in (*bodies, *geoms, "jnt_pos", "dof_invweight0", "dof_M0"):
        np.testing.assert_allclose(getattr(scaled, name), getattr(compiled, name), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("task", "sites", "line"), [
    ("CartPole-v1", "wind", "sites: CartPole-v1 has no wind; it has gravity, length, or give FILE.py:NAME of your own"),
    ("Acrobot-v1", "gravity", "sites: Acrobot-v1 has no gravity; it has no family, or give FILE.py:NAME of your own"),
    ("humanoid", "length", "sites: Humanoid-v4 has no length; it has gravity, friction, wind, reward:weight=forward"),
    ("ant", "reward", "sites: Ant-v4 has no reward:weight=forward; it has gravity, friction, wind"),
    ("hopper", "moon", "sites: unknown 'moon'; choose from gravity, friction, wind, length, reward"),
    ("hopper", "gravity:low=-1", "sites: gravity: low: -1.0 is outside [0, 100]"),
    ("hopper", "length:values=[1,0]", "sites: length: values: 0.0 is outside (0, 100]"),
    ("hopper", "gravity:hight=2", "sites: gravity has no parameter 'hight'; it has low, high, count, values"),
    ("quadratic", "gravity", "sites: quadratic is a synthetic problem and has no environment; its agents differ by"),
])  # fmt: skip
def test_what_a_task_does_not_have_is_refused_in_a_line(task, sites, line, capsys, tmp_path):
    assert main(["train", task, "--sites", sites, "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"afedpg: {line}")
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_site_is_evaluated_stored_and_shown_by_its_name(tmp_path, capsys):
    run = tmp_path / "run"
    whole = train("CartPole-v1", sites="gravity:low=1,high=3", out=run, **SMALL)
    assert open_run(run).config().agent.sites == "gravity:low=1,high=3,count=3"  # N is not an agent's to know
    told = read_evaluations(run / "run.db")
    sites = ["gravity=1", "gravity=2", "gravity=3"]
    assert told["environment"].tolist() == [site for site in sites for _ in range(2)]
    assert [e.environment for e in evaluate_run(run, 2)] == told["environment"].tolist()
    assert train("CartPole-v1", **SMALL).sha256 != whole.sha256  # heavier poles fall sooner
    assert resume(run).sha256 == whole.sha256
    capsys.readouterr()
    main(["evaluate", str(run), "--episodes", "3", "--kind", "sampled"])
    first, line = capsys.readouterr().out.splitlines()  # which theta it is, and how good
    assert line.startswith("theta, sampled, mean of 3 sites: ")
    main(["evaluate", str(run), "--episodes", "3", "--kind", "sampled", "--per-site"])
    again, *rows, last = capsys.readouterr().out.splitlines()
    assert again == first
    means = {row.split(":")[0].split(" on ")[1]: float(row.split(": ")[1].split(";")[0]) for row in rows}
    assert (list(means), last) == (sites, line)
    worst = min(means, key=means.__getitem__)
    assert line.endswith(f"; worst, {worst}: {means[worst]:g}")
    assert f"{sum(means.values()) / 3:.5g}" in line


def steeper(env, agent_id):
    env.unwrapped.gravity *= 1 + agent_id
    return env


class Slopes(Sites):
    """Two sites, whoever is there."""

    def site(self, agent_id):
        return Site(f"slope {agent_id % 2}", lambda env: steeper(env, agent_id % 2))


def test_a_function_or_an_object_of_ones_own(tmp_path):
    by_function = train("CartPole-v1", sites=steeper, out=tmp_path / "one", **SMALL)
    by_name = train("CartPole-v1", sites="gravity:values=[1,2,3]", **SMALL)
    assert by_function.sha256 == by_name.sha256
    assert [e.environment for e in by_function.evaluations[::2]] == ["agent 0", "agent 1", "agent 2"]
    with pytest.raises(ConfigError, match=r"^own: this run was made with own parts: sites: .*steeper; given were: n"):
        resume(tmp_path / "one")
    assert resume(tmp_path / "one", Own(sites=steeper)).sha256 == by_function.sha256
    by_object = train("CartPole-v1", sites=Slopes(), **SMALL)
    assert [e.environment for e in by_object.evaluations[::2]] == ["slope 0", "slope 1"]
    assert by_object.sha256 == train("CartPole-v1", sites="gravity:values=[1,2]", **SMALL).sha256


def test_a_file_of_ones_own_and_what_is_wrong_with_one(tmp_path):
    (tmp_path / "steep.py").write_text(
        "def steeper(env, agent):\n    env.unwrapped.gravity *= 1 + agent\n    return env\n"
        "def broken(env, agent):\n    raise ValueError('no such slope')\n"
        "def nothing(env, agent):\n    pass\n"
    )
    by_file = train("CartPole-v1", sites=f"{tmp_path}/steep.py:steeper", **SMALL)
    assert by_file.sha256 == train("CartPole-v1", sites=steeper, **SMALL).sha256
    with pytest.raises(Exception, match=r"^agent 0: sites raised ValueError: no such slope; fix sites$"):
        train("CartPole-v1", sites=f"{tmp_path}/steep.py:broken", **SMALL)
    with pytest.raises(ConfigError, match=r"^sites: agent 0"):
        train("CartPole-v1", sites=f"{tmp_path}/steep.py:nothing", **SMALL)
    with pytest.raises(ConfigError, match=r"^sites: 3 is not of type str"):
        train("CartPole-v1", sites=3, **SMALL)
    with pytest.raises(ConfigError, match=r"^sites: .* is no function"):
        train("CartPole-v1", sites=[steeper], **SMALL)


def test_make_env_and_sites_are_two_ways_to_say_one_thing():
    with pytest.raises(ConfigError, match=r"^sites: make_env makes every agent's environment already"):
        train("CartPole-v1", sites="gravity", make_env=lambda agent: gymnasium.make("CartPole-v1"), **SMALL)


def test_an_environment_is_taken_over_by_agents_of_the_same_site_alone():
    config = configure("CartPole-v1", None, {"agents": 4, "sites": "gravity:values=[1,2]"})
    made = Environments(config, limit=1)
    first = made.of(0).env
    assert made.of(2).env is first
    assert made.of(1).env.unwrapped.gravity == 19.6


def test_with_local_scaling_an_agent_scales_by_what_it_has_seen_itself():
    def ramp(agent_id):
        return gymnasium.wrappers.TimeLimit(Walk(), 20)

    config = from_settings(
        {"task": "CartPole-v1", "agents": 2, "steps": 32, "hidden": (8,), "scaling": "local", "sampler": "gymnasium"}
    )
    workload = EnvironmentWorkload(config, ramp)
    theta = workload.initial_theta().astype(np.float32)
    lies = moments_of(1e3 + np.random.default_rng(0).normal(size=(64, workload.environments.observations.size)))
    state, seen, scaled = workload.start(0), None, []
    sample = workload._sampler.sample
    workload._sampler.sample = lambda *given: scaled.append(given[3]) or sample(*given)
    for version in range(3):
        task = Task(TaskId(0, version), 0, theta, version, {"observations": lies})
        state, report = workload.work(state, task)
        assert (scaled[-1] is None) == (seen is None)
        if seen is not None:
            np.testing.assert_array_equal(scaled[-1].mean, seen.mean)
        seen = merge(seen, report.moments["observations"])  # they still travel: theta must be judged at its site


def test_theta_is_judged_with_the_sites_own_scaling(tmp_path):
    settings = {**SMALL, "sites": "gravity:low=1,high=3", "evaluate_kind": "deterministic"}
    shared, local = (
        train("CartPole-v1", scaling=whose, out=tmp_path / whose, **settings) for whose in ("shared", "local")
    )
    assert shared.sha256 != local.sha256
    again = evaluate_run(tmp_path / "local", 2, "deterministic")
    assert len({e.environment for e in again}) == 3
    assert resume(tmp_path / "local").sha256 == local.sha256
