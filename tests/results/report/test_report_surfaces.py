from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from icofactor.assessment.atlas import read_regions
from icofactor.errors import FileError
from icofactor.io.hemispheres import side_of
from icofactor.results.report.surfaces import (
    Hemisphere,
    cortex_of,
    face_lines,
    labels_on_vertices,
    n_vertices,
    on_vertices,
    outward,
    vertex_normals,
)
from icofactor.sphere.sites import Sites


def write_surface(path: Path, vertices: np.ndarray, triangles: np.ndarray) -> None:
    arrays = [
        nib.gifti.GiftiDataArray(vertices.astype(np.float32), intent="NIFTI_INTENT_POINTSET"),
        nib.gifti.GiftiDataArray(triangles.astype(np.int32), intent="NIFTI_INTENT_TRIANGLE"),
    ]
    nib.save(nib.gifti.GiftiImage(darrays=arrays), path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mesh", ["fsaverage3", "fsaverage4", "fsaverage5", "fsaverage6", "fsaverage4-B"]
)
def test_fsaverage_shapes_belong_to_the_vertices(mesh: str) -> None:
    from nilearn.datasets import load_fsaverage

    sites = Sites.named(mesh, hemi="both")
    sphere = load_fsaverage("fsaverage5")["sphere"]
    inflated = load_fsaverage("fsaverage5")["inflated"]
    for half in cortex_of(sites, "both").hemispheres:
        own = sites.coordinates[: sites.n // 2][half.vertices]
        np.testing.assert_allclose(half.unit, own, atol=1e-3)
        # where a vertex lies on the sphere, nilearn's own vertex there has the same place on the inflated surface
        for i in (0, 5, 300, len(own) - 1):
            there = np.argmin(
                ((sphere.parts[half.side].coordinates / 100 - own[i]) ** 2).sum(axis=1)
            )
            np.testing.assert_allclose(
                half.shapes["inflated"][i], inflated.parts[half.side].coordinates[there]
            )
        normals = vertex_normals(half.shapes["sphere"], half.triangles)
        assert (np.einsum("ij,ij->i", normals, half.unit) > 0.9).all()
        lateral = -1 if half.side == "left" else 1
        assert lateral * (half.shapes["pial"][:, 0].mean()) > 10


def test_mirrored_triangles_are_turned_outward() -> None:
    sites = Sites.named("fsaverage3")
    triangles = np.asarray(sites.triangles, dtype=np.int64)
    for listed in (triangles, triangles[:, ::-1]):
        assert (np.einsum("ij,ij->i", vertex_normals(sites.coordinates, outward(sites.coordinates, listed)),
                          sites.coordinates) > 0.9).all()  # fmt: skip


def test_values_go_from_faces_to_vertices() -> None:
    sites = Sites.named("fsaverage3", on="faces", hemi="both")
    values = np.concatenate([np.full(1280, 1.0), np.full(1280, 2.0)])
    left, right = on_vertices(sites, values)
    np.testing.assert_allclose(left, 1.0)
    np.testing.assert_allclose(right, 2.0)
    assert n_vertices(sites) == len(left) == 642
    numbers = labels_on_vertices(sites, np.arange(2560))
    around = np.asarray(sites.triangles)[numbers[0]]
    assert (around == np.arange(642)[:, None]).any(axis=1).all()
    assert (numbers[1] == numbers[0] + 1280).all()


@pytest.mark.parametrize("mesh", ["fsaverage4", "sphere file"])
def test_lines_follow_the_edges_of_the_faces(mesh: str) -> None:
    sites = Sites.named("fsaverage4")
    if (
        mesh != "fsaverage4"
    ):  # the same points in no order the hierarchy knows, and fewer triangles than vertices say
        from scipy.spatial import ConvexHull

        points = np.random.default_rng(0).standard_normal((900, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        sites = Sites.from_sphere(points, ConvexHull(points).simplices)
    half: Hemisphere = cortex_of(sites, "left").hemispheres[0]
    faces = np.column_stack([np.ones(80, dtype=int), np.arange(80)])
    lines = face_lines(sites, faces, 0, half)
    np.testing.assert_allclose(lines.weights.sum(axis=1), 1)
    points = np.einsum("pc,pcx->px", lines.weights, half.unit[lines.corners])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    # 120 edges of level 1, each in pieces of the mesh's level (at most 5)
    pieces = 2 ** (min(5, sites.max_level) - 1)
    assert len(lines.segments) == 120 * pieces
    corners = sites.face_corners(1, np.arange(80))
    planes = np.cross(corners, np.roll(corners, -1, axis=1)).reshape(-1, 3)
    planes /= np.linalg.norm(planes, axis=1, keepdims=True)
    off = np.abs(points @ planes.T).min(axis=1)
    assert off.max() < (1e-3 if mesh == "fsaverage4" else 0.06)  # bent over a coarse mesh


def test_surfaces_of_the_user(tmp_path: Path) -> None:
    sites = Sites.icosphere(3, hemi="both")
    sphere, triangles = sites.coordinates[:642], np.asarray(sites.triangles)
    for letter, sign in (("L", -1), ("R", 1)):
        write_surface(
            tmp_path / f"S.{letter}.inflated.surf.gii", 60 * sphere + [sign * 30, 0, 0], triangles
        )
        bumpy = sphere * (50 + 4 * np.cos(7 * sphere[:, 2:]))
        write_surface(tmp_path / f"S.{letter}.midthickness.surf.gii", bumpy, triangles[:, ::-1])
    write_surface(
        tmp_path / "S.L.pial.surf.gii",
        60 * Sites.icosphere(2).coordinates,
        Sites.icosphere(2).triangles,
    )
    cortex = cortex_of(sites, "both", tmp_path)
    assert cortex.shapes == ["inflated", "midthickness", "sphere"]
    for half, sign in zip(cortex.hemispheres, (-1, 1), strict=True):
        assert half.shapes["inflated"][:, 0].mean() == pytest.approx(sign * 30, abs=0.1)
        height = np.cos(7 * sphere[:, 2])
        assert np.corrcoef(half.folding, height)[0, 1] < -0.7  # hills are gyri, negative
        normals = vertex_normals(half.shapes["midthickness"], half.triangles)
        assert np.einsum("ij,ij->i", normals, half.unit).mean() > 0.5
    one = cortex_of(sites, "both", [tmp_path / f"S.{letter}.inflated.surf.gii" for letter in "LR"])
    assert one.shapes == ["inflated", "sphere"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["S.L.pial.surf.gii"], "has 162 vertices; .* has 642 per hemisphere"),
        (["S.L.inflated.surf.gii"], "no surface of the right hemisphere with 642 vertices"),
        (["x.surf.gii"], "its name should contain the hemisphere"),
        (["missing.surf.gii"], "no file or folder"),
    ],
)
def test_surfaces_that_do_not_fit(tmp_path: Path, names: list[str], message: str) -> None:
    sites = Sites.icosphere(3, hemi="both")
    write_surface(
        tmp_path / "S.L.inflated.surf.gii", sites.coordinates[:642], np.asarray(sites.triangles)
    )
    write_surface(tmp_path / "x.surf.gii", sites.coordinates[:642], np.asarray(sites.triangles))
    small = Sites.icosphere(2)
    write_surface(tmp_path / "S.L.pial.surf.gii", small.coordinates, np.asarray(small.triangles))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        cortex_of(sites, "both", [tmp_path / name for name in names])


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("lh.pial", "left"),
        ("rh.aparc.annot", "right"),
        ("100307.L.inflated.32k_fs_LR.surf.gii", "left"),
        ("sub-01_hemi-R_inflated.surf.gii", "right"),
        ("tpl-fsaverage_hemi-L_den-10k_pial.surf.gii", "left"),
        ("R.sphere.32k_fs_LR.surf.gii", "right"),
        ("fs_LR.nothing.gii", None),
    ],
)
def test_sides_from_names(name: str, side: str | None) -> None:
    assert side_of(name)[0] == side


