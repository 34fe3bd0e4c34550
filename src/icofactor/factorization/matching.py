"""Which component of one fit is which of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from icofactor.errors import ArgumentError, Phrase
from icofactor.sphere.parcels import places_of

_SAME_POSITION = 1e-3
"""On the unit sphere; meshes are written with some four decimals."""


@dataclass(frozen=True, eq=False)
class Match:
    """Matched components, the result of `match_components`.

    Attributes
    ----------
    a, b : int arrays
        Numbers of the matched components in the first and second set, in the order of the first.
    similarity : array
        Correlation of each pair of maps.

    Examples
    --------
    >>> import icofactor as ico
    >>> import numpy as np
    >>> maps = np.eye(3, 9)
    >>> match = ico.match_components(maps, maps[[2, 0, 1]])
    >>> match.b.tolist(), round(match.mean, 6)
    ([1, 2, 0], 1.0)
    """

    a: np.ndarray
    b: np.ndarray
    similarity: np.ndarray

    @property
    def mean(self) -> float:
        """Mean correlation of the pairs."""
        return float(self.similarity.mean())


def match_components(a: Any, b: Any, weights: Any = None) -> Match:
    """The pairs of `icofactor.match_components`, of models or arrays; `weights`, one per site, may
    be None.
    """
    maps_a, maps_b = maps_of("a", a), maps_of("b", b)
    taken = sites_taken(a, b)
    maps_b = maps_b[:, taken]
    if maps_a.shape[1] != maps_b.shape[1]:
        raise ArgumentError(
            "b", Phrase(f"{maps_b.shape[1]} and {maps_a.shape[1]}"), "on the same sites as a"
        )
    w = _weights(getattr(a, "weights_", None) if weights is None else weights, maps_a.shape[1])
    for model, where in ((a, slice(None)), (b, taken)):
        mask = getattr(model, "mask_", None)
        w = w if mask is None else w * np.asarray(mask)[where]
    if not w.any():
        raise ArgumentError(
            "b", None, "{a} and {b} have no site in common: where one has data, the other is masked"
        )
    similarity = map_similarity(maps_a, maps_b, w)
    rows, columns = linear_sum_assignment(-similarity)
    return Match(rows, columns, similarity[rows, columns])


def map_similarity(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Correlation of every row of a with every row of b, sites weighted."""
    w = np.asarray(weights, dtype=np.float64)
    return np.asarray(_standardised(a, w) @ _standardised(b, w).T)


def reordered(match: Match, n: int) -> np.ndarray:
    """The components of the second set in the order of the first, `n` of them; −1 where one has no
    partner.
    """
    order = np.full(n, -1, dtype=np.int64)
    order[match.a] = match.b
    return order


def maps_of(name: str, x: Any) -> np.ndarray:
    """Components × sites of a fitted model or an array."""
    if hasattr(x, "fit") and not hasattr(x, "components_"):
        raise ArgumentError(
            name, Phrase("one that is not fitted yet; call fit first"), "a fitted model"
        )
    maps = np.asarray(getattr(x, "components_", x), dtype=np.float64)
    if maps.ndim != 2:
        raise ArgumentError(
            name, Phrase(f"shape {maps.shape}"), "a fitted model or an array of components × sites"
        )
    if not np.isfinite(maps).all():
        raise ArgumentError(name, Phrase("NaN or infinite values"), "finite numbers")
    return maps


def sites_taken(a: Any, b: Any) -> Any:
    """Which site of b stands for each site of a."""
    ours, theirs = getattr(a, "sites_", None), getattr(b, "sites_", None)
    if ours is None or theirs is None:
        return slice(None)
    sides = [getattr(model, "hemi_", None) for model in (a, b)]
    if ours.n_measures != theirs.n_measures:
        found = Phrase(f"{theirs.n_measures} and {ours.n_measures}")
        raise ArgumentError("b", found, "a model with maps of as many measures as {a}")
    if len(ours.frames) != len(theirs.frames) or (None not in sides and sides[0] != sides[1]):
        raise ArgumentError(
            "b", Phrase(f"{_sides(b)} and {_sides(a)}"), "of the same hemispheres as {a}"
        )
    if (ours.regions or theirs.regions) is not None:
        taken = places_of(ours.regions, theirs.regions)
        if taken is None or ours.n_measures != theirs.n_measures:
            expected = "a fit of the same regions as {a}, by name; regions cannot be compared with vertices"
            raise ArgumentError("b", Phrase(f"{theirs!r} and {ours!r}"), expected)
        size = len(theirs.regions.names)
        return np.concatenate([taken + size * measure for measure in range(ours.n_measures)])
    if ours.n == theirs.n and np.allclose(
        ours.coordinates, theirs.coordinates, atol=_SAME_POSITION
    ):
        return slice(None)
    if not all(str(sites.name).startswith("fsaverage") for sites in (ours, theirs)):
        raise ArgumentError(
            "b",
            Phrase(f"{theirs!r} and {ours!r}"),
            "on the same mesh as {a}, or both on fsaverage meshes; resample the maps to one mesh first",
        )
    taken = np.empty(ours.n, dtype=np.int64)
    for half in range(len(ours.frames)):
        mine, other = (
            np.flatnonzero(ours.hemisphere == half),
            np.flatnonzero(theirs.hemisphere == half),
        )
        taken[mine] = other[cKDTree(theirs.coordinates[other]).query(ours.coordinates[mine])[1]]
    return taken


def _sides(model: Any) -> str:
    return str(
        getattr(model, "hemi_", None) or ("both" if model.sites_.n_hemispheres == 2 else "one")
    )


def _weights(weights: Any, n_sites: int) -> np.ndarray:
    if weights is None:
        return np.ones(n_sites)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (n_sites,) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise ArgumentError(
            "weights", Phrase(f"shape {w.shape}"), f"{n_sites} numbers ≥ 0, not all 0, one per site"
        )
    return w


def _standardised(maps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows of weighted mean 0 and length 1, times √weights; constant rows become 0 and match
    nothing.
    """
    centred = (maps - np.average(maps, axis=1, weights=weights)[:, None]) * np.sqrt(weights)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
