"""Whether sites that came from a file are sites: a damaged number must not become a wrong answer, or a crash."""

from __future__ import annotations

from typing import Any

import numpy as np

from icofactor.io.guard import Unreadable
from icofactor.sphere.hierarchy import MAX_LEVEL
from icofactor.sphere.sites import Sites

_ON = ("vertices", "faces", "points")
_UNIT, _ROTATION = 1e-3, 1e-3


def checked_sites(arrays: dict[str, Any], words: Any) -> Sites:
    """Sites from their arrays (`triangles` may be None) and from `on`, `level`, `name` and `n_mesh`."""
    if not isinstance(words, dict) or set(words) != {"on", "level", "name", "n_mesh"}:
        raise Unreadable("is damaged: what its sites are is not told")
    on, level, name, n_mesh = (words[key] for key in ("on", "level", "name", "n_mesh"))
    if on not in _ON or not isinstance(name, str | None):
        raise Unreadable("is damaged: its sites are neither vertices, faces nor points")
    if not (level is None or (_whole(level) and 0 <= level <= MAX_LEVEL)):
        raise Unreadable(f"is damaged: the level of its mesh is {str(level)[:40]}")
    n, n_sides = _check_points(arrays)
    top = 20 * n_sides * 4 ** (MAX_LEVEL if level is None else level)
    if not _whole(n_mesh) or not n <= n_mesh < 2**40:
        raise Unreadable(f"is damaged: {n} sites of a mesh that has {str(n_mesh)[:40]}")
    for key, below in (("hemisphere", n_sides), ("position", n_mesh), ("deepest", top)):
        values = arrays[key]
        if values.shape != (n,) or values.dtype.kind not in "iu" or values.min() < 0 or values.max() >= below:
            raise Unreadable(f"is damaged: {key} of its {n} sites is not made of numbers from 0 to {below - 1}")
    triangles = arrays["triangles"]
    if triangles is not None:
        corners = triangles.ndim == 2 and triangles.shape[1] == 3 and triangles.dtype.kind in "iu" and triangles.size
        # a mesh of n vertices has numbers below n; one of n faces has fewer vertices than faces
        if not corners or triangles.min() < 0 or triangles.max() >= n_mesh:
            raise Unreadable("is damaged: the triangles of its mesh are none")
    return Sites(**arrays, on=on, level=level, name=name, n_mesh=n_mesh)


def _check_points(arrays: dict[str, Any]) -> tuple[int, int]:
    """Number of sites and of hemispheres."""
    points, frames = arrays["coordinates"], arrays["frames"]
    if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0 or points.dtype.kind != "f":
        raise Unreadable(f"is damaged: coordinates of shape {points.shape}")
    # NaN is not less than anything
    if not np.abs(np.square(points).sum(axis=1) - 1).max() < _UNIT:
        raise Unreadable("is damaged: its sites do not lie on a sphere of radius 1")
    if frames.shape not in ((1, 3, 3), (2, 3, 3)) or frames.dtype.kind != "f":
        raise Unreadable(f"is damaged: rotations of shape {frames.shape}")
    if not np.abs(frames @ np.swapaxes(frames, 1, 2) - np.eye(3)).max() < _ROTATION:
        raise Unreadable("is damaged: its rotations are none")
    return len(points), len(frames)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
