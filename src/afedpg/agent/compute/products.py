"""Matrix products and transposes of any number of rows, made of blocks. Columns come in sixteens, padded with zeros."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.compute.blocks import (
    COLUMNS,
    ROWS,
    four_rows,
    one_row,
    transpose_block,
    two_rows,
    whole_block,
)
from afedpg.compiled import inner_jit

Flat = NDArray[np.float32]


class Matrix(NamedTuple):
    """A matrix in a flat array: element (i, j) lies at `at + i row + j column`."""

    data: Flat
    at: int
    row: int
    column: int = 1


@inner_jit
def multiply(a: Matrix, b: Matrix, start: Matrix, c: Matrix, rows: int, columns: int, depth: int) -> None:
    """c = start + a b. `start` may be c itself; with row distance 0 it is one row that is added to all. b, start and c
    have neighbouring columns, and as many of them as the next multiple of 16."""
    for n in range(0, columns, COLUMNS):
        b_at, s_at, c_at = b.at + n, start.at + n, c.at + n
        m = 0
        while m + ROWS <= rows:
            whole_block(
                a.data, a.at + m * a.row, a.row, a.column, b.data, b_at, b.row,
                start.data, s_at + m * start.row, start.row, c.data, c_at + m * c.row, c.row, depth,
            )  # fmt: skip
            m += ROWS
        if m + 4 <= rows:
            four_rows(
                a.data, a.at + m * a.row, a.row, a.column, b.data, b_at, b.row,
                start.data, s_at + m * start.row, start.row, c.data, c_at + m * c.row, c.row, depth,
            )  # fmt: skip
            m += 4
        if m + 2 <= rows:
            two_rows(
                a.data, a.at + m * a.row, a.row, a.column, b.data, b_at, b.row,
                start.data, s_at + m * start.row, start.row, c.data, c_at + m * c.row, c.row, depth,
            )  # fmt: skip
            m += 2
        if m < rows:
            one_row(
                a.data, a.at + m * a.row, a.row, a.column, b.data, b_at, b.row,
                start.data, s_at + m * start.row, start.row, c.data, c_at + m * c.row, c.row, depth,
            )  # fmt: skip


@inner_jit
def transpose(a: Matrix, b: Matrix, rows: int, columns: int) -> None:
    """b = a^T, where both have room for the next multiple of 16 rows and columns."""
    for m in range(0, rows, COLUMNS):
        for n in range(0, columns, COLUMNS):
            transpose_block(a.data, a.at + m * a.row + n, a.row, b.data, b.at + n * b.row + m, b.row)
