"""CartPole in compiled code: Gymnasium's arithmetic, operation by operation, and a policy that chooses an index.

Whether sine, cosine and all the rest round as in the environment itself is tried out before the loop is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from afedpg.compiled import jit
from afedpg.messages import Floats, Moments
from afedpg.policy.forward import Integers, Network, Scratch, mode_choices, sample_choices, scale_observation
from afedpg.sampling.disturbance import Disturbance
from afedpg.sampling.environments import Environment, Episode, Live, time_limit
from afedpg.sampling.native.closed_loop import (
    CUTS,
    EPISODE_STEPS,
    EPISODES,
    FIRST_STEP,
    RESETS,
    STEP,
    Buffers,
    cut,
)
from afedpg.sampling.native.compiled_sampler import CompiledSampler
from afedpg.sampling.native.simulation import UNLIMITED, unwrapped
from afedpg.sampling.normalizer import scaling

Array = NDArray[np.float64]
GYMNASIUM = "gymnasium.envs.classic_control.cartpole.CartPoleEnv"
START = 0.05  # an episode starts with four numbers between -START and START
TRIED = 200  # steps that are compared with the environment's own


class Physics(NamedTuple):
    """The environment's own numbers, by its own names."""

    gravity: float
    masspole: float
    total_mass: float
    length: float
    polemass_length: float
    force_mag: float
    tau: float
    theta_threshold_radians: float
    x_threshold: float
    euler: bool  # or semi-implicit
    reward: float  # of a step
    last_reward: float  # of the step with which the pole falls


class Choosing(NamedTuple):
    """The policy for one rollout."""

    theta: NDArray[np.float32]
    network: Network
    deterministic: bool  # chooses the likeliest index and draws nothing
    mean: Array  # [obs], or empty: observations as they are
    deviation: Array
    choices: Integers  # [1] how many indices there are
    scratch: Scratch


@jit
def push(physics: Physics, state: Array, action: int) -> bool:
    """One step of x, x', theta and theta' [4], in place; whether the pole has fallen or the cart left the track."""
    x, x_dot, theta, theta_dot = state[0], state[1], state[2], state[3]
    force = physics.force_mag if action == 1 else -physics.force_mag
    cosine, sine = np.cos(theta), np.sin(theta)
    temp = (force + physics.polemass_length * (theta_dot * theta_dot) * sine) / physics.total_mass
    thetaacc = (physics.gravity * sine - cosine * temp) / (
        physics.length * (4.0 / 3.0 - physics.masspole * (cosine * cosine) / physics.total_mass)
    )
    xacc = temp - physics.polemass_length * thetaacc * cosine / physics.total_mass
    if physics.euler:
        x = x + physics.tau * x_dot
        x_dot = x_dot + physics.tau * xacc
        theta = theta + physics.tau * theta_dot
        theta_dot = theta_dot + physics.tau * thetaacc
    else:
        x_dot = x_dot + physics.tau * xacc
        x = x + physics.tau * x_dot
        theta_dot = theta_dot + physics.tau * thetaacc
        theta = theta + physics.tau * theta_dot
    state[0], state[1], state[2], state[3] = x, x_dot, theta, theta_dot
    return bool(
        x < -physics.x_threshold
        or x > physics.x_threshold
        or theta < -physics.theta_threshold_radians
        or theta > physics.theta_threshold_radians
    )


class Episodes(NamedTuple):
    """What the seeds of n episodes decide."""

    states: Array  # [n, 4] how they start
    noise: Array  # [n, limit + 1, 4] on what is observed; [n, 1, 0] where there is none
    moves: Integers  # [n, limit] actions in place of the policy's; [n, 0] where it acts itself


@jit
def observe(state: Array, episodes: Episodes, episode: int, steps: int, observation: Array) -> None:
    """Gymnasium shows float32, with or without noise."""
    noise = episodes.noise[episode, min(steps, episodes.noise.shape[1] - 1)]
    for i in range(state.size):
        observation[i] = np.float32(state[i])
        if noise.size > 0:
            observation[i] = np.float32(observation[i] + noise[i])


