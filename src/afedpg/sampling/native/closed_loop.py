"""The whole closed loop in one compiled function: scaling, policy, noise, physics, reward, termination, reset.

Called without the GIL, one call per rollout (more where episodes are many: resets are drawn in Python, a few ahead).
A task enters as its four functions, by address, so the loop is compiled once for all tasks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.compiled import jit
from afedpg.policy.forward import Network, Scratch, mean_gaussian, sample_gaussian, scale_observation, to_environment
from afedpg.sampling.native.mujoco_library import (
    mj_forward,
    mj_get_state,
    mj_reset_data,
    mj_rne_post_constraint,
    mj_step,
)
from afedpg.sampling.native.tasks.task import TRACKED, Action, Array, Measure, Reward, Terminated, World, write

MJSTATE_TIME = 1
# entries of `progress`
STEP, EPISODE_STEPS, RESETS, EPISODES, CUTS, UNSTABLE, FIRST_STEP = range(7)
PROGRESS = 7


class Simulation(NamedTuple):
    """One agent's MuJoCo model and data, and what the task says about them."""

    model: int  # addresses
    data: int
    frame_skip: int
    time_limit: int  # environment steps after which an episode is truncated
    timestep: float
    contact_forces: bool
    settings: Array


class Acting(NamedTuple):
    """The policy for one rollout."""

    theta: NDArray[np.float32]
    network: Network
    deterministic: bool  # acts by its mean and draws nothing
    mean: Array  # [obs], or empty: observations as they are
    deviation: Array
    middle: Array  # [act] the environment's bounds
    half: Array
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    scratch: Scratch


class Resets(NamedTuple):
    """How the next few episodes start."""

    qpos: Array  # [n, nq]
    qvel: Array  # [n, nv]


class Buffers(NamedTuple):
    """A rollout being written; names as in `Rollout`."""

    raw: Array  # [capacity + 1, obs] the row after the last step is the present observation
    observations: NDArray[np.float32]  # [capacity, obs]
    actions: NDArray[Any]  # [capacity, act], or [capacity] of indices
    given: NDArray[Any]  # what the environment got
    rewards: Array
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    cut_steps: NDArray[np.int64]  # [capacity]
    cut_observations: NDArray[np.float32]  # [capacity, obs]; touched, and so paid for, only as far as there are cuts
    returns: Array  # [capacity + 1] the entry after those of ended episodes is the running one's
    lengths: NDArray[np.int64]  # [capacity]


@jit
def simulate(world: World, simulation: Simulation, action: NDArray[np.float32], clock: Array) -> bool:
    """One environment step. Whether MuJoCo found a NaN or a huge number and restarted the simulation, as it does.

    clock [1] is the simulation's time, which such a restart sets back to zero.
    """
    for i in range(action.size):
        world.ctrl[i] = action[i]
    for _ in range(simulation.frame_skip):
        mj_step(simulation.model, simulation.data)
    if simulation.contact_forces:
        mj_rne_post_constraint(simulation.model, simulation.data)
    expected = clock[0] + (simulation.frame_skip - 0.5) * simulation.timestep
    mj_get_state(simulation.model, simulation.data, clock.ctypes.data, MJSTATE_TIME)
    return bool(clock[0] < expected)


@jit
def reset(world: World, simulation: Simulation, qpos: Array, qvel: Array) -> None:
    mj_reset_data(simulation.model, simulation.data)
    write(qpos, world.qpos, 0)
    write(qvel, world.qvel, 0)
    mj_forward(simulation.model, simulation.data)


@jit
def replay(
    observe: Measure, world: World, simulation: Simulation, qpos: Array, qvel: Array, given: Action, observation: Array
) -> None:
    """Back to mid-episode: reset, the same actions `given` [n, act], and the observation there."""
    clock = np.zeros(1)
    reset(world, simulation, qpos, qvel)
    for step in range(given.shape[0]):
        simulate(world, simulation, given[step], clock)
    observe(world, simulation.settings, observation)


