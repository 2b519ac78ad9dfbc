"""policy.safetensors: a trained policy with everything needed to act, loadable in one line and free of code.

    load_policy("runs/hopper").act(observation)

Named tensors, the observation statistics and a JSON description. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from afedpg import options
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Evaluation, Floats, Moments
from afedpg.params import Layout
from afedpg.policy.acting import Actor
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.normalizer import scaling
from afedpg.sampling.spaces import (
    Actions,
    BoxActions,
    Observations,
    actions_of,
    choices_of,
    from_json,
    observations_of,
    to_json,
)

FILES = {"best": "best.safetensors", "last": "policy.safetensors"}  # of a run folder
KINDS = ("deterministic", "sampled")
FORMAT = "afedpg-policy-1"
OTHER_LAYERS = "afedpg-policy-2"  # its policy is not USUAL: for programs that know the first alone it is no policy
USUAL = {"activation": "relu", "mean": "tanh"}  # of a policy that does not say
MEAN, M2 = "observation_statistics.mean", "observation_statistics.m2"
_log = logging.getLogger("afedpg")

if TYPE_CHECKING:
    from afedpg.policy.own import MakePolicy, ModulePolicy


@dataclass(frozen=True)
class Origin:
    """Which theta of its run a file holds, and what its evaluations said."""

    which: str = "last"
    acting: str = "deterministic"  # what evaluated better
    iteration: int = -1  # of a file of an earlier version, which does not say
    of: int = 0  # evaluations that it is one of; 0: it was not evaluated
    evaluations: tuple[Evaluation, ...] = ()
    again: tuple[Evaluation, ...] = ()  # on other episodes, once it was chosen

    def __str__(self) -> str:
        """In one line."""
        means = [
            f"{told.kind} {told.mean:.6g}{f' on {told.environment}' if told.environment else ''}"
            for told in self.again or self.evaluations
        ]
        of = f" of {self.of} evaluations" if self.which == "best" else ""
        place = f", after iteration {self.iteration}" if self.iteration >= 0 else ""
        how = f": {', '.join(means)}{' on fresh episodes' if self.again else ''}" if means else ""
        acts = f"; acts {self.acting}" if self.evaluations else ""
        return f"{self.which} theta{of}{place}{how}{acts}"

    def to_metadata(self) -> dict[str, str]:
        return {
            "which": self.which, "acting": self.acting, "iteration": str(self.iteration), "of": str(self.of),
            "evaluations": json.dumps([asdict(told) for told in self.evaluations]),
            "again": json.dumps([asdict(told) for told in self.again]),
        }  # fmt: skip

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Origin:
        if "which" not in metadata:  # of an earlier version
            return cls()
        _require(metadata["which"] in FILES, "it is neither the best nor the last of its run")
        _require(metadata["acting"] in KINDS, "it acts in a way that this version does not know")
        told = [tuple(Evaluation(**entry) for entry in json.loads(metadata[key])) for key in ("evaluations", "again")]
        _require(all(isinstance(one.mean, float) for entries in told for one in entries), "an evaluation is no number")
        return cls(metadata["which"], metadata["acting"], int(metadata["iteration"]), int(metadata["of"]), *told)


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
    origin: Origin = Origin()


def contents(file: PolicyFile) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The file's tensors and its metadata."""
    tensors = {name: np.ascontiguousarray(view) for name, view in file.layout.views(file.theta).items()}
    if file.statistics is not None:
        tensors |= {MEAN: np.asarray(file.statistics.mean), M2: np.asarray(file.statistics.m2)}
    metadata = {
        "format": FORMAT if all(file.policy.get(key, usual) == usual for key, usual in USUAL.items()) else OTHER_LAYERS,
        "task": file.task,
        "env_kwargs": json.dumps(file.env_kwargs),
        "policy": json.dumps(file.policy),
        "layout": json.dumps(file.layout.shapes),
        "observation_space": json.dumps(to_json(file.observation_space)),
        "action_space": json.dumps(to_json(file.action_space)),
        "observation_count": repr(0.0 if file.statistics is None else float(file.statistics.count)),
        "sha256": sha256_of(file.theta),
        **file.origin.to_metadata(),
    }
    return tensors, metadata


def sha256_of(theta: Floats) -> str:
    return hashlib.sha256(np.ascontiguousarray(theta, np.float32).tobytes()).hexdigest()


def read_policy(path: str | Path, task: str | None = None, which: str | None = None) -> PolicyFile:
    """From a file or a run folder; with `task`, only a policy of that task. `which`: see `load_policy`."""
    place = options.place("policy", path)
    if which is not None and which not in FILES:
        raise ConfigError(f"which: '{which}' is neither best nor last")
    if place.is_dir():
        best, last = (place / name for name in FILES.values())
        if which == "best" and last.is_file() and not best.is_file():
            raise ConfigError(f"which: {place} has no best theta: none was evaluated yet; use last")
        place = best if which != "last" and best.is_file() else last
    if not place.is_file():
        raise ConfigError(f"policy: there is no file {place}")
    file = parse(place.read_bytes(), str(place))
    if task is not None and file.task != task:
        raise ConfigError(f"policy: {place} was trained on {file.task}, not on {task}")
    return file


