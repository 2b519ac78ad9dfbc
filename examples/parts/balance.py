"""A native task: keep the pole upright, and the cart near the middle.

cd examples/parts && afedpg train balance:Balance-v0
"""

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.spaces import Box

from afedpg.sampling.native.tasks import task
from afedpg.sampling.native.tasks.task import NativeTask, clip, write

CENTRE, LIMIT = range(2)  # where the settings lie


@task.measure
def observe(world, settings, observation):
    start = write(world.qpos, observation, 0)
    for i in range(world.qvel.size):
        observation[start + i] = clip(world.qvel[i], -10.0, 10.0)


@task.measure
def track(world, settings, tracked):
    tracked[0] = world.qpos[0]  # the reward wants the cart's speed over the step


@task.reward
def reward(world, settings, before, after, action):
    speed = (after[0] - before[0]) / world.dt
    return 1.0 - settings[CENTRE] * world.qpos[0] ** 2 - 0.01 * abs(speed)


@task.terminated
def terminated(world, settings):
    return not abs(world.qpos[1]) < settings[LIMIT]  # NaN ends the episode too


def reset(env, generator):
    qpos = env.init_qpos + generator.uniform(-0.05, 0.05, env.model.nq)
    return qpos, env.init_qvel + 0.01 * generator.standard_normal(env.model.nv)


class BalanceEnv(MujocoEnv):
    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"], "render_fps": 25}
    native_task = NativeTask(
        observe=observe,
        track=track,
        reward=reward,
        terminated=terminated,
        reset=reset,
        settings=lambda env: (env.centre, env.limit),
    )

    def __init__(self, centre=0.1, limit=0.2, **kwargs):
        self.centre, self.limit = centre, limit
        space = Box(-np.inf, np.inf, (4,), np.float64)
        super().__init__("inverted_pendulum.xml", frame_skip=2, observation_space=space, **kwargs)

    def step(self, action):
        before = self.data.qpos[0]
        self.do_simulation(action, self.frame_skip)
        position, angle = self.data.qpos
        speed = (position - before) / self.dt
        reward = 1.0 - self.centre * position**2 - 0.01 * abs(speed)
        return self._observe(), reward, not abs(angle) < self.limit, False, {}

    def reset_model(self):
        self.set_state(*reset(self, self.np_random))
        return self._observe()

    def _observe(self):
        return np.concatenate([self.data.qpos, np.clip(self.data.qvel, -10, 10)])


gymnasium.register("Balance-v0", entry_point=BalanceEnv, max_episode_steps=500)
