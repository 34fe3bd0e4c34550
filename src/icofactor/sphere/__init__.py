"""The icosahedral hierarchy and where sites lie on it; knows no data and no factorization."""

from __future__ import annotations

from icofactor.sphere.fsaverage import FreeSurferMesh, freesurfer_mesh
from icofactor.sphere.hierarchy import (
    MAX_LEVEL,
    Icosphere,
    ancestor,
    children,
    face_centres,
    face_corners,
    icosphere,
    n_edges,
    n_faces,
    n_nodes,
    parent,
)
from icofactor.sphere.locate import TURN, locate
from icofactor.sphere.operators import face_to_vertex, vertex_to_face
from icofactor.sphere.recognise import IcosahedralMatch, recognise
from icofactor.sphere.sites import Sites

__all__ = [
    "MAX_LEVEL",
    "TURN",
    "FreeSurferMesh",
    "IcosahedralMatch",
    "Icosphere",
    "Sites",
    "ancestor",
    "children",
    "face_centres",
    "face_corners",
    "face_to_vertex",
    "freesurfer_mesh",
    "icosphere",
    "locate",
    "n_edges",
    "n_faces",
    "n_nodes",
    "parent",
    "recognise",
    "vertex_to_face",
]
