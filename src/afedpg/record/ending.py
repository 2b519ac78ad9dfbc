"""What is said of the agents of a run that is over, finished or stopped."""

from __future__ import annotations

GONE = ("left", "not yet", "silent")  # whoever was so at the end stays so


def ended_as(finished: bool, state: str, gradients: float) -> str:
    """From an agent's last state while the run went on, and how many of its gradients were applied."""
    if state in GONE:
        return state
    if state == "away":
        return "left"
    if not finished:
        return "stopped"
    return "done" if gradients else "never answered"
