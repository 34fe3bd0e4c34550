"""Means from vertices to faces and back."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.refusals import refused
from icofactor.sphere.operators import adjacency, face_to_vertex, vertex_to_face
from icofactor.sphere.sites import Sites


def test_means_by_hand() -> None:
    triangles = [[0, 1, 2], [2, 1, 3]]
    np.testing.assert_allclose(
        vertex_to_face(triangles, 5) @ [1.0, 2, 6, 7, 100], [3, 5], rtol=1e-15
    )
    np.testing.assert_allclose(face_to_vertex(triangles, 5) @ [3.0, 5], [3, 4, 4, 5, 0], rtol=1e-15)


@pytest.mark.parametrize("operator", [vertex_to_face, face_to_vertex])
def test_wrong_triangles_are_refused(operator: type) -> None:
    with refused("triangles"):
        operator(np.zeros((2, 4), int), 5)
    with refused("triangles"):
        operator([[0, 1, 3]], 3)


def test_neighbours_are_those_that_an_edge_joins() -> None:
    """A closed mesh meets every edge in both directions, an open one only once at its rim."""
    open_mesh = [[0, 1, 2], [2, 1, 3]]
    expected = np.array([[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 0]])
    np.testing.assert_array_equal(adjacency(open_mesh, 4).toarray(), expected)
    sites = Sites.named("fsaverage3")
    neighbours = adjacency(sites.triangles, sites.n)
    assert set(neighbours.data) == {1} and (neighbours != neighbours.T).nnz == 0
    assert sorted(np.unique(neighbours.sum(axis=1), return_counts=True)[1]) == [
        12,
        630,
    ]  # five or six neighbours
