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
    components : n_d × n_sites
    loadings : n_subjects × n_d
    scale : (n_d,) what columns of W were multiplied by, and rows of C divided
    variance : (n_d,) explained variance, summed over subjects and sites
    order : (n_d,) which column of W, and row of C, each component was
    """

    components: np.ndarray
    loadings: np.ndarray
    scale: np.ndarray
    variance: np.ndarray
    order: np.ndarray

    def times(self, factor: float) -> Canonical:
        """Return the factorization of X times a number; not for projective schemes."""
        # In place: components are as large as the basis.
        self.components[:] *= factor
        scale = self.scale * math.sqrt(factor)
        return replace(self, scale=scale, variance=self.variance * factor**2)


def unit_of(
    stats: Statistics,
    scheme: Scheme,
    rules: str,
    penalty: str | float,
) -> float:
    """Return the power of two by which X is divided for the fit; 1 for thickness in mm.

    X and X times a power of two then give the same bits. Paper rules and penalties given as numbers
    are literal, and projective updates scale exactly by themselves.
    """
    literal = rules == "paper" or not isinstance(penalty, str)
    if literal or scheme.projective or not 0 < stats.sq_norm < math.inf:
        return 1.0
    return 2.0 ** round(math.log2(stats.scale))


def loading_size(C: np.ndarray) -> np.ndarray:
    """Return the root mean square over subjects of the loadings C, components × subjects."""
    mean_square = (C**2).mean(axis=1)
    return np.asarray(np.sqrt(mean_square))


def map_signs(W: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the signs that make the maps, columns of W with weighted rows, mostly positive."""
    weighted = W if weights is None else W * weights[:, None]
    pairs = zip(weighted.T, W.T, strict=True)
    energies = [float(w @ np.abs(x)) for w, x in pairs]
    return np.where(np.array(energies) < 0, -1.0, 1.0)


def scale_of(
    W: np.ndarray,
    C: np.ndarray,
    scheme: Scheme,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return what maps are multiplied by, and loadings divided, to be reported.

    Loadings get a root mean square of 1, unless the scheme fixes their scale. If a map and its
    loadings may both change sign, the map gets the sign that makes it mostly positive.
    """
    scale = np.ones(len(C))
    if scheme.scaled:
        size = loading_size(C)
        # Loadings that are rounding beside the others' belong to a component that died: scaled to 1
        # they would look real.
        alive = size > 1e-9 * size.max(initial=0.0)
        scale = np.where(alive, size, scale)
    if scheme.signed_maps and scheme.signed_loadings:
        scale = scale * map_signs(W, weights)
    return scale


def spread_of(deviations: np.ndarray) -> np.ndarray:
    """Return the sum of squares over subjects of deviations, components × subjects."""
    return np.asarray((deviations**2).sum(axis=1))


def canonical(
    W: np.ndarray,
    C: np.ndarray,
    deviations: np.ndarray,
    scheme: Scheme,
    weights: np.ndarray | None = None,
) -> Canonical:
    """Return components by falling explained variance, at the scale of `scale_of`.

    Parameters
    ----------
    W : (n_sites, n_d) basis
    C : (n_d, n_subjects) loadings
    deviations : (n_d, n_subjects) loadings less the mean that the explained variance leaves out
    weights : (n_sites,) weights of the sites; None: all equal
    """
    if weights is None:
        squares = np.einsum("ij,ij->j", W, W)
    else:
        squares = np.einsum("ij,ij,i->j", W, W, weights)
    variance = squares * spread_of(deviations)
    order = np.argsort(-variance, kind="stable")
    scale = scale_of(W, C, scheme, weights)[order]
    components = np.empty((len(C), len(W)))
    # One copy, not one per operation.
    for row, column in enumerate(order):
        np.multiply(W[:, column], scale[row], out=components[row])
    loadings = C[order].T / scale
    return Canonical(components, loadings, scale, variance[order], order)
