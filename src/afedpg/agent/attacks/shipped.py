"""The attacks that ship, by name."""

from __future__ import annotations

from afedpg.agent.attacks import omniscient, reports, worlds
from afedpg.agent.attacks.omniscient import Omniscient

__all__ = ["SHIPPED", "Attack", "Omniscient"]

Attack = reports.Lie | worlds.World | Omniscient

SHIPPED: dict[str, type[Attack]] = {
    "sign-flip": reports.SignFlip,
    "scaled-sign-flip": reports.ScaledSignFlip,
    "noise": reports.Noise,
    "zeros": reports.Zeros,
    "copies": reports.Copies,
    "poisoned-moments": reports.PoisonedMoments,
    "false-drift": reports.FalseDrift,
    "random-values": reports.RandomValues,
    "reward-flip": worlds.RewardFlip,
    "random-actions": worlds.RandomActions,
    "observation-noise": worlds.ObservationNoise,
    "alie": omniscient.Alie,
    "ipm": omniscient.InnerProduct,
    "fedpg-attack": omniscient.FedPGAttack,
    "largest-angle": omniscient.LargestAngle,
    "adaptive": omniscient.Adaptive,
}
