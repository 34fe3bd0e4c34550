"""Maps show nothing of the triangles they were fitted on: steps across the borders of faces are like those inside."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import icofactor as ico

LEVEL = 2


def mesh_edges(triangles: np.ndarray) -> np.ndarray:
    """(E, 2) pairs of vertices that an edge joins, each once."""
    corners = np.asarray(triangles, dtype=np.int64)
    pairs = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    return np.unique(np.sort(pairs, axis=1), axis=0)


def border_ratio(maps: np.ndarray, edges: np.ndarray, face: np.ndarray) -> float:
    """Mean step of maps along edges that cross borders of faces, over that along edges inside faces.

    1 for maps that know nothing of the faces; a patchwork of them, constant inside each, has infinity.

    Parameters
    ----------
    maps : (n_maps, n_sites)
    edges : (E, 2) pairs of sites
    face : (n_sites,) the face that holds each site
    """
    steps = np.abs(maps[:, edges[:, 0]] - maps[:, edges[:, 1]]).mean(axis=0)
    across = face[edges[:, 0]] != face[edges[:, 1]]
    inside = float(steps[~across].mean())
    return float(steps[across].mean()) / inside if inside > 0 else np.inf


@pytest.fixture(scope="module")
def left_cortex(thickness: np.ndarray) -> tuple[np.ndarray, ico.Sites, np.ndarray]:
    """Thickness of 60 people on the left hemisphere, its sites, and which are cortex."""
    sites = ico.Sites.named("fsaverage5")
    X = thickness[:60, : sites.n]
    return X, sites, X.any(axis=0)


@pytest.mark.parametrize("method", list(ico.METHODS))
def test_maps_have_no_borders_of_faces(
    method: str, left_cortex: tuple[np.ndarray, ico.Sites, np.ndarray], data_folder: object
) -> None:
    X, sites, cortex = left_cortex
    model = ico.CorticalFactorization(
        6,
        method=method,
        level=LEVEL,
        mask=cortex,
        n_starts=2,
        n_iter=60,
        refinement=None,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few updates do not converge
        model.fit(X)
    assert sites.triangles is not None
    edges = mesh_edges(sites.triangles)
    edges = edges[cortex[edges].all(axis=1)]
    assert border_ratio(model.components_, edges, sites.face_at(LEVEL)) <= 1.5