def test_regions_of_an_atlas(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], [42, 300, 300])
    colours = np.array([[0, 0, 0, 0, 0], [10, 20, 30, 0, 0], [40, 50, 60, 0, 0]])
    nib.freesurfer.write_annot(
        tmp_path / "lh.a.annot", labels, colours, ["unknown", "front", "<b>back</b>"], True
    )
    table = nib.gifti.GiftiLabelTable()
    for key, name in ((0, "???"), (7, "front"), (9, "side")):
        label = nib.gifti.GiftiLabel(key=key, red=0.1, green=0.2, blue=0.3, alpha=1)
        label.label = name
        table.labels.append(label)
    array = nib.gifti.GiftiDataArray(
        np.repeat([0, 7, 9], [42, 300, 300]).astype(np.int32), "NIFTI_INTENT_LABEL"
    )
    nib.save(nib.gifti.GiftiImage(darrays=[array], labeltable=table), tmp_path / "a.R.label.gii")
    sites = Sites.named("fsaverage3", hemi="both")
    regions = read_regions([tmp_path / "lh.a.annot", tmp_path / "a.R.label.gii"], sites, "both")
    named = {
        side: [table.get(int(key), "") for key in keys] for side, (keys, table) in regions.items()
    }
    assert named["left"][100] == named["right"][100] == "front"
    assert named["left"][600] == "<b>back</b>"
    assert named["right"][600] == "side"
    left, coarse = Sites.named("fsaverage3"), Sites.named("fsaverage5")
    one = read_regions([tmp_path / "lh.a.annot", tmp_path / "a.R.label.gii"], left, "left")
    assert list(one) == ["left"]
    fine = np.zeros(163842, dtype=int)
    fine[:642] = labels
    nib.freesurfer.write_annot(
        tmp_path / "lh.fine.annot", fine, colours, ["unknown", "front", "<b>back</b>"], True
    )
    keys, _ = read_regions([tmp_path / "lh.fine.annot"], coarse, "left")["left"]
    expected = np.append(labels, np.zeros(10242 - 642, dtype=int))
    np.testing.assert_array_equal(
        keys, np.where(expected > 0, expected, -1)
    )  # black is FreeSurfer's "no label"
    with pytest.raises(FileError) as raised:
        read_regions([tmp_path / "lh.a.annot"], sites, "both")
    assert raised.value.path == str(tmp_path / "lh.a.annot")
    assert "no regions of the right hemisphere" in str(raised.value.problem)
    for name, mesh, problem in (
        ("lh.fine.annot", left, "has 163842 vertices in the left hemisphere; the mesh has 642"),
        ("lh.a.annot", coarse, "has 642 vertices in the left hemisphere; the mesh has 10242"),
    ):
        with pytest.raises(FileError) as raised:
            read_regions([tmp_path / name], mesh, "left")
        assert (raised.value.path, raised.value.problem) == (str(tmp_path / name), problem)


def test_real_fs_LR_spheres(data_folder: Path) -> None:
    paths: list[Any] = [
        data_folder / "resample" / f"{side}.sphere.32k_fs_LR.surf.gii" for side in "LR"
    ]
    sites = Sites.both(*(Sites.from_file(path) for path in paths))
    cortex = cortex_of(sites, "both")
    assert cortex.shapes == ["sphere"]
    for half in cortex.hemispheres:
        normals = vertex_normals(half.unit, half.triangles)
        assert (np.einsum("ij,ij->i", normals, half.unit) > 0.9).all()
    assert cortex_of(sites, "both", paths).shapes == ["sphere"]
