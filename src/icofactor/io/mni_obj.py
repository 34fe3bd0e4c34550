"""Surfaces in MNI's .obj format, as CIVET writes them: polygons as text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icofactor.io.guard import Unreadable, check_vertices, open_file

_HEADER = re.compile(rb"P(?:\s+[-+.\deE]+){5}\s+(\d{1,9})\s")
_NUMBERS = frozenset("0123456789.+-eE \t\r\n")
# Bytes for each vertex: its point, normal and colour, and two triangles.
_LARGEST = 400


def read_mni_obj(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read coordinates (V, 3) and triangles (F, 3)."""
    with open_file(path) as file:
        match = _HEADER.match(file.read(200))
        if match is None:
            raise Unreadable("is not a surface of CIVET: MNI's .obj as text begins with P")
        n = int(match[1])
        check_vertices(n)
        file.seek(match.end(1))
        text = file.read(_LARGEST * n).decode("ascii")
    # NumPy would stop before anything else, and warn.
    if not set(text) <= _NUMBERS:
        raise Unreadable("is damaged: it contains more than numbers")
    numbers = np.fromstring(text, sep=" ")
    # Points and normals, number of polygons, how they are coloured, colours, ends, corners.
    position = 6 * n
    n_faces, colouring = numbers[position : position + 2].astype(np.int64).tolist()
    n_colours = {0: 1, 1: n_faces, 2: n}.get(colouring, 0)
    position += 2 + 4 * n_colours
    ends = numbers[position : position + n_faces]
    corners = numbers[position + n_faces :].astype(np.int64)
    is_closed = np.array_equal(ends, 3 * np.arange(1, n_faces + 1))
    if n_faces < 1 or len(corners) != 3 * n_faces or not is_closed:
        raise Unreadable("contains polygons that are not triangles, or is truncated")
    return numbers[: 3 * n].reshape(n, 3), corners.reshape(-1, 3)
