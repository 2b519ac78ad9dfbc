"""`afedpg check`: what a task is like, and what a run would do with it."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from afedpg.commands.parser import command
from afedpg.commands.settings import add_own_settings, given_settings
from afedpg.printable import printable

if TYPE_CHECKING:
    from afedpg.runs.check import Findings


def add_commands(commands: Any) -> None:
    help = "play 1,000 steps of a task and say what a run would find: spaces, speed, rewards, episodes, determinism"
    parser = command(commands, "check", help, "afedpg check CartPole-v1", _check)
    parser.add_argument("task", metavar="TASK", help="a short name (hopper, ...), a Gymnasium id, or MODULE:ID")
    add_own_settings(parser, "agents", "seed", "env_kwargs", "max_episode_steps", "sites")


def _check(options: argparse.Namespace) -> int:
    from afedpg.runs.check import check_task

    found = check_task(options.task, **given_settings(options))
    if options.json:
        print(json.dumps(dataclasses.asdict(found)))
        return 0
    for name, text in _lines(found).items():
        print(printable(f"{name:<15}{text}"))
    for warning in found.warnings:
        print(printable(f"warning: {warning}"))
    return 0


def _lines(found: Findings) -> dict[str, str]:
    why = "" if found.native else f": {found.why_not_native}"
    episodes = f"{found.terminated} terminated, {found.truncated} truncated"
    if found.mean_length is not None:
        episodes += f"; on average {found.mean_length:.4g} steps, return {found.mean_return:.4g}"
    limit = "none known" + ("; the environment truncates by itself" if found.truncated else "")
    scaled = "observations are scaled" if found.scale_observations else "observations stay as they are"
    rewards = "rewards are scaled" if found.scale_rewards else "rewards stay as they are"
    return {
        "task": found.task,
        "observations": f"{found.observation_space}: {found.observations} numbers",
        "actions": found.action_space,
        "sampler": f"{'native' if found.native else 'plain'}{why}",
        "speed": f"{found.steps_per_second:,.0f} steps per second in one process ({found.steps:,} steps)",
        "rewards": f"{found.lowest_reward:.4g} to {found.highest_reward:.4g}, mean {found.mean_reward:.4g}",
        "episodes": episodes,
        "time limit": limit if found.time_limit is None else f"{found.time_limit:,} steps",
        "deterministic": "yes" if found.deterministic else "no",
        "a run": f"{found.policy} ({found.parameters:,} parameters); {scaled}, {rewards}",
    }
