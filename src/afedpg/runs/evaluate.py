"""`evaluate`: evaluates a trained policy, and films it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from afedpg.engine.process import one_thread
from afedpg.errors import ConfigError
from afedpg.messages import OBSERVATIONS, Evaluation
from afedpg.record import checkpoint
from afedpg.record import folder as folders
from afedpg.record.trust import check_trust
from afedpg.runs.parts import Own, check_own
from afedpg.runs.stored import check_fit
from afedpg.seeding import stream
from afedpg.server.state import ServerState, from_tree

_ACTING = ("make_env", "make_policy", "estimator")  # the own parts that matter here; the server's do not


def evaluate_run(
    path: str | Path,
    episodes: int = 50,
    kind: str = "both",
    seed: int | None = None,
    own: Own = Own(),
    trust_code: bool = False,
) -> list[Evaluation]:
    """theta of the newest checkpoint on fresh episodes: the run itself never played them, whatever the `seed`.

    They are the same ones every time; another `seed` than the run's gives others.
    """
    if episodes < 1:
        raise ConfigError(f"episodes: {episodes}; at least 1 is needed")
    if seed is not None and seed < 0:
        raise ConfigError(f"seed: {seed} is negative")
    folder = folders.open_run(Path(path))
    config = folder.config()
    check_own(config, own, _ACTING)
    check_trust(config, trust_code)
    server = _newest(folder)
    one_thread()
    record = replace(config.record, evaluate_episodes=episodes, evaluate_kind=kind)
    config = replace(config, record=record, seed=config.seed if seed is None else seed)
    workload = own.workload(config)()
    check_fit(folder, server, workload.parameters)
    return workload.evaluate(server.theta.astype(np.float32), server.statistics, server.iteration, fresh=True)


def film_run(
    path: str | Path, video: Path, own: Own = Own(), seed: int | None = None, trust_code: bool = False
) -> float:
    """The first deterministic episode that `evaluate_run` plays in agent 0's environment, as an mp4 or a gif; returns
    its return.
    """
    from afedpg.agent.work import EnvironmentWorkload
    from afedpg.sampling.evaluate import Film, check_video, evaluate

    check_video(video)
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # renders without a screen; read when MuJoCo's renderer is made
    folder = folders.open_run(Path(path))
    config = folder.config()
    check_own(config, own, _ACTING)
    check_trust(config, trust_code)
    if config.synthetic:
        raise ConfigError(f"video: {config.task} is a synthetic problem; there is nothing to see")
    server = _newest(folder)
    one_thread()
    workload = EnvironmentWorkload(config, own.make_env, own.make_policy, own.estimator)
    check_fit(folder, server, workload.parameters)
    statistics = server.statistics.get(OBSERVATIONS) if config.agent.scale_observations else None
    theta = server.theta[: workload.policy.layout.size]
    env, film = workload.environments.make(0, render_mode="rgb_array"), Film()
    try:
        generator = stream(config.seed if seed is None else seed, "verdict", 0, server.iteration)
        outcome = evaluate(
            workload.policy,
            theta,
            statistics,
            env,
            1,
            True,
            generator,
            on_step=film.shoot,
        )
        film.write(video, env.metadata.get("render_fps", 30))
    finally:
        env.close()
    return outcome.mean


def _newest(folder: folders.RunFolder) -> ServerState:
    _, tree = checkpoint.load_latest(folder.checkpoints)
    return from_tree(tree["server"])
