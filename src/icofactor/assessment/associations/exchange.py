"""Permutation tests: one loop over orders of the rows, in which rows change places as groups allow.

Freedman and Lane permute the residuals of the model without the tested term, and compute the
statistic of the complete model anew. With groups, the rows are whitened first, and permutations
keep groups together as PALM's exchangeability blocks do: whole groups change places with groups of
the same size, rows change places within their group. Both leave the covariance of a random
intercept as it is. A term that is constant within groups is tested by whole groups only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import null_space

from icofactor.assessment.associations.regression import Groups, Regression
from icofactor.errors import ArgumentError

# Orders of rows that are drawn together: at most so many, and so many bytes of them. The random
# numbers depend on both.
_BATCH = 500
_BATCH_BYTES = 2**24

# Permutations that must exist for p-values to mean anything.
_MIN_PERMUTATIONS = 100

# A permutation that changes nothing gives the same number but for rounding.
_TIE = 1 - 1e-9

# (n_orders, n_rows) orders of the rows → (n_orders, ...) values of a statistic.
Statistic = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Exchange:
    """Which rows may change places.

    Attributes
    ----------
    n : number of rows.
    groups : None when all rows may.
    within : whether rows of a group change places, besides whole groups of equal size.
    """

    n: int
    groups: Groups | None = None
    within: bool = True

    @classmethod
    def testing(
        cls,
        values: np.ndarray,
        groups: Groups | None,
    ) -> Exchange:
        """Return the exchange that tests these columns: by whole groups if they are constant."""
        return cls(len(values), groups, groups is None or not groups.constant(values))

    @cached_property
    def _rows_by_size(self) -> list[np.ndarray]:
        """For each size of groups, their rows: n_groups × size."""
        if self.groups is None:
            return [np.arange(self.n)[:, None]]
        codes = self.groups.codes
        size_of_row = self.groups.sizes[codes]
        order = np.argsort(codes, kind="stable")
        # Only groups of the same size can change places.
        sizes = np.unique(self.groups.sizes)
        return [order[size_of_row[order] == size].reshape(-1, size) for size in sizes]

    @property
    def log_count(self) -> float:
        """Logarithm of the number of permutations."""
        return sum(
            math.lgamma(len(rows) + 1) + self.within * len(rows) * math.lgamma(rows.shape[1] + 1)
            for rows in self._rows_by_size
        )

    @property
    def enough(self) -> bool:
        """Whether as many permutations exist as p-values need."""
        return self.log_count >= math.log(_MIN_PERMUTATIONS)

    def check(self, name: str) -> None:
        """Refuse a test, of a term of this name, that has too few permutations."""
        if not self.enough:
            raise ArgumentError(
                "groups",
                f"{name} differs only between groups, too few of which are equally large to be "
                "exchanged: use as many rows of each group, or test by theory alone with "
                "--permutations 0 (n_permutations=0)",
            )

    def draw(
        self,
        n_permutations: int,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Return (n_permutations, n) rows that take the places of 0 … n − 1."""
        orders = np.empty((n_permutations, self.n), dtype=np.intp)
        for rows in self._rows_by_size:
            n_groups, size = rows.shape
            groups = rng.permuted(np.tile(np.arange(n_groups), (n_permutations, 1)), axis=1)
            drawn = rows[groups]
            if self.within and size > 1:
                drawn = rng.permuted(drawn, axis=2)
            orders[:, rows.reshape(-1)] = drawn.reshape(n_permutations, -1)
        return orders

    def batches(
        self,
        n_permutations: int,
        seed: int,
    ) -> Iterator[np.ndarray]:
        """Yield the permutations in batches; the same ones for every statistic."""
        size = max(1, min(_BATCH, _BATCH_BYTES // (8 * self.n)))
        for number, first in enumerate(range(0, n_permutations, size)):
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
            yield self.draw(min(size, n_permutations - first), rng)

    def __str__(self) -> str:
        if self.groups is None:
            return "rows"
        groups = "whole groups"
        if len(self._rows_by_size) > 1:
            groups += " of equal size"
        return f"{groups}, and rows within groups" if self.within else groups


def permuted(
    statistic: Statistic,
    exchange: Exchange,
    n_permutations: int,
    seed: int,
) -> np.ndarray:
    """Return (n_permutations, ...) values of a statistic over permutations of the rows."""
    batches = exchange.batches(n_permutations, seed)
    return np.concatenate([statistic(orders) for orders in batches])


def freedman_lane(
    fit: Regression,
    L: np.ndarray,
) -> Statistic:
    """Return the F statistic of L β = 0 by Freedman and Lane, of every outcome.

    It is NaN for an outcome without variance.
    """
    n_rows, n_columns = fit.X.shape
    n_tested = len(L)
    n_reduced = n_columns - n_tested
    columns_of_reduced = null_space(L)
    outcomes = []
    for outcome in range(fit.Y.shape[1]):
        X, y = fit.whitened(outcome)
        Q = _basis(X @ columns_of_reduced, X)
        residual = y - Q[:, :n_reduced] @ (Q[:, :n_reduced].T @ y)
        outcomes.append((Q, residual))

    def statistic(orders: np.ndarray) -> np.ndarray:
        F = np.full((len(orders), len(outcomes)), np.nan)
        for outcome in np.flatnonzero(fit.variance > 0).tolist():
            # Sums of squares along an orthonormal basis: no fit is made per permutation.
            Q, residual = outcomes[outcome]
            total = float(residual @ residual)
            squares = (residual[orders] @ Q) ** 2
            explained = squares[:, n_reduced:].sum(axis=1)
            unexplained = total - squares[:, :n_reduced].sum(axis=1) - explained
            # Rounding must not make a perfect fit better than perfect.
            unexplained = np.maximum(unexplained, 1e-15 * total)
            F[:, outcome] = (explained / n_tested) / (unexplained / (n_rows - n_columns))
        return F

    return statistic


def _basis(
    Z: np.ndarray,
    X: np.ndarray,
) -> np.ndarray:
    """Return orthonormal columns: those of the span of Z, then those of X beyond it."""
    basis = Z
    if Z.shape[1]:
        basis, _ = np.linalg.qr(Z / np.linalg.norm(Z, axis=0))
    scaled = X / np.linalg.norm(X, axis=0)
    left_vectors, _, _ = np.linalg.svd(scaled - basis @ (basis.T @ scaled), full_matrices=False)
    beyond = left_vectors[:, : X.shape[1] - Z.shape[1]]
    return np.hstack([basis, beyond - basis @ (basis.T @ beyond)])


def largest(values: np.ndarray) -> np.ndarray:
    """Return the largest statistic of each permutation, over outcomes that have one."""
    return np.where(np.isnan(values), -np.inf, values).max(axis=1)


def p_of(
    observed: np.ndarray,
    null: np.ndarray,
) -> np.ndarray:
    """Return how often permutations reach what was observed, counting the observed order as one.

    Parameters
    ----------
    observed : (m,)
    null : (n_permutations, m), or (n_permutations,) for the largest of each.
    """
    columns = null if null.ndim == 2 else null[:, None]
    p = (1 + (columns >= observed * _TIE).sum(axis=0)) / (1 + len(null))
    return np.where(np.isfinite(observed), p, np.nan)
