"""When intervals settle a claim: the same for every experiment that has them."""

from __future__ import annotations

from afedpg.experiments.outcome import Ruling, rule


def settle(enough: bool, *answers: bool | None) -> Ruling:
    """Holds if every interval is wholly on the right side, does not if one is wholly on the wrong; else it is open."""
    refuted = any(answer is False for answer in answers)
    return rule(enough and (refuted or None not in answers), not refuted)
