"""Gymnasium's spaces as the flat numbers a policy works with: one vector in, one vector, index or row of them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from afedpg.errors import ConfigError
from afedpg.policy.image import Image

Flatten = Callable[[Any], NDArray[Any]]


@dataclass(frozen=True)
class Observations:
    """An observation space, flattened the Gymnasium way: Discrete becomes one-hot, Dict and Tuple are concatenated.

    Numbers are float64; those of a picture stay bytes, and are not scaled before the policy has them.
    """

    space: Space[Any]
    size: int
    flatten: Flatten  # an observation of the space -> [size]
    image: Image | None = None

    @property
    def dtype(self) -> type[np.generic]:
        return np.float64 if self.image is None else np.uint8


@dataclass(frozen=True)
class BoxActions:
    """The policy's normalized actions u become mid + half clip(u, -1, 1)."""

    space: spaces.Box
    size: int
    middle: NDArray[np.float64]  # [size]
    half: NDArray[np.float64]  # [size]
    low: NDArray[Any]  # [size] in the space's own type
    high: NDArray[Any]

    def to_environment(self, action: NDArray[np.float32]) -> NDArray[Any]:
        """What env.step gets, as one flat row; `shaped` gives it the space's shape."""
        inside = np.minimum(np.maximum(action, -1.0), 1.0)
        exact: NDArray[Any] = (self.middle + self.half * inside).astype(self.low.dtype)
        # rounding to the space's type may overshoot a bound by one unit in the last place
        bounded: NDArray[Any] = np.minimum(np.maximum(exact, self.low), self.high)
        return bounded

    def shaped(self, row: Any) -> Any:
        return row.reshape(self.space.shape)

    def empty(self) -> NDArray[Any]:
        """No actions yet, of the right type: [0, size]."""
        return np.zeros((0, self.size), self.low.dtype)

    def room(self, count: int) -> NDArray[Any]:
        """For so many of the policy's own actions."""
        return np.empty((count, self.size), np.float32)


@dataclass(frozen=True)
class DiscreteActions:
    """The policy's index becomes start + index."""

    space: spaces.Discrete
    size: int
    start: int

    def to_environment(self, action: int) -> np.int64:
        return np.int64(self.start + int(action))

    def shaped(self, row: Any) -> Any:
        return np.int64(row)

    def empty(self) -> NDArray[Any]:
        return self.room(0)

    def room(self, count: int) -> NDArray[Any]:
        return np.empty(count, np.int64)


