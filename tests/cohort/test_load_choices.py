"""Where people's folders leave a choice: subjects listed one by one, sessions, tables of the whole study, masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from helpers.refusals import refused
from helpers.trees import (
    freesurfer_tree,
    gifti_files,
    hcp_tree,
    hemispheres,
    names,
    write_gifti,
    write_morph,
)
from icofactor import load_cohort
from icofactor.cohort.subjects import read_participants
from icofactor.sphere.sites import Sites

N = 642
X = (np.random.default_rng(3).random((4, 2 * N)) + 2).astype(np.float32)
IDS = names(4)
MAPS = hemispheres(X)
SPHERE = (Sites.named("fsaverage3").coordinates, np.asarray(Sites.named("fsaverage3").triangles))


def some(n: int, first: int = 0) -> dict[str, np.ndarray]:
    return {side: rows[first : first + n] for side, rows in MAPS.items()}


@pytest.mark.parametrize("listed", [True, False])
def test_folders_of_freesurfer_subjects(tmp_path: Path, listed: bool) -> None:
    freesurfer_tree(tmp_path, IDS, MAPS, target="fsaverage3")
    freesurfer_tree(tmp_path, ["fsaverage"], some(1), target="fsaverage3")
    paths = sorted(tmp_path.iterdir()) if listed else str(tmp_path / "*")
    cohort = load_cohort(paths)
    assert list(cohort.subjects) == IDS and cohort.modality == "thickness"
    assert_array_equal(cohort.X, X)


def test_smoothing_is_chosen_for_all_subjects_at_once(tmp_path: Path) -> None:
    freesurfer_tree(tmp_path, IDS[:2], some(2), smoothing=5, target="fsaverage3")
    freesurfer_tree(tmp_path, IDS[2:], some(2, 2), smoothing=10, target="fsaverage3")
    with refused("sub-001 and 3 more"):
        load_cohort([tmp_path / subject for subject in IDS])


def test_hcp_maps_are_chosen_for_all_subjects_at_once(tmp_path: Path) -> None:
    ids = ["100307", "100408", "101107"]
    hcp_tree(tmp_path, ids[:2], some(2), sphere=SPHERE)
    hcp_tree(tmp_path, ids[2:], some(1, 2), measure="MyelinMap_BC", sphere=SPHERE)
    with refused("subject 101107"):
        load_cohort([tmp_path / subject for subject in ids], measure="myelin")


def test_no_smoothing_beside_what_qcache_smooths(tmp_path: Path) -> None:
    """recon-all -qcache leaves lh.thickness.fsaverage.mgh, and lh.thickness.fwhm0.fsaverage.mgh cut to the cortex."""
    freesurfer_tree(
        tmp_path, IDS, {s: r + 1 for s, r in MAPS.items()}, smoothing=None, target="fsaverage3"
    )
    assert_array_equal(load_cohort(tmp_path, smoothing=0).X, X + 1)
    freesurfer_tree(tmp_path, IDS, MAPS, smoothing=0, target="fsaverage3")
    assert_array_equal(load_cohort(tmp_path, smoothing=0).X, X)
    assert_array_equal(load_cohort(tmp_path).X, X)
    with refused(tmp_path.name):
        load_cohort(tmp_path, smoothing=3.0)


def test_maps_on_the_subjects_own_surfaces(tmp_path: Path) -> None:
    for i, subject in enumerate(IDS[:3]):
        (tmp_path / subject / "surf").mkdir(parents=True)
        write_morph(tmp_path / subject / "surf" / "lh.thickness", X[i, : 500 + i])
    with refused("lh.thickness"):
        load_cohort(str(tmp_path / "*" / "surf" / "lh.thickness"))


@pytest.mark.parametrize("header", ["Participant_ID", "SubjectID", "Subject", "ID"])
def test_columns_of_subjects(tmp_path: Path, header: str) -> None:
    (tmp_path / "table.csv").write_text(
        f'\ufeff"Age","{header}"\r\n"22-25","100307"\r\n"26-30","100408"\r\n'
    )
    table = read_participants(tmp_path / "table.csv")
    assert table is not None and table.ids == ("100307", "100408")
    assert list(table.columns) == ["Age"]


def test_files_of_those_left_out_do_not_matter(tmp_path: Path) -> None:
    """A subject with two sessions is no problem of a cohort without it."""
    gifti_files(tmp_path, IDS, MAPS)
    write_gifti(
        tmp_path / f"{IDS[1]}_ses-2_hemi-L_thickness.shape.gii", MAPS["left"][1] + 1, "left"
    )
    with refused("sub-002_ses-2_hemi-L_thickness.shape.gii"):
        load_cohort(tmp_path)
    chosen = [IDS[i] for i in (0, 2, 3)]
    for asked in ({"exclude": [IDS[1]]}, {"participants": chosen}):
        cohort = load_cohort(tmp_path, **asked)  # type: ignore[arg-type]
        assert list(cohort.subjects) == chosen
        assert_array_equal(cohort.X, X[[0, 2, 3]])
    with refused("sub-002_ses-2_hemi-L_thickness.shape.gii"):
        load_cohort(tmp_path, subjects=["a", "b", "c", "d"], exclude=["b"])


def test_choices_without_effect_are_refused(tmp_path: Path) -> None:
    files = gifti_files(tmp_path / "files", IDS, MAPS)
    tree = freesurfer_tree(tmp_path / "fs", IDS, MAPS, target="fsaverage3")
    hcp = hcp_tree(tmp_path / "hcp", IDS, MAPS, sphere=SPHERE)
    cases = (
        ("smoothing", files, {"smoothing": 0}),
        ("target", files, {"target": "fsaverage3"}),
        ("paths", files, {"measure": "area"}),
        ("entities", tree, {"entities": {"ses": "1"}}),
        ("smoothing", hcp, {"measure": "myelin", "smoothing": 2}),
    )
    for about, paths, asked in cases:
        with refused(about):
            load_cohort(paths, **asked)  # type: ignore[arg-type]
