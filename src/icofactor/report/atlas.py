"""Names of regions from an atlas file, for every vertex."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icofactor.report.surfaces import side_of

Ints = NDArray[np.int64]
_CIFTI = {"CIFTI_STRUCTURE_CORTEX_LEFT": "left", "CIFTI_STRUCTURE_CORTEX_RIGHT": "right"}


def read_atlas(
    paths: Sequence[str | Path], sides: Sequence[str], n_vertices: int
) -> tuple[dict[str, Ints], tuple[str, ...]]:
    """Region of every vertex: side → (n_vertices,) numbers into the names; number 0 is no region.

    Parameters
    ----------
    paths : one FreeSurfer .annot or GIFTI .label.gii per hemisphere, or one CIFTI .dlabel.nii.
    sides : hemispheres wanted, "left", "right".
    """
    found: dict[str, tuple[Ints, dict[int, str]]] = {}
    for path in map(Path, paths):
        if not path.is_file():
            raise FileNotFoundError(f"atlas: no file {path}")
        try:
            found |= _read(path, sides, n_vertices)
        except (OSError, ValueError, KeyError, IndexError) as problem:
            raise ValueError(f"{path}: not a readable atlas (.annot, .label.gii, .dlabel.nii): {problem}") from problem
    missing = [side for side in sides if side not in found]
    if missing:
        raise ValueError(f"atlas: no file of the {' and the '.join(missing)} hemisphere; give one file for each")
    names, numbers = [""], {"": 0}
    regions: dict[str, Ints] = {}
    for side in sides:
        labels, table = found[side]
        if len(labels) != n_vertices:
            raise ValueError(f"atlas: {len(labels)} vertices in the {side} hemisphere; the mesh has {n_vertices}")
        regions[side] = np.zeros(n_vertices, dtype=np.int64)
        for label in np.unique(labels):
            name = table.get(int(label), "")
            if name not in numbers:
                numbers[name] = len(names)
                names.append(name)
            regions[side][labels == label] = numbers[name]
    return regions, tuple(names)


def _read(path: Path, sides: Sequence[str], n_vertices: int) -> dict[str, tuple[Ints, dict[int, str]]]:
    import nibabel as nib

    if path.name.endswith(".dlabel.nii"):
        image = nib.load(path)
        table = {int(k): str(v[0]) for k, v in image.header.get_axis(0).label[0].items()}
        values, parts = np.asarray(image.dataobj)[0], {}
        for structure, where, model in image.header.get_axis(1).iter_structures():
            if structure in _CIFTI:
                labels = np.zeros(n_vertices, dtype=np.int64)
                labels[model.vertex] = values[where]
                parts[_CIFTI[structure]] = (labels, table)
        return parts
    side = side_of(path) or (sides[0] if len(sides) == 1 else None)
    if side is None:
        raise ValueError("its name should tell the hemisphere (lh. or rh., hemi-L or hemi-R, .L. or .R.)")
    if path.name.endswith((".gii", ".gii.gz")):
        image = nib.load(path)
        table = {int(k): str(v) for k, v in image.labeltable.get_labels_as_dict().items()}
        return {side: (np.asarray(image.darrays[0].data, dtype=np.int64), table)}
    labels, _, names = nib.freesurfer.read_annot(path)
    return {side: (np.asarray(labels, dtype=np.int64), {i: name.decode() for i, name in enumerate(names)})}
