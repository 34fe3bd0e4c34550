"""Smoothing along the surface by a geodesic Gaussian, as Workbench's `-metric-smoothing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from icofactor.checks import OneOf, check_value
from icofactor.errors import ArgumentError, shown
from icofactor.preprocessing.transformers import SparseWeights, WeightsTransformer, inverse, scaled
from icofactor.sphere.surfaces import Surface, as_roi, as_surface, vertex_areas
from icofactor.sphere.triangles import Floats

METHODS = ("area", "equal", "plain")
FWHM_PER_SIGMA = float(np.sqrt(8 * np.log(2)))
# The kernel ends at this distance, in standard deviations, as in Workbench.
CUTOFF = 3.0
# Vertices that a kernel of "plain" needs, as in Workbench; the others need as many as a vertex and
# its neighbours.
LEAST_PLAIN = 7


class SurfaceSmoother(WeightsTransformer):
    """Smooth maps (subjects × vertices) along a surface.

    A scikit-learn transformer that needs no data to fit; ``SurfaceSmoother(...)(maps)`` is the same
    as `transform`.

    Parameters
    ----------
    surface : path, pair (coordinates, faces), or object with these attributes
        Anatomical surface in mm, usually midthickness; a .surf.gii file or FreeSurfer's.
    fwhm, sigma : float
        Width of the Gaussian in mm, as full width at half maximum or standard deviation; give one
        of them.
    method : {"area", "equal", "plain"}, default="area"
        GEO_GAUSS_AREA (weights vertices by area), GEO_GAUSS_EQUAL (each vertex spreads the same
        total) or GEO_GAUSS (weighted mean around each vertex) of Workbench.
    roi : array or path, optional
        Vertices (> 0) to smooth within. Outside, data are not used and the result is 0.

    Examples
    --------
    >>> import icofactor as ico
    >>> import numpy as np
    >>> from icofactor.preprocessing import SurfaceSmoother
    >>> sphere = ico.Sites.named("fsaverage3")
    >>> smoother = SurfaceSmoother((100 * sphere.coordinates, sphere.triangles), fwhm=20)
    >>> maps = np.random.default_rng(0).random((2, 642))
    >>> bool(smoother(maps).std() < maps.std())
    True
    """

    _source = "the surface"

    def __init__(
        self,
        surface: Any,
        fwhm: float | None = None,
        sigma: float | None = None,
        method: str = "area",
        roi: Any = None,
    ) -> None:
        self.surface = surface
        self.fwhm = fwhm
        self.sigma = sigma
        self.method = method
        self.roi = roi

    @property
    def weights(self) -> sparse.csr_array:
        """Sparse (n_vertices, n_vertices) matrix; rows sum to 1, or to 0 outside the roi."""
        return self._weights().product

    def _weights(self) -> SparseWeights:
        if "_built" not in self.__dict__:
            surface = as_surface(self.surface, "surface")
            sigma = sigma_of(self.fwhm, self.sigma)
            self._built = smoothing_weights(surface, sigma, self.method, as_roi(self.roi, surface))
        return self._built


def smooth_surface(
    maps: ArrayLike,
    coordinates: ArrayLike,
    faces: ArrayLike,
    *,
    fwhm: float | None = None,
    sigma: float | None = None,
    method: str = "area",
    roi: Any = None,
) -> NDArray[Any]:
    """Smooth one map (n_vertices,) or several (n_maps, n_vertices).

    The parameters are those of `SurfaceSmoother`.

    Examples
    --------
    >>> import icofactor as ico
    >>> from icofactor.preprocessing import smooth_surface
    >>> sphere = ico.Sites.named("fsaverage3")
    >>> surface = 100 * sphere.coordinates, sphere.triangles
    >>> smooth_surface(sphere.coordinates.T, *surface, fwhm=20).shape
    (3, 642)
    """
    return SurfaceSmoother((coordinates, faces), fwhm, sigma, method, roi).transform(maps)


def sigma_of(fwhm: float | None, sigma: float | None) -> float:
    """Return the standard deviation in mm from the full width at half maximum, or as it is."""
    name, width = ("fwhm", fwhm) if sigma is None else ("sigma", sigma)
    is_number = isinstance(width, int | float | np.number)
    is_width = is_number and np.isfinite(width) and width > 0  # type: ignore[operator,arg-type]
    if not is_width or None not in (fwhm, sigma):
        text = "must be a positive number of mm, and fwhm and sigma not both; found"
        raise ArgumentError("fwhm" if fwhm is not None else name, f"{text} {shown(width)}")
    assert width is not None
    return float(width) / FWHM_PER_SIGMA if sigma is None else float(width)


def smoothing_weights(
    surface: Surface, sigma: float, method: str = "area", roi: NDArray[np.bool_] | None = None
) -> SparseWeights:
    """Return the weights of `SurfaceSmoother`, with sigma in mm."""
    check_value("method", method, OneOf(METHODS))
    least = LEAST_PLAIN if method == "plain" else None
    kernel, is_symmetric = _kernel(surface, sigma, least)
    targets = np.ones(surface.n)
    sources = np.ones(surface.n)
    if method != "plain":
        areas = np.ones(surface.n)
        if method == "area":
            areas = vertex_areas(surface.coordinates, surface.faces)
        # A vertex sends to another in proportion to the area of that one, and in all its own area.
        # The area of the receiver then cancels, because its weights are scaled to a sum of 1.
        sources = areas * inverse(_row_sums(kernel, areas))
        targets[areas == 0] = 0
        if not is_symmetric:
            kernel = [sparse.csr_array(sparse.vstack(kernel).T)]
    if roi is not None:
        sources[~roi] = 0
        targets[~roi] = 0
    targets *= inverse(_row_sums(kernel, sources))
    return SparseWeights(kernel, targets, sources)


def _row_sums(kernel: Sequence[sparse.csr_array], columns: NDArray[np.float64]) -> Floats:
    """Return the sums of the rows of a kernel, each column times its factor."""
    return (SparseWeights(kernel) @ columns[:, None])[:, 0]


def _kernel(
    surface: Surface, sigma: float, least: int | None
) -> tuple[list[sparse.csr_array], bool]:
    """Return blocks of rows of exp(−d²/2σ²), d the distance of a vertex (row) to those within 3 σ.

    A vertex with fewer vertices than `least` (None: one more than its neighbours) takes itself and
    its neighbours instead, however far they are; the second value is whether there is none.
    """
    # Loads numba, which takes a while.
    from icofactor.sphere.geodesics import distances_within, surface_graph

    steps, edges = surface_graph(surface.coordinates, surface.faces)
    n_needed = 1 + np.diff(edges.indptr) if least is None else np.full(surface.n, least)
    ring = edges.copy()
    ring.data = _gaussian(ring.data, sigma)
    ring = sparse.csr_array(ring + sparse.eye_array(surface.n))
    blocks = []
    is_symmetric = True
    first = 0
    for counts, columns, distances in distances_within(steps, CUTOFF * sigma):
        rows = slice(first, first + len(counts))
        first += len(counts)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        # Single precision halves the memory; weights are scaled to a sum of 1 in double precision.
        values = _gaussian(distances, sigma).astype(np.float32)
        block = sparse.csr_array((values, columns, indptr), shape=(len(counts), surface.n))
        is_small = counts < n_needed[rows]
        if is_small.any():
            is_symmetric = False
            block = sparse.csr_array(scaled(block, ~is_small) + scaled(ring[rows], is_small))
        blocks.append(block)
    return blocks, is_symmetric


def _gaussian(distances: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Return the Gaussian of distances, 1 at distance 0."""
    return np.exp(-0.5 * (distances / sigma) ** 2)
