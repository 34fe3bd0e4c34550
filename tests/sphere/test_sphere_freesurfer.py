"""Generated fsaverage meshes against FreeSurfer's own files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

from helpers.refusals import refused
from icofactor.sphere import locate
from icofactor.sphere.hierarchy import icosphere, n_faces
from icofactor.sphere.sites import Sites
from icofactor.sphere.standard import freesurfer_mesh, same_listing

DENSITY = {4: "3k", 5: "10k", 6: "41k"}


def sphere_file(data_folder: Path, level: int, side: str) -> Path:
    return (
        data_folder
        / "resample"
        / f"fsaverage{level}_std_sphere.{side}.{DENSITY[level]}_fsavg_{side}.surf.gii"
    )


@pytest.mark.parametrize("level", [3, 4, 5, 6, 7])
def test_faces_equal_freesurfers(data_folder: Path, level: int) -> None:
    with np.load(data_folder / "freesurfer_ico_order.npz") as archive:
        np.testing.assert_array_equal(freesurfer_mesh(level).faces, archive[f"ico{level}_faces"])


@pytest.mark.parametrize("level", range(5))
def test_points_of_numbering_a_within_b(data_folder: Path, level: int) -> None:
    with np.load(data_folder / "freesurfer_ico_order.npz") as archive:
        expected = archive[f"ico{level}_to_ico7_index"]
    distance, indices = cKDTree(icosphere(7).vertices[: len(expected)]).query(
        freesurfer_mesh(level, "A").vertices
    )
    assert distance.max() < 1e-14
    np.testing.assert_array_equal(indices, expected)


@pytest.mark.parametrize("level", [4, 5, 6])
@pytest.mark.parametrize("side", ["L", "R"])
@pytest.mark.parametrize("on", ["vertices", "faces"])
def test_files_are_recognised_and_equal_the_generated_sites(
    data_folder: Path, level: int, side: str, on: str
) -> None:
    sites = Sites.from_file(sphere_file(data_folder, level, side), on)  # type: ignore[arg-type]
    generated = Sites.named(f"fsaverage{level}", on)  # type: ignore[arg-type]
    assert (sites.name, sites.level, sites.on) == (f"fsaverage{level}", level, on)
    np.testing.assert_allclose(sites.coordinates, generated.coordinates, rtol=0, atol=2e-4)
    np.testing.assert_array_equal(sites.deepest, generated.deepest)
    np.testing.assert_array_equal(sites.frames, generated.frames)


@pytest.mark.slow
def test_embedded_fsaverage5_of_nilearn() -> None:
    datasets = pytest.importorskip("nilearn.datasets")
    for surface in datasets.load_fsaverage("fsaverage5")["sphere"].parts.values():
        mesh = freesurfer_mesh(5)
        np.testing.assert_array_equal(mesh.faces, surface.faces)
        np.testing.assert_allclose(mesh.vertices, surface.coordinates / 100, rtol=0, atol=2e-4)
        assert Sites.from_sphere(surface.coordinates, surface.faces).name == "fsaverage5"


@pytest.mark.slow
@pytest.mark.parametrize("level", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("numbering", ["A", "B"])
def test_both_numberings_describe_the_hierarchy(level: int, numbering: str) -> None:
    mesh = freesurfer_mesh(level, numbering)
    corners = mesh.vertices[mesh.faces]
    assert np.linalg.det(corners).min() > 0  # counterclockwise
    np.testing.assert_array_equal(np.sort(mesh.face_to_quadtree), np.arange(n_faces(level)))
    np.testing.assert_array_equal(locate(corners.sum(axis=1), level), mesh.face_to_quadtree)
    assert same_listing(mesh.faces[:, ::-1], level) is mesh
    # children of row i of the level above, as documented
    coarse = freesurfer_mesh(level - 1, numbering).face_to_quadtree
    rows = mesh.face_to_quadtree // 4
    siblings = [coarse, np.repeat(coarse, 3)]
    expected = np.repeat(coarse, 4) if numbering == "A" else np.concatenate(siblings)
    np.testing.assert_array_equal(rows, expected)


def test_names_tell_the_numbering() -> None:
    for n in (3, 4, 5, 6, 7):
        assert freesurfer_mesh(n).name == f"fsaverage{n}"
    assert freesurfer_mesh(4, "B").name == "fsaverage4-B"
    assert freesurfer_mesh(5, "A").name == "fsaverage5-A"
    assert same_listing(freesurfer_mesh(2).faces, 2) is None  # FreeSurfer has no fsaverage2
    with refused("numbering"):
        freesurfer_mesh(4, "C")
