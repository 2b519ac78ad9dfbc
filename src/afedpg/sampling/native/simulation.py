"""A Gymnasium environment as the compiled loop sees it: whether it can, and its model and data by address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from afedpg.sampling.environments import Environment, Episode, time_limit
from afedpg.sampling.native import mujoco_library
from afedpg.sampling.native.closed_loop import Resets, Simulation, replay
from afedpg.sampling.native.tasks import task_of
from afedpg.sampling.native.tasks.task import NativeTask, World

_HARMLESS = (
    gymnasium.wrappers.TimeLimit,
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.PassiveEnvChecker,
)
UNLIMITED = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Body:
    """The environment's own model and data; whoever moves them here moves the environment."""

    task: NativeTask
    env: Any  # the unwrapped environment, which keeps model and data alive
    world: World
    simulation: Simulation

    @property
    def limit(self) -> int:
        return self.simulation.time_limit

    def resets(self, seeds: NDArray[np.int64]) -> Resets:
        """The states that env.reset(seed) would start from."""
        resets = Resets(np.empty((len(seeds), self.env.model.nq)), np.empty((len(seeds), self.env.model.nv)))
        for index, seed in enumerate(seeds):
            generator = np.random.Generator(np.random.PCG64(int(seed)))  # as gymnasium.utils.seeding has it
            resets.qpos[index], resets.qvel[index] = self.task.reset(self.env, generator)
        return resets

    def restore(self, episode: Episode) -> bool:
        """Whether reset and replay lead to the observation that was seen."""
        start = self.resets(np.array([episode.seed]))
        found = np.empty_like(episode.observation)
        given = np.ascontiguousarray(episode.actions, np.float32)
        replay(self.task.observe, self.world, self.simulation, start.qpos[0], start.qvel[0], given, found)
        return np.array_equal(found, episode.observation)


def body_of(env: Environment) -> Body | str:
    """What the compiled loop needs of `env`, or the reason why it cannot roll it out."""
    layer = unwrapped(env)
    if isinstance(layer, str):
        return layer
    kind = type(layer)
    task = task_of(kind)
    if task is None:
        return f"no compiled task is known for {kind.__module__}.{kind.__qualname__}"
    problem = mujoco_library.load() or _difference(layer, task)
    if problem is None:
        mujoco_library.skip_islands(layer.model)
    return problem or Body(task, layer, _world(layer), _simulation(layer, task, time_limit(env) or UNLIMITED))


def unwrapped(env: Environment) -> Any:
    """The environment inside of wrappers that change nothing, or as a str which one might."""
    layer: Any = env
    while isinstance(layer, gymnasium.Wrapper):
        if type(layer) not in _HARMLESS:
            return f"it is wrapped in {type(layer).__name__}"
        layer = layer.env
    return layer


def _difference(env: Any, task: NativeTask) -> str | None:
    """What makes this environment another one than the task was written for."""
    if env.render_mode == "human":
        return "it is shown on the screen"
    file = Path(env.fullpath)
    if task.model_file and (file.name != task.model_file or file.parent.name != "assets"):
        return f"its model is {file}, the compiled task's is {task.model_file}"
    space = env.observation_space
    if not (isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1):
        return f"its observation space is {space}, not one vector"
    bounds = env.action_space
    box = isinstance(bounds, gymnasium.spaces.Box)
    if not (box and bounds.shape == (env.model.nu,) and bounds.dtype == np.float32):
        return f"its action space is {bounds}, not one float32 per actuator"
    return None


def _world(env: Any) -> World:
    data = env.data
    return World(
        dt=float(env.dt),
        qpos=data.qpos,
        qvel=data.qvel,
        ctrl=data.ctrl,
        qfrc_actuator=data.qfrc_actuator,
        qfrc_constraint=data.qfrc_constraint,
        sensordata=data.sensordata,
        xpos=data.xpos,
        xquat=data.xquat,
        xipos=data.xipos,
        subtree_com=data.subtree_com,
        cinert=data.cinert,
        cvel=data.cvel,
        cfrc_ext=data.cfrc_ext,
        site_xpos=data.site_xpos,
        body_mass=env.model.body_mass,
    )


def _simulation(env: Any, task: NativeTask, limit: int) -> Simulation:
    return Simulation(
        model=int(env.model._address),
        data=int(env.data._address),
        frame_skip=int(env.frame_skip),
        time_limit=limit,
        timestep=float(env.model.opt.timestep),
        contact_forces=bool(task.contact_forces(env)),
        settings=np.array(task.settings(env), np.float64),
    )