@jit
def move_of(episodes: Episodes, episode: int, steps: int, action: int) -> int:
    """What the cart is given, where the policy chooses `action`."""
    return int(episodes.moves[episode, steps]) if episodes.moves.shape[1] > 0 else action


@jit
def replay(physics: Physics, state: Array, episodes: Episodes, given: Integers, observation: Array) -> bool:
    """From the first episode's start through the actions `given` [n]; whether the episode still goes on there."""
    going = True
    for step in range(given.size):
        going = not push(physics, state, move_of(episodes, 0, step, given[step])) and going
    observe(state, episodes, 0, given.size, observation)
    return going


@jit
def roll_out(
    physics: Physics,
    state: Array,
    limit: int,
    acting: Choosing,
    generator: np.random.Generator,
    following: Episodes,
    buffers: Buffers,
    progress: NDArray[np.int64],
    stop: int,
    whole_episodes: bool,
) -> None:
    """As the loop of the MuJoCo tasks: on from progress[STEP] to step `stop`, or until no episode is left to start.

    Of `following` the first is the one under way, where one is.
    """
    step, episode_steps, episodes, cuts = progress[STEP], progress[EPISODE_STEPS], progress[EPISODES], progress[CUTS]
    running = episode_steps >= 0
    while True:
        if not running:
            if (whole_episodes and step >= stop) or progress[RESETS] == following.states.shape[0] - 1:
                break
            progress[RESETS] += 1
            for i in range(state.size):
                state[i] = following.states[progress[RESETS], i]
            progress[FIRST_STEP] = step
            observe(state, following, progress[RESETS], 0, buffers.raw[step])
            buffers.returns[episodes] = 0.0
            episode_steps, running = 0, True
        if (episode_steps if whole_episodes else step) >= stop:
            break
        scale_observation(buffers.raw[step], acting.mean, acting.deviation, buffers.observations[step])
        observation, action = buffers.observations[step], buffers.actions[step : step + 1]
        if acting.deterministic:
            mode_choices(acting.theta, acting.network, observation, acting.choices, acting.scratch, action)
        else:
            sample_choices(acting.theta, acting.network, observation, acting.choices, generator, acting.scratch, action)
        fallen = push(physics, state, move_of(following, progress[RESETS], episode_steps, action[0]))
        episode_steps += 1
        observe(state, following, progress[RESETS], episode_steps, buffers.raw[step + 1])
        buffers.rewards[step] = physics.last_reward if fallen else physics.reward
        buffers.returns[episodes] += buffers.rewards[step]
        buffers.terminated[step] = fallen
        buffers.truncated[step] = not fallen and episode_steps >= limit
        if buffers.truncated[step]:
            cuts = cut(step, cuts, acting, buffers)
        if buffers.terminated[step] or buffers.truncated[step]:
            buffers.lengths[episodes] = episode_steps
            episodes += 1
            episode_steps, running = -1, False
        step += 1
    if not whole_episodes and running and progress[FIRST_STEP] < step:
        cuts = cut(step - 1, cuts, acting, buffers)
    progress[STEP], progress[EPISODE_STEPS], progress[EPISODES], progress[CUTS] = step, episode_steps, episodes, cuts


@dataclass
class Cart:
    """The environment, whose own `state` is moved."""

    env: Any  # unwrapped
    limit: int  # steps after which an episode is truncated
    disturbance: Disturbance
    present: Episodes = field(init=False)  # the one that is under way

    def __post_init__(self) -> None:
        self.present = self.resets(np.zeros(1, np.int64))

    def resets(self, seeds: NDArray[np.int64]) -> Episodes:
        """The states that env.reset(seed) would start from, and all that is random after that."""
        states, (_, deviation, random) = np.empty((len(seeds), 4)), self.disturbance
        noise = np.empty((len(seeds), self.limit + 1, 4) if deviation else (len(seeds), 1, 0))
        moves = np.empty((len(seeds), self.limit if random else 0), np.int64)
        for index, seed in enumerate(seeds.tolist()):
            generator = np.random.Generator(np.random.PCG64(seed))  # as gymnasium.utils.seeding has it
            states[index] = generator.uniform(low=-START, high=START, size=(4,))
            if deviation:
                noise[index] = deviation * np.random.default_rng(seed).standard_normal(noise.shape[1:])
            if random:
                moves[index] = np.random.Generator(np.random.PCG64(seed)).integers(2, size=self.limit)
        return Episodes(states, noise, moves)

    def restore(self, episode: Episode) -> bool:
        self.present = self.resets(np.array([episode.seed]))
        state, found = self.present.states[0].copy(), np.empty_like(episode.observation)
        given = np.ascontiguousarray(episode.actions, np.int64)
        if given.size > self.limit:
            return False
        going = replay(self.physics, state, self.present, given, found)
        self.move(state)
        return going and np.array_equal(found, episode.observation)

    def move(self, state: Array) -> None:
        self.env.state, self.env.steps_beyond_terminated = state, None

    @property
    def physics(self) -> Physics:
        """As it is now: sites change its numbers."""
        found, factor = physics_of(self.env), self.disturbance.reward
        return found._replace(reward=factor * found.reward, last_reward=factor * found.last_reward)


