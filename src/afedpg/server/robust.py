"""Robust means: what a set of contributions says together when some of them may be lies.

Each takes `rows` [n, parameters], one per agent, and their `weights` [n], of which only the proportions count: a row of
weight 2 is the same as two equal rows. Beside the result nothing of theta's length is allocated; all of it is
deterministic.

    coordinate_median       holds while the liars have less than half of the weight
    trimmed_mean            holds while they have at most `share` of it
    geometric_median        the same half, whichever way the coordinates are turned
    centred_trimmed_mean    CTMA (Dahan and Levy 2024): the mean of the rows nearest to one of the above
    clipped_mean            centred clipping (Karimireddy et al. 2021): nobody moves the centre by more than a radius
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from afedpg.compiled import fast_jit, jit
from afedpg.messages import Floats, Vector

Rows = NDArray[np.float64]  # [n, parameters]

# Sums of weights are off by some 1e-16. Each end is cut by this share of the weight more than was asked for, so that no
# rounding leaves a liar's row, however long, with a remainder of its weight.
_ROUNDING = 1e-12
_MIDDLE = 1e-6  # the median is the mean of this share of the weight on either side of the half
_BLOCK, _SORTED = 1024, 128  # coordinates that are summed and sorted at once: they stay in the processor's first cache


def coordinate_median(rows: Rows, weights: Vector) -> Vector:
    """Per coordinate, the value with half of the weight on either side; between two such values, their mean."""
    return trimmed_mean(rows, weights, 0.5 - _MIDDLE)


def trimmed_mean(rows: Rows, weights: Vector, share: float) -> Vector:
    """Per coordinate, the mean without the lowest and the highest `share` of the weight; a row on the edge counts with
    the part of its weight that is inside.
    """
    _check_share(share)
    result = np.empty(rows.shape[1])
    _trimmed_mean(rows, _shares(rows, weights), share + _ROUNDING, 1 - share - _ROUNDING, result)
    return result


def geometric_median(
    rows: Rows, weights: Vector, smoothing: float = 1e-6, tolerance: float = 1e-6, iterations: int = 64
) -> Vector:
    """The point with the least weighted sum of distances to the rows, by Weiszfeld's iteration.

        z <- sum_i c_i x_i / sum_i c_i,    c_i = w_i / max(|x_i - z|, smoothing * scale)

    It starts at the coordinate-wise median; `scale` is the median distance from there. It ends after `iterations`, or
    once a step is shorter than `tolerance * scale`.
    """
    shares = _shares(rows, weights)
    centre = coordinate_median(rows, shares)
    distances = distances_to(centre, rows)
    scale = float(coordinate_median(distances[:, None], shares)[0])
    if scale == 0:  # half of the weight is in one point, and that point is the minimum
        return centre
    _weiszfeld(rows, shares, centre, smoothing * scale, tolerance * scale, iterations)
    return centre


def centred_trimmed_mean(rows: Rows, weights: Vector, share: float, centre: Vector) -> Vector:
    """The mean of the rows nearest to `centre` that have 1 - share of the weight together; the last one counts with the
    part that completes it. With a robust centre the result is robust, and closer to the mean than the centre is.
    """
    _check_share(share)
    shares = _shares(rows, weights)
    order = np.argsort(distances_to(centre, rows), kind="stable")
    before = np.cumsum(shares[order]) - shares[order]
    kept = np.zeros(len(rows))
    kept[order] = np.clip(1 - share - _ROUNDING - before, 0, shares[order])
    result = np.empty(rows.shape[1])
    _combine(rows, kept / kept.sum(), 0.0, result)
    return result


def clipped_mean(rows: Rows, weights: Vector, centre: Vector, radius: float) -> Vector:
    """c + sum_i w_i clip(x_i - c), where clip shortens what is longer than `radius` to it."""
    factors = [clip_factor(gap, radius) for gap in distances_to(centre, rows)]
    shares = _shares(rows, weights) * np.array(factors)
    result = centre.copy()
    _combine(rows, shares, 1 - shares.sum(), result)
    return result


def clip_factor(distance: float, radius: float) -> float:
    """What shortens a vector of length `distance` to `radius`; 1 where it is no longer."""
    return 1.0 if distance <= radius else radius / distance


@fast_jit
def distance(centre: Vector | Floats, vector: Vector | Floats) -> float:
    """|v - c|."""
    total = 0.0
    for index in range(centre.size):
        gap = np.float64(vector[index]) - np.float64(centre[index])
        total += gap * gap
    return float(np.sqrt(total))


@jit
def distances_to(centre: Vector, rows: Rows) -> Vector:
    """|x_i - c| of every row, [n]."""
    found = np.empty(rows.shape[0])
    for row in range(rows.shape[0]):
        found[row] = distance(centre, rows[row])
    return found


@jit
def middle(values: Vector) -> float:
    """The median of a few numbers."""
    return float(np.median(values))


@jit
def lower_median(values: Vector) -> float:
    """The median of a few numbers; of an even number the lower one of the middle two."""
    place = (values.size - 1) // 2
    return float(np.partition(values, place)[place])


@fast_jit
def shorten(result: Floats, centre: Floats, vector: Vector | Floats, part: float, beta: float) -> float:
    """result = c + part (v - c), then c = (1 - beta) c + beta result: a step of centred clipping in one walk. Returns
    the result's norm.
    """
    total = 0.0
    for index in range(centre.size):
        old = np.float64(centre[index])
        value = (1 - part) * old + part * np.float64(vector[index])
        centre[index] = (1 - beta) * old + beta * value
        result[index] = value
        total += value * value
    return float(np.sqrt(total))


@jit
def _combine(rows: Rows, coefficients: Vector, keep: float, result: Vector) -> float:
    """result = keep result + sum_i c_i x_i; how far that moved it. Only rows with a coefficient are looked at."""
    block = np.empty(_BLOCK)
    moved = 0.0
    for start in range(0, result.size, _BLOCK):
        size = min(_BLOCK, result.size - start)
        for index in range(size):
            block[index] = keep * result[start + index] if keep != 0 else 0.0
        for row in range(coefficients.size):
            if coefficients[row] != 0:
                for index in range(size):
                    block[index] += coefficients[row] * rows[row, start + index]
        for index in range(size):
            gap = block[index] - result[start + index]
            moved += gap * gap
            result[start + index] = block[index]
    return float(np.sqrt(moved))


@jit
def _weiszfeld(rows: Rows, shares: Vector, centre: Vector, nearest: float, enough: float, iterations: int) -> None:
    """Moves `centre`, in place, until a step is shorter than `enough`; no row counts as nearer than `nearest`."""
    for _ in range(iterations):
        coefficients = shares / np.maximum(distances_to(centre, rows), nearest)
        if _combine(rows, coefficients / coefficients.sum(), 0.0, centre) <= enough:
            break


@jit
def _trimmed_mean(rows: Rows, shares: Vector, lowest: float, highest: float, result: Vector) -> None:
    """Per coordinate, the mean of the weight between `lowest` and `highest`, counted from below."""
    agents = shares.size
    values, parts = np.empty((agents, _SORTED)), np.empty((agents, _SORTED))
    below, total, inside = np.empty(_SORTED), np.empty(_SORTED), np.empty(_SORTED)
    for start in range(0, result.size, _SORTED):
        size = min(_SORTED, result.size - start)
        for row in range(agents):
            for index in range(size):
                values[row, index], parts[row, index] = rows[row, start + index], shares[row]
        _sort(values, parts, size)
        below[:], total[:], inside[:] = 0.0, 0.0, 0.0
        for row in range(agents):
            for index in range(size):
                above = below[index] + parts[row, index]
                part = max(0.0, min(above, highest) - max(below[index], lowest))
                total[index] += part * values[row, index]
                inside[index] += part
                below[index] = above
        for index in range(size):
            result[start + index] = total[index] / inside[index]


@jit
def _sort(values: Rows, parts: Rows, columns: int) -> None:
    """Every column by value, and its parts with it: Batcher's odd-even merge sort.

    Which two rows are compared does not depend on the values, so the processor compares several columns at once. That
    is several times as fast as sorting one column after the other.
    """
    agents = values.shape[0]
    sorted_runs = 1
    while sorted_runs < agents:
        gap = sorted_runs
        while gap >= 1:
            for first in range(gap % sorted_runs, agents - gap, 2 * gap):
                for low in range(first, min(first + gap, agents - gap)):
                    if low // (2 * sorted_runs) == (low + gap) // (2 * sorted_runs):
                        _exchange(values[low], values[low + gap], parts[low], parts[low + gap], columns)
            gap //= 2
        sorted_runs *= 2


@jit
def _exchange(low: Vector, high: Vector, low_parts: Vector, high_parts: Vector, columns: int) -> None:
    """Where the lower row has the larger value the two change places."""
    for index in range(columns):
        one, other = low[index], high[index]
        part, other_part = low_parts[index], high_parts[index]
        swap = one > other
        low[index], high[index] = (other, one) if swap else (one, other)
        low_parts[index], high_parts[index] = (other_part, part) if swap else (part, other_part)


def _shares(rows: Rows, weights: Vector) -> Vector:
    """The weights as parts of their sum."""
    total = _total(weights)
    if weights.shape != rows.shape[:1] or not 0 < total < np.inf:
        raise ValueError(f"weights: {weights} of {len(rows)} rows; each must be at least 0, and their sum above 0")
    return weights / total


@jit
def _total(weights: Vector) -> float:
    """Their sum, or -1 where one is negative."""
    total = 0.0
    for weight in weights:
        if weight < 0:
            return -1.0
        total += weight
    return total


def _check_share(share: float) -> None:
    if not 0 <= share < 0.5:
        raise ValueError(f"share: {share} of the weight; must be at least 0 and below one half")
