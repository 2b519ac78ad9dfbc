"""Where the native sampler would differ it is not used, and the reason is told."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from afedpg.config import from_settings
from afedpg.errors import AfedpgError, ConfigError
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.environments import Environments, make_environment
from afedpg.sampling.native import closed_loop, mujoco_library
from afedpg.sampling.native.sampler import NativeSampler, native_sampler
from afedpg.sampling.native.simulation import body_of

from .rolling import Pair, assert_same_rollout


def refused(env: gymnasium.Env[Any, Any]) -> str:
    reason = body_of(env)
    assert isinstance(reason, str)
    return reason


def test_unknown_tasks() -> None:
    assert "no compiled task is known for" in refused(make_environment("Pusher-v5", {}))
    assert "no compiled task is known for" in refused(make_environment("Pendulum-v1", {}))


def test_wrappers() -> None:
    env = gymnasium.wrappers.RescaleAction(make_environment("Hopper-v5", {}), -0.5, 0.5)
    assert refused(env) == "it is wrapped in RescaleAction"


def test_another_model(tmp_path: Path) -> None:
    inside = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "hopper.xml"
    copy = tmp_path / "hopper.xml"
    shutil.copy(inside, copy)
    assert str(copy) in refused(make_environment("Hopper-v5", {"xml_file": str(copy)}))
    assert "walker2d.xml" in refused(make_environment("Hopper-v5", {"xml_file": "walker2d.xml"}))


def test_a_class_of_the_same_name() -> None:
    class HopperEnv(type(make_environment("Hopper-v5", {}).unwrapped)):  # type: ignore[misc]
        pass

    assert "no compiled task is known for" in refused(HopperEnv())


def test_other_policies() -> None:
    environments = Environments(from_settings({"task": "Acrobot-v1", "agents": 1}))
    policy = MlpPolicy(environments.observations.size, environments.actions.size, gaussian=False, hidden=(8,))
    assert "no compiled task is known for" in str(native_sampler(environments, policy, 10, False))
    both = MlpPolicy(11, 3, gaussian=False, hidden=(8,))
    hopper = Environments(from_settings({"task": "Hopper-v4", "agents": 1}))
    reason = "the compiled loops run MLP policies of one vector or one index"
    assert native_sampler(hopper, both, 10, False) == reason


def test_agents_whose_environment_is_another_use_the_plain_sampler(capsys: pytest.CaptureFixture[str]) -> None:
    def make_env(agent_id: int) -> gymnasium.Env[Any, Any]:
        env = make_environment("Hopper-v4", {})
        return env if agent_id != 1 else gymnasium.wrappers.ClipReward(env, -1, 1)

    pair = Pair("Hopper-v4", steps=50, make_env=make_env)
    for agent in range(3):
        start = pair.native.start(seed=0, agent_id=agent)
        _, ours, _ = pair.native.sample(agent, start, pair.theta, None)
        _, theirs, _ = pair.plain.sample(agent, start, pair.theta, None)
        assert_same_rollout(ours, theirs)
        assert (ours.rewards.max() <= 1) == (agent == 1)
    assert capsys.readouterr().err == "agent 1 uses the plain sampler: it is wrapped in ClipReward\n"


def library(folder: Path, source: str) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to make another library with")
    (folder / "library.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", "-o", str(folder / "libmujoco.so.9.9.9"), str(folder / "library.c")]
    subprocess.run(command, check=True)


def test_a_library_that_does_not_fit(tmp_path: Path) -> None:
    assert mujoco_library.load() is None
    assert mujoco_library.load_from(tmp_path, "4.0.0") == f"no libmujoco next to the Python package in {tmp_path}"
    assert mujoco_library.load_from(tmp_path, "2.3.7") == "mujoco 2.3.7 is older than 3.0.0"
    (tmp_path / "libmujoco.so.4.0.0").write_bytes(b"not a library")
    assert "cannot be loaded" in str(mujoco_library.load_from(tmp_path, "4.0.0"))
    (tmp_path / "libmujoco.so.4.0.0").unlink()
    library(tmp_path, "void mj_step(void) {} void mj_forward(void) {} void mj_resetData(void) {}")
    reason = str(mujoco_library.load_from(tmp_path, "9.9.9"))
    assert reason.endswith("lacks mj_rnePostConstraint, mj_getState")


def test_a_library_that_does_not_fit_means_the_plain_sampler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mujoco_library, "load", lambda: "libmujoco lacks mj_step")
    environments = Environments(from_settings({"task": "Hopper-v4", "agents": 1}))
    policy = MlpPolicy(11, 3, gaussian=True, hidden=(8,))
    assert native_sampler(environments, policy, 10, False) == "libmujoco lacks mj_step"
    said = capsys.readouterr().err
    assert said == "the plain sampler is used, several times slower than the native one: libmujoco lacks mj_step\n"


def test_unstable_physics_is_what_gymnasium_makes_of_it_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes MUJOCO_LOG.TXT

    def make_env(agent_id: int) -> gymnasium.Env[Any, Any]:
        env = make_environment("Swimmer-v4", {"max_episode_steps": 40})
        env.unwrapped.model.actuator_gear[:] = 1e7  # type: ignore[attr-defined]
        return env

    pair = Pair("Swimmer-v4", steps=100, make_env=make_env)
    ours = theirs = pair.native.start(seed=0, agent_id=0)
    counted = 0.0
    for _ in range(2):
        changed, native, extra = pair.native.sample(0, ours, pair.theta, None)
        ours = ours | changed
        changed, plain, _ = pair.plain.sample(0, theirs, pair.theta, None)
        theirs = theirs | changed
        assert_same_rollout(native, plain)
        counted += extra.get("unstable", 0.0)
    assert counted > 0


def test_a_policy_that_is_not_a_number() -> None:
    pair = Pair("Hopper-v4", steps=20)
    theta = np.full_like(pair.theta, np.nan)
    with pytest.raises(AfedpgError, match=r"agent 0: the environment returned a reward of nan at the agent's step 0;"):
        pair.native.sample(0, pair.native.start(0, 0), theta, None)
    with pytest.raises(AfedpgError, match=r"agent 0: the environment returned a reward of nan at the agent's step 0;"):
        pair.plain.sample(0, pair.plain.start(0, 0), theta, None)
    # nothing of it stays behind
    start = pair.native.start(0, 0)
    _, ours, _ = pair.native.sample(0, start, pair.theta, None)
    _, theirs, _ = pair.plain.sample(0, start, pair.theta, None)
    assert_same_rollout(ours, theirs)


def test_whole_episodes_longer_than_t_are_refused_in_the_plain_samplers_words() -> None:
    pair = Pair("Swimmer-v4", {"max_episode_steps": 31}, steps=30, whole_episodes=True)
    messages = []
    for sampler in (pair.native, pair.plain):
        with pytest.raises(ConfigError) as caught:
            sampler.sample(0, sampler.start(0, 0), pair.theta, None)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    exactly = Pair("Swimmer-v4", {"max_episode_steps": 30}, steps=30, whole_episodes=True)
    _, rollout, _ = exactly.native.sample(0, exactly.native.start(0, 0), exactly.theta, None)
    assert rollout.lengths == (30,)


def test_one_compiled_loop_serves_all_tasks() -> None:
    for task in ("Hopper-v4", "Humanoid-v5"):
        assert isinstance(Pair(task, steps=5).native, NativeSampler)
    assert len(closed_loop.roll_out.signatures) == 1  # type: ignore[attr-defined]
