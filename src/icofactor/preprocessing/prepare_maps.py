"""Outliers, smoothing and resampling of whole cohorts into a store, some subjects at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor import __version__
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import append_store, create_store, subjects_per_file
from icofactor.cohort.store.read import StoredCohort
from icofactor.errors import ArgumentError, shown
from icofactor.preprocessing.finished_maps import SUBJECTS_AT_ONCE
from icofactor.preprocessing.hcp import MOSTLY
from icofactor.preprocessing.outliers import limit_outliers
from icofactor.preprocessing.resampling import Resampler
from icofactor.preprocessing.smoothing import SurfaceSmoother
from icofactor.preprocessing.templates import find_meshes
from icofactor.progress import Stages
from icofactor.sphere.names import MESHES, hemispheres, mesh_known_as, mesh_name_of
from icofactor.sphere.sites import Sites

AnyCohort = Cohort | StoredCohort
Maps = NDArray[Any]


@dataclass(frozen=True)
class Changes:
    """Changes to make to the maps of a cohort, in this order.

    Attributes
    ----------
    limit : float or None
        Limit of outliers in median absolute deviations of each subject; None for no limit.
    fwhm : float or None
        Width in mm of the smoothing along the surface; None for no smoothing.
    surfaces : paths or None
        Midthickness surfaces to smooth along, one per hemisphere. None uses the middle between
        white and pial of fsaverage5, which is part of nilearn, for cohorts on that mesh.
    resample_to : str or None
        Standard mesh to resample to, such as "fsaverage5"; None stays on the mesh.
    spheres : path or None
        Folder with the spheres and areas for resampling; see `find_meshes`.
    method : {"adaptive", "barycentric"}
        Method of resampling.

    Examples
    --------
    >>> from icofactor.preprocessing import Changes
    >>> Changes(limit=4.4478, fwhm=5).resample_to is None
    True
    """

    limit: float | None = None
    fwhm: float | None = None
    surfaces: tuple[str | Path, ...] | None = None
    resample_to: str | None = None
    spheres: str | Path | None = None
    method: str = "adaptive"


def prepare_cohort(
    cohort: AnyCohort,
    out: str | Path,
    changes: Changes,
    *,
    overwrite: bool = False,
    append: bool = False,
    dtype: str = "float32",
    progress: bool = False,
) -> StoredCohort:
    """Apply changes to a cohort and write it as a store; the provenance records every step.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> from icofactor.preprocessing import Changes, prepare_cohort
    >>> cohort = ico.simulate_cohort(5, 2, mesh="fsaverage3")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stored = prepare_cohort(cohort, f"{folder}/limited.store", Changes(limit=4.4478))
    ...     print(stored.X.shape)
    (5, 642)
    """
    # In this order: an outlier would be spread by smoothing, and resampling needs less of it.
    changed = _Changed(cohort.sites, cohort.mask)
    if changes.limit is not None:
        _limit(changed, changes.limit)
    if changes.fwhm is not None:
        _smooth(changed, cohort, changes)
    if changes.resample_to is not None:
        _resample(changed, cohort, changes)
    blocks = _blocks(cohort, changed, progress)
    if append:
        return append_store(out, blocks)
    n_together = subjects_per_file(len(cohort))
    return create_store(
        out,
        blocks,
        overwrite=overwrite,
        chunk_subjects=n_together,
        dtype=dtype,
    )


@dataclass
class _Changed:
    """The sites after all changes, and the changes: all weights are made before a map is read."""

    sites: Sites
    mask: NDArray[np.bool_] | None
    functions: list[Callable[[Maps], Maps]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, function: Callable[[Maps], Maps], **step: Any) -> None:
        """Add a change of maps, and its record for the provenance."""
        self.functions.append(function)
        self.steps.append({**step, "icofactor": __version__})


def _limit(changed: _Changed, limit: float) -> None:
    mask = changed.mask
    changed.add(
        lambda X: limit_outliers(X, limit, mask=mask),
        step="limit_outliers",
        n_deviations=limit,
        over="subject",
    )


def _smooth(changed: _Changed, cohort: AnyCohort, changes: Changes) -> None:
    _check_whole(cohort, "smoothed")
    regions = _regions(cohort)
    surfaces: tuple[Any, ...] | None = changes.surfaces
    if surfaces is None and cohort.sites.name == "fsaverage5":
        surfaces = tuple(_fsaverage5_middle(side) for side in regions)
    if surfaces is None or len(surfaces) != len(regions):
        raise ArgumentError(
            "surfaces",
            f"must be the midthickness surfaces to smooth along, {' and '.join(regions)}; found "
            f"{shown(surfaces)} for {cohort.sites!r}. Only those of fsaverage5 are in icofactor",
        )
    smoothers = [
        SurfaceSmoother(surface, fwhm=changes.fwhm, roi=regions[side]).fit()
        for side, surface in zip(regions, surfaces, strict=True)
    ]
    changed.add(
        _by_side(cohort, smoothers),
        step="smooth",
        fwhm_mm=changes.fwhm,
        kernel="geodesic Gaussian, by area",
    )


def _fsaverage5_middle(side: str) -> tuple[Maps, Maps]:
    """Return the middle between white and pial, and faces, of nilearn's embedded fsaverage5."""
    from nilearn.datasets import load_fsaverage

    meshes = load_fsaverage("fsaverage5")
    white = meshes["white_matter"].parts[side]
    pial = meshes["pial"].parts[side]
    middle = (np.asarray(white.coordinates) + np.asarray(pial.coordinates)) / 2
    return middle, np.asarray(white.faces)


