"""fsaverage3 to fsaverage7 generated in FreeSurfer's own numbering: nothing to download.

Both numberings start from the same 20 faces and number new vertices at first sight. They differ in where the
children of face i stand among 4F rows, and in how the icosahedron is turned:

- A (FreeSurfer's fsaverage3 and 4): rows 4i..4i+3; turned by 72° about z;
- B (FreeSurfer's fsaverage5, 6 and 7): rows i, F+3i, F+3i+1, F+3i+2.

So fsaverage4 (A) is not the beginning of fsaverage5 (B). Files exist with either, at all levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from icofactor.errors import ArgumentError
from icofactor.sphere.hierarchy import (
    ROOTS,
    Floats,
    Ints,
    Triangles,
    append_midpoints,
    base_vertices,
    check_level,
    icosphere,
    listing_order,
    number_midpoints,
)
from icofactor.sphere.locate import locate

NUMBERINGS = ("A", "B")
NAMED_LEVELS = (3, 4, 5, 6, 7)


@dataclass(frozen=True, eq=False)
class FreeSurferMesh:
    """A standard sphere: unit `vertices`, `faces` as listed, and the quadtree index of each face."""

    level: int
    numbering: str
    vertices: Floats
    faces: Triangles
    face_to_quadtree: Ints

    @property
    def name(self) -> str:
        """As "fsaverage5"; with "-A" or "-B" added in the numbering FreeSurfer does not give that name."""
        suffix = "" if self.numbering == usual_numbering(self.level) else f"-{self.numbering}"
        return f"fsaverage{self.level}{suffix}"


def usual_numbering(level: int) -> str:
    """The numbering FreeSurfer distributes at `level`: A up to 4, B from 5 on."""
    return "A" if level <= 4 else "B"


def _chain_a(level: int) -> tuple[Floats, Triangles]:
    vertices, faces = base_vertices(turns=1), np.array(ROOTS, dtype=np.int32)
    for _ in range(level):
        midpoints, ends = number_midpoints(faces, len(vertices))
        m20, m12, m01 = midpoints.T
        a, b, c = faces.T
        rows = [(a, m01, m20), (m20, m12, c), (m01, m12, m20), (m01, b, m12)]
        faces = np.stack([np.stack(r, axis=1) for r in rows], axis=1).reshape(-1, 3).astype(np.int32)
        vertices = append_midpoints(vertices, ends)
    return vertices, faces


@cache
def freesurfer_mesh(level: int, numbering: str | None = None) -> FreeSurferMesh:
    """The sphere of `level` in the given numbering ("A", "B"; None: the one FreeSurfer distributes)."""
    level = check_level(level)
    numbering = usual_numbering(level) if numbering is None else numbering
    if numbering not in NUMBERINGS:
        raise ArgumentError("numbering", numbering, "'A' or 'B'")
    if numbering == "B":
        vertices, order = icosphere(level).vertices, listing_order(level)
        faces = icosphere(level).faces[order]
    else:
        vertices, faces = _chain_a(level)
        order = locate(vertices[faces].sum(axis=1), level)
    for array in (vertices, faces, order):
        array.setflags(write=False)
    return FreeSurferMesh(level, numbering, vertices, faces, order)


def same_listing(faces: ArrayLike, level: int) -> FreeSurferMesh | None:
    """The standard mesh that lists the same triangles in the same order, or None.

    The order of the corners within a triangle does not matter.
    """
    if level not in NAMED_LEVELS:
        return None
    given = np.sort(np.asarray(faces), axis=1)
    for numbering in NUMBERINGS:
        mesh = freesurfer_mesh(level, numbering)
        if np.array_equal(given, np.sort(mesh.faces, axis=1)):
            return mesh
    return None
