"""What an estimator answers, held to what it has declared: a mistake is told in one line, before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from afedpg.agent.estimators.estimator import Estimator, Tools
from afedpg.errors import BrokenPart, ConfigError
from afedpg.messages import AgentState, Contribution, Floats, Group, Scalar, Task, Vector
from afedpg.own_parts import STORED, asked, check_part, check_tuple, is_own, read_only, why_not_stored
from afedpg.sampling.gymnasium import SAMPLING
from afedpg.sampling.rollout import Rollout

# Keys of an agent's state that are not the estimator's: those below, and those that begin with one of the words.
RESERVED = SAMPLING | {"discounted_return"}
RESERVED_STARTS = ("task_", "own_", "rollout_", "codec_", "attack_")
_KINDS = ("step", "parameters")
T = TypeVar("T")


def answer_of(estimator: Estimator, method: Callable[..., T], *given: Any) -> T:
    return asked(_whose(estimator), method, *given) if is_own(estimator) else method(*given)


def check_estimator(estimator: Any) -> Estimator:
    part: Estimator = check_part("estimator", estimator, Estimator)
    check_tuple(f"{_whose(part)}: scalars", part.scalars, Scalar)
    return part


def groups_of(estimator: Estimator, tools: Tools) -> tuple[Group, ...]:
    """Theta's parts, the policy first; none where theta is the policy."""
    whose = f"{_whose(estimator)}: groups"
    groups = check_tuple(whose, answer_of(estimator, estimator.groups, tools), Group)
    names = [group.name for group in groups]
    if groups and groups[0].size != tools.parameters:
        first = f"the first one, {names[0]}, has {groups[0].size} numbers"
        raise ConfigError(f"{whose}: {first}; the policy comes first and has {tools.parameters}")
    if len(set(names)) < len(names):
        raise ConfigError(f"{whose}: two of {', '.join(names)} have the same name")
    for group in groups:
        if group.kind not in _KINDS:
            raise ConfigError(f"{whose}: {group.name} is of the kind '{group.kind}'; choose from {', '.join(_KINDS)}")
    return groups


def statistics_of(estimator: Estimator, tools: Tools) -> dict[str, int]:
    """Names and lengths of the moments that come with every contribution."""
    found = answer_of(estimator, estimator.statistics, tools)
    if not isinstance(found, dict):
        raise ConfigError(f"{_whose(estimator)}: statistics gave a {type(found).__name__}, not a dict of lengths")
    return found


def initial_of(estimator: Estimator, tools: Tools, groups: tuple[Group, ...], generator: np.random.Generator) -> Vector:
    """Theta at the start, beyond the policy."""
    initial, beyond = np.asarray(answer_of(estimator, estimator.initial, tools, generator)), groups[1:]
    if initial.shape != (sum(group.size for group in beyond),):
        sizes = ", ".join(f"{group.name} {group.size}" for group in beyond) or "none"
        raise ConfigError(
            f"{_whose(estimator)}: initial gave {_counted(initial)}; the groups after the policy need one "
            f"vector for all of them: {sizes}"
        )
    return initial


def started(estimator: Estimator, tools: Tools, generator: np.random.Generator) -> AgentState:
    """The arrays that it gives for an agent's start."""
    return _checked_state(f"{_whose(estimator)}: start", answer_of(estimator, estimator.start, tools, generator))


def estimated(
    estimator: Estimator, tools: Tools, state: AgentState, task: Task, rollout: Rollout
) -> tuple[AgentState, Contribution]:
    """What it makes of the rollout. One of the user's own may only read the Task and the state: the same work may be
    computed twice. A rollout's arrays could be written to all the same, because kernels would be compiled anew for
    arrays that cannot.
    """
    whose = _whose(estimator)
    if is_own(estimator):
        state = {key: read_only(array) for key, array in state.items()}
        task = task._replace(theta=read_only(task.theta))
    answer = answer_of(estimator, estimator.estimate, tools, state, task, rollout)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Contribution)):
        kinds = [type(part).__name__ for part in answer] if isinstance(answer, tuple) else [type(answer).__name__]
        raise BrokenPart(f"{whose}: estimate returned {', '.join(kinds)}, not (new arrays, Contribution)")
    new, contribution = answer
    _compare_names(f"{whose} sent the scalars", contribution.scalars, [each.name for each in estimator.scalars])
    for name, number in {**contribution.extra, **contribution.scalars}.items():
        if not isinstance(number, Real):
            raise BrokenPart(f"{whose} sent a {type(number).__name__} as '{name}', not a number")
    return _checked_state(whose, new), contribution


def flat(estimator: Estimator, contribution: Contribution, groups: tuple[Group, ...], parameters: int) -> Floats:
    """The contribution's vector, group after group, as long as theta."""
    vector, whose = contribution.vector, f"{_whose(estimator)} sent"
    if isinstance(vector, Mapping):
        _compare_names(f"{whose} the groups", vector, [group.name for group in groups])
        for group in groups:
            if np.shape(vector[group.name]) != (group.size,):
                raise BrokenPart(f"{whose} {_counted(vector[group.name])} for '{group.name}', which has {group.size}")
        return np.concatenate([vector[group.name] for group in groups]).astype(np.float32)
    if np.shape(vector) != (parameters,):
        named = " + ".join(f"{group.name} {group.size}" for group in groups)
        raise BrokenPart(f"{whose} {_counted(vector)}, theta has {parameters}{f' ({named})' if named else ''}")
    return np.asarray(vector, np.float32)


def _checked_state(whose: str, state: Any) -> AgentState:
    """With numpy's scalars as arrays, which they are after a checkpoint, and each array in memory of its own: an
    estimator may keep what it saw, and a sampler writes its next rollout to where it wrote this one.
    """
    if not isinstance(state, dict):
        raise BrokenPart(f"{whose} gave {type(state).__name__} as the agent's state, not a dict of arrays by name")
    arrays = {key: np.asarray(array) if isinstance(array, np.generic) else array for key, array in state.items()}
    for key, array in arrays.items():
        if not isinstance(key, str):
            raise BrokenPart(f"{whose} gave {key!r} as a name in the agent's state, not a text")
        if key in RESERVED or key.startswith(RESERVED_STARTS):
            raise BrokenPart(f"{whose} gave '{key}' for the agent's state, which the library uses; choose another name")
        if why := why_not_stored(array):
            raise BrokenPart(f"{whose} gave {why} as '{key}' of the agent's state, not {STORED}")
    return {key: array if array.base is None else array.copy() for key, array in arrays.items()}


def _compare_names(what: str, given: Iterable[str], declared: list[str]) -> None:
    if set(given) != set(declared):
        raise BrokenPart(f"{what} {', '.join(given) or 'none'}, but declares {', '.join(declared) or 'none'}")


def _counted(vector: Any) -> str:
    shape = np.shape(vector)
    return f"{shape[0]} numbers" if len(shape) == 1 else f"an array {list(shape)}"


def _whose(estimator: Any) -> str:
    return f"estimator: {type(estimator).__name__}"
