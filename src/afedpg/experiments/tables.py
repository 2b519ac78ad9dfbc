"""Data as it is published: columns of plain values, written as CSV with every bit of a float, and read back."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from afedpg.messages import Vector
from afedpg.record.disk import write_text

Value = str | int | float


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def column(self, name: str) -> list[Value]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def numbers(self, name: str) -> Vector:
        return np.array([float(value) for value in self.column(name)])

    def records(self) -> Iterator[dict[str, Value]]:
        for row in self.rows:
            yield dict(zip(self.columns, row, strict=True))

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_word(value) for value in row] for row in self.rows)
        return text.getvalue()

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, self.to_csv())


def table(columns: str, rows: Iterable[Sequence[Any]]) -> Table:
    """`columns` as one string of names; numpy's numbers become Python's."""
    return Table(tuple(columns.split()), tuple(tuple(_plain(value) for value in row) for row in rows))


def read(path: Path) -> Table:
    """What `Table.write` wrote, with the same bits."""
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    return Table(tuple(header), tuple(tuple(_value(word) for word in row) for row in rows))


def _plain(value: Any) -> Value:
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain


def _word(value: Value) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _value(word: str) -> Value:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