def parse(content: bytes, place: str) -> PolicyFile:
    """A policy file's content, checked; `place` is how an error names it."""
    from safetensors.numpy import load

    try:
        tensors = load(content)
        metadata = _metadata(content)
        if metadata.get("format") not in (FORMAT, OTHER_LAYERS):
            raise ConfigError(f"policy: {place} holds no policy of this program (format {metadata.get('format')})")
        layout = Layout(tuple((name, tuple(shape)) for name, shape in json.loads(metadata["layout"])))
        _require(len(dict(layout.shapes)) == len(layout.shapes), "its layout names a tensor twice")
        theta: Floats = layout.flatten(tensors)
        count = float(metadata["observation_count"])
        statistics = Moments(count, tensors[MEAN], tensors[M2]) if count != 0 else None
        file = PolicyFile(
            metadata["task"], json.loads(metadata["env_kwargs"]), _policy(json.loads(metadata["policy"])),
            from_json(json.loads(metadata["observation_space"])), from_json(json.loads(metadata["action_space"])),
            layout, theta, statistics, Origin.from_metadata(metadata),
        )  # fmt: skip
        _check(file)
        _require(sha256_of(theta) == metadata.get("sha256"), "its parameters do not have the SHA-256 it names")
    except ConfigError:
        raise
    except Exception as error:  # the libraries that read it raise nearly anything at a file made up by somebody
        raise AfedpgError(f"policy: {place} is damaged: {' '.join(str(error).split())}") from error
    return file


def _policy(described: dict[str, Any]) -> dict[str, Any]:
    return USUAL | described if described["kind"] == "mlp" else described


def _check(file: PolicyFile) -> None:
    """Spaces, layers and statistics agree on every size: compiled code reads as far as they say."""
    size = spaces.flatdim(file.observation_space)
    if file.statistics is not None:
        mean, m2 = file.statistics.mean, file.statistics.m2
        _require(mean.shape == m2.shape == (size,), f"its statistics do not have the {size} numbers of an observation")
        sound = bool(np.isfinite(mean).all() and np.isfinite(m2).all() and (m2 >= 0).all())
        _require(sound and 0 < file.statistics.count < math.inf, "its statistics are of no observations there can be")
    if file.policy["kind"] != "mlp":
        return
    policy = _mlp_of(file)
    described = tuple(file.policy[key] for key in ("observations", "actions", "gaussian"))
    fits = described == (policy.observations, policy.actions, policy.gaussian)
    _require(fits, "its policy and its spaces are of different sizes")
    _require(policy.layout == file.layout, "its tensors are not those of its policy")
    known = policy.activation in ("relu", "tanh") and policy.mean in ("tanh", "linear")
    _require(known, "its policy has layers of another kind than this version knows")


def _mlp_of(file: PolicyFile) -> MlpPolicy:
    """The policy that it describes, for the spaces that it names."""
    told, actions, observations = file.policy, actions_of(file.action_space), observations_of(file.observation_space)
    return MlpPolicy(
        observations=observations.size,
        actions=actions.size,
        gaussian=isinstance(actions, BoxActions),
        hidden=tuple(told["hidden"]),
        value_hidden=None if told["value_hidden"] is None else tuple(told["value_hidden"]),
        activation=told["activation"],
        mean=told["mean"],
        choices=choices_of(actions),
        image=observations.image,
    )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _metadata(content: bytes) -> dict[str, str]:
    """safetensors: eight bytes of length, then a JSON header with the metadata in it."""
    (length,) = struct.unpack("<Q", content[:8])
    header: dict[str, Any] = json.loads(content[8 : 8 + length])
    metadata: dict[str, str] = header.get("__metadata__", {})
    return metadata


def load_policy(
    path: str | Path,
    task: str | None = None,
    seed: int = 0,
    which: Literal["best", "last"] | None = None,
    make_policy: MakePolicy | None = None,
) -> LoadedPolicy:
    """The policy of a run folder or file; `print(policy)` says which theta it has and how it acts.

        action = load_policy("runs/pole").act([0.0, 0.1, 0.0, -0.1])

    Args:
        path: a run folder, or a policy file.
        task: refuse a policy of another task than this Gymnasium id.
        seed: of sampled actions.
        which: of a run folder, the best evaluated theta or the last one; by default the best where there is one.
        make_policy: of a policy of your own, the function that the run was made with; a file holds no code.
    """
    policy = LoadedPolicy(read_policy(path, task, which), seed, make_policy)
    _log.info("policy: %s", policy.file.origin)
    return policy