@dataclass(frozen=True)
class ManyActions:
    """Several choices at once: the policy's indices become start + index. MultiBinary's are of two each."""

    space: spaces.MultiDiscrete | spaces.MultiBinary
    choices: tuple[int, ...]  # how many there are of each
    start: NDArray[np.int64]  # [choices]

    @property
    def size(self) -> int:
        return sum(self.choices)

    def to_environment(self, action: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.start + action

    def shaped(self, row: Any) -> Any:
        return row.astype(self.space.dtype).reshape(self.space.shape)

    def empty(self) -> NDArray[Any]:
        return self.room(0)

    def room(self, count: int) -> NDArray[Any]:
        return np.empty((count, len(self.choices)), np.int64)


Actions = BoxActions | DiscreteActions | ManyActions


def choices_of(actions: Actions) -> tuple[int, ...]:
    """None where an action is one vector or one index."""
    return actions.choices if isinstance(actions, ManyActions) else ()


def observations_of(space: Space[Any]) -> Observations:
    _check_observation(space, space)
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    size = int(np.prod(flat.shape))
    if size == 0:
        raise ConfigError(f"task: the observation space {space} holds no numbers; there is nothing to act on")
    image = image_of(space)
    return Observations(space, size, _flattener(space, size) if image is None else _flatten_picture, image)


def image_of(space: Space[Any]) -> Image | None:
    """A picture, or a stack of them, is a Box of bytes with two to four dimensions."""
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and 2 <= len(space.shape) <= 4:
        return Image(tuple(space.shape), float(max(1, space.high.max(initial=1))))
    return None


def _flatten_picture(observation: Any) -> NDArray[np.uint8]:
    picture = np.asarray(observation)
    if picture.dtype != np.uint8:  # 0.5 would be 0
        raise ValueError(f"of {picture.dtype}, not of uint8")
    return picture.reshape(-1)


def actions_of(space: Space[Any]) -> Actions:
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space, int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.size:
        counts = tuple(int(n) for n in space.nvec.reshape(-1))
        return ManyActions(space, counts, space.start.reshape(-1).astype(np.int64))
    if isinstance(space, spaces.MultiBinary) and 0 not in space.shape:
        count = int(np.prod(space.shape))
        return ManyActions(space, (2,) * count, np.zeros(count, np.int64))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and space.shape:
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        wide_low, wide_high = low.astype(np.float64), high.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            middle, half = (wide_low + wide_high) / 2, (wide_high - wide_low) / 2
        if not (np.isfinite(middle).all() and np.isfinite(half).all()):
            finite = f"gymnasium.spaces.Box(-1.0, 1.0, {space.shape})"
            raise ConfigError(
                f"task: the action space {space} has infinite bounds, and actions are scaled to the bounds; give it "
                f"finite ones, for example gymnasium.wrappers.TransformAction(env, lambda action: action, {finite})"
            )
        return BoxActions(space, low.size, middle, half, low, high)
    raise ConfigError(
        f"task: the action space {space} is not supported; Discrete, MultiDiscrete, MultiBinary and Box of floats are"
    )


def _check_observation(space: Space[Any], whole: Space[Any]) -> None:
    where = f"{space}" if space is whole else f"{space} inside {whole}"
    if isinstance(space, (spaces.Dict, spaces.Tuple)) and not space.spaces:  # which Gymnasium cannot flatten
        raise ConfigError(f"task: the observation space {where} holds no numbers; there is nothing to act on")
    if isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            _check_observation(part, whole)
    elif isinstance(space, spaces.Tuple):
        for part in space.spaces:
            _check_observation(part, whole)
    elif isinstance(space, spaces.Box):
        if image_of(space) is not None and space is not whole:
            raise ConfigError(
                f"task: the observation space {where} has a picture among other things; the policies that ship take "
                "one picture, or numbers: choose with gymnasium.wrappers.FilterObservation or TransformObservation"
            )
        if len(space.shape) >= 3 and image_of(space) is None:
            if space.dtype == np.uint8:
                raise ConfigError(
                    f"task: the observation space {where} has {len(space.shape)} axes, and a picture or a stack of "
                    "them 2 to 4; join some with gymnasium.wrappers.ReshapeObservation, or all with FlattenObservation"
                )
            raise ConfigError(
                f"task: the observation space {where} is a picture, but not of bytes; make it uint8 from 0 to 255, "
                "for example with gymnasium.wrappers.TransformObservation, or one row with FlattenObservation"
            )
    elif not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise ConfigError(
            f"task: the observation space {where} is not supported; "
            "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are"
        )


def _flattener(space: Space[Any], size: int) -> Flatten:
    """gymnasium.spaces.flatten, with short cuts for the two spaces nearly every task has; each can be pickled."""
    if isinstance(space, spaces.Box):
        return _flatten_box
    if isinstance(space, spaces.Discrete):
        return partial(_flatten_discrete, space, int(space.start), size)
    return partial(_flatten, space)


def _flatten_box(observation: Any) -> NDArray[np.float64]:
    return np.asarray(observation, np.float64).reshape(-1)


def _flatten_discrete(space: Space[Any], start: int, size: int, observation: Any) -> NDArray[np.float64]:
    _check_range(space, observation)
    row = np.zeros(size)
    row[int(observation) - start] = 1.0
    return row


def _flatten(space: Space[Any], observation: Any) -> NDArray[np.float64]:
    _check_range(space, observation)
    return np.asarray(spaces.flatten(space, observation), np.float64)


def _check_range(space: Space[Any], observation: Any) -> None:
    """A category outside its space would be written to the place of another, or count from the end."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            _check_range(part, observation[name])
    elif isinstance(space, spaces.Tuple):
        for part, piece in zip(space.spaces, observation, strict=True):
            _check_range(part, piece)
    elif isinstance(space, spaces.Discrete):
        if not 0 <= int(observation) - space.start < space.n:
            raise ValueError(f"{observation} is outside {space}")
    elif isinstance(space, spaces.MultiDiscrete):
        index = np.asarray(observation) - space.start
        if index.shape != np.shape(observation) or not ((index >= 0) & (index < space.nvec)).all():
            raise ValueError(f"{observation} is outside {space}")


def to_json(space: Space[Any]) -> dict[str, Any]:
    """A space as plain data for a policy file, the inverse of `from_json`."""
    if isinstance(space, spaces.Box):
        both = {"low": space.low, "high": space.high}
        if image_of(space) is not None and all((bound == bound.flat[0]).all() for bound in both.values()):
            both = {name: bound.flat[0] for name, bound in both.items()}  # one for all of a picture's numbers
        bounds = {name: bound.tolist() for name, bound in both.items()}
        return {"kind": "box", "shape": list(space.shape), "dtype": str(space.dtype), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "multidiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multibinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "spaces": [[name, to_json(part)] for name, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [to_json(part) for part in space.spaces]}
    raise ConfigError(f"task: the space {space} is not supported")


def from_json(document: dict[str, Any]) -> Space[Any]:
    kind = document["kind"]
    if kind == "box":
        dtype = np.dtype(document["dtype"])
        shape = tuple(document["shape"])
        low, high = (np.broadcast_to(np.array(document[bound], dtype), shape) for bound in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "discrete":
        return spaces.Discrete(document["n"], start=document["start"])
    if kind == "multidiscrete":
        return spaces.MultiDiscrete(document["nvec"], start=document["start"])
    if kind == "multibinary":
        return spaces.MultiBinary(document["n"])
    if kind == "dict":
        return spaces.Dict({name: from_json(part) for name, part in document["spaces"]})
    if kind == "tuple":
        return spaces.Tuple([from_json(part) for part in document["spaces"]])
    raise ConfigError(f"policy: unknown kind of space '{kind}'")
