"""How good is theta? Whole episodes on a stream of their own, sampled or deterministic; and a video of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from afedpg.errors import ConfigError
from afedpg.messages import Moments
from afedpg.policy.acting import Actor
from afedpg.policy.mlp import Policy
from afedpg.sampling.environments import Environment, Live, failure, time_limit
from afedpg.sampling.normalizer import scaling
from afedpg.student import t_quantile

MOST_FRAMES = 300  # of a film: rendering without a graphics card takes a tenth of a second each
MOST_STEPS = 10_000  # of an evaluation's episode where the task has no time limit: it may never end by itself
PICTURE = "a picture, an array of uint8 [height, width, 3]"  # of a film
REMEDY = "set one, as --max-episode-steps 500"


@dataclass(frozen=True)
class Episodes:
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    cut: int = 0  # of them, after MOST_STEPS

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        """Of single episodes, unbiased; 0 for one episode."""
        return float(np.std(self.returns, ddof=1)) if len(self.returns) > 1 else 0.0

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """95% confidence interval of the mean (Student's t); one episode says nothing about it."""
        count = len(self.returns)
        if count < 2:
            return None, None
        half = t_quantile(count - 1) * self.deviation / math.sqrt(count)
        return self.mean - half, self.mean + half


def evaluate(
    policy: Policy,
    theta: NDArray[Any],
    statistics: Moments | None,
    env: Environment,
    episodes: int,
    deterministic: bool,
    generator: np.random.Generator,
    agent_id: int = 0,
    on_step: Callable[[Environment], None] | None = None,
) -> Episodes:
    """Episodes of `env`, which the caller makes and closes. All randomness comes from `generator`.

    Where agents have environments of their own, one call per agent's environment says how theta does in each. An
    environment without a time limit gets one, MOST_STEPS.
    """
    live = Live(env, agent_id)
    scale = scaling(statistics, live.observations.size)
    actor = policy.actor(np.asarray(theta, np.float32))
    longest = math.inf if time_limit(env) else MOST_STEPS
    returns, lengths, cut = [], [], 0
    for _ in range(episodes):
        observation = live.reset(int(generator.integers(2**31)))
        total, length, going = 0.0, 0, True
        while going:
            if on_step is not None:
                on_step(env)
            if not np.isfinite(observation).all():
                raise live.bad_observation(length)
            action = _act(actor, scale(observation), deterministic, generator)
            observation, reward, terminated, truncated = live.step(live.actions.to_environment(action))
            live.check_reward(length, reward)
            ended = terminated or truncated
            total, length, going = total + reward, length + 1, not ended and length + 1 < longest
        returns.append(total)
        lengths.append(length)
        cut += not ended
    return Episodes(tuple(returns), tuple(lengths), cut)


def _act(actor: Actor, observation: NDArray[np.float32], deterministic: bool, generator: np.random.Generator) -> Any:
    return actor.mode(observation) if deterministic else actor.sample(observation, generator)


class Film:
    """Collects what an environment of render_mode "rgb_array" shows; `evaluate` takes `shoot` as its on_step."""

    def __init__(self) -> None:
        self.frames: list[NDArray[np.uint8]] = []

    def shoot(self, env: Environment) -> None:
        if len(self.frames) == MOST_FRAMES:
            return
        try:
            frame: Any = env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise ConfigError(f"video: {error}") from error
        except NotImplementedError as error:
            raise ConfigError(f"video: the environment has no render; define one that returns {PICTURE}") from error
        except Exception as error:  # whatever a user's code raises
            raise failure(0, "env.render", error) from error
        if not isinstance(frame, np.ndarray):
            raise ConfigError('video: the environment shows no pictures; make it with render_mode="rgb_array"')
        colours = frame.shape[2:] in ((), (1,), (3,), (4,)) and frame.ndim >= 2
        if frame.dtype != np.uint8 or not colours or 0 in frame.shape:
            what = f"an array of {frame.dtype} {list(frame.shape)}"
            raise ConfigError(f"video: the environment's render returned {what}; return {PICTURE}")
        self.frames.append(frame)

    def write(self, path: Path, frames_per_second: float) -> None:
        write_video(path, self.frames, frames_per_second)


def check_video(path: Path) -> None:
    if path.suffix not in (".mp4", ".gif"):
        raise ConfigError(f"video: {path.name} is neither .mp4 nor .gif")
    if not path.parent.is_dir():
        raise ConfigError(f"video: there is no folder {path.parent}")


def write_video(path: Path, frames: Sequence[NDArray[np.uint8]], frames_per_second: float) -> None:
    """An mp4 (through imageio-ffmpeg) or a gif, by the file's name."""
    import imageio.v2

    check_video(path)
    if path.suffix == ".gif":
        imageio.v2.mimsave(path, list(frames), duration=1000 / frames_per_second, loop=0)
    else:  # h264 wants even sizes
        even: list[Any] = [frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2] for frame in frames]
        try:
            imageio.v2.mimsave(path, even, fps=frames_per_second, macro_block_size=1)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"video: mp4 needs `pip install imageio-ffmpeg`; or name a .gif ({error})") from error
