"""fs_LR 32k by formula."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Literal

import nibabel as nib
import numpy as np
import pytest

from icofactor.sphere.meshes import fs_lr_sites, same_sites
from icofactor.sphere.names import mesh_name_of
from icofactor.sphere.sites import Sites
from icofactor.sphere.standard import fs_lr_sphere
from icofactor.sphere.surfaces import read_surface

SIDES: tuple[tuple[str, Literal["left", "right"]], ...] = (("L", "left"), ("R", "right"))


@pytest.mark.parametrize(("letter", "side"), SIDES)
def test_sphere_is_that_of_the_hcp(
    letter: str, side: Literal["left", "right"], data_folder: Path
) -> None:
    file = data_folder / "resample" / f"{letter}.sphere.32k_fs_LR.surf.gii"
    points, triangles = read_surface(file)
    vertices, faces = fs_lr_sphere(side)
    np.testing.assert_allclose(vertices, points, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(faces, triangles)
    # and the hierarchy takes its vertices alike: models of either fit the other
    np.testing.assert_array_equal(fs_lr_sites(side).deepest, Sites.from_file(file).deepest)


@pytest.mark.skipif(shutil.which("wb_command") is None, reason="wb_command is not installed")
def test_sphere_is_that_of_workbench(tmp_path: Path) -> None:
    made = tmp_path / "R.surf.gii"
    subprocess.run(["wb_command", "-surface-create-sphere", "32492", made], check=True)
    points, triangles = nib.load(made).agg_data()
    np.testing.assert_allclose(fs_lr_sphere("right")[0], points, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(fs_lr_sphere("right")[1], triangles)


def test_mirrored_and_closed() -> None:
    (left, faces), (right, _) = fs_lr_sphere("left"), fs_lr_sphere("right")
    np.testing.assert_array_equal(left * np.float32([-1, 1, 1]), right)
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    found, counts = np.unique(edges, axis=0, return_counts=True)
    assert (len(left), len(faces), len(found), set(counts)) == (32492, 64980, 97470, {2})
    outward = np.einsum(
        "nd,nd->n",
        np.cross(*(left[faces[:, i]] - left[faces[:, 0]] for i in (1, 2))),
        left[faces[:, 0]],
    )
    assert (outward > 0).all()


def test_named() -> None:
    both = Sites.named("fsLR32k", hemi="both")
    for half, (_, side) in enumerate(SIDES):
        one = Sites.named("fs_LR 32k", hemi=side)
        assert mesh_name_of(one) == "fsLR32k" and same_sites(one, fs_lr_sites(side))
        np.testing.assert_array_equal(both.coordinates[both.hemisphere == half], one.coordinates)
    assert Sites.named("fsLR32k", on="faces").n == 64980
