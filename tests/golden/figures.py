"""Kinds of figures that golden tests pin, how they are stored, and how far they may move.

A case returns {name: figure}. `stored` gives what `expected.json` holds of a figure, `difference` says how far a figure
is from what is stored, as a share of what its tolerance allows: above 1 the test fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

# Long rows are stored as their products with so many fixed random directions: a change anywhere in a row shows.
N_DIRECTIONS = 8
# Arrays up to this size are stored as they are.
SHORT = 24


@dataclass(frozen=True)
class Number:
    """One number; `tolerance` is relative."""

    value: float
    tolerance: float = 1e-4

    def stored(self) -> float:
        return rounded(self.value)

    def difference(self, expected: float) -> float:
        if np.isnan(expected):
            return 0.0 if np.isnan(self.value) else np.inf
        return float(abs(self.value - expected)) / (self.tolerance * max(abs(expected), 1e-300))


@dataclass(frozen=True)
class Objective(Number):
    """The value of an objective or of a squared error."""

    tolerance: float = 1e-6


@dataclass(frozen=True)
class AtMost:
    """An error that may fall, but may not exceed `factor` times the pinned one."""

    value: float
    factor: float = 1.002

    def stored(self) -> float:
        return rounded(self.value)

    def difference(self, expected: float) -> float:
        return self.value / (expected * self.factor)


@dataclass(frozen=True)
class Exactly:
    """A count, a name or a list of them."""

    value: Any

    def stored(self) -> Any:
        return self.value

    def difference(self, expected: Any) -> float:
        return 0.0 if self.value == expected else np.inf


@dataclass(frozen=True, eq=False)
class Values:
    """An array of any shape; `tolerance` is relative to the norm of each row."""

    values: Any
    tolerance: float = 1e-4

    def stored(self) -> list[Any]:
        return rows_stored(np.asarray(self.values, dtype=float))

    def difference(self, expected: list[Any]) -> float:
        return largest_difference(np.array(self.stored()), np.array(expected), self.tolerance)


@dataclass(frozen=True, eq=False)
class Factors:
    """Maps (components × sites) and loadings (subjects × components), whatever their order and their signs."""

    maps: Any
    loadings: Any
    tolerance: float = 1e-4

    def stored(self) -> dict[str, list[Any]]:
        return {
            "maps": rows_stored(np.asarray(self.maps, dtype=float), always=True),
            "loadings": rows_stored(np.asarray(self.loadings, dtype=float).T, always=True),
        }

    def difference(self, expected: dict[str, list[Any]]) -> float:
        mine = {name: np.array(rows) for name, rows in self.stored().items()}
        pinned = {name: np.array(rows) for name, rows in expected.items()}
        similarity = unit_rows(mine["maps"]) @ unit_rows(pinned["maps"]).T
        rows, partners = linear_sum_assignment(-np.abs(similarity))
        signs = np.sign(similarity[rows, partners])[:, None]
        return max(
            largest_difference(signs * mine[name][rows], pinned[name][partners], self.tolerance)
            for name in mine
        )


Figure = Number | AtMost | Exactly | Values | Factors


def rounded(value: float) -> float:
    """Return a number with nine digits: enough for the smallest tolerance."""
    return float(f"{value:.9g}")


def rows_stored(values: np.ndarray, always: bool = False) -> list[Any]:
    """Return the rows of an array, or their products with fixed random directions where they are long.

    Missing values count as zeros, and how many a row has is appended to it.
    """
    table = np.atleast_2d(values)
    if table.size > SHORT or always:
        # RandomState, because its numbers never change between versions of NumPy.
        directions = np.random.RandomState(table.shape[1]).standard_normal(
            (table.shape[1], N_DIRECTIONS)
        )
        missing = np.isnan(table)
        products = np.where(missing, 0.0, table) @ directions / np.sqrt(table.shape[1])
        table = np.column_stack([products, missing.sum(axis=1)])
    return [[rounded(value) for value in row] for row in table]


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Return rows of length 1; rows of zeros stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def largest_difference(rows: np.ndarray, expected: np.ndarray, tolerance: float) -> float:
    """Return the largest distance of two rows, relative to the expected one and as a share of the tolerance."""
    if rows.shape != expected.shape or not np.array_equal(np.isnan(rows), np.isnan(expected)):
        return np.inf
    distances = np.linalg.norm(np.nan_to_num(rows - expected), axis=1)
    lengths = np.linalg.norm(np.nan_to_num(expected), axis=1)
    return float((distances / (tolerance * np.maximum(lengths, 1e-300))).max())
