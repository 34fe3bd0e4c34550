"""Surfaces in MNI's .obj format, as CIVET writes them: polygons as text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icofactor.io.guard import Unreadable, check_vertices, numbers_in, open_file

_HEADER = re.compile(rb"P(?:\s+[-+.\deE]+){5}\s+(\d{1,9})\s")
_MOST = 400  # bytes for each vertex: its point, normal and colour, and two triangles


def read_mni_obj(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Coordinates (V, 3) and triangles (F, 3)."""
    with open_file(path) as file:
        head = file.read(200)
        match = _HEADER.match(head)
        if match is None:
            what = "is binary" if head[:1] == b"p" else "is not a surface of CIVET"
            raise Unreadable(f"{what}: MNI's .obj format is read as text, which begins with P")
        n = int(match[1])
        check_vertices(n)
        file.seek(match.end(1))
        data = file.read(_MOST * n + 4096)
        if file.read(1):
            raise Unreadable(f"is too large for {n} vertices")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise Unreadable("is damaged: it contains more than numbers") from None
    numbers = numbers_in(text, len(text.split()), np.dtype(np.float64))
    at = 6 * n  # points and normals
    n_faces, colours = (int(x) for x in _taken(numbers, at, 2))
    at += 2 + 4 * {0: 1, 1: n_faces, 2: n}.get(colours, 0)
    ends, corners = _taken(numbers, at, n_faces), numbers[at + n_faces :]
    if (
        n_faces < 1
        or len(corners) != 3 * n_faces
        or not np.array_equal(ends, 3 * np.arange(1, n_faces + 1))
    ):
        raise Unreadable("contains polygons that are not triangles, or is truncated")
    return numbers[: 3 * n].reshape(n, 3), corners.astype(np.int64).reshape(-1, 3)


def _taken(numbers: NDArray[np.float64], at: int, n: int) -> NDArray[np.float64]:
    found = numbers[at : at + n]
    if n < 0 or len(found) != n:
        raise Unreadable("is truncated: numbers are missing at its end")
    return found
