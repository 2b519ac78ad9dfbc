"""The attacks that ship, by name."""

from __future__ import annotations

from afedpg.agent.attacks import omniscient, reports, worlds
from afedpg.agent.attacks.omniscient import Omniscient
from afedpg.errors import ConfigError
from afedpg.own_parts import name_of
from afedpg.parts import build

__all__ = ["SHIPPED", "Attack", "Omniscient", "attack_of"]

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


def attack_of(text: str) -> Attack:
    """The attack of that name, or of a user's file: what is none of the three kinds would leave its agents honest."""
    attack: Attack = build("attack", text, SHIPPED)
    if not isinstance(attack, Attack):
        kinds = "Lie, World or Omniscient of afedpg.agent.attacks"
        raise ConfigError(f"attack: {name_of(attack)} does not inherit from {kinds}; no agent would lie")
    return attack
