"""Masks as people have them: labels of the medial wall, arrays of True and False."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.testing import assert_array_equal

from helpers.refusals import refused
from helpers.trees import gifti_files, hemispheres, names, write_surface
from icofactor import load_cohort
from icofactor.results.provenance import input_hashes
from icofactor.sphere.sites import Sites

N = 642
X = (np.random.default_rng(4).random((3, 2 * N)) + 2).astype(np.float32)
CORTEX = np.ones(2 * N, dtype=bool)
CORTEX[10:60] = CORTEX[N + 100 : N + 130] = False


def label(path: Path, inside: np.ndarray) -> Path:
    vertices = np.flatnonzero(inside)
    path.write_text(
        "\n".join(["#!ascii label", str(len(vertices)), *(f"{v} 0 0 0 0" for v in vertices)]) + "\n"
    )
    return path


def test_a_label_of_the_medial_wall_is_what_is_left_out(tmp_path: Path) -> None:
    maps = gifti_files(tmp_path / "gii", names(3), hemispheres(X))
    for name, listed in (("Medial_wall", ~CORTEX), ("cortex", CORTEX), ("nomedialwall", CORTEX)):
        pair = [
            label(tmp_path / f"lh.{name}.label", listed[:N]),
            label(tmp_path / f"rh.{name}.label", listed[N:]),
        ]
        assert_array_equal(load_cohort(maps, mask=pair).mask, CORTEX, err_msg=name)


def test_arrays_of_true_and_false(tmp_path: Path) -> None:
    maps = gifti_files(tmp_path / "gii", names(3), hemispheres(X))
    np.save(tmp_path / "cortex.npy", CORTEX)
    assert_array_equal(load_cohort(maps, mask=tmp_path / "cortex.npy").mask, CORTEX)
    np.save(tmp_path / "lh.npy", CORTEX[:N])
    left = load_cohort(maps, mask=tmp_path / "lh.npy", hemisphere="left")
    assert_array_equal(left.mask, CORTEX[:N])
    # As CIVET's masks: text, one file for each hemisphere.
    pair = [tmp_path / f"CIVET_2.0_mask_{side}_short.txt" for side in ("left", "right")]
    for path, flags in zip(pair, hemispheres(CORTEX[None]).values(), strict=True):
        np.savetxt(path, flags[0], fmt="%d")
    assert_array_equal(load_cohort(maps, mask=pair).mask, CORTEX)
    (tmp_path / "short.npy").write_bytes((tmp_path / "cortex.npy").read_bytes()[:-5])
    with refused("short.npy"):
        load_cohort(maps, mask=tmp_path / "short.npy")


def test_the_files_of_mask_and_mesh_are_in_the_provenance(tmp_path: Path) -> None:
    maps = gifti_files(tmp_path / "gii", names(3), hemispheres(X))
    mask = label(tmp_path / "lh.cortex.label", CORTEX[:N])
    triangles = np.asarray(Sites.named("fsaverage3").triangles)
    sphere = write_surface(
        tmp_path / "lh.sphere.surf.gii", Sites.named("fsaverage3").coordinates, triangles
    )
    cohort = load_cohort(maps, hemisphere="left", mask=mask, mesh=sphere)
    hashes = input_hashes(cohort)
    for file in (mask, sphere):
        assert hashes[str(file)] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert len(hashes) == 5


def test_a_hemisphere_that_is_not_there(tmp_path: Path) -> None:
    gifti_files(tmp_path, names(3), {"left": X[:, :N]})
    with refused("paths"):
        load_cohort(tmp_path, hemisphere="right")
