"""The attacks that ship, by name."""

from __future__ import annotations

from afedpg.agent.attacks.omniscient import Adaptive, Alie, FedPGAttack, InnerProduct, LargestAngle, Omniscient
from afedpg.agent.attacks.reports import (
    Copies,
    FalseDrift,
    Lie,
    Noise,
    PoisonedMoments,
    RandomValues,
    ScaledSignFlip,
    SignFlip,
    Zeros,
)
from afedpg.agent.attacks.worlds import ObservationNoise, RandomActions, RewardFlip, World

__all__ = ["SHIPPED", "Attack", "Omniscient"]

Attack = Lie | World | Omniscient

SHIPPED: dict[str, type[Attack]] = {
    "sign-flip": SignFlip,
    "scaled-sign-flip": ScaledSignFlip,
    "noise": Noise,
    "zeros": Zeros,
    "copies": Copies,
    "poisoned-moments": PoisonedMoments,
    "false-drift": FalseDrift,
    "random-values": RandomValues,
    "reward-flip": RewardFlip,
    "random-actions": RandomActions,
    "observation-noise": ObservationNoise,
    "alie": Alie,
    "ipm": InnerProduct,
    "fedpg-attack": FedPGAttack,
    "largest-angle": LargestAngle,
    "adaptive": Adaptive,
}
