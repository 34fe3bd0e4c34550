"""Sites: location in the hierarchy, constructors, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from helpers.marking import slow_but
from helpers.refusals import refused
from icofactor.sphere import locate
from icofactor.sphere.hierarchy import MAX_LEVEL, face_centres, icosphere, n_faces, n_nodes
from icofactor.sphere.sites import Sites
from icofactor.sphere.standard import freesurfer_mesh


def scrambled(level: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates and faces of an icosphere in random order, and the true face map."""
    rng = np.random.default_rng(seed)
    mesh = icosphere(level)
    vertex, face = rng.permutation(len(mesh.vertices)), rng.permutation(len(mesh.faces))
    return mesh.vertices[vertex], np.argsort(vertex)[mesh.faces[face]], face


LEVEL_2 = Sites.icosphere(2)


def displaced(points: np.ndarray, size: float) -> np.ndarray:
    """Points of the unit sphere moved smoothly along it, as registration does."""
    x, y, z = points.T
    moved = points + size * np.stack([np.sin(3 * y), np.cos(2 * z + 1), np.sin(2 * x - y)], axis=1)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


def assert_partition(sites: Sites) -> None:
    """Faces of all levels nest, and each site has exactly one."""
    deepest = sites.face_at(sites.max_level)
    assert deepest.dtype == np.int64
    for level in range(sites.max_level + 1):
        faces = sites.face_at(level)
        assert faces.min() >= 0
        assert faces.max() < sites.n_roots * 4**level
        np.testing.assert_array_equal(faces, deepest // 4 ** (sites.max_level - level))


@pytest.mark.parametrize(
    "name", slow_but((f"fsaverage{n}" for n in range(3, 8)), "fsaverage3", "fsaverage5")
)
@pytest.mark.parametrize("on", ["vertices", "faces"])
def test_named_meshes(name: str, on: str) -> None:
    level = int(name[-1])
    sites = Sites.named(name, on)  # type: ignore[arg-type]
    n = n_nodes(level) if on == "vertices" else n_faces(level)
    assert (sites.n, sites.level, sites.max_level, sites.n_roots) == (n, level, level, 20)
    assert (sites.name, sites.on, sites.n_mesh, len(sites)) == (name, on, n, n)
    np.testing.assert_allclose(np.linalg.norm(sites.coordinates, axis=1), 1, rtol=0, atol=1e-14)
    assert not sites.hemisphere.any()
    assert sites.triangles.shape == (n_faces(level), 3)
    assert_partition(sites)
    if on == "faces":
        np.testing.assert_array_equal(np.sort(sites.face_at(level)), np.arange(n))
        np.testing.assert_array_equal(locate(sites.coordinates, level), sites.face_at(level))


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        *(("mesh", [name]) for name in ("fsLR164k", "civet", "fsaverage2", "fsaverage8", "")),
        ("mesh", ["fsaverage4-C"]),
        ("on", ["fsaverage3", "edges"]),
        ("hemi", ["fsaverage3", "vertices", "lh"]),
    ],
)
def test_unknown_names_are_refused(argument: str, words: list[str]) -> None:
    assert Sites.named("fsaverage").name == "fsaverage7"
    with refused(argument):
        Sites.named(*words)  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [3, 4, 5])
@pytest.mark.parametrize("numbering", ["A", "B"])
@pytest.mark.parametrize("on", ["vertices", "faces"])
def test_either_numbering_is_named_and_the_name_leads_back(
    level: int, numbering: str, on: str
) -> None:
    mesh = freesurfer_mesh(level, numbering)
    rounded = np.round(mesh.vertices, 4) * 100  # as files have it
    for sites in (Sites.from_sphere(rounded, mesh.faces, on), Sites.from_topology(mesh.faces, on)):  # type: ignore[arg-type]
        assert sites.name == mesh.name
        again = Sites.named(sites.name, on)  # type: ignore[arg-type]
        np.testing.assert_array_equal(sites.deepest, again.deepest)
        np.testing.assert_array_equal(sites.coordinates, again.coordinates)
        np.testing.assert_array_equal(sites.triangles, again.triangles)


