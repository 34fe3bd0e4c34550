"""Surfaces: points and triangles from GIFTI and FreeSurfer files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.io.freesurfer import read_geometry
from icofactor.io.gifti import POINTS, TRIANGLES, parse_gifti
from icofactor.io.guard import Unreadable, naming


def read_gifti_surface(path: Path) -> tuple[NDArray[Any], NDArray[Any], str | None]:
    """Points (V, 3), triangles (F, 3) and the hemisphere, if it is told, of a GIFTI file."""
    file = parse_gifti(path)
    points = [array.data for array in file.arrays if array.intent == POINTS]
    triangles = [array.data for array in file.arrays if array.intent == TRIANGLES]
    if len(points) != 1 or len(triangles) != 1:
        raise Unreadable(
            f"has {len(points)} point sets and {len(triangles)} triangle lists; a surface (.surf.gii) has one of each"
        )
    return points[0], triangles[0], file.side


def read_surface(path: str | Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Coordinates (V, 3) and triangles (F, 3) of a GIFTI (.gii) or FreeSurfer surface file."""
    points, triangles, _ = read_surface_and_side(path)
    return points, triangles


def read_surface_and_side(path: str | Path) -> tuple[NDArray[np.float64], NDArray[np.int64], str | None]:
    """As `read_surface`, with "left" or "right" where a GIFTI file says so itself."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    with naming(path, "surface"):
        if path.name.endswith((".gii", ".gii.gz")):
            points, triangles, side = read_gifti_surface(path)
        else:
            points, triangles = read_geometry(path)
            side = None
        if points.ndim != 2 or points.shape[1] != 3:
            raise Unreadable(f"has points of shape {points.shape}; x, y and z of each are needed")
        if triangles.ndim != 2 or triangles.shape[1] != 3 or triangles.dtype.kind not in "iu":
            raise Unreadable(f"has triangles of shape {triangles.shape} and type {triangles.dtype}")
        corners = triangles.astype(np.int64)
        if corners.min() < 0 or corners.max() >= len(points):
            raise Unreadable(f"has {len(points)} vertices; its faces name vertices {corners.min()} to {corners.max()}")
        return points.astype(np.float64), corners, side
