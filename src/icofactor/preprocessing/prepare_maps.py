"""Outliers, smoothing and resampling of whole cohorts, some subjects at a time, into a cohort
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor import __version__
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import append_store, create_store
from icofactor.cohort.store.read import StoredCohort
from icofactor.errors import ArgumentError, Phrase
from icofactor.preprocessing.hcp import MOSTLY
from icofactor.preprocessing.outliers import limit_outliers
from icofactor.preprocessing.resampling import Resampler
from icofactor.preprocessing.smoothing import SurfaceSmoother
from icofactor.preprocessing.templates import find_meshes
from icofactor.progress import Stages
from icofactor.sphere.names import MESHES, hemispheres, mesh_known_as, mesh_name_of
from icofactor.sphere.sites import Sites

# Subjects whose maps are held together.
_BLOCK = 64
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
    plan = _plan(cohort, changes)
    blocks = _blocks(cohort, plan, progress)
    return (
        append_store(out, blocks)
        if append
        else create_store(out, blocks, overwrite=overwrite, dtype=dtype)
    )


@dataclass(frozen=True)
class _Plan:
    transforms: list[Callable[[Maps], Maps]]
    steps: list[dict[str, Any]]
    sites: Sites
    mask: NDArray[np.bool_] | None


def _plan(cohort: AnyCohort, changes: Changes) -> _Plan:
    """Make all weights before the first map is read."""
    sites, mask = cohort.sites, cohort.mask
    transforms: list[Callable[[Maps], Maps]] = []
    steps: list[dict[str, Any]] = []
    if changes.limit is not None:
        transforms.append(_limiter(changes.limit, cohort.mask))
        steps.append({"step": "limit_outliers", "n_deviations": changes.limit, "over": "subject"})
    if changes.fwhm is not None:
        transforms.append(_by_side(cohort, _smoothers(cohort, changes)))
        steps.append(
            {"step": "smooth", "fwhm_mm": changes.fwhm, "kernel": "geodesic Gaussian, by area"}
        )
    nested = _nested(cohort, changes)
    if nested is not None:
        transforms.append(lambda X: X[:, nested])
        sites = Sites.named(str(changes.resample_to), hemi=cohort.hemisphere)
        mask = None if cohort.mask is None else cohort.mask[nested]
        about = {"from": mesh_name_of(cohort.sites), "to": changes.resample_to, "method": "nested"}
        steps.append({"step": "resample", **about})
    elif changes.resample_to is not None:
        resamplers = _resamplers(cohort, changes)
        transforms.append(_by_side(cohort, resamplers))
        parts = [Sites.from_file(one.target_sphere) for one in resamplers.values()]
        sites = parts[0] if len(parts) == 1 else Sites.both(*parts)
        covered = np.concatenate([one.coverage >= MOSTLY for one in resamplers.values()])
        mask = None if cohort.mask is None else covered
        steps.append(
            {
                "step": "resample",
                "from": mesh_name_of(cohort.sites),
                "to": changes.resample_to,
                "method": changes.method,
            }
        )
    return _Plan(transforms, [{**step, "icofactor": __version__} for step in steps], sites, mask)


def _blocks(cohort: AnyCohort, plan: _Plan, progress: bool) -> Iterator[Cohort]:
    earlier = cohort.provenance.get("preprocessing", [])
    provenance = {**cohort.provenance, "preprocessing": [*earlier, *plan.steps]}
    with Stages(progress).stage("prepare") as show:
        for first in range(0, len(cohort), _BLOCK):
            some = slice(first, first + _BLOCK)
            X = np.asarray(cohort.X[some])
            for transform in plan.transforms:
                X = transform(X)
            if plan.mask is not None:
                X = np.where(plan.mask, X, 0).astype(np.float32)
            yield Cohort(
                X=X,
                subjects=cohort.subjects[some],
                sites=plan.sites,
                mask=plan.mask,
                hemisphere=cohort.hemisphere,
                modality=cohort.modality,
                units=cohort.units,
                participants={
                    name: np.asarray(values)[some] for name, values in cohort.participants.items()
                },
                provenance=provenance,
            )
            show((first + len(X)) / len(cohort))


def _limiter(limit: float, mask: NDArray[np.bool_] | None) -> Callable[[Maps], Maps]:
    return lambda X: limit_outliers(X, limit, mask=mask)


def _by_side(cohort: AnyCohort, steps: Mapping[str, Any]) -> Callable[[Maps], Maps]:
    """One transformer per hemisphere, left columns first."""
    half = cohort.sites.hemisphere
    columns = [np.flatnonzero(half == number) for number in np.unique(half)]

    def transform(X: Maps) -> Maps:
        pairs = zip(columns, steps.values(), strict=True)
        return np.concatenate(
            [step.transform(np.ascontiguousarray(X[:, where])) for where, step in pairs], axis=1
        )

    return transform


def _regions(cohort: AnyCohort) -> dict[str, NDArray[np.bool_] | None]:
    """Side → the vertices in use."""
    sides = hemispheres(cohort.hemisphere, "hemisphere")
    half = cohort.sites.hemisphere
    numbers = np.unique(half)
    mask = cohort.mask
    return {
        side: None if mask is None else mask[half == number]
        for side, number in zip(sides, numbers, strict=True)
    }


def _smoothers(cohort: AnyCohort, changes: Changes) -> dict[str, SurfaceSmoother]:
    _check_whole(cohort, "smoothed")
    regions = _regions(cohort)
    surfaces: tuple[Any, ...] | None = changes.surfaces
    if surfaces is None:
        if cohort.sites.name != "fsaverage5":
            raise ArgumentError(
                "surfaces",
                None,
                f"the midthickness surfaces to smooth along, {' and '.join(regions)}: only those of fsaverage5 are at "
                f"hand, and these are {cohort.sites!r}",
            )
        surfaces = tuple(_fsaverage5_middle(side) for side in regions)
    if len(surfaces) != len(regions):
        raise ArgumentError(
            "surfaces", Phrase(str(len(surfaces))), f"{len(regions)}, {' and '.join(regions)}"
        )
    found = {
        side: SurfaceSmoother(surface, fwhm=changes.fwhm, roi=regions[side])
        for side, surface in zip(regions, surfaces, strict=True)
    }
    for smoother in found.values():
        smoother.fit()
    return found


def _fsaverage5_middle(side: str) -> tuple[Maps, Maps]:
    """Coordinates half way between white and pial, and faces, of nilearn's embedded fsaverage5."""
    from nilearn.datasets import load_fsaverage

    meshes = load_fsaverage("fsaverage5")
    white, pial = meshes["white_matter"].parts[side], meshes["pial"].parts[side]
    return (np.asarray(white.coordinates) + np.asarray(pial.coordinates)) / 2, np.asarray(
        white.faces
    )