def test_two_hemispheres() -> None:
    left, both_sides = Sites.named("fsaverage4"), Sites.named("fsaverage4", hemi="both")
    assert (both_sides.n, both_sides.n_roots, both_sides.n_mesh, both_sides.name) == (
        5124,
        40,
        5124,
        "fsaverage4",
    )
    np.testing.assert_array_equal(both_sides.hemisphere, np.repeat([0, 1], left.n))
    np.testing.assert_array_equal(both_sides.triangles, left.triangles)
    assert_partition(both_sides)
    for level in range(5):
        np.testing.assert_array_equal(both_sides.face_at(level)[: left.n], left.face_at(level))
        np.testing.assert_array_equal(
            both_sides.face_at(level)[left.n :], left.face_at(level) + n_faces(level)
        )
    levels, index = np.array([0, 2, 0, 2]), np.array([19, 319, 20, 320])
    np.testing.assert_array_equal(both_sides.face_hemisphere(levels, index), [0, 0, 1, 1])
    np.testing.assert_array_equal(
        both_sides.face_centres(levels, index), face_centres(levels, [19, 319, 0, 0])
    )
    np.testing.assert_array_equal(
        both_sides.face_hemisphere(2, both_sides.face_at(2)), both_sides.hemisphere
    )
    right = Sites.named("fsaverage4", hemi="right")
    np.testing.assert_array_equal(right.deepest, left.deepest)


def test_hemispheres_must_match() -> None:
    coarse = Sites.icosphere(2)
    with refused("left"):
        Sites.both(coarse, Sites.icosphere(3))
    with refused("left"):
        Sites.both(coarse, Sites.icosphere(2, on="faces"))
    with refused("left"):
        Sites.both(coarse, Sites.both(coarse, coarse))
    assert Sites.both(coarse, Sites.from_sphere(*scrambled(2)[:2])).triangles is None


def test_levels_and_faces_out_of_range() -> None:
    sites = Sites.named("fsaverage3")
    for level in (-1, 4):
        with refused("level"):
            sites.face_at(level)
    for index in (-1, 20):
        with refused("index"):
            sites.face_centres([0], [index])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=324, max_size=324))
def test_subsets_answer_as_the_whole(keep: list[bool]) -> None:
    sites = Sites.icosphere(2, hemi="both")
    mask = np.array(keep)
    subset = sites.subset(mask)
    assert subset.n == mask.sum()
    assert (subset.n_mesh, subset.level, subset.n_roots) == (324, 2, 40)
    np.testing.assert_array_equal(subset.position, np.flatnonzero(mask))
    np.testing.assert_array_equal(subset.coordinates, sites.coordinates[mask])
    np.testing.assert_array_equal(subset.hemisphere, sites.hemisphere[mask])
    for level in range(3):
        np.testing.assert_array_equal(subset.face_at(level), sites.face_at(level)[mask])
    half = subset.subset(np.arange(subset.n)[::2])
    np.testing.assert_array_equal(half.position, np.flatnonzero(mask)[::2])
    sides = [
        side.subset(keep) for side, keep in zip((LEVEL_2, LEVEL_2), np.split(mask, 2), strict=False)
    ]
    joined = Sites.both(*sides)
    for field in ("coordinates", "hemisphere", "position", "deepest", "frames"):
        np.testing.assert_array_equal(getattr(joined, field), getattr(subset, field))


@pytest.mark.parametrize(
    "keep", [np.ones(10241, bool), [10242], [-1], [0.5], np.ones((10242, 1), bool)]
)
def test_wrong_subsets(keep: object) -> None:
    with refused("keep"):
        Sites.named("fsaverage5").subset(keep)  # type: ignore[arg-type]


def test_arrays_are_read_only_and_input_is_left_alone() -> None:
    points, faces, _ = scrambled(1)
    sites = Sites.from_sphere(points, faces)
    for field in ("coordinates", "hemisphere", "deepest", "triangles", "position"):
        assert not getattr(sites, field).flags.writeable
    points[0] = 0
    faces[0] = 0
    assert np.linalg.norm(sites.coordinates[0]) > 0.5
    with pytest.raises(AttributeError):
        sites.level = 3  # type: ignore[misc]


def test_any_points() -> None:
    points = np.random.default_rng(0).normal(size=(500, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    sites = Sites.from_sphere(73.5 * points)
    assert (sites.on, sites.max_level) == ("points", 7)
    assert sites.level is sites.name is sites.triangles is None
    np.testing.assert_allclose(sites.coordinates, points, rtol=0, atol=1e-15)
    assert_partition(sites)
    agree = sites.face_at(3) == locate(points, 3)
    assert agree.mean() > 0.97  # all but those within the turn's reach of an edge


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((4, 2)),
        np.zeros((0, 3)),
        [[1, 0, 0], [0, 0, 0]],
        [[1, 0, 0], [0, np.nan, 0]],
        [[1, 0, 0], [0, 1.1, 0], [0, 0, 1]],
        Sites.named("fsaverage3").coordinates + np.array([0, 0, 0.5]),
    ],
)
def test_wrong_coordinates(points: object) -> None:
    with refused("coordinates"):
        Sites.from_sphere(points)  # type: ignore[arg-type]


