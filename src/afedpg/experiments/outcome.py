"""What an experiment gives: its data, its figures, and the claims it tested, each with a verdict and its reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from matplotlib.figure import Figure

from afedpg.experiments.choices import Choices
from afedpg.experiments.jobs import Job
from afedpg.experiments.tables import Table
from afedpg.record.disk import write_text

Ruling = Literal["holds", "does not hold", "not enough data"]


@dataclass(frozen=True)
class Verdict:
    claim: str  # the paper's, in words that can be wrong
    verdict: Ruling
    statistic: str  # what was measured, with its interval
    value: float | None = None  # the same as a number
    low: float | None = None
    high: float | None = None
    needed: str = ""  # what the claim asks of it

    def to_dict(self) -> dict[str, Any]:
        return {name: finite(value) for name, value in asdict(self).items()}


def finite(value: Any) -> Any:
    """JSON has no word for infinity: what was never reached is null, however deep it lies."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rule(enough: bool, holds: bool) -> Ruling:
    """Too little data never speaks, for or against."""
    if not enough:
        return "not enough data"
    return "holds" if holds else "does not hold"


def settle(enough: bool, *answers: bool | None) -> Ruling:
    """Holds if every interval is wholly on the right side, does not if one is wholly on the wrong; else it is open."""
    refuted = any(answer is False for answer in answers)
    return rule(enough and (refuted or None not in answers), not refuted)


@dataclass(frozen=True)
class Picture:
    name: str
    caption: str  # what is to be seen, and of which policy
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Outcome:
    title: str
    text: str  # one paragraph: what was done
    verdicts: tuple[Verdict, ...]
    tables: dict[str, Table] = field(default_factory=dict)  # by the CSV's name
    pictures: tuple[Picture, ...] = ()
    shown: tuple[str, ...] = ()  # tables short enough for the report
    settings: dict[str, Any] = field(default_factory=dict)


class Experiment(Protocol):
    """A module with these two functions."""

    def jobs(self, choices: Choices) -> Sequence[Job]: ...

    def outcome(self, choices: Choices) -> Outcome: ...


def write_outcome(
    outcome: Outcome, folder: Path, scale: str, save: Callable[[Callable[[], Figure], Path], None], **origin: Any
) -> None:
    """NAME.csv, NAME.png, NAME.svg, NAME.pdf and verdict.json, which also gets what is said of its origin."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in outcome.tables.items():
        data.write(folder / f"{name}.csv")
    for picture in outcome.pictures:
        save(picture.draw, folder / picture.name)
    document = {
        "title": outcome.title,
        "text": outcome.text,
        "scale": scale,
        "verdicts": [verdict.to_dict() for verdict in outcome.verdicts],
        "pictures": [{"name": picture.name, "caption": picture.caption} for picture in outcome.pictures],
        "shown": list(outcome.shown),
        "settings": outcome.settings,
        **origin,
    }
    write_text(folder / "verdict.json", json.dumps(document, indent=2) + "\n")