def _nested(cohort: AnyCohort, changes: Changes) -> NDArray[np.int64] | None:
    """The columns at the vertices of a coarser mesh, which fsaverage6 and 7 begin with; None: needs
    spheres.
    """
    source, target = (
        mesh_known_as(name) for name in (mesh_name_of(cohort.sites), str(changes.resample_to))
    )
    if (
        changes.spheres is not None
        or source is None
        or target is None
        or source.name != cohort.sites.name
    ):
        return None
    if source.level is None or target.level is None or not 5 <= target.level < source.level:
        return None
    _check_whole(cohort, "resampled")
    starts = range(0, cohort.sites.n, source.n_vertices)
    return np.concatenate([np.arange(start, start + target.n_vertices) for start in starts])


def _resamplers(cohort: AnyCohort, changes: Changes) -> dict[str, Resampler]:
    _check_whole(cohort, "resampled")
    if changes.spheres is None:
        raise ArgumentError(
            "spheres",
            None,
            "{spheres} is missing: give the folder with registered spheres, from HCPpipelines or TemplateFlow "
            "(global/templates/standard_mesh_atlases/resample_fsaverage)",
        )
    regions = _regions(cohort)
    source = mesh_name_of(cohort.sites)
    if source not in MESHES:
        what = f"{{resample_to={changes.resample_to!r}}}: only fsaverage and fs_LR 32k can be resampled"
        raise ArgumentError("resample_to", None, f"{what}, not {cohort.sites!r}")
    found = {}
    for side, region in regions.items():
        meshes = (source, str(changes.resample_to))
        old, new = find_meshes(changes.spheres, side, meshes, areas=changes.method == "adaptive")
        found[side] = Resampler(
            old.sphere, new.sphere, changes.method, old.areas, new.areas, region
        ).fit()
    return found


def _check_whole(cohort: AnyCohort, done: str) -> None:
    sites = cohort.sites
    if sites.on != "vertices" or sites.n != sites.n_mesh:
        raise ArgumentError(
            "cohort",
            None,
            f"Only maps on all vertices of a mesh can be {done}; these are on {sites!r}",
        )
