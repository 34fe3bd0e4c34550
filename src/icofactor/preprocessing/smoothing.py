"""Smoothing maps along the surface by a geodesic Gaussian, as Workbench's `-metric-smoothing` does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from icofactor.checks import OneOf, check_value
from icofactor.errors import ArgumentError
from icofactor.preprocessing.transformers import WeightsTransformer, inverse, scaled, sums
from icofactor.sphere.surfaces import (
    Surface,
    as_roi,
    as_surface,
    distances_within,
    surface_graph,
    vertex_areas,
)

METHODS = ("area", "equal", "plain")
FWHM_PER_SIGMA = float(np.sqrt(8 * np.log(2)))
_CUTOFF = 3.0  # in sigmas
_FEWEST = (
    7  # vertices of a kernel of "plain"; the others need as many as a vertex and its neighbours
)


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
        """Sparse matrix of shape (n_vertices, n_vertices); rows sum to 1, or to 0 outside the roi."""
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
    """Smooth one map (n_vertices,) or several (n_maps, n_vertices); parameters as in
    `SurfaceSmoother`.

    Examples
    --------
    >>> import icofactor as ico
    >>> from icofactor.preprocessing import smooth_surface
    >>> sphere = ico.Sites.named("fsaverage3")
    >>> smooth_surface(sphere.coordinates.T, 100 * sphere.coordinates, sphere.triangles, fwhm=20).shape
    (3, 642)
    """
    return SurfaceSmoother((coordinates, faces), fwhm, sigma, method, roi).transform(maps)


def sigma_of(fwhm: float | None, sigma: float | None) -> float:
    """The standard deviation in mm from whichever of the two was given."""
    if (fwhm is None) == (sigma is None):
        what = f"Give either {{fwhm}} or {{sigma}} in mm; found {{fwhm={fwhm}}}, {{sigma={sigma}}}"
        raise ArgumentError("fwhm", None, what)
    name, width = ("fwhm", fwhm) if sigma is None else ("sigma", sigma)
    if not isinstance(width, int | float | np.number) or not np.isfinite(width) or width <= 0:
        raise ArgumentError(name, width, "a positive number of mm")
    return float(width) / FWHM_PER_SIGMA if sigma is None else float(width)


def smoothing_weights(
    surface: Surface, sigma: float, method: str = "area", roi: NDArray[np.bool_] | None = None
) -> sparse.csr_array:
    """The weights of `SurfaceSmoother`, with sigma in mm."""
    check_value("method", method, OneOf(METHODS))
    kernel = _kernel(surface, sigma, _FEWEST if method == "plain" else None)
    if method == "plain":
        gathered = kernel
    else:
        areas = (
            vertex_areas(surface.coordinates, surface.faces)
            if method == "area"
            else np.ones(surface.n)
        )
        # what vertex i sends to j goes with the area of j, and all that it sends is its own area
        sent = scaled(kernel, columns=areas)
        gathered = sparse.csr_array(scaled(sent, rows=areas * inverse(sums(sent, axis=1))).T)
    if roi is not None:
        gathered = scaled(gathered, roi, roi)
    return scaled(gathered, rows=inverse(sums(gathered, axis=1)))


def _kernel(surface: Surface, sigma: float, fewest: int | None) -> sparse.csr_array:
    """exp(−d²/2σ²) of the distance d from each vertex (row) to those within 3 σ along the surface.

    A vertex that would have fewer than `fewest` (None: one more than its neighbours) takes itself
    and its
    neighbours instead, however far they are.
    """
    steps, edges = surface_graph(surface.coordinates, surface.faces)
    rows, columns, distance = distances_within(steps, surface.coordinates, _CUTOFF * sigma)
    least = 1 + np.diff(edges.indptr) if fewest is None else fewest
    few = np.bincount(rows, minlength=surface.n) < least
    if few.any():
        keep = ~few[rows] | (rows == columns)
        near = edges.tocoo()
        ring = few[near.row]
        rows = np.r_[rows[keep], near.row[ring]]
        columns = np.r_[columns[keep], near.col[ring]]
        distance = np.r_[distance[keep], near.data[ring]]
    values = np.exp(-0.5 * (distance / sigma) ** 2)
    return sparse.csr_array((values, (rows, columns)), shape=(surface.n, surface.n))
