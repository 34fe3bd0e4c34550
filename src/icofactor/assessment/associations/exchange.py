"""Permutation tests of regressions: Freedman-Lane, rows exchanged as their groups allow.

Residuals of the model without the tested term are permuted, and the statistic of the whole model is
computed anew.
With groups, the rows are whitened first, and permutations keep groups together as PALM's
exchangeability blocks do: whole groups change places with groups of the same size, rows change
places within their group. Both leave the covariance of a random intercept as it is. A term that is
constant within groups is tested by whole groups only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import null_space

from icofactor.assessment.associations.regression import Groups, Regression

_BATCH_BYTES = 2**24
_LEAST = 100
"""Permutations that must exist for p-values to mean anything."""
_TIE = 1 - 1e-9
"""A permutation that changes nothing gives the same number but for rounding."""


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

    @cached_property
    def _classes(self) -> list[np.ndarray]:
        """Of each size of groups: (n_groups, size) their rows."""
        if self.groups is None:
            return [np.arange(self.n)[:, None]]
        order, codes, sizes = (
            np.argsort(self.groups.codes, kind="stable"),
            self.groups.codes,
            self.groups.sizes,
        )
        return [order[(sizes == size)[codes[order]]].reshape(-1, size) for size in np.unique(sizes)]

    @property
    def log_count(self) -> float:
        """Logarithm of the number of permutations."""
        return sum(
            math.lgamma(len(rows) + 1) + self.within * len(rows) * math.lgamma(rows.shape[1] + 1)
            for rows in self._classes
        )

    @property
    def enough(self) -> bool:
        """Whether as many permutations exist as p-values need."""
        return self.log_count >= math.log(_LEAST)

    def draw(self, n_permutations: int, rng: np.random.Generator) -> np.ndarray:
        """(n_permutations, n) rows that take the places of 0 … n − 1."""
        found = np.empty((n_permutations, self.n), dtype=np.intp)
        for rows in self._classes:
            n_groups, size = rows.shape
            order = rng.permuted(np.tile(np.arange(n_groups), (n_permutations, 1)), axis=1)
            drawn = rows[order]
            if self.within and size > 1:
                drawn = rng.permuted(drawn, axis=2)
            found[:, rows.reshape(-1)] = drawn.reshape(n_permutations, -1)
        return found

    def batches(self, n_permutations: int, seed: int) -> Iterator[np.ndarray]:
        """The permutations, some at a time; the same whatever is done with them."""
        size = max(1, min(500, _BATCH_BYTES // (8 * self.n)))
        for number, first in enumerate(range(0, n_permutations, size)):
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
            yield self.draw(min(size, n_permutations - first), rng)

    def __str__(self) -> str:
        if self.groups is None:
            return "rows"
        equal = len(self._classes) == 1
        whole = "whole groups" if equal else "whole groups of equal size"
        return f"{whole}, and rows within groups" if self.within else whole


def permuted_F(
    fit: Regression, L: np.ndarray, exchange: Exchange, n_permutations: int, seed: int
) -> np.ndarray:
    """(n_permutations, n_outcomes) statistics of L β = 0 by Freedman and Lane; NaN for an outcome
    without variance.
    """
    (n, p), q = fit.X.shape, len(L)
    free = null_space(L)
    prepared = []
    for j in range(fit.Y.shape[1]):
        X, y = fit.whitened(j)
        Z = X @ free
        Q = _basis(Z, X)
        residual = y - Q[:, : p - q] @ (Q[:, : p - q].T @ y)
        prepared.append((Q, residual, float(residual @ residual)))
    found, first = np.full((n_permutations, len(prepared)), np.nan), 0
    for rows in exchange.batches(n_permutations, seed):
        here = slice(first, first + len(rows))
        for j, (Q, residual, total) in enumerate(prepared):
            if fit.variance[j] > 0:
                squares = (residual[rows] @ Q) ** 2
                explained = squares[:, p - q :].sum(axis=1)
                left = total - squares[:, : p - q].sum(axis=1) - explained
                found[here, j] = (explained / q) / (np.maximum(left, 1e-15 * total) / (n - p))
        first += len(rows)
    return found


def _basis(Z: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Orthonormal columns: those of Z, then the rest of the span of X."""
    first = np.linalg.qr(Z / np.linalg.norm(Z, axis=0))[0] if Z.shape[1] else Z
    scaled = X / np.linalg.norm(X, axis=0)
    rest = scaled - first @ (first.T @ scaled)
    left, _, _ = np.linalg.svd(rest, full_matrices=False)
    second = left[:, : X.shape[1] - Z.shape[1]]
    return np.hstack([first, second - first @ (first.T @ second)])


def p_of(found: np.ndarray, permuted: np.ndarray) -> np.ndarray:
    """How often permutations reach what was found; the order as it is counts as one.

    Parameters
    ----------
    found : (m,)
    permuted : (n_permutations, m), or (n_permutations,) for the largest of each.
    """
    theirs = permuted if permuted.ndim == 2 else permuted[:, None]
    p = (1 + (theirs >= found * _TIE).sum(axis=0)) / (1 + len(permuted))
    return np.where(np.isfinite(found), p, np.nan)
