"""From fs_LR 32k, on which the HCP gives its data, to an fsaverage mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from icofactor.checkpoint import digest
from icofactor.cohort.cohort import Hemisphere
from icofactor.preprocessing.maps import apply_weights
from icofactor.preprocessing.resampling import fs_lr_to_fsaverage
from icofactor.preprocessing.spheres import find_meshes
from icofactor.preprocessing.surfaces import as_roi, as_sphere
from icofactor.sphere import Sites

SIDES: tuple[str, str] = ("left", "right")
# A vertex of the target counts as cortex when at least half of what it would be made of lies in the cortex.
MOSTLY = 0.5


@dataclass(frozen=True, eq=False)
class Projection:
    """One hemisphere's way from fs_LR 32k to the target.

    Attributes
    ----------
    faces : (F, 3) triangles of fs_LR 32k.
    roi : (32492,) bool, the cortex without the medial wall.
    weights : (n_target, 32492) sparse; rows sum to 1, or to 0 far from the cortex.
    mask : (n_target,) bool, where the target is cortex.
    sites : the target's vertices.
    """

    faces: NDArray[Any]
    roi: NDArray[np.bool_]
    weights: sparse.csr_array
    mask: NDArray[np.bool_]
    sites: Sites

    def __call__(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """(n_target,) of a map (32492,); 0 outside the mask."""
        carried = apply_weights(self.weights, values.astype(np.float64), "fs_LR 32k")
        return np.where(self.mask, carried, 0.0).astype(np.float32)

    def digest(self) -> str:
        """Tells this projection from others."""
        return digest(self.roi, self.weights.data, self.weights.indices, self.weights.indptr, self.mask)


def sides_of(hemisphere: str) -> tuple[str, ...]:
    """Left, right, or both in this order."""
    if hemisphere not in (*SIDES, "both"):
        raise ValueError(f'hemisphere must be "left", "right" or "both"; got {hemisphere!r}')
    return SIDES if hemisphere == "both" else (hemisphere,)


def projections(spheres: str | Path, hemisphere: Hemisphere, target: str, method: str) -> dict[str, Projection]:
    """Side → projection, from the spheres, areas and cortex regions in a folder.

    Parameters
    ----------
    spheres : a folder of HCPpipelines or TemplateFlow; see `fs_lr_to_fsaverage`.
    hemisphere : "left", "right" or "both".
    target : "fsaverage4", "fsaverage5" or "fsaverage6".
    method : "adaptive" or "barycentric".
    """
    return {side: _projection(spheres, side, target, method) for side in sides_of(hemisphere)}


def _projection(spheres: str | Path, side: str, target: str, method: str) -> Projection:
    resampler = fs_lr_to_fsaverage(spheres, side, target, method)
    source = as_sphere(resampler.source_sphere, "sphere of fs_LR 32k")
    roi = as_roi(resampler.roi, source)
    assert roi is not None  # the atlas' region was asked for
    return Projection(
        source.faces, roi, resampler.weights, resampler.coverage >= MOSTLY, Sites.from_file(resampler.target_sphere)
    )


def cortex(spheres: str | Path) -> dict[str, NDArray[np.bool_]]:
    """Side → (32492,) cortex of fs_LR 32k, of both hemispheres."""
    found = {}
    for side in SIDES:
        (files,) = find_meshes(spheres, side, ("fsLR32k",), areas=False, roi_of="fsLR32k")
        roi = as_roi(files.roi, as_sphere(files.sphere, "sphere of fs_LR 32k"))
        assert roi is not None
        found[side] = roi
    return found


def target_sites(found: Mapping[str, Projection]) -> tuple[Sites, NDArray[np.bool_]]:
    """Sites and mask of the target, left then right."""
    parts = list(found.values())
    sites = parts[0].sites if len(parts) == 1 else Sites.both(parts[0].sites, parts[1].sites)
    return sites, np.concatenate([part.mask for part in parts])