def _resample(changed: _Changed, cohort: AnyCohort, changes: Changes) -> None:
    _check_whole(cohort, "resampled")
    source = mesh_name_of(cohort.sites)
    record = {"step": "resample", "from": source, "to": changes.resample_to}
    columns = _nested(cohort, changes)
    if columns is not None:
        changed.add(lambda X: X[:, columns], **record, method="nested")
        changed.sites = Sites.named(str(changes.resample_to), hemi=cohort.hemisphere)
        if cohort.mask is not None:
            changed.mask = cohort.mask[columns]
        return
    if changes.spheres is None:
        raise ArgumentError(
            "spheres",
            "is missing: the folder with registered spheres, from HCPpipelines or TemplateFlow "
            "(global/templates/standard_mesh_atlases/resample_fsaverage)",
        )
    if source not in MESHES:
        text = f"needs maps on fsaverage or fs_LR 32k; these are on {cohort.sites!r}"
        raise ArgumentError("resample_to", text)
    resamplers = []
    for side, region in _regions(cohort).items():
        meshes = (source, str(changes.resample_to))
        old, new = find_meshes(changes.spheres, side, meshes, areas=changes.method == "adaptive")
        spheres = (old.sphere, new.sphere)
        resamplers.append(Resampler(*spheres, changes.method, old.areas, new.areas, region).fit())
    changed.add(_by_side(cohort, resamplers), **record, method=changes.method)
    sites = [Sites.from_file(resampler.target_sphere) for resampler in resamplers]
    changed.sites = sites[0] if len(sites) == 1 else Sites.both(*sites)
    if cohort.mask is not None:
        coverage = np.concatenate([resampler.coverage for resampler in resamplers])
        changed.mask = coverage >= MOSTLY


def _nested(cohort: AnyCohort, changes: Changes) -> NDArray[np.int64] | None:
    """Return the columns at the vertices of a coarser fsaverage mesh; None if spheres are needed.

    fsaverage6 and 7 begin with the vertices of fsaverage5.
    """
    source = mesh_known_as(mesh_name_of(cohort.sites))
    target = mesh_known_as(str(changes.resample_to))
    if changes.spheres is not None or source is None or target is None:
        return None
    # A mesh in another numbering has another name.
    if source.name != cohort.sites.name or source.level is None or target.level is None:
        return None
    if not 5 <= target.level < source.level:
        return None
    starts = range(0, cohort.sites.n, source.n_vertices)
    return np.concatenate([np.arange(start, start + target.n_vertices) for start in starts])


def _check_whole(cohort: AnyCohort, done: str) -> None:
    """Refuse maps on faces, or on part of the vertices."""
    sites = cohort.sites
    if sites.on != "vertices" or sites.n != sites.n_mesh:
        text = f"must have maps on all vertices of a mesh to be {done}; these are on {sites!r}"
        raise ArgumentError("cohort", text)


def _regions(cohort: AnyCohort) -> dict[str, NDArray[np.bool_] | None]:
    """Return side → the vertices in use, None for all."""
    sides = hemispheres(cohort.hemisphere, "hemisphere")
    if cohort.mask is None:
        return dict.fromkeys(sides)
    half = cohort.sites.hemisphere
    numbers = np.unique(half)
    return {side: cohort.mask[half == number] for side, number in zip(sides, numbers, strict=True)}


def _by_side(cohort: AnyCohort, transformers: Sequence[Any]) -> Callable[[Maps], Maps]:
    """Return a function that applies one transformer per hemisphere, left columns first."""
    half = cohort.sites.hemisphere
    columns = [np.flatnonzero(half == number) for number in np.unique(half)]

    def transform(X: Maps) -> Maps:
        parts = [
            transformer.transform(np.ascontiguousarray(X[:, side_columns]))
            for side_columns, transformer in zip(columns, transformers, strict=True)
        ]
        return np.concatenate(parts, axis=1)

    return transform


def _blocks(cohort: AnyCohort, changed: _Changed, progress: bool) -> Iterator[Cohort]:
    """Yield the changed cohort, some subjects at a time."""
    steps = [*cohort.provenance.get("preprocessing", []), *changed.steps]
    provenance = {**cohort.provenance, "preprocessing": steps}
    with Stages(progress).stage("prepare") as show:
        for first in range(0, len(cohort), SUBJECTS_AT_ONCE):
            rows = slice(first, first + SUBJECTS_AT_ONCE)
            X = np.asarray(cohort.X[rows])
            for function in changed.functions:
                X = function(X)
            # Masked sites may hold NaN, which stores refuse.
            if changed.mask is not None:
                X = np.where(changed.mask, X, 0).astype(np.float32)
            table = cohort.participants.items()
            yield Cohort(
                X=X,
                subjects=cohort.subjects[rows],
                sites=changed.sites,
                mask=changed.mask,
                hemisphere=cohort.hemisphere,
                modality=cohort.modality,
                units=cohort.units,
                participants={name: np.asarray(values)[rows] for name, values in table},
                provenance=provenance,
            )
            show((first + len(X)) / len(cohort))
