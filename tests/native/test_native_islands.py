"""The search for islands is left out only where that changes no bit."""

from __future__ import annotations

import gymnasium
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.sampling.native.mujoco_library import skip_islands

ISLAND = int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
TASKS = (
    "Swimmer-v5", "Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5", "InvertedDoublePendulum-v5",
)  # fmt: skip


def roll(env: gymnasium.Env, seed: int, scale: float, skip: bool) -> list[np.ndarray]:
    """Positions, velocities and forces after each of some steps with random actions, far beyond an episode's end."""
    inner = env.unwrapped
    model, data = inner.model, inner.data
    model.opt.disableflags = 0
    if skip:
        skip_islands(model)
        assert model.opt.disableflags == ISLAND
    env.reset(seed=seed)
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(120):
        data.ctrl[:] = scale * generator.uniform(-1, 1, model.nu)
        mujoco.mj_step(model, data, inner.frame_skip)
        mujoco.mj_rnePostConstraint(model, data)
        found.append(np.concatenate([data.qpos, data.qvel, data.qfrc_constraint, data.cfrc_ext.ravel()]))
    return found


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), scale=st.sampled_from([0.0, 0.3, 1.0]))
def test_one_tree_moves_the_same_without_the_search(task: str, seed: int, scale: float) -> None:
    env = gymnasium.make(task)
    with_search, without = (roll(env, seed, scale, skip) for skip in (False, True))
    assert np.array_equal(with_search, without)
    env.close()


@pytest.mark.parametrize(("trees", "option"), [(2, ""), (1, "energy")])
def test_several_trees_and_models_with_options_keep_the_search(trees: int, option: str) -> None:
    bodies = "".join(f'<body pos="{i} 0 1"><freejoint/><geom size="0.1"/></body>' for i in range(trees))
    flag = f'<option><flag {option}="enable"/></option>' if option else ""
    model = mujoco.MjModel.from_xml_string(f"<mujoco>{flag}<worldbody>{bodies}</worldbody></mujoco>")
    skip_islands(model)
    assert model.opt.disableflags == 0
