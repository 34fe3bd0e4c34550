"""Sites: location in the hierarchy, constructors, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from helpers.marking import slow_but
from icofactor.errors import ArgumentError
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
        found = sites.face_at(level)
        assert found.shape == (sites.n,)
        assert found.min() >= 0
        assert found.max() < sites.n_roots * 4**level
        np.testing.assert_array_equal(found, deepest // 4 ** (sites.max_level - level))


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
    assert repr(sites) == f"Sites({n} {on} of {name})"
    np.testing.assert_allclose(np.linalg.norm(sites.coordinates, axis=1), 1, rtol=0, atol=1e-14)
    assert not sites.hemisphere.any()
    assert sites.triangles is not None
    assert sites.triangles.shape == (n_faces(level), 3)
    assert_partition(sites)
    if on == "faces":
        np.testing.assert_array_equal(np.sort(sites.face_at(level)), np.arange(n))
        np.testing.assert_array_equal(locate(sites.coordinates, level), sites.face_at(level))


def test_sites_lie_in_or_beside_their_face() -> None:
    sites = Sites.named("fsaverage5")
    for level in range(6):
        corners = sites.face_corners(np.full(sites.n, level), sites.face_at(level))
        a, b, c = np.moveaxis(corners, 1, 0)
        for u, v in ((a, b), (b, c), (c, a)):
            normal = np.cross(u, v)
            side = np.sum(normal * sites.coordinates, axis=1) / np.linalg.norm(normal, axis=1)
            assert side.min() > -1.1e-3  # no further outside than the turn


def test_fsaverage_is_fsaverage7() -> None:
    assert Sites.named("fsaverage").name == "fsaverage7"


@pytest.mark.parametrize(
    "name", ["fsLR164k", "civet", "fsaverage2", "fsaverage8", "fsaverage4-C", ""]
)
def test_unknown_names_point_to_files(name: str) -> None:
    with pytest.raises(
        ArgumentError, match=r"not known by name.*fsaverage5.*Sites\.from_file.*Sites\.from_sphere"
    ) as refusal:
        Sites.named(name)
    assert refusal.value.argument == "mesh"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "edges"}, "on must be 'vertices' or 'faces'; found 'edges'"),
        ({"hemi": "lh"}, "hemi: must be 'left', 'right' or 'both'; found 'lh'"),
    ],
)
def test_wrong_words(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sites.named("fsaverage3", **arguments)  # type: ignore[arg-type]


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
        assert sites.name is not None
        again = Sites.named(sites.name, on)  # type: ignore[arg-type]
        np.testing.assert_array_equal(sites.deepest, again.deepest)
        np.testing.assert_array_equal(sites.coordinates, again.coordinates)
        np.testing.assert_array_equal(sites.triangles, again.triangles)


def test_two_hemispheres() -> None:
    one, two = Sites.named("fsaverage4"), Sites.named("fsaverage4", hemi="both")
    assert repr(two) == "Sites(5124 vertices of fsaverage4, both hemispheres)"
    assert (two.n, two.n_roots, two.n_mesh, two.name) == (5124, 40, 5124, "fsaverage4")
    np.testing.assert_array_equal(two.hemisphere, np.repeat([0, 1], one.n))
    np.testing.assert_array_equal(two.triangles, one.triangles)
    assert_partition(two)
    for level in range(5):
        np.testing.assert_array_equal(two.face_at(level)[: one.n], one.face_at(level))
        np.testing.assert_array_equal(
            two.face_at(level)[one.n :], one.face_at(level) + n_faces(level)
        )
    levels, index = np.array([0, 2, 0, 2]), np.array([19, 319, 20, 320])
    np.testing.assert_array_equal(two.face_hemisphere(levels, index), [0, 0, 1, 1])
    np.testing.assert_array_equal(
        two.face_centres(levels, index), face_centres(levels, [19, 319, 0, 0])
    )
    np.testing.assert_array_equal(two.face_hemisphere(2, two.face_at(2)), two.hemisphere)
    right = Sites.named("fsaverage4", hemi="right")
    np.testing.assert_array_equal(right.deepest, one.deepest)


def test_hemispheres_must_match() -> None:
    one = Sites.icosphere(2)
    with pytest.raises(ValueError, match="same kind"):
        Sites.both(one, Sites.icosphere(3))
    with pytest.raises(ValueError, match="same kind"):
        Sites.both(one, Sites.icosphere(2, on="faces"))
    with pytest.raises(ValueError, match="one hemisphere each"):
        Sites.both(one, Sites.both(one, one))
    assert Sites.both(one, Sites.from_sphere(*scrambled(2)[:2])).triangles is None


def test_levels_and_faces_out_of_range() -> None:
    sites = Sites.named("fsaverage3")
    for level in (-1, 4):
        with pytest.raises(ValueError, match=f"between 0 and 3.*found {level}"):
            sites.face_at(level)
    for index in (-1, 20):
        with pytest.raises(ValueError, match="index must be faces"):
            sites.face_centres([0], [index])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=324, max_size=324))
def test_subsets_answer_as_the_whole(keep: list[bool]) -> None:
    whole = Sites.icosphere(2, hemi="both")
    mask = np.array(keep)
    part = whole.subset(mask)
    assert part.n == mask.sum()
    assert (part.n_mesh, part.level, part.n_roots) == (324, 2, 40)
    np.testing.assert_array_equal(part.position, np.flatnonzero(mask))
    np.testing.assert_array_equal(part.coordinates, whole.coordinates[mask])
    np.testing.assert_array_equal(part.hemisphere, whole.hemisphere[mask])
    for level in range(3):
        np.testing.assert_array_equal(part.face_at(level), whole.face_at(level)[mask])
    half = part.subset(np.arange(part.n)[::2])
    np.testing.assert_array_equal(half.position, np.flatnonzero(mask)[::2])


def test_subset_of_both_equals_both_of_subsets() -> None:
    one = Sites.icosphere(2)
    left, right = np.arange(162) % 3 == 0, np.arange(162) % 5 == 0
    a = Sites.both(one, one).subset(np.concatenate([left, right]))
    b = Sites.both(one.subset(left), one.subset(right))
    for field in ("coordinates", "hemisphere", "position", "deepest", "frames"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
    assert a.n_mesh == b.n_mesh
    assert (
        repr(a)
        == f"Sites({a.n} vertices of an icosahedral mesh of level 2, both hemispheres, of 324)"
    )


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (np.ones(10241, bool), "10242 sites; found 10241 entries"),
        ([10242], "numbers 0 to 10241; found 10242"),
        ([-1], "numbers 0 to 10241; found -1"),
        ([0.5], "boolean mask or integers; found float64"),
        (np.ones((10242, 1), bool), "one dimension"),
    ],
)
def test_wrong_subsets(keep: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as refusal:
        Sites.named("fsaverage5").subset(keep)  # type: ignore[arg-type]
    assert refusal.value.argument == "keep"


def test_arrays_are_read_only_and_input_is_left_alone() -> None:
    points, faces, _ = scrambled(1)
    sites = Sites.from_sphere(points, faces)
    for array in (
        sites.coordinates,
        sites.hemisphere,
        sites.deepest,
        sites.triangles,
        sites.position,
    ):
        assert array is not None
        assert not array.flags.writeable
    points[0] = 0
    faces[0] = 0
    assert np.linalg.norm(sites.coordinates[0]) > 0.5
    with pytest.raises(AttributeError):
        sites.level = 3  # type: ignore[misc]


def test_any_points() -> None:
    points = np.random.default_rng(0).normal(size=(500, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    sites = Sites.from_sphere(73.5 * points)
    assert (sites.on, sites.level, sites.max_level, sites.name, sites.triangles) == (
        "points",
        None,
        7,
        None,
        None,
    )
    assert repr(sites) == "Sites(500 points)"
    np.testing.assert_allclose(sites.coordinates, points, rtol=0, atol=1e-15)
    assert_partition(sites)
    agree = sites.face_at(3) == locate(points, 3)
    assert agree.mean() > 0.97  # all but those within the turn's reach of an edge


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros((4, 2)), r"shape \(n, 3\)"),
        (np.zeros((0, 3)), "n > 0"),
        ([[1, 0, 0], [0, 0, 0]], "distances from the origin from 0 to 1"),
        ([[1, 0, 0], [0, np.nan, 0]], "finite; found .* at vertex 1"),
        ([[1, 0, 0], [0, 1.1, 0], [0, 0, 1]], "white, pial or inflated"),
        (
            Sites.named("fsaverage3").coordinates + np.array([0, 0, 0.5]),
            r"a sphere about \(.*0\.5\); move its centre",
        ),
    ],
)
def test_wrong_coordinates(points: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as refusal:
        Sites.from_sphere(points)  # type: ignore[arg-type]
    assert refusal.value.argument == "coordinates"


def test_faces_need_a_mesh_and_must_fit() -> None:
    points, faces, _ = scrambled(1)
    with pytest.raises(ValueError, match="pass faces"):
        Sites.from_sphere(points, on="faces")
    with pytest.raises(ValueError, match="vertices, 0 to 40; found 0 to 41"):
        Sites.from_sphere(points[:41], faces)
    with pytest.raises(ValueError, match="icosahedral mesh; these 79 triangles are not"):
        Sites.from_topology(faces[:-1])
    mixed = freesurfer_mesh(4, "A").vertices, freesurfer_mesh(4, "B").faces
    with pytest.raises(ValueError, match="do not belong together"):
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
    on_faces, on_vertices = (
        Sites.from_sphere(moved, faces, on="faces"),
        Sites.from_sphere(moved, faces),
    )
    assert (on_faces.level, on_faces.name, on_vertices.level) == (level, None, level)
    assert_partition(on_vertices)
    np.testing.assert_array_equal(np.sort(on_faces.face_at(level)), np.arange(n_faces(level)))
    # the recovered hierarchy agrees with geometry up to the displacement
    geometric = locate(on_faces.coordinates @ on_faces.frames[0], 0)
    assert np.mean(geometric == on_faces.face_at(0)) > 0.9
    located = on_vertices.face_centres(np.full(on_vertices.n, 3), on_vertices.face_at(3))
    assert np.sum(located * moved, axis=1).min() > np.cos(0.12)


def test_topology_alone() -> None:
    _, faces, _ = scrambled(3)
    for on in ("vertices", "faces"):
        sites = Sites.from_topology(faces, on)  # type: ignore[arg-type]
        assert (sites.level, sites.name, sites.on) == (3, None, on)
        assert_partition(sites)
    assert np.linalg.det(Sites.from_topology(faces).coordinates[faces]).min() > 0
    np.testing.assert_array_equal(locate(sites.coordinates, 3), sites.face_at(3))


def test_fslr32k(data_folder: Path) -> None:
    folder = data_folder / "resample"
    left, right = (Sites.from_file(folder / f"{s}.sphere.32k_fs_LR.surf.gii") for s in "LR")
    assert (left.n, left.level, left.max_level, left.name, left.on) == (
        32492,
        None,
        MAX_LEVEL,
        None,
        "vertices",
    )
    assert_partition(left)
    assert np.all(np.bincount(left.face_at(4), minlength=n_faces(4)) > 0)
    counts = np.bincount(left.face_at(1), minlength=80)
    assert 0.3 < counts.min() / counts.mean() <= counts.max() / counts.mean() < 2
    faces = Sites.from_file(folder / "L.sphere.32k_fs_LR.surf.gii", on="faces")
    assert (faces.n, faces.level) == (64980, None)
    agree = locate(faces.coordinates, 3) == faces.face_at(3)
    assert agree.mean() > 0.97
    both = Sites.both(left, right)
    assert (both.n, both.n_roots) == (64984, 40)
    assert both.triangles is not None  # right differs from left in orientation only


def test_files(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    mesh = freesurfer_mesh(3)
    path = tmp_path / "lh.sphere"
    nibabel.freesurfer.write_geometry(path, 100 * mesh.vertices, mesh.faces)
    assert Sites.from_file(path).name == "fsaverage3"
    assert Sites.from_file(str(path), on="faces").n == 1280
    pial = tmp_path / "lh.pial"
    nibabel.freesurfer.write_geometry(pial, mesh.vertices * [60, 80, 100], mesh.faces)
    with pytest.raises(ValueError, match=r"lh\.pial: coordinates must be points of a sphere.*pial"):
        Sites.from_file(pial)
    (tmp_path / "notes.surf.gii").write_text("no surface")
    (tmp_path / "notes.txt").write_text("no surface")
    for name in ("notes.surf.gii", "notes.txt"):
        with pytest.raises(ValueError, match=f"{name}: is n"):
            Sites.from_file(tmp_path / name)
    shape = nibabel.gifti.GiftiImage(
        darrays=[nibabel.gifti.GiftiDataArray(np.zeros(5, np.float32))]
    )
    nibabel.save(shape, tmp_path / "thickness.shape.gii")
    with pytest.raises(ValueError, match=r"thickness\.shape\.gii: .*0 point sets"):
        Sites.from_file(tmp_path / "thickness.shape.gii")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.gii"):
        Sites.from_file(tmp_path / "nowhere.gii")
