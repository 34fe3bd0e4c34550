"""From fs_LR 32k, on which the HCP gives its data, to an fsaverage mesh."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from icofactor.cohort.cohort import Hemisphere
from icofactor.errors import CohortError, literal
from icofactor.preprocessing.hcp import read_region
from icofactor.preprocessing.resampling import fs_lr_to_fsaverage
from icofactor.preprocessing.templates import find_meshes
from icofactor.preprocessing.weights import apply_weights
from icofactor.sphere.names import SIDES, hemispheres
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import as_roi, as_sphere
from icofactor.streaming.checkpoint import digest

# A vertex of the target counts as cortex when at least half of what it would be made of lies in the cortex.
MOSTLY = 0.5


@dataclass(frozen=True, eq=False)
class Cortex:
    """The part of fs_LR 32k that holds data, without the medial wall.

    Attributes
    ----------
    regions : side → (n_vertices,) bool.
    origin : where it comes from, for the provenance.
    """

    regions: Mapping[str, NDArray[np.bool_]]
    origin: str


@dataclass(frozen=True, eq=False)
class Projection:
    """One hemisphere's way from fs_LR 32k to the target.

    Attributes
    ----------
    faces : (F, 3) triangles of fs_LR 32k.
    roi : (n_vertices,) bool, the cortex without the medial wall.
    weights : (n_target, n_vertices) sparse; rows sum to 1, or to 0 far from the cortex.
    mask : (n_target,) bool, where the target is cortex.
    sites : the target's vertices.
    """

    faces: NDArray[Any]
    roi: NDArray[np.bool_]
    weights: sparse.csr_array
    mask: NDArray[np.bool_]
    sites: Sites

    def __call__(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """(n_target,) of a map on fs_LR 32k; 0 outside the mask."""
        carried = apply_weights(self.weights, values.astype(np.float64), "fs_LR 32k")
        return np.where(self.mask, carried, 0.0).astype(np.float32)

    def digest(self) -> str:
        """Tells this projection from others."""
        return digest(self.roi, self.weights.data, self.weights.indices, self.weights.indptr, self.mask)


def projections(
    spheres: str | Path, hemisphere: Hemisphere, target: str, method: str, cortex: Cortex
) -> dict[str, Projection]:
    """Side → projection, from the spheres and areas in a folder.

    Parameters
    ----------
    spheres : a folder of HCPpipelines or TemplateFlow; see `fs_lr_to_fsaverage`.
    hemisphere : "left", "right" or "both".
    target : "fsaverage4", "fsaverage5" or "fsaverage6".
    method : "adaptive" or "barycentric".
    cortex : the region that holds data.
    """
    sides = hemispheres(hemisphere, "hemisphere")
    return {side: _projection(spheres, side, target, method, cortex.regions[side]) for side in sides}


def _projection(spheres: str | Path, side: str, target: str, method: str, roi: NDArray[np.bool_]) -> Projection:
    resampler = fs_lr_to_fsaverage(spheres, side, target, method, roi=roi)
    source = as_sphere(resampler.source_sphere, "sphere of fs_LR 32k")
    return Projection(
        source.faces, roi, resampler.weights, resampler.coverage >= MOSTLY, Sites.from_file(resampler.target_sphere)
    )


def atlas_cortex(spheres: str | Path) -> Cortex | None:
    """The cortex of fs_LR 32k that comes with the spheres (atlasroi); None when the folder has none."""
    found = {}
    for side in SIDES:
        (plain,) = find_meshes(spheres, side, ("fsLR32k",), areas=False)
        try:
            (files,) = find_meshes(spheres, side, ("fsLR32k",), areas=False, roi_of="fsLR32k")
        except FileNotFoundError:
            return None
        roi = as_roi(files.roi, as_sphere(plain.sphere, "sphere of fs_LR 32k"))
        assert roi is not None
        found[side] = roi
    return Cortex(found, "atlasroi")


def file_cortex(files: Iterable[Path]) -> Cortex:
    """The cortex as the brain models of the first readable CIFTI file have it: where it holds a value at all."""
    unreadable = ""
    for file in files:
        try:
            regions = read_region(file)
        except (ValueError, OSError) as problem:
            unreadable = unreadable or f"; {literal(problem)}"
            continue
        if set(regions) != set(SIDES) or any(region.all() for region in regions.values()):
            raise CohortError(
                file,
                "its brain models do not tell the cortex from the medial wall of both hemispheres, and the folder of "
                "spheres has no L.atlasroi.32k_fs_LR.shape.gii and R.atlasroi.32k_fs_LR.shape.gii",
            )
        return Cortex(regions, f"brain models of {file.name}")
    raise CohortError(
        "spheres",
        "the folder has no L.atlasroi.32k_fs_LR.shape.gii and R.atlasroi.32k_fs_LR.shape.gii, and no file to take the "
        f"cortex from can be read{unreadable}",
    )


def target_sites(found: Mapping[str, Projection]) -> tuple[Sites, NDArray[np.bool_]]:
    """Sites and mask of the target, left then right."""
    parts = list(found.values())
    sites = parts[0].sites if len(parts) == 1 else Sites.both(parts[0].sites, parts[1].sites)
    return sites, np.concatenate([part.mask for part in parts])
