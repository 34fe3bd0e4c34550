"""The unit in which data are factorized, and the order, scale and sign in which a factorization is
reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from icofactor.factorization.schemes.base import Scheme
from icofactor.factorization.statistics import Statistics


@dataclass(frozen=True, eq=False)
class Canonical:
    """A factorization in canonical order and scale.

    Attributes
    ----------
    order : which column of W, and row of C, each component was
    """

    components: np.ndarray
    loadings: np.ndarray
    scale: np.ndarray
    variance: np.ndarray
    order: np.ndarray

    def times(self, factor: float) -> Canonical:
        """The same of X times a number; not for projective schemes."""
        self.components[:] *= factor  # as large as the basis
        return replace(
            self, scale=self.scale * math.sqrt(factor), variance=self.variance * factor**2
        )


def unit_of(stats: Statistics, scheme: Scheme, rules: str, penalty: str | float) -> float:
    """By what power of two X is divided for the fit: X and X times a power of two then give the
    same bits.

    1 for thickness in mm. Paper rules and penalties given as numbers are literal, and projective
    updates scale exactly by themselves.
    """
    relative = rules != "paper" and isinstance(penalty, str) and not scheme.projective
    return (
        2.0 ** round(math.log2(stats.scale)) if relative and 0 < stats.sq_norm < math.inf else 1.0
    )


def loading_size(C: np.ndarray) -> np.ndarray:
    """Root mean square over subjects of the loadings C, components × subjects."""
    return np.asarray(np.sqrt((C**2).mean(axis=1)))


def map_signs(W: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """The signs that make the maps, columns of W, mostly positive; `weights` of the rows, if any."""
    heavy = W if weights is None else W * weights[:, None]
    return np.array(
        [-1.0 if float(w @ np.abs(own)) < 0 else 1.0 for w, own in zip(heavy.T, W.T, strict=True)]
    )


def scale_of(
    W: np.ndarray, C: np.ndarray, scheme: Scheme, weights: np.ndarray | None = None
) -> np.ndarray:
    """By what maps are multiplied, and loadings divided, to be reported.

    Loadings get a root mean square of 1, unless the scheme fixes their scale; where a map and its
    loadings may both change sign, the one that makes the map mostly positive.
    """
    size = loading_size(C)
    # loadings that are rounding beside the others' belong to a component that died: scaled to 1
    # they would look real
    alive = size > 1e-9 * size.max(initial=0.0)
    scale = np.where(alive, size, 1.0) if scheme.scaled else np.ones(len(C))
    return scale * map_signs(W, weights) if scheme.signed_maps and scheme.signed_loadings else scale


def spread_of(C: np.ndarray, codes: np.ndarray | None = None) -> np.ndarray:
    """Σ over subjects of (c − mean)² of loadings, components × subjects; `codes`: which of them
    share a mean.
    """
    if codes is not None:
        return np.sum([spread_of(C[:, codes == code]) for code in np.unique(codes)], axis=0)
    return np.asarray(((C - C.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))


def canonical(
    W: np.ndarray,
    C: np.ndarray,
    scheme: Scheme,
    weights: np.ndarray | None = None,
    codes: np.ndarray | None = None,
) -> Canonical:
    """Components by falling explained variance, at the scale of `scale_of`.

    Parameters
    ----------
    weights : of the sites, if any
    codes : as in `spread_of`
    """
    squares = (
        np.einsum("ij,ij->j", W, W) if weights is None else np.einsum("ij,ij,i->j", W, W, weights)
    )
    variance = squares * spread_of(C, codes)
    order = np.argsort(-variance, kind="stable")
    scale = scale_of(W, C, scheme, weights)
    components = np.empty((len(C), len(W)))
    for row, j in enumerate(order):  # one copy, not one per operation
        np.multiply(W[:, j], scale[j], out=components[row])
    scale = scale[order]
    return Canonical(components, C[order].T / scale, scale, variance[order], order)