@jit
def roll_out(
    observe: Measure,
    track: Measure,
    reward: Reward,
    terminated: Terminated,
    world: World,
    simulation: Simulation,
    acting: Acting,
    generator: np.random.Generator,
    resets: Resets,
    buffers: Buffers,
    progress: NDArray[np.int64],
    stop: int,
    whole_episodes: bool,
) -> None:
    """Go on from progress[STEP] to step `stop`, or until an episode ends and no reset is left to start the next.

    An episode that ends is followed at once by the start of the next. With `whole_episodes` the rollout ends with the
    episode that reaches `stop`, and an episode of more than `stop` steps is given up. progress[EPISODE_STEPS] is
    negative where no episode is under way; progress[RESETS] counts the resets used.
    """
    settings = simulation.settings
    before, after, clock = np.zeros(TRACKED), np.zeros(TRACKED), np.zeros(1)
    mj_get_state(simulation.model, simulation.data, clock.ctypes.data, MJSTATE_TIME)
    track(world, settings, before)
    step, episode_steps, episodes, cuts = progress[STEP], progress[EPISODE_STEPS], progress[EPISODES], progress[CUTS]
    running = episode_steps >= 0
    while True:
        if not running:
            if whole_episodes and step >= stop:
                break
            if progress[RESETS] == resets.qpos.shape[0]:
                break
            reset(world, simulation, resets.qpos[progress[RESETS]], resets.qvel[progress[RESETS]])
            progress[RESETS] += 1
            progress[FIRST_STEP] = step
            observe(world, settings, buffers.raw[step])
            track(world, settings, before)
            buffers.returns[episodes] = 0.0
            clock[0] = 0.0
            episode_steps, running = 0, True
        if (episode_steps if whole_episodes else step) >= stop:
            break
        scale_observation(buffers.raw[step], acting.mean, acting.deviation, buffers.observations[step])
        observation, action = buffers.observations[step], buffers.actions[step]
        if acting.deterministic:
            mean_gaussian(acting.theta, acting.network, observation, acting.scratch, action)
        else:
            sample_gaussian(acting.theta, acting.network, observation, generator, acting.scratch, action)
        to_environment(buffers.actions[step], acting.middle, acting.half, acting.low, acting.high, buffers.given[step])
        progress[UNSTABLE] += simulate(world, simulation, buffers.given[step], clock)
        episode_steps += 1
        observe(world, settings, buffers.raw[step + 1])
        track(world, settings, after)
        buffers.rewards[step] = reward(world, settings, before, after, buffers.given[step])
        buffers.returns[episodes] += buffers.rewards[step]
        buffers.terminated[step] = terminated(world, settings)
        buffers.truncated[step] = not buffers.terminated[step] and episode_steps >= simulation.time_limit
        before, after = after, before
        if buffers.truncated[step]:
            cuts = cut(step, cuts, acting, buffers)
        if buffers.terminated[step] or buffers.truncated[step]:
            buffers.lengths[episodes] = episode_steps
            episodes += 1
            episode_steps, running = -1, False
        step += 1
    # the rollout's end cuts an episode that goes on: one that has made steps here
    if not whole_episodes and running and progress[FIRST_STEP] < step:
        cuts = cut(step - 1, cuts, acting, buffers)
    progress[STEP], progress[EPISODE_STEPS], progress[EPISODES], progress[CUTS] = step, episode_steps, episodes, cuts


@jit
def cut(step: int, cuts: int, acting: Any, buffers: Buffers) -> int:
    """The value after `step` is wanted: keep the observation there, scaled as `acting` says."""
    buffers.cut_steps[cuts] = step
    scale_observation(buffers.raw[step + 1], acting.mean, acting.deviation, buffers.cut_observations[cuts])
    return cuts + 1


@jit
def physics_only(world: World, simulation: Simulation, resets: Resets, given: Action, ends: NDArray[np.bool_]) -> None:
    """The same physics as a rollout and nothing else: the limit that a sampler is measured against.

    `given` [T, act]; after the steps of `ends` [T] the next reset comes.
    """
    following = 0
    for step in range(given.shape[0]):
        for i in range(given.shape[1]):
            world.ctrl[i] = given[step, i]
        for _ in range(simulation.frame_skip):
            mj_step(simulation.model, simulation.data)
        if ends[step]:
            reset(world, simulation, resets.qpos[following], resets.qvel[following])
            following += 1
