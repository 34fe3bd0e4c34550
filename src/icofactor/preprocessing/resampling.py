"""Resampling of maps between registered spherical meshes, as by Workbench's `-metric-resample`.

Barycentric: a target vertex takes the three corners of the source triangle it lies in. Adaptive
(ADAP_BARY_AREA): where the target mesh is coarser, a target vertex takes every source vertex that
lies in the triangles around it, and each source vertex is spread over the targets in proportion to
its area, so that no data are lost.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from icofactor.checks import OneOf, check_value
from icofactor.errors import ArgumentError, FileError, shown
from icofactor.io.records import Form, Numbers
from icofactor.preprocessing.templates import find_meshes
from icofactor.preprocessing.transformers import (
    SparseWeights,
    WeightsTransformer,
    inverse,
    scaled,
    sums,
)
from icofactor.sphere.surfaces import Surface, as_areas, as_roi, as_sphere, vertex_areas
from icofactor.sphere.triangles import Floats, locate_in_mesh

METHODS = ("adaptive", "barycentric")
# Registered spheres show the same pattern of cortical area per sphere area: correlation 0.97 and
# more between fs_LR and fsaverage4 to 6, below 0.5 with the undeformed fs_LR sphere or the other
# hemisphere.
REGISTERED = 0.6
# Areas whose logarithm varies less than this are those of the spheres themselves.
FLAT_PATTERN = 0.02


@dataclass(frozen=True, eq=False)
class Weights:
    """What resampling needs once the spheres are gone.

    Attributes
    ----------
    matrix : (n_target, n_source) sparse; rows sum to 1, or to 0 where there are no data.
    coverage : (n_target,) share of each row's weight that lay in the roi, 0 to 1.
    method : "adaptive" or "barycentric".
    """

    matrix: Annotated[sparse.csr_array, Numbers("ts")]
    coverage: Annotated[Floats, Numbers("t", least=0)]
    method: Literal["adaptive", "barycentric"]


_FILE = Form(
    Weights, "icofactor resampling weights", "weights", 2, "save them again with Resampler.save"
)


class Resampler(WeightsTransformer):
    """Resample maps (subjects × sites) from one spherical mesh to another that is registered with
    it.

    A scikit-learn transformer that needs no data to fit; ``Resampler(...)(maps)`` is the same as
    `transform`.

    Parameters
    ----------
    source_sphere, target_sphere : path, pair (coordinates, faces), or object with these attributes
        Spheres around the origin, of any radius; .surf.gii files or FreeSurfer's.
    method : {"adaptive", "barycentric"}, default="adaptive"
        ADAP_BARY_AREA or BARYCENTRIC of Workbench.
    source_areas, target_areas : array or path, optional
        Vertex areas in mm², needed by "adaptive".
    roi : array or path, optional
        Vertices of the source with data (> 0). Default: all. A target that gets nothing from them
        is 0 in the maps and False in `covered`.
    check_registration : bool, default=True
        Whether spheres with different patterns of area are an error (needs both areas).
    precomputed : Weights, optional
        Weights of another resampler instead of spheres; `Resampler.load` sets it.

    Examples
    --------
    >>> import icofactor as ico
    >>> import numpy as np
    >>> from icofactor.preprocessing import Resampler
    >>> fine, coarse = (ico.Sites.named(name) for name in ("fsaverage4", "fsaverage3"))
    >>> spheres = [(sites.coordinates, sites.triangles) for sites in (fine, coarse)]
    >>> resampler = Resampler(*spheres, method="barycentric")
    >>> resampler(np.ones((2, 2562))).shape
    (2, 642)
    """

    _source = "the source sphere"

    def __init__(
        self,
        source_sphere: Any = None,
        target_sphere: Any = None,
        method: str = "adaptive",
        source_areas: Any = None,
        target_areas: Any = None,
        roi: Any = None,
        *,
        check_registration: bool = True,
        precomputed: Weights | None = None,
    ) -> None:
        self.source_sphere = source_sphere
        self.target_sphere = target_sphere
        self.method = method
        self.source_areas = source_areas
        self.target_areas = target_areas
        self.roi = roi
        self.check_registration = check_registration
        self.precomputed = precomputed

    @property
    def weights(self) -> sparse.csr_array:
        """Sparse matrix of shape (n_target, n_source).

        Rows sum to 1, or to 0 where `covered` is False.
        """
        return self._resampling().matrix

    @property
    def coverage(self) -> Floats:
        """Share of each target's weight that comes from inside the roi; 1 without a roi."""
        return self._resampling().coverage

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Whether each target gets any data (-valid-roi-out of Workbench)."""
        return self.coverage > 0

    def _weights(self) -> SparseWeights:
        return SparseWeights([self.weights])

    def _resampling(self) -> Weights:
        if self.precomputed is not None:
            return self.precomputed
        if "_built" not in self.__dict__:
            self._built = build_weights(
                self.source_sphere,
                self.target_sphere,
                self.method,
                self.source_areas,
                self.target_areas,
                self.roi,
                self.check_registration,
            )
        return self._built

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the weights to an .npz file, without pickle; the spheres are not saved.

        Examples
        --------
        >>> import tempfile
        >>> import icofactor as ico
        >>> from icofactor.preprocessing import Resampler
        >>> fine, coarse = (ico.Sites.icosphere(level) for level in (2, 1))
        >>> spheres = [(sites.coordinates, sites.triangles) for sites in (fine, coarse)]
        >>> path = tempfile.mkdtemp() + "/weights.npz"
        >>> Resampler(*spheres, method="barycentric").save(path)
        >>> Resampler.load(path).weights.shape
        (42, 162)
        """
        _FILE.save(self._resampling(), path, overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Resampler:
        """Read weights that `save` wrote."""
        weights: Weights = _FILE.load(path)
        return cls(method=weights.method, precomputed=weights)


def fs_lr_to_fsaverage(
    folder: str | Path,
    hemisphere: str,
    target: str = "fsaverage5",
    method: str = "adaptive",
    *,
    source: str = "fsLR32k",
    roi: Any = "atlas",
) -> Resampler:
    """Make a resampler from fs_LR to fsaverage, with the spheres and areas in a folder of yours.

    Parameters
    ----------
    folder : path
        HCPpipelines, its `global/templates/standard_mesh_atlases` or `.../resample_fsaverage`, or a
        TemplateFlow home. Nothing is downloaded.
    hemisphere : {"left", "right"}
        Hemisphere.
    target : str, default="fsaverage5"
        "fsaverage4", "fsaverage5", "fsaverage6" or "fsaverage" (also "fsaverage7").
    source : str, default="fsLR32k"
        "fsLR32k", "fsLR59k" or "fsLR164k".
    roi : "atlas", array, path or None, default="atlas"
        The cortex region of the same folder, your own, or None for all vertices.

    Examples
    --------
    >>> from icofactor.preprocessing import fs_lr_to_fsaverage
    >>> resampler = fs_lr_to_fsaverage("HCPpipelines", "left")  # doctest: +SKIP
    >>> resampler(maps)  # doctest: +SKIP
    """
    check_value("method", method, OneOf(METHODS))
    if not source.startswith("fsLR") or not target.startswith("fsaverage"):
        raise ArgumentError(
            "source",
            f"must be an fs_LR mesh, and target an fsaverage mesh; found {shown(source)} and "
            f"{shown(target)}",
        )
    from_atlas = isinstance(roi, str) and roi == "atlas"
    roi_of = source if from_atlas else None
    old, new = find_meshes(folder, hemisphere, (source, target), method == "adaptive", roi_of)
    region = old.roi if from_atlas else roi
    return Resampler(old.sphere, new.sphere, method, old.areas, new.areas, region)


def build_weights(
    source_sphere: Any,
    target_sphere: Any,
    method: str = "adaptive",
    source_areas: Any = None,
    target_areas: Any = None,
    roi: Any = None,
    check_registration: bool = True,
) -> Weights:
    """Return the weights of `Resampler`, with the same parameters."""
    check_value("method", method, OneOf(METHODS))
    source = as_sphere(source_sphere, "source_sphere")
    target = as_sphere(target_sphere, "target_sphere")
    if None not in (source.side, target.side) and source.side != target.side:
        raise FileError(
            source.label,
            f"is of the {source.side} hemisphere, {target.label} of the {target.side}",
        )
    if method == "adaptive" and (source_areas is None or target_areas is None):
        raise ArgumentError(
            "source_areas" if source_areas is None else "target_areas",
            "is missing: adaptive resampling needs the vertex areas of both meshes (for standard "
            "meshes the va_avg files); pass --method barycentric (method='barycentric') without",
        )
    old_areas = None if source_areas is None else as_areas(source_areas, source, "source_areas")
    new_areas = None if target_areas is None else as_areas(target_areas, target, "target_areas")
    region = as_roi(roi, source)
    forward = _barycentric(source, target)
    if check_registration and old_areas is not None and new_areas is not None:
        _check_registered(source, target, old_areas, new_areas, forward)
    matrix = forward
    if method == "adaptive":
        assert old_areas is not None and new_areas is not None
        reverse = sparse.csr_array(_barycentric(target, source).T)
        matrix = _adaptive(forward, reverse, old_areas, new_areas)
    return _normalised(matrix, region, method)


def _barycentric(source: Surface, target: Surface) -> sparse.csr_array:
    """Return the (n_target, n_source) weights of the source triangle around each target."""
    triangle, weights = locate_in_mesh(target.coordinates, source.coordinates, source.faces)
    rows = np.repeat(np.arange(target.n), 3)
    columns = source.faces[triangle].ravel()
    shape = (target.n, source.n)
    matrix = sparse.csr_array((weights.ravel(), (rows, columns)), shape=shape)
    matrix.eliminate_zeros()
    return matrix


def _adaptive(
    forward: sparse.csr_array, reverse: sparse.csr_array, source_areas: Floats, target_areas: Floats
) -> sparse.csr_array:
    """Return rows of `reverse` where it has a source that `forward` lacks, by area."""
    n_shared = sums(reverse.astype(bool).multiply(forward.astype(bool)).tocsr(), axis=1)
    has_more = np.diff(reverse.indptr) > n_shared
    combined = scaled(reverse, rows=has_more) + scaled(forward, rows=~has_more)
    spread = scaled(sparse.csr_array(combined), rows=target_areas)
    # Each source vertex gives its own area, shared among the targets that use it.
    return scaled(spread, columns=source_areas * inverse(sums(spread, axis=0)))


def _normalised(matrix: sparse.csr_array, region: NDArray[np.bool_] | None, method: str) -> Weights:
    """Leave out the sources outside the region, and give the rows that remain the sum 1."""
    inside = scaled(matrix, columns=region)
    total = sums(inside, axis=1)
    coverage = np.minimum(total * inverse(sums(matrix, axis=1)), 1.0)
    return Weights(scaled(inside, rows=inverse(total)), coverage, method)  # type: ignore[arg-type]


def _check_registered(
    source: Surface,
    target: Surface,
    source_areas: Floats,
    target_areas: Floats,
    forward: sparse.csr_array,
) -> None:
    """Refuse spheres on which cortical area is distributed in unlike ways."""
    agreement = pattern_agreement(source, target, source_areas, target_areas, forward)
    if agreement is not None and agreement < REGISTERED:
        raise FileError(
            source.label,
            f"does not seem to be in register with {target.label}: their patterns of vertex area "
            f"correlate by {agreement:.2f}, those of registered spheres by more than {REGISTERED}. "
            "Use the sphere deformed to the other's space, of the same hemisphere; "
            "check_registration=False resamples anyway",
        )


def pattern_agreement(
    source: Surface,
    target: Surface,
    source_areas: Floats,
    target_areas: Floats,
    forward: sparse.csr_array | None = None,
) -> float | None:
    """Return the correlation of area patterns; None if areas are those of the spheres."""
    forward = _barycentric(source, target) if forward is None else forward
    source_pattern = forward @ _area_pattern(source, source_areas)
    target_pattern = _area_pattern(target, target_areas)
    if min(source_pattern.std(), target_pattern.std()) < FLAT_PATTERN:
        return None
    return float(np.corrcoef(source_pattern, target_pattern)[0, 1])


def _area_pattern(sphere: Surface, areas: Floats) -> Floats:
    """Return the logarithm of the cortical area per area on the sphere, at every vertex."""
    on_sphere = vertex_areas(sphere.coordinates, sphere.faces)
    return np.log(np.maximum(areas, 1e-6 * areas.max()) / np.maximum(on_sphere, 1e-12))
