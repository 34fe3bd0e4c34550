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
    surface = tmp_path / "R.surf.gii"
    subprocess.run(["wb_command", "-surface-create-sphere", "32492", surface], check=True)
    points, triangles = nib.load(surface).agg_data()
    np.testing.assert_allclose(fs_lr_sphere("right")[0], points, rtol=0, atol=2e-5)
    np.testing.assert_array_equal(fs_lr_sphere("right")[1], triangles)


def test_named() -> None:
    hemispheres = Sites.named("fsLR32k", hemi="both")
    for half, (_, side) in enumerate(SIDES):
        sites = Sites.named("fs_LR 32k", hemi=side)
        assert mesh_name_of(sites) == "fsLR32k" and same_sites(sites, fs_lr_sites(side))
        np.testing.assert_array_equal(
            hemispheres.coordinates[hemispheres.hemisphere == half], sites.coordinates
        )
    assert Sites.named("fsLR32k", on="faces").n == 64980
