"""The icosahedral hierarchy and where sites lie on it; knows no data and no factorization."""

from __future__ import annotations

from icofactor.sphere.hierarchy import (
    MAX_LEVEL,
    TURN,
    Icosphere,
    face_centres,
    face_corners,
    icosphere,
    locate,
    n_faces,
    n_nodes,
)
from icofactor.sphere.operators import face_to_vertex, vertex_to_face
from icofactor.sphere.recognise import IcosahedralMatch, recognise
from icofactor.sphere.sites import Sites
from icofactor.sphere.standard import FreeSurferMesh, freesurfer_mesh

__all__ = [
    "MAX_LEVEL",
    "TURN",
    "FreeSurferMesh",
    "IcosahedralMatch",
    "Icosphere",
    "Sites",
    "face_centres",
    "face_corners",
    "face_to_vertex",
    "freesurfer_mesh",
    "icosphere",
    "locate",
    "n_faces",
    "n_nodes",
    "recognise",
    "vertex_to_face",
]
