"""Synthetic agents with known answers."""

from __future__ import annotations

from afedpg.config import Config
from afedpg.problems.bandits import LQBandit, SaturatingBandit
from afedpg.problems.problem import Problem, ProblemWorkload
from afedpg.problems.quadratic import Quadratic
from afedpg.problems.softmax_mdp import SoftmaxMDP

__all__ = ["LQBandit", "Problem", "ProblemWorkload", "Quadratic", "SaturatingBandit", "SoftmaxMDP", "make_problem"]


def make_problem(config: Config) -> Problem:
    problems: dict[str, Problem] = {
        "quadratic": Quadratic(config.dimension, config.noise),
        "lq-bandit": LQBandit(),
        "saturating-bandit": SaturatingBandit(),
        "softmax-mdp": SoftmaxMDP(),
    }
    return problems[config.task]
