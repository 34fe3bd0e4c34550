"""The order, scale and sign in which a factorization is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icofactor.factorization.schemes.base import Scheme


@dataclass(frozen=True, eq=False)
class Canonical:
    """A factorization in canonical order and scale."""

    components: np.ndarray
    loadings: np.ndarray
    scale: np.ndarray
    variance: np.ndarray


def canonical(W: np.ndarray, C: np.ndarray, scheme: Scheme) -> Canonical:
    """Components by falling explained variance; loadings of root mean square 1, unless the scheme fixes their scale;
    where signs are free, the one that makes the map mostly positive."""
    variance = np.einsum("ij,ij->j", W, W) * ((C - C.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    order = np.argsort(-variance, kind="stable")
    rms = np.sqrt((C**2).mean(axis=1))
    scale = np.ones(len(C)) if scheme.projective else np.where(rms > 0, rms, 1.0)
    if scheme.signed:
        scale = np.where([float(w @ np.abs(w)) < 0 for w in W.T], -scale, scale)
    components = np.empty((len(C), len(W)))
    for row, j in enumerate(order):  # one copy, not one per operation
        np.multiply(W[:, j], scale[j], out=components[row])
    scale = scale[order]
    return Canonical(components, C[order].T / scale, scale, variance[order])
