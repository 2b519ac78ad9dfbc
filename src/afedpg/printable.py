"""Text of others, before it is shown: nothing in it is obeyed by a terminal or forges a line of a log."""

from __future__ import annotations

MOST_SAID = 200  # characters of what a peer says


def printable(text: str) -> str:
    """Names from disks and machines of others: control codes are shown, not obeyed."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def of_peer(text: str, most: int = MOST_SAID) -> str:
    """What came over a wire, before it is shown, logged or kept: one line of bounded length, nothing in it obeyed."""
    shown = printable(text[: most + 1])
    return shown if len(shown) <= most else f"{shown[:most]}..."