class LoadedPolicy:
    """Acts without torch, unless the policy is your own. `predict` has the signature of Stable-Baselines3, so its tools
    take this for a model.
    """

    def __init__(self, file: PolicyFile, seed: int = 0, make_policy: MakePolicy | None = None) -> None:
        self.file, self._make_policy = file, make_policy
        self.observation_space = file.observation_space
        self.action_space = file.action_space
        self._observations: Observations = observations_of(file.observation_space)
        self._actions: Actions = actions_of(file.action_space)
        self._scale = scaling(file.statistics, self._observations.size)
        self._actor = actor_of(file, make_policy)
        self._generator = np.random.default_rng(seed)

    def __reduce__(self) -> tuple[Any, ...]:
        """What acts is compiled code, which is loaded again; the stream of sampled actions goes on where it is."""
        return LoadedPolicy, (self.file, 0, self._make_policy), {"_generator": self._generator}

    def __repr__(self) -> str:
        return f"LoadedPolicy({self.file.task}: {self.file.origin})"

    def act(self, observation: Any, deterministic: bool | None = None) -> Any:
        """One observation of the task's own space -> one action for env.step; without `deterministic` it acts in the
        way that evaluated better.
        """
        if _batch_size(self.observation_space, observation) is not None:
            raise ConfigError(f"policy: act takes one observation of {self.observation_space}; predict takes many")
        return self._act(observation, deterministic)

    def _act(self, observation: Any, deterministic: bool | None) -> Any:
        try:
            flat = self._observations.flatten(observation)
        except (TypeError, ValueError, IndexError) as error:
            raise _misfit(self.observation_space, str(error)) from error
        if not np.isfinite(flat).all():
            raise _misfit(self.observation_space, "it holds a NaN or an infinity")
        scaled = self._scale(flat)
        if deterministic is None:
            deterministic = self.file.origin.acting == "deterministic"
        action = self._actor.mode(scaled) if deterministic else self._actor.sample(scaled, self._generator)
        return self._actions.shaped(self._actions.to_environment(action))

    def predict(
        self,
        observation: Any,
        state: tuple[NDArray[Any], ...] | None = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool | None = None,
    ) -> tuple[NDArray[Any], None]:
        """One observation or a batch of them; `state` and `episode_start` are for recurrent policies and ignored."""
        batch = _batch_size(self.observation_space, observation)
        if batch is None:
            return np.asarray(self._act(observation, deterministic)), None
        rows = [_row(self.observation_space, observation, index) for index in range(batch)]
        actions = [self._act(row, deterministic) for row in rows]
        space = self.action_space  # says what an empty batch is, too
        return np.array(actions, space.dtype).reshape(batch, *(space.shape or ())), None


def actor_of(file: PolicyFile, make_policy: MakePolicy | None = None) -> Actor:
    if file.policy.get("kind") != "mlp":
        return own_policy(file, make_policy).actor(file.theta)
    if make_policy is not None:
        raise ConfigError("make_policy: this policy is one of the shipped MLPs, which need no function")
    return _mlp_of(file).actor(file.theta)


def own_policy(file: PolicyFile, make_policy: MakePolicy | None) -> ModulePolicy:
    """The module of a user's own that the file has the parameters of."""
    from afedpg.policy.own import ModulePolicy  # torch, which the MLPs act without

    module = file.policy.get("module")
    if make_policy is None:
        raise ConfigError(
            f"policy: {module} is a module of your own, of which a run keeps no code; give the function that makes it, "
            "as load_policy(..., make_policy=...) or --policy FILE.py:NAME"
        )
    made = ModulePolicy.make(make_policy, file.observation_space, file.action_space, np.random.default_rng(0))
    if made.layout != file.layout:
        raise ConfigError(f"policy: the module made has other parameters than the {module} of the run; give its own")
    return made


def _batch_size(space: Space[Any], observation: Any) -> int | None:
    """How many observations these are, or None for a single one; every part of them must say the same."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        sizes = {_batch_size(part, piece) for part, piece in _parts(space, observation)}
        if len(sizes) != 1:
            raise _misfit(space, "its parts are of different numbers of observations")
        return sizes.pop()
    try:
        shape: tuple[int, ...] = np.shape(observation)
    except ValueError as error:  # rows of different lengths
        raise _misfit(space, str(error)) from error
    expected = tuple(space.shape or ())
    if shape == expected:
        return None
    if shape[1:] == expected and len(shape) == len(expected) + 1:
        return shape[0]
    raise ConfigError(f"policy: an observation of shape {shape} does not fit the observation space {space}")


def _parts(space: spaces.Dict | spaces.Tuple[Any], observation: Any) -> list[tuple[Space[Any], Any]]:
    """The parts of a space, each with the observation's."""
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or not set(space.spaces) <= set(observation):
            raise _misfit(space, f"a mapping with the keys {', '.join(map(str, space.spaces))} is needed")
        return [(part, observation[name]) for name, part in space.spaces.items()]
    if not isinstance(observation, (tuple, list)) or len(observation) != len(space.spaces):
        raise _misfit(space, f"a tuple of {len(space.spaces)} is needed")
    return list(zip(space.spaces, observation, strict=True))


def _misfit(space: Space[Any], why: str) -> ConfigError:
    return ConfigError(f"policy: that is no observation of {space}: {' '.join(why.split())}")


def _row(space: Space[Any], observation: Any, index: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _row(part, observation[name], index) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_row(part, piece, index) for part, piece in _parts(space, observation))
    return observation[index]
