"""Synthetic agents with known answers."""

from __future__ import annotations

from afedpg.config import Config
from afedpg.problems.bandits import LQBandit, SaturatingBandit
from afedpg.problems.problem import Problem, ProblemWorkload
from afedpg.problems.quadratic import Quadratic
from afedpg.problems.softmax_mdp import SoftmaxMDP

__all__ = [
    "LQBandit",
    "Problem",
    "ProblemWorkload",
    "Quadratic",
    "SaturatingBandit",
    "SoftmaxMDP",
    "make_problem",
    "make_sites",
]


def make_problem(config: Config) -> Problem:
    """Its objective is the mean over agents, where they differ."""
    problems: dict[str, Problem] = {
        "quadratic": Quadratic.mean_of(config.dimension, config.noise, config.optima or (1.0,)),
        "lq-bandit": LQBandit(),
        "saturating-bandit": SaturatingBandit(),
        "softmax-mdp": SoftmaxMDP(),
    }
    return problems[config.task]


def make_sites(config: Config) -> tuple[Problem, ...]:
    """What each agent samples, in turn; none: all sample the problem itself."""
    return tuple(Quadratic(config.dimension, config.noise, centre=centre) for centre in config.optima)
