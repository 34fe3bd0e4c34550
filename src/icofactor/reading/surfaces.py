"""Surfaces: points and triangles of GIFTI and FreeSurfer's geometry files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.reading.gifti import POINTS, TRIANGLES, parse_gifti
from icofactor.reading.limits import Unreadable, check_regular, check_vertices

_TRIANGLES, _QUADRANGLES = b"\xff\xff\xfe", (b"\xff\xff\xff", b"\xff\xff\xfd")
# FreeSurfer writes "created by ... on ..." and an empty line
_MAX_STAMP = 2**12


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


def read_geometry(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Points (V, 3) and triangles (F, 3) of a FreeSurfer file such as lh.sphere."""
    check_regular(path)
    stored = path.stat().st_size
    with path.open("rb") as file:
        magic = file.read(3)
        if magic in _QUADRANGLES:
            raise Unreadable(
                "is an old FreeSurfer surface of quadrangles, or a map; mris_convert makes triangles of it"
            )
        if magic != _TRIANGLES:
            raise Unreadable("is neither GIFTI (.surf.gii) nor FreeSurfer geometry")
        for _ in range(2):
            if not file.readline(_MAX_STAMP).endswith(b"\n"):
                raise Unreadable("is truncated or damaged: its first lines do not end")
        head = file.read(8)
        if len(head) < 8:
            raise Unreadable("is truncated: it ends in its header")
        n_points, n_triangles = struct.unpack(">2i", head)
        check_vertices(n_points)
        check_vertices((n_triangles + 1) // 2)  # a closed mesh has twice as many triangles as vertices
        size = 12 * (n_points + n_triangles)
        if file.tell() + size > stored:
            raise Unreadable(
                f"is truncated: {n_points} vertices and {n_triangles} triangles need {size} bytes, "
                f"{stored - file.tell()} are there"
            )
        points = np.frombuffer(file.read(12 * n_points), ">f4").reshape(n_points, 3)
        triangles = np.frombuffer(file.read(12 * n_triangles), ">i4").reshape(n_triangles, 3)
    return points, triangles
