"""Reading a surface from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def read_surface(path: str | Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Coordinates (V, 3) and triangles (F, 3) of a GIFTI (.gii) or FreeSurfer surface file."""
    import nibabel

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        if path.name.endswith((".gii", ".gii.gz")):
            image = nibabel.load(path)
            points = image.get_arrays_from_intent("NIFTI_INTENT_POINTSET")
            triangles = image.get_arrays_from_intent("NIFTI_INTENT_TRIANGLE")
            if len(points) != 1 or len(triangles) != 1:
                raise ValueError(f"has {len(points)} point sets and {len(triangles)} triangle lists, not one of each")
            vertices, faces = points[0].data, triangles[0].data
        else:
            vertices, faces = nibabel.freesurfer.read_geometry(path)
    except Exception as error:  # nibabel raises many kinds for files that are not what they seem
        raise ValueError(
            f"{path}: not a readable surface, neither GIFTI (.surf.gii) nor FreeSurfer geometry ({error})"
        ) from error
    return np.asarray(vertices, dtype=np.float64), np.asarray(faces, dtype=np.int64)