def test_faces_need_a_mesh_and_must_fit() -> None:
    points, faces, _ = scrambled(1)
    with refused("faces"):
        Sites.from_sphere(points, on="faces")
    with refused("faces"):
        Sites.from_sphere(points[:41], faces)
    with refused("faces"):
        Sites.from_topology(faces[:-1])
    mixed = freesurfer_mesh(4, "A").vertices, freesurfer_mesh(4, "B").faces
    with refused("faces"):
        Sites.from_sphere(*mixed)


@pytest.mark.parametrize("level", [1, 4, 5])
@pytest.mark.parametrize("mirror", [False, True])
def test_turned_and_scrambled_mesh(level: int, mirror: bool) -> None:
    """The hierarchy turns with the mesh; 4-decimal noise does not matter."""
    points, faces, face_map = scrambled(level)
    points = points @ Rotation.from_euler("xyz", [10, 25, -17], degrees=True).as_matrix().T
    points = points * [-1, 1, 1] if mirror else points
    rounded = np.round(points, 4)
    sites = Sites.from_sphere(rounded, faces, on="faces")
    assert (sites.level, sites.name) == (level, None)
    assert_partition(sites)
    if not mirror:
        np.testing.assert_array_equal(sites.face_at(level), face_map)
    centres = sites.face_centres(np.full(sites.n, level), sites.face_at(level))
    np.testing.assert_allclose(centres, sites.coordinates, rtol=0, atol=5e-4)
    vertices, exact = Sites.from_sphere(rounded, faces), Sites.from_sphere(points, faces)
    np.testing.assert_array_equal(vertices.deepest, exact.deepest)
    assert np.bincount(vertices.face_at(level)).max() == 1


@pytest.mark.parametrize("level", [5, 6])
def test_displaced_mesh_like_fslr164k_and_civet(level: int) -> None:
    """Icosahedral in topology, in another order, with points off the midpoints."""
    points, faces, _ = scrambled(level, seed=3)
    moved = displaced(points @ Rotation.from_euler("z", 20, degrees=True).as_matrix().T, 0.03)
    on_faces, on_vertices = (Sites.from_sphere(moved, faces, on) for on in ("faces", "vertices"))
    assert (on_faces.level, on_faces.name, on_vertices.level) == (level, None, level)
    assert_partition(on_vertices)
    np.testing.assert_array_equal(np.sort(on_faces.face_at(level)), np.arange(n_faces(level)))
    # the recovered hierarchy agrees with geometry up to the displacement
    geometric = locate(on_faces.coordinates @ on_faces.frames[0], 0)
    assert np.mean(geometric == on_faces.face_at(0)) > 0.9
    located = on_vertices.face_centres(np.full(on_vertices.n, 3), on_vertices.face_at(3))
    assert np.sum(located * moved, axis=1).min() > np.cos(0.12)


def test_fslr32k(data_folder: Path) -> None:
    folder = data_folder / "resample"
    left_sites, right_sites = (
        Sites.from_file(folder / f"{s}.sphere.32k_fs_LR.surf.gii") for s in "LR"
    )
    assert (left_sites.n, left_sites.max_level, left_sites.on) == (32492, MAX_LEVEL, "vertices")
    assert left_sites.level is left_sites.name is None
    assert_partition(left_sites)
    assert np.all(np.bincount(left_sites.face_at(4), minlength=n_faces(4)) > 0)
    faces = Sites.from_file(folder / "L.sphere.32k_fs_LR.surf.gii", on="faces")
    assert (faces.n, faces.level) == (64980, None)
    agree = locate(faces.coordinates, 3) == faces.face_at(3)
    assert agree.mean() > 0.97
    hemispheres = Sites.both(left_sites, right_sites)
    assert (hemispheres.n, hemispheres.n_roots) == (64984, 40)
    assert hemispheres.triangles is not None  # right differs from left in orientation only


def test_files(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    mesh = freesurfer_mesh(3)
    path = tmp_path / "lh.sphere"
    nibabel.freesurfer.write_geometry(path, 100 * mesh.vertices, mesh.faces)
    assert Sites.from_file(path).name == "fsaverage3"
    assert Sites.from_file(str(path), on="faces").n == 1280
    pial = tmp_path / "lh.pial"
    nibabel.freesurfer.write_geometry(pial, mesh.vertices * [60, 80, 100], mesh.faces)
    with refused("lh.pial"):
        Sites.from_file(pial)
    shape = nibabel.gifti.GiftiDataArray(np.zeros(5, np.float32))
    nibabel.save(nibabel.gifti.GiftiImage(darrays=[shape]), tmp_path / "thickness.shape.gii")
    (tmp_path / "notes.surf.gii").write_text("no surface")
    (tmp_path / "notes.txt").write_text("no surface")
    for name in ("notes.surf.gii", "notes.txt", "thickness.shape.gii"):
        with refused(name):
            Sites.from_file(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Sites.from_file(tmp_path / "nowhere.gii")
