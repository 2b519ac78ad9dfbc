"""`evaluate`: evaluates a trained policy, and films it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import numpy as np

from afedpg.config import AgentConfig, Config
from afedpg.engine.delegate import bare
from afedpg.engine.process import one_thread
from afedpg.engine.workloads import MakeEnv
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Evaluation, Workload
from afedpg.options import coerce, whole
from afedpg.record import checkpoint
from afedpg.record import folder as folders
from afedpg.record.loss import warn_of_beginning
from afedpg.runs.best import Evaluated, best_in, scaled_by
from afedpg.runs.keywords import Kind
from afedpg.runs.parts import Own, check_values
from afedpg.runs.result import Which
from afedpg.runs.stored import check_size, open_checked
from afedpg.seeding import stream
from afedpg.server.state import from_tree
from afedpg.validation import agent_number

if TYPE_CHECKING:
    from afedpg.agent.work import EnvironmentWorkload

MOST_SITES = 10_000  # each is evaluated by itself
_ACTING = ("make_env", "make_policy", "estimator", "sites")  # the own parts that matter here; the server's do not
_log = logging.getLogger("afedpg")


class Elsewhere(NamedTuple):
    """Where a policy is evaluated, if not where it was trained."""

    task: str | None = None
    env_kwargs: Mapping[str, Any] | None = None
    make_env: MakeEnv | None = None

    def __bool__(self) -> bool:
        return any(part is not None for part in self)

    def lay_over(self, config: Config, own: Own) -> tuple[Config, Own]:
        """Another task has none of the arguments of the run's; tables of arguments say how many sites there are."""
        if config.synthetic or self.task == "":
            raise ConfigError(f"task: {config.task} is a synthetic problem, which has no other environment")
        if self.make_env is not None:
            return config, replace(own, make_env=self.make_env)
        if own.make_env is not None and self.task is None:
            raise ConfigError("env_kwargs: this run's environments are made by make_env; give another one")
        task = config.task if self.task is None else self.task
        kwargs = coerce(AgentConfig, {"env_kwargs": self.env_kwargs or {}})["env_kwargs"]
        tables = kwargs.get("agents", {})
        numbers = [agent_number(str(name)) for name in tables] if isinstance(tables, Mapping) else []
        agents = max((number for number in numbers if number is not None), default=config.agents - 1) + 1
        if agents > MOST_SITES:
            raise ConfigError(f"env_kwargs: agents.{agents - 1}: sites are numbered from 0 to {MOST_SITES - 1} at most")
        config = replace(config, task=task, agents=agents, agent=replace(config.agent, env_kwargs=kwargs))
        if config.synthetic:
            raise ConfigError(f"task: {task} is a synthetic problem; name a Gymnasium task")
        return config, replace(own, make_env=None)


def evaluate_run(
    path: str | Path,
    episodes: int = 50,
    kind: Kind = "both",
    seed: int | None = None,
    own: Own = Own(),
    trust_code: bool = False,
    which: Which | None = None,
    task: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    make_env: MakeEnv | None = None,
    say: Callable[[str], None] = _log.info,
) -> list[Evaluation]:
    """theta of the newest checkpoint on fresh episodes: the run itself never played them, whatever the `seed`.

        for evaluation in evaluate_run("runs/pole", episodes=20):
            print(evaluation.kind, evaluation.mean, evaluation.low, evaluation.high)

    They are the same ones every time; another `seed` than the run's gives others.

    Args:
        path: the run folder.
        episodes: of each kind, in each environment that differs.
        kind: how theta acts: sampled, deterministic or both.
        seed: another one than the run's gives other episodes.
        own: the parts that the run was made with.
        trust_code: import the module that the run's task names, though you have not run it before.
        which: the best evaluated theta or the last one; by default the best where there is one.
        task: another task than the run's, with observations and actions of the same sizes.
        env_kwargs: other arguments of the environment; `agents` in it holds a table per site, each evaluated by itself.
        make_env: site -> an environment that the run did not have, for as many sites as the run has agents.
        say: is told in one line which theta was taken.
    """
    episodes = whole("episodes", episodes, 1)
    if kind not in get_args(Kind):
        raise ConfigError(f"kind: unknown '{kind}'; choose from {', '.join(get_args(Kind))}")
    seed = None if seed is None else whole("seed", seed, 0)
    opened = _open(path, own, trust_code, which, Elsewhere(task, env_kwargs, make_env), say)
    record = replace(opened.config.record, evaluate_episodes=episodes, evaluate_kind=kind)
    config = replace(opened.config, record=record, seed=opened.config.seed if seed is None else seed)
    workload = opened.workload(config)
    return workload.evaluate(opened.at.theta, opened.at.statistics, opened.at.iteration, "verdict")