def physics_of(env: Any) -> Physics:
    numbers = [float(getattr(env, name)) for name in Physics._fields[:-3]]
    rewards = [0.0, -1.0] if getattr(env, "_sutton_barto_reward", False) else [1.0, 1.0]
    return Physics._make([*numbers, env.kinematics_integrator == "euler", *rewards])


def cart_of(env: Environment) -> Cart | str:
    """What the compiled loop needs of `env`, or the reason why it cannot roll it out."""
    disturbance = getattr(env, "disturbance", None) if isinstance(env, gymnasium.Wrapper) else None
    inner = unwrapped(env.env if isinstance(disturbance, Disturbance) else env)  # type: ignore[attr-defined]
    if isinstance(inner, str):
        return inner
    kind: Any = type(inner)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name != GYMNASIUM:
        return f"no compiled task is known for {name}"
    if inner.render_mode == "human":
        return "it is shown on the screen"
    limit = time_limit(env) or UNLIMITED
    if disturbance is not None and limit == UNLIMITED:
        return "its episodes may be endless, and what is random in them is drawn ahead"
    return _difference(kind) or Cart(inner, limit, disturbance or Disturbance())


@cache
def _difference(kind: Any) -> str:
    """Steps from anywhere, here and in Gymnasium's own environment: a reason where they are not the same to the bit."""
    env, generator = kind(), np.random.default_rng(0)
    physics = physics_of(env)
    for action in generator.integers(2, size=TRIED):
        state = generator.uniform(-1, 1, 4) * (2.5, 3.0, 0.22, 3.0)
        env.state, env.steps_beyond_terminated = state.copy(), None
        _, reward, terminated, _, _ = env.step(action)
        fallen = push(physics, state, int(action))
        paid = physics.last_reward if fallen else physics.reward
        if not (np.array_equal(state, env.state) and (fallen, paid) == (terminated, reward)):
            return "CartPole's numbers are not rounded here as in Gymnasium"
    return ""


class CartPoleSampler(CompiledSampler):
    loop = roll_out

    @staticmethod
    def body(env: Environment) -> Cart | str:
        return cart_of(env)

    def room(self, capacity: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The environment gets the indices as they are."""
        actions = self._environments.actions.room(capacity)
        return actions, actions

    def acting(self, theta: Floats, statistics: Moments | None, live: Live, deterministic: bool = False) -> Choosing:
        self._theta[:] = theta[: len(self._theta)]
        scale = scaling(statistics, int(self._sizes[0]))
        choices = self._sizes[-1:]
        return Choosing(self._theta, self._network, deterministic, scale.mean, scale.deviation, choices, self._scratch)

    def run(
        self, body: Cart, acting: Choosing, noise: np.random.Generator, resets: Episodes, buffers: Buffers,
        progress: NDArray[np.int64], stop: int, whole_episodes: bool,
    ) -> None:  # fmt: skip
        state = np.zeros(4) if body.env.state is None else np.array(body.env.state, np.float64)
        following = Episodes._make(np.concatenate(pair) for pair in zip(body.present, resets, strict=True))
        roll_out(body.physics, state, body.limit, acting, noise, following, buffers, progress, stop, whole_episodes)
        last = int(progress[RESETS])
        body.present = Episodes._make(part[last : last + 1] for part in following)
        body.move(state)
