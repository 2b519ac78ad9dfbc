"""An aggregator of one's own that answers what no step can be made of: one line, and nothing is stored half done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from afedpg import train
from afedpg.engine import virtual
from afedpg.errors import AfedpgError, BrokenPart, ConfigError
from afedpg.record import checkpoint
from afedpg.record.folder import RunFolder
from afedpg.server.aggregators import Aggregator, Keep, Use


@dataclass(frozen=True)
class Short(Aggregator):
    def take(self, given, memory, here):
        return Use(given.vector[:-1], (given,)) if here.iteration == 3 else Use(given.vector, (given,))


@dataclass(frozen=True)
class Nobody(Aggregator):
    def take(self, given, memory, here):
        return Use(given.vector, ())


@dataclass(frozen=True)
class Silent(Aggregator):
    def take(self, given, memory, here):
        return None


@dataclass(frozen=True)
class Hoard(Aggregator):
    def take(self, given, memory, here):
        return Keep()


@pytest.mark.parametrize(
    ("aggregator", "said"),
    [(Short(), "a direction of 3 numbers, theta has 4"), (Nobody(), "0 reports"), (Silent(), "answered None")],
    ids=lambda part: type(part).__name__ if isinstance(part, Aggregator) else "",
)
def test_an_answer_that_is_none(tmp_path: Path, aggregator: Aggregator, said: str) -> None:
    with pytest.raises(AfedpgError, match=said) as caught:
        train("lq-bandit", agents=2, iterations=5, aggregator=aggregator, out=tmp_path / "run")
    assert isinstance(caught.value.__cause__, BrokenPart)
    folder = RunFolder(tmp_path / "run")
    assert checkpoint.names(folder.checkpoints) == [0]  # the one from the start: what was left half done is not stored


def test_one_that_keeps_everything_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "MOST_KEPT", 20)
    with pytest.raises(AfedpgError, match="made no step of the last 41 events"):
        train("lq-bandit", agents=2, iterations=5, aggregator=Hoard())


def test_one_that_does_not_say_what_it_takes(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("from afedpg.server.aggregators import Aggregator\n\n\nclass Empty(Aggregator):\n    pass\n")
    with pytest.raises(ConfigError, match="aggregator: Empty does not define take"):
        train("lq-bandit", agents=2, iterations=5, aggregator=f"{file}:Empty")