def film_run(
    path: str | Path,
    video: Path,
    own: Own = Own(),
    seed: int | None = None,
    trust_code: bool = False,
    which: Which | None = None,
    elsewhere: Elsewhere = Elsewhere(),
) -> float:
    """The first deterministic episode that `evaluate_run` plays in agent 0's environment, as an mp4 or a gif; returns
    its return.
    """
    from afedpg.sampling.evaluate import Film, check_video, evaluate

    check_video(video)
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen; read when MuJoCo's renderer is made
    opened = _open(path, own, trust_code, which, elsewhere)
    config, at = opened.config, opened.at
    if config.synthetic:
        raise ConfigError(f"video: {config.task} is a synthetic problem; there is nothing to see")
    workload = cast("EnvironmentWorkload", bare(opened.workload(config)))
    statistics = workload.scaled_at(0, at.statistics)
    theta = at.theta[: workload.policy.layout.size]
    env, film = workload.environments.make(0, render_mode="rgb_array"), Film()
    try:
        generator = stream(config.seed if seed is None else seed, "verdict", 0, at.iteration)
        outcome = evaluate(workload.policy, theta, statistics, env, 1, True, generator, on_step=film.shoot)
        film.write(video, env.metadata.get("render_fps", 30))
    finally:
        env.close()
    return outcome.mean


class _Opened(NamedTuple):
    folder: folders.RunFolder
    config: Config  # of the environment that it is evaluated in
    own: Own
    at: Evaluated
    elsewhere: Elsewhere

    def workload(self, config: Config) -> Workload:
        one_thread()
        workload = self.own.workload(config)()
        if self.elsewhere:
            self._compare(cast("EnvironmentWorkload", bare(workload)))
        else:
            check_size(self.folder, self.at.theta.size, workload.parameters)
        return workload

    def _compare(self, workload: EnvironmentWorkload) -> None:
        from afedpg.export.policy_file import read_policy

        if workload.policy.layout != read_policy(self.folder.path, which="last").layout:
            here = workload.environments
            raise ConfigError(
                f"task: {self.config.task} has observations {here.observations.space} and actions "
                f"{here.actions.space}, which the policy of {self.folder.path} was not made for"
            )


def _newest(folder: folders.RunFolder) -> checkpoint.Tree:
    try:
        return checkpoint.load_latest(folder.checkpoints)[1]
    except AfedpgError as error:
        if not folder.policy.is_file():
            raise
        raise AfedpgError(f"{error}; afedpg export and load_policy take what {folder.policy} has") from error


def _open(
    path: str | Path,
    own: Own,
    trust_code: bool,
    which: Which | None,
    elsewhere: Elsewhere,
    say: Callable[[str], None] = _log.info,
) -> _Opened:
    folder, config = open_checked(path, own, trust_code, _ACTING if not elsewhere else _ACTING[1:])
    check_values(config, _ACTING)
    tree = _newest(folder)
    server, best, looks = from_tree(tree["server"]), best_in(tree), tree.get("looks", 0)
    if which not in (None, "best", "last"):
        raise ConfigError(f"which: '{which}' is neither best nor last")
    if which == "best" and best is None:
        raise ConfigError(f"which: {folder.path} has no best theta: none was evaluated yet; use last")
    where = (server.iteration, server.gradients, server.samples, 0.0)
    last = Evaluated(server.theta.astype(np.float32), scaled_by(config, server), *where)
    at = last if best is None or which == "last" else best
    say(str(at.origin("last" if at is last else "best", looks)))
    warn_of_beginning(folder, at.iteration)
    if elsewhere:
        config, own = elsewhere.lay_over(config, own)
    return _Opened(folder, config, own, at, elsewhere)
