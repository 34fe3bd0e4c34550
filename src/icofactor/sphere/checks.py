"""Whether sites that came from a file are sites: a damaged number must not become a wrong answer, or a crash."""

from __future__ import annotations

import numpy as np

from icofactor.io.guard import Unreadable
from icofactor.sphere.hierarchy import MAX_LEVEL, n_faces
from icofactor.sphere.sites import Sites

_CLOSE = 1e-3


def check_sites(sites: Sites) -> Sites:
    """The same sites; refused where their numbers, which have the right shapes, contradict each other."""
    if not 0 <= sites.max_level <= MAX_LEVEL:
        raise Unreadable(f"is damaged: the level of its mesh is {sites.level}")
    if len(sites.frames) not in (1, 2) or not 0 < sites.n <= sites.n_mesh < 2**40:
        raise Unreadable(f"is damaged: {sites.n} sites of a mesh of {sites.n_mesh}, on {len(sites.frames)} spheres")
    if np.abs(np.square(sites.coordinates).sum(axis=1) - 1).max() >= _CLOSE:
        raise Unreadable("is damaged: its sites do not lie on a sphere of radius 1")
    if np.abs(sites.frames @ np.swapaxes(sites.frames, 1, 2) - np.eye(3)).max() >= _CLOSE:
        raise Unreadable("is damaged: the matrices that turn its hierarchy are not rotations")
    limits = {"position": sites.n_mesh, "deepest": len(sites.frames) * n_faces(sites.max_level)}
    if sites.triangles is not None:
        # a mesh of n vertices has numbers below n; one of n faces has fewer vertices than faces
        limits["triangles"] = sites.n_mesh
    for name, below in limits.items():
        values = getattr(sites, name)
        if not values.size or values.max() >= below:
            raise Unreadable(f"is damaged: {name} of its sites must hold numbers from 0 to {below - 1}")
    return sites
