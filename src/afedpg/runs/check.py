"""What a task is like before a run is spent on it: a thousand steps of a policy that has learned nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from afedpg.agent.estimators.shipped import SHIPPED
from afedpg.agent.work import build_policy
from afedpg.config import Config
from afedpg.engine.workloads import MakeEnv
from afedpg.errors import ConfigError
from afedpg.messages import AgentState
from afedpg.parts import build
from afedpg.policy.mlp import MlpPolicy, Policy
from afedpg.runs.keywords import Settings
from afedpg.runs.parts import Own, configure
from afedpg.sampling.environments import Environments, time_limit
from afedpg.sampling.evaluate import MOST_STEPS, REMEDY
from afedpg.sampling.gymnasium import GymnasiumSampler, Sampler
from afedpg.sampling.native.sampler import native_sampler
from afedpg.sampling.spaces import BoxActions
from afedpg.seeding import stream

STEPS = 1000
AT_ONCE = 100  # steps between two looks at the clock
LONGEST = 10.0  # seconds after which a slow environment's measurement ends early
WIDE = 1000.0  # bounds of an action beyond which they are hardly meant


@dataclass(frozen=True)
class Findings:
    """What `check_task` found. Rewards and episodes are those of `steps` steps of one agent."""

    task: str
    observation_space: str
    observations: int  # numbers that the policy sees
    action_space: str
    policy: str
    parameters: int
    native: bool
    why_not_native: str
    steps: int
    steps_per_second: float  # of one process, acting included
    lowest_reward: float
    highest_reward: float
    mean_reward: float
    terminated: int
    truncated: int
    mean_length: float | None  # of the episodes that ended; None where none did
    mean_return: float | None
    time_limit: int | None
    deterministic: bool
    scale_observations: bool
    scale_rewards: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Played:
    """Steps in a row, and the seconds they took."""

    raw: NDArray[Any]  # [T, obs]
    rewards: NDArray[np.float64]  # [T]
    ends: NDArray[np.bool_]  # [T, 2] terminated, truncated
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    seconds: float

    def differs(self, other: _Played) -> int | None:
        """The first step that is not the same."""
        pairs = ((self.raw, other.raw), (self.rewards[:, None], other.rewards[:, None]), (self.ends, other.ends))
        differ = np.any([(mine != theirs).any(axis=1) for mine, theirs in pairs], axis=0)
        return int(differ.argmax()) if differ.any() else None


def check_task(task: str, make_env: MakeEnv | None = None, **settings: Unpack[Settings]) -> Findings:
    """Plays `task`, or what `make_env(agent)` makes, and says what a run would do with it; settings as of `train`.

    What makes a run impossible is raised, as the run would: unsupported spaces and failures of the environment.
    """
    own = Own(make_env=make_env)
    config = configure(task, None, {**settings, "steps": AT_ONCE}, own)
    if config.synthetic:
        raise ConfigError(f"task: {task} is a synthetic problem, with nothing to check; name a Gymnasium task")
    here, fresh = Environments(config, make_env), Environments(config, make_env)
    try:
        return _look(config, here, fresh)
    finally:
        here.close()
        fresh.close()


def _look(config: Config, here: Environments, fresh: Environments) -> Findings:
    here.compare_all()
    policy = build_policy(config, here, build("estimator", config.agent.estimator, SHIPPED), None)
    assert isinstance(policy, MlpPolicy)
    native = native_sampler(here, policy, AT_ONCE, False)
    sampler = GymnasiumSampler(here, policy, AT_ONCE, False) if isinstance(native, str) else native
    first = _play(config, sampler, policy, STEPS)
    count = len(first.rewards)
    # the same seeds and actions again, in the environment that has been played and in one that was not
    again = [_play(config, other, policy, count) for other in (sampler, type(sampler)(fresh, policy, AT_ONCE, False))]
    changes = [step for played in again if (step := first.differs(played)) is not None]
    live = here.of(0)
    limit = time_limit(live.env)
    ended = len(first.returns)
    return Findings(
        task=config.task,
        observation_space=_text(live.observations.space), observations=live.observations.size,
        action_space=_text(live.actions.space),
        policy=_policy(policy),
        parameters=policy.layout.size,
        native=not isinstance(native, str), why_not_native=native if isinstance(native, str) else "",
        steps=count, steps_per_second=count / min(first.seconds, again[0].seconds),  # the first may compile
        lowest_reward=float(first.rewards.min()), highest_reward=float(first.rewards.max()),
        mean_reward=float(first.rewards.mean()),
        terminated=int(first.ends[:, 0].sum()), truncated=int(first.ends[:, 1].sum()),
        mean_length=float(np.mean(first.lengths)) if ended else None,
        mean_return=float(np.mean(first.returns)) if ended else None,
        time_limit=limit, deterministic=not changes,
        scale_observations=config.agent.scale_observations and policy.image is None,
        scale_rewards=config.agent.scale_rewards,
        warnings=tuple(_warnings(first, here, limit, min(changes, default=None))),
    )  # fmt: skip


def _play(config: Config, sampler: Sampler, policy: Policy, most: int) -> _Played:
    """At most so many steps of agent 0, from its first episode on."""
    theta = policy.initial_theta(stream(config.seed, "theta")).astype(np.float32)
    state: AgentState = sampler.start(config.seed, 0)
    parts: list[tuple[NDArray[Any], ...]] = []
    returns: list[float] = []
    lengths: list[int] = []
    begin = time.perf_counter()
    for _ in range(most // AT_ONCE):
        changed, rollout, _ = sampler.sample(0, state, theta, None)
        state = {**state, **changed}
        ends = np.stack([rollout.terminated, rollout.truncated], axis=1)
        parts.append((rollout.raw.copy(), rollout.rewards.copy(), ends))  # the next rollout overwrites its buffers
        returns += rollout.returns
        lengths += rollout.lengths
        if most == STEPS and time.perf_counter() - begin > LONGEST:
            break
    seconds = time.perf_counter() - begin
    raw, rewards, both = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return _Played(raw, rewards, both, tuple(returns), tuple(lengths), seconds)


def _warnings(played: _Played, environments: Environments, limit: int | None, changed: int | None) -> list[str]:
    found = []
    if limit is None and not played.ends[:, 1].any():  # else the environment has one of its own
        found.append(f"no time limit is known: an evaluation's episode is cut after {MOST_STEPS:,} steps; {REMEDY}")
    if changed is not None:
        found.append(
            f"the same seed and actions gave something else at step {changed}: a resumed run cannot repeat its episode;"
            " take all randomness from self.np_random"
        )
    actions, space = environments.actions, environments.observations.space
    if isinstance(actions, BoxActions) and actions.half.max() > WIDE:
        found.append(f"actions reach {actions.high.max():g}, and the policy's are scaled to the bounds; give real ones")
    constant = int((played.raw == played.raw[0]).all(axis=0).sum())
    size = played.raw.shape[1]
    numbers = isinstance(space, spaces.Box) and environments.observations.image is None
    if constant == size or (constant and numbers):  # of categories most are seen rarely, of pictures only parts change
        found.append(f"{constant} of the observation's {size} numbers never changed")
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    outside = ((played.raw < flat.low.reshape(-1)) | (played.raw > flat.high.reshape(-1))).any(axis=1)
    if outside.any():
        found.append(f"observations leave their space's bounds, first at step {int(outside.argmax())}")
    if not played.rewards.any():
        found.append("every reward was 0: acting at random finds nothing to learn from")
    return found


def _policy(policy: MlpPolicy) -> str:
    kind = "Gaussian" if policy.gaussian else "categorical"
    split = f" ({'+'.join(map(str, policy.choices))})" if policy.choices else ""
    network = "MLP" if policy.image is None else f"CNN of {'x'.join(map(str, policy.image.planes))}"
    return f"{kind} {network}, {'-'.join(map(str, policy.sizes))}{split}"


def _text(space: Space[Any]) -> str:
    """In one line; long tables of bounds are cut."""
    line = " ".join(str(space).split())
    return line if len(line) <= 200 else f"{line[:197]}..."
