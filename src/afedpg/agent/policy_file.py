"""policy.safetensors: a trained policy with everything needed to act, loadable in one line and free of code.

    load_policy("runs/hopper").act(observation)

Named tensors, the observation statistics and a JSON description. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from afedpg.agent.acting import Actor, MlpActor
from afedpg.agent.normalizer import scaling
from afedpg.agent.spaces import Actions, Observations, actions_of, from_json, observations_of, to_json
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Floats, Moments
from afedpg.params import Layout

FILE_NAME = "policy.safetensors"
FORMAT = "afedpg-policy-1"
MEAN, M2 = "observation_statistics.mean", "observation_statistics.m2"


@dataclass(frozen=True)
class PolicyFile:
    """What the file says, checked."""

    task: str
    env_kwargs: dict[str, Any]
    policy: dict[str, Any]  # Policy.describe()
    observation_space: Space[Any]
    action_space: Space[Any]
    layout: Layout
    theta: Floats
    statistics: Moments | None


def contents(file: PolicyFile) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The file's tensors and its metadata."""
    tensors = {name: np.ascontiguousarray(view) for name, view in file.layout.views(file.theta).items()}
    if file.statistics is not None:
        tensors |= {MEAN: np.asarray(file.statistics.mean), M2: np.asarray(file.statistics.m2)}
    metadata = {
        "format": FORMAT,
        "task": file.task,
        "env_kwargs": json.dumps(file.env_kwargs),
        "policy": json.dumps(file.policy),
        "layout": json.dumps(file.layout.shapes),
        "observation_space": json.dumps(to_json(file.observation_space)),
        "action_space": json.dumps(to_json(file.action_space)),
        "observation_count": repr(0.0 if file.statistics is None else float(file.statistics.count)),
        "sha256": sha256_of(file.theta),
    }
    return tensors, metadata


def sha256_of(theta: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(theta, np.float32).tobytes()).hexdigest()


def read_policy(path: str | Path, task: str | None = None) -> PolicyFile:
    """From a file or a run folder; with `task`, only a policy of that task."""
    place = Path(path)
    place = place / FILE_NAME if place.is_dir() else place
    if not place.is_file():
        raise ConfigError(f"policy: there is no file {place}")
    file = _parse(place)
    if task is not None and file.task != task:
        raise ConfigError(f"policy: {place} was trained on {file.task}, not on {task}")
    return file


def _parse(place: Path) -> PolicyFile:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = place.read_bytes()
    try:
        tensors = load(content)
        metadata = _metadata(content)
        if metadata.get("format") != FORMAT:
            raise ConfigError(f"policy: {place} holds no policy of this program (format {metadata.get('format')})")
        layout = Layout(tuple((name, tuple(shape)) for name, shape in json.loads(metadata["layout"])))
        theta: Floats = layout.flatten(tensors)
        count = float(metadata["observation_count"])
        statistics = Moments(count, tensors[MEAN], tensors[M2]) if count > 0 else None
        file = PolicyFile(
            metadata["task"], json.loads(metadata["env_kwargs"]), json.loads(metadata["policy"]),
            from_json(json.loads(metadata["observation_space"])), from_json(json.loads(metadata["action_space"])),
            layout, theta, statistics,
        )  # fmt: skip
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise AfedpgError(f"policy: {place} is damaged: {error}") from error
    if sha256_of(theta) != metadata.get("sha256"):
        raise AfedpgError(f"policy: {place} is damaged: its parameters do not have the SHA-256 it names")
    return file


def _metadata(content: bytes) -> dict[str, str]:
    """safetensors: eight bytes of length, then a JSON header with the metadata in it."""
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    metadata: dict[str, str] = header.get("__metadata__", {})
    return metadata


def load_policy(path: str | Path, task: str | None = None, seed: int = 0) -> LoadedPolicy:
    """The policy of a run folder or file. `seed` is for `predict(..., deterministic=False)` alone."""
    return LoadedPolicy(read_policy(path, task), seed)


class LoadedPolicy:
    """Acts without torch; `predict` has the signature of Stable-Baselines3, so its tools take this for a model."""

    def __init__(self, file: PolicyFile, seed: int = 0) -> None:
        self.file = file
        self.observation_space = file.observation_space
        self.action_space = file.action_space
        self._observations: Observations = observations_of(file.observation_space)
        self._actions: Actions = actions_of(file.action_space)
        self._scale = scaling(file.statistics)
        self._actor = actor_of(file)
        self._generator = np.random.default_rng(seed)

    def act(self, observation: Any, deterministic: bool = True) -> Any:
        """One observation of the task's own space -> one action for env.step."""
        scaled = self._scale(self._observations.flatten(observation))
        action = self._actor.mode(scaled) if deterministic else self._actor.sample(scaled, self._generator)
        return self._actions.shaped(self._actions.to_environment(action))

    def predict(
        self,
        observation: Any,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], None]:
        """One observation or a batch of them; `state` and `episode_start` are for recurrent policies and ignored."""
        batch = _batch_size(self.observation_space, observation)
        if batch is None:
            return np.asarray(self.act(observation, deterministic)), None
        rows = [_row(observation, index) for index in range(batch)]
        return np.array([self.act(row, deterministic) for row in rows]), None


def actor_of(file: PolicyFile) -> Actor:
    if file.policy.get("kind") != "mlp":
        raise ConfigError(f"policy: a module of your own, {file.policy.get('module')}; take theta from read_policy")
    sizes = (file.policy["observations"], *file.policy["hidden"], file.policy["actions"])
    return MlpActor(file.theta, sizes, file.policy["gaussian"])


def _batch_size(space: Space[Any], observation: Any) -> int | None:
    """How many observations these are, or None for a single one."""
    if isinstance(space, spaces.Dict):
        name, part = next(iter(space.spaces.items()))
        return _batch_size(part, observation[name])
    if isinstance(space, spaces.Tuple):
        return _batch_size(space.spaces[0], observation[0])
    shape: tuple[int, ...] = np.shape(observation)
    expected = tuple(space.shape or ())
    if shape == expected:
        return None
    if shape[1:] == expected and len(shape) == len(expected) + 1:
        return shape[0]
    raise ConfigError(f"policy: an observation of shape {shape} does not fit the observation space {space}")


def _row(observation: Any, index: int) -> Any:
    if isinstance(observation, Mapping):
        return {name: _row(part, index) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_row(part, index) for part in observation)
    return observation[index]
