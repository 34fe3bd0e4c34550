"""Which component of one fit is which of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from icofactor.errors import ArgumentError
from icofactor.sphere.parcels import places_of
from icofactor.sphere.sites import Sites

# Sites of two meshes are the same if they are this near on the unit sphere; files have some four
# decimals.
_SAME_POSITION = 1e-3


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


def match_components(
    a: Any,
    b: Any,
    weights: Any = None,
) -> Match:
    """Return the pairs of `icofactor.match_components`, of fitted models or arrays."""
    maps_a = maps_of("a", a)
    sites_of_b = matching_sites(a, b)
    maps_b = maps_of("b", b)[:, sites_of_b]
    n_sites = maps_a.shape[1]
    if maps_b.shape[1] != n_sites:
        numbers = f"found {maps_b.shape[1]} and {n_sites} sites"
        raise ArgumentError("b", f"must be on the same sites as a; {numbers}")
    if weights is None:
        weights = getattr(a, "weights_", None)
    w = np.ones(n_sites) if weights is None else _checked_weights(weights, n_sites)
    mask_a = getattr(a, "mask_", None)
    mask_b = getattr(b, "mask_", None)
    if mask_a is not None:
        w = w * np.asarray(mask_a)
    if mask_b is not None:
        w = w * np.asarray(mask_b)[sites_of_b]
    if not w.any():
        message = "has no site in common with a: where one has data, the other is masked"
        raise ArgumentError("b", message)
    similarity = map_similarity(maps_a, maps_b, w)
    rows, columns = linear_sum_assignment(-similarity)
    return Match(rows, columns, similarity[rows, columns])


def map_similarity(
    a: np.ndarray,
    b: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Return the correlation of every row of a with every row of b, sites weighted."""
    w = np.asarray(weights, dtype=np.float64)
    standard_b = _standardised(b, w)
    return np.asarray(_standardised(a, w) @ standard_b.T)


def reordered(match: Match, n: int) -> np.ndarray:
    """Return which component of the second set is which of the `n` of the first; −1 for none."""
    order = np.full(n, -1, dtype=np.int64)
    order[match.a] = match.b
    return order


def maps_of(name: str, x: Any) -> np.ndarray:
    """Return the maps, components × sites, of a fitted model or an array."""
    if hasattr(x, "fit") and not hasattr(x, "components_"):
        raise ArgumentError(name, "is not fitted yet; call fit first")
    maps = np.asarray(getattr(x, "components_", x), dtype=np.float64)
    if maps.ndim != 2:
        message = "must be a fitted model or an array of components × sites"
        raise ArgumentError(name, f"{message}; found shape {maps.shape}")
    if not np.isfinite(maps).all():
        raise ArgumentError(name, "contains NaN or infinite values")
    return maps


def matching_sites(a: Any, b: Any) -> Any:
    """Return which site of model b stands for each site of model a; all in order for arrays."""
    if not hasattr(a, "sites_") or not hasattr(b, "sites_"):
        return slice(None)
    sites_a: Sites = a.sites_
    sites_b: Sites = b.sites_
    both = f"found {_described(b)} and {_described(a)}"
    hemispheres = {getattr(model, "hemi_", None) for model in (a, b)} - {None}
    same_number = len(sites_a.frames) == len(sites_b.frames)
    if not same_number or len(hemispheres) > 1:
        message = "must have the same hemispheres as a, and as many copies of the mesh"
        raise ArgumentError("b", f"{message}; {both}")
    parcels = sites_b.regions
    if parcels is not None or sites_a.regions is not None:
        positions = places_of(sites_a.regions, parcels)
        if parcels is None or positions is None:
            message = (
                "must have the same regions as a, by name, and none can be matched with vertices"
            )
            raise ArgumentError("b", f"{message}; {both}")
        # Copies of the same regions follow each other.
        firsts = np.arange(0, sites_b.n, len(parcels.names))
        return (firsts[:, None] + positions).ravel()
    if sites_a.n == sites_b.n:
        distance = np.abs(sites_a.coordinates - sites_b.coordinates)
        if (distance <= _SAME_POSITION).all():
            return slice(None)
    names = (str(sites_a.name), str(sites_b.name))
    if not all(name.startswith("fsaverage") for name in names):
        message = "must be on the mesh of a, unless both are on fsaverage; resample one first"
        raise ArgumentError("b", f"{message}; {both}")
    return nearest_sites(sites_a, sites_b)


def nearest_sites(sites_a: Sites, sites_b: Sites) -> np.ndarray:
    """Return the site of b that is nearest to each site of a, on the same hemisphere."""
    nearest = np.empty(sites_a.n, dtype=np.int64)
    for hemisphere in np.unique(sites_a.hemisphere):
        rows_a = np.flatnonzero(sites_a.hemisphere == hemisphere)
        rows_b = np.flatnonzero(sites_b.hemisphere == hemisphere)
        tree = cKDTree(sites_b.coordinates[rows_b])
        _, neighbours = tree.query(sites_a.coordinates[rows_a])
        nearest[rows_a] = rows_b[neighbours]
    return nearest


def _described(model: Any) -> str:
    """Return hemispheres and sites of a model as text."""
    return f"{getattr(model, 'hemi_', None) or ''} {model.sites_!r}".strip()


def _checked_weights(weights: Any, n_sites: int) -> np.ndarray:
    """Return weights of sites as an array, if they are such."""
    w = np.asarray(weights, dtype=np.float64)
    is_weight = np.isfinite(w) & (w >= 0)
    if w.shape != (n_sites,) or not is_weight.all() or not w.any():
        message = f"must be {n_sites} numbers ≥ 0, one per site and not all 0"
        raise ArgumentError("weights", f"{message}; found shape {w.shape}")
    return w


def _standardised(maps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return rows of weighted mean 0 and length 1, times √weights.

    Constant rows become 0 and match nothing.
    """
    mean = np.average(maps, axis=1, weights=weights)
    centred = (maps - mean[:, None]) * np.sqrt(weights)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
