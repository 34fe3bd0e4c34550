"""Names of regions from an atlas file, for every vertex."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import FileError
from icofactor.io.guard import Unreadable, naming
from icofactor.io.labels import read_labels
from icofactor.results.report.surfaces import side_of
from icofactor.sphere.hierarchy import n_nodes

Ints = NDArray[np.int64]


def read_atlas(
    paths: Sequence[str | Path], sides: Sequence[str], n_vertices: int, nested: bool = False
) -> tuple[dict[str, Ints], tuple[str, ...]]:
    """Region of every vertex: side → (n_vertices,) numbers into the names; number 0 is no region.

    Parameters
    ----------
    paths : one FreeSurfer .annot or GIFTI .label.gii per hemisphere, or one CIFTI .dlabel.nii.
    sides : hemispheres wanted, "left", "right".
    nested : whether the mesh is the first vertices of fsaverage, whose files will then do too.
    """
    found: dict[str, tuple[Ints, dict[int, str]]] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"atlas: no file {path}")
        with naming(path, "atlas"):
            found |= _read(path, sides)
    missing = [side for side in sides if side not in found]
    if missing:
        raise ValueError(f"atlas: no file of the {' and the '.join(missing)} hemisphere; give one file for each")
    names, numbers = [""], {"": 0}
    regions: dict[str, Ints] = {}
    for side in sides:
        labels, table = found[side]
        if nested and len(labels) == n_nodes(7):
            labels = labels[:n_vertices]
        if len(labels) != n_vertices:
            raise FileError(
                f"{', '.join(map(str, paths))}: has {len(labels)} vertices in the {side} hemisphere; "
                f"the mesh has {n_vertices}"
            )
        regions[side] = np.zeros(n_vertices, dtype=np.int64)
        for label in np.unique(labels):
            name = table.get(int(label), "")
            if name not in numbers:
                numbers[name] = len(names)
                names.append(name)
            regions[side][labels == label] = numbers[name]
    return regions, tuple(names)


def _read(path: Path, sides: Sequence[str]) -> dict[str, tuple[Ints, dict[int, str]]]:
    found = read_labels(path)
    if path.name.endswith(".dlabel.nii"):
        return {str(side): labels for side, labels in found.items()}
    side = side_of(path) or (sides[0] if len(sides) == 1 else None)
    if side is None:
        raise Unreadable("should tell the hemisphere by its name (lh. or rh., hemi-L or hemi-R, .L. or .R.)")
    return {side: next(iter(found.values()))}
