"""How a wrapper tells compiled code what it does to an environment, where that is one of a few simple things."""

from __future__ import annotations

from typing import NamedTuple


class Disturbance(NamedTuple):
    """A wrapper that has it as its attribute `disturbance` does this and nothing else.

    What is random follows from the episode's seed: noise is np.random.default_rng(seed)'s, drawn for every observation,
    and actions are those of the action space after space.seed(seed).
    """

    reward: float = 1.0  # a factor
    noise: float = 0.0  # deviation of Gaussian noise on every observed number
    random: bool = False  # the policy's actions are replaced by ones that are drawn evenly
