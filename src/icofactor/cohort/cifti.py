"""Maps on fs_LR 32k as CIFTI-2, one file for one or both hemispheres."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from icofactor.cohort.bids import N_FS_LR, numbered, sides_of
from icofactor.files import atomic_path

_STRUCTURES = {"left": "CIFTI_STRUCTURE_CORTEX_LEFT", "right": "CIFTI_STRUCTURE_CORTEX_RIGHT"}


def write_dscalar(
    path: str | Path,
    maps: ArrayLike,
    hemi: str,
    names: Sequence[str] | None = None,
    mask: ArrayLike | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Maps on the vertices of fs_LR 32k, as CIFTI-2 dense scalars in float32.

    Parameters
    ----------
    path : must end with ".dscalar.nii".
    maps : (n_maps, 32492), or (n_maps, 64984) with the left hemisphere first when `hemi` is "both".
    hemi : "left", "right" or "both".
    names : one per map; "map01", ... when None.
    mask : True where a vertex is used; the others are not in the file, as the medial wall is not in HCP's.
    """
    if not str(path).endswith(".dscalar.nii"):
        raise ValueError(f'path must end with ".dscalar.nii"; got {str(path)!r}')
    values, sides = np.atleast_2d(np.asarray(maps, dtype=np.float32)), sides_of(hemi)
    n = N_FS_LR * len(sides)
    if values.ndim != 2 or values.shape[1] != n:
        raise ValueError(f"maps must have shape (n_maps, {n}) for hemi={hemi!r} of fs_LR 32k; got {np.shape(maps)}")
    labels = numbered("map", len(values)) if names is None else [str(name) for name in names]
    if len(labels) != len(values):
        raise ValueError(f"maps holds {len(values)} maps; names has {len(labels)} entries")
    used = np.ones(n, dtype=bool) if mask is None else np.asarray(mask)
    if used.shape != (n,) or used.dtype != bool:
        raise ValueError(f"mask must be {n} booleans, one per vertex; got {used.dtype} of shape {used.shape}")
    if not used.any():
        raise ValueError("mask is True nowhere; there is nothing to write")
    from nibabel.cifti2 import BrainModelAxis, Cifti2Image, ScalarAxis

    halves = zip(sides, np.split(used, len(sides)), strict=True)
    # a hemisphere that is masked altogether has no model
    models = [BrainModelAxis.from_mask(half, _STRUCTURES[side]) for side, half in halves if half.any()]
    axis = models[0] if len(models) == 1 else models[0] + models[1]
    image = Cifti2Image(np.ascontiguousarray(values[:, used]), header=(ScalarAxis(labels), axis))
    image.update_headers()
    image.nifti_header.set_intent("ConnDenseScalar")
    # nibabel's save leaves its file open after an error
    with atomic_path(path, overwrite) as temporary, open(temporary, "wb") as stream:
        image.to_stream(stream)
    return Path(path)
