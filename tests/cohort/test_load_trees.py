"""Trees of FreeSurfer, the HCP and fMRIPrep; names, participants and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from helpers.refusals import refused
from helpers.trees import (
    fmriprep_tree,
    freesurfer_tree,
    gifti_files,
    hcp_tree,
    hemispheres,
    names,
    write_cifti,
    write_gifti,
    write_mgh,
    write_morph,
)
from icofactor import load_cohort
from icofactor.cohort.names import mesh_of, subjects_of
from icofactor.cohort.subjects import read_participants
from icofactor.errors import CohortError
from icofactor.io.hemispheres import side_of
from icofactor.io.maps import without_ending
from icofactor.sphere.sites import Sites

N = 642
RNG = np.random.default_rng(2)
WALL = np.zeros(2 * N, dtype=bool)
WALL[20:70] = WALL[N + 300 : N + 340] = True
X = np.where(WALL, 0, RNG.random((4, 2 * N)) + 2).astype(np.float32)
IDS = names(4)
MAPS = hemispheres(X)
CORTEX = {"left": ~WALL[:N], "right": ~WALL[N:]}
SPHERE = (Sites.named("fsaverage3").coordinates, np.asarray(Sites.named("fsaverage3").triangles))


@pytest.fixture
def fs_lr() -> dict[str, np.ndarray]:
    """Maps on fs_LR 32k."""
    return {
        side: (RNG.random((len(IDS), 32492)) + 1).astype(np.float32) for side in ("left", "right")
    }


# FreeSurfer


def test_freesurfer_asks_where_there_is_a_choice(tmp_path: Path) -> None:
    for smoothing in (0, 10):
        freesurfer_tree(tmp_path, IDS, MAPS, smoothing=smoothing, target="fsaverage3")
    freesurfer_tree(tmp_path, IDS, {"left": 2 * MAPS["left"]}, "area", None, "fsaverage3")
    freesurfer_tree(
        tmp_path,
        ["fsaverage3"],
        {side: rows[:1] for side, rows in MAPS.items()},
        target="fsaverage3",
    )
    with refused(tmp_path.name):
        load_cohort(tmp_path)
    cohort = load_cohort(tmp_path, smoothing=10)
    assert list(cohort.subjects) == IDS and cohort.hemisphere == "both"
    area = load_cohort(tmp_path, measure="area")
    assert area.hemisphere == "left" and area.modality == "area"
    assert_array_equal(area.X, 2 * MAPS["left"])
    freesurfer_tree(tmp_path, IDS, MAPS, smoothing=10, target="fsaverage4")
    for choice in (
        {"smoothing": 10},
        {"smoothing": 5, "target": "fsaverage5"},
        {"measure": "volume"},
    ):
        with refused(tmp_path.name):
            load_cohort(tmp_path, **choice)  # type: ignore[arg-type]


def test_freesurfer_lists_what_is_missing(tmp_path: Path) -> None:
    freesurfer_tree(tmp_path, IDS, MAPS, target="fsaverage3")
    (tmp_path / IDS[1] / "surf" / "rh.thickness.fwhm10.fsaverage3.mgh").unlink()
    for path in (tmp_path / IDS[2] / "surf").iterdir():
        path.unlink()
    with pytest.raises(CohortError) as caught:
        load_cohort(tmp_path)
    text = str(caught.value)
    surf = lambda i, h: f"missing: {tmp_path}/{IDS[i]}/surf/{h}.thickness.fwhm10.fsaverage3.mgh"
    assert f"subject {IDS[1]}: {surf(1, 'rh')}" in text
    assert f"subject {IDS[2]}: {surf(2, 'lh')}; {surf(2, 'rh')}" in text
    skipped = load_cohort(tmp_path, missing="skip")
    assert list(skipped.subjects) == [IDS[0], IDS[3]]
    assert any(
        "left out 2 subjects with missing files" in step for step in skipped.provenance["steps"]
    )
    assert skipped.provenance["left_out"] == {"with missing files": [IDS[1], IDS[2]]}
    named = load_cohort(tmp_path, exclude=[IDS[1], IDS[2]])
    assert list(named.subjects) == [IDS[0], IDS[3]]
    assert named.provenance["left_out"] == {"by name": [IDS[1], IDS[2]]}
    assert list(load_cohort(tmp_path, hemisphere="left", exclude=["003"]).subjects) == [
        IDS[0],
        IDS[1],
        IDS[3],
    ]


def test_freesurfer_native_maps_are_explained(tmp_path: Path) -> None:
    (tmp_path / "bert" / "surf").mkdir(parents=True)
    write_morph(tmp_path / "bert" / "surf" / "lh.thickness", X[0, :N])
    with refused(tmp_path.name):
        load_cohort(tmp_path)
    cohort = load_cohort(tmp_path / "bert" / "surf" / "lh.thickness")
    assert cohort.subjects == ("bert",) and cohort.modality == "thickness"


# HCP


def test_hcp_tree(tmp_path: Path) -> None:
    ids = ["100307", "100408", "101107", "HCA6002236_V1_MR"]
    hcp_tree(tmp_path, ids, MAPS, CORTEX, sphere=SPHERE)
    cohort = load_cohort(tmp_path, measure="myelin")
    assert_array_equal(cohort.X, X)
    assert_array_equal(cohort.mask, ~WALL)
    assert list(cohort.subjects) == ids and (cohort.modality, cohort.units) == ("myelin", "T1w/T2w")
    assert "surfaces" not in cohort.provenance
    for name in ids[1:]:  # to draw on: of those who are in
        for letter in "LR":
            place = tmp_path / name / "MNINonLinear" / "fsaverage_LR32k"
            (place / f"{name}.{letter}.midthickness_MSMAll.32k_fs_LR.surf.gii").touch()
    found = load_cohort(tmp_path, measure="myelin").provenance["surfaces"]
    assert [Path(path).name[:8] for path in found] == [
        f"{i}.{x}" for i in ids[1:3] for x in "LR"
    ] + ["HCA60022"] * 2
    assert (
        "surfaces" not in load_cohort(tmp_path, measure="myelin", exclude=ids[2:3]).provenance
    )  # too few
    right = load_cohort(tmp_path, measure="MyelinMap_BC_MSMAll", hemisphere="right")
    assert_array_equal(right.X, MAPS["right"])
    with refused(tmp_path.name):
        load_cohort(tmp_path, measure="sulc")
    glob = str(tmp_path / "*" / "MNINonLinear" / "*" / "*MyelinMap*.dscalar.nii")
    assert list(load_cohort(glob).subjects) == ids


def test_hcp_takes_what_most_subjects_have(tmp_path: Path) -> None:
    ids = ["100307", "100408", "101107", "101309"]
    part = lambda n: {side: rows[:n] + 1 for side, rows in MAPS.items()}
    hcp_tree(tmp_path, ids, MAPS, measure="thickness", sphere=SPHERE)
    hcp_tree(tmp_path, ids[:2], part(2), measure="thickness_MSMAll")
    assert_array_equal(load_cohort(tmp_path, measure="thickness").X, X)
    hcp_tree(tmp_path, ids[:3], part(3), measure="corrThickness_MSMAll")
    with refused("subject 101309"):
        load_cohort(tmp_path, measure="corrThickness")
    cohort = load_cohort(tmp_path, measure="corrThickness", missing="skip")
    assert list(cohort.subjects) == ids[:3] and cohort.modality == "corrThickness"
    assert load_cohort(tmp_path / ids[0], measure="thickness").subjects == ("100307",)


def test_hcp_pairs_of_gifti(tmp_path: Path) -> None:
    hcp_tree(
        tmp_path,
        ["100307", "100408"],
        {s: r[:2] for s, r in MAPS.items()},
        measure="sulc",
        sphere=SPHERE,
    )
    for i, subject in enumerate(("100307", "100408")):
        for letter, side in (("L", "left"), ("R", "right")):
            folder = tmp_path / subject / "MNINonLinear" / "fsaverage_LR32k"
            write_gifti(
                folder / f"{subject}.{letter}.thickness.32k_fs_LR.shape.gii", MAPS[side][i], side
            )
    assert_array_equal(load_cohort(tmp_path, measure="thickness").X, X[:2])


# fMRIPrep and XCP-D


def test_fmriprep_tree(tmp_path: Path) -> None:
    fmriprep_tree(tmp_path, IDS, MAPS, space="space-fsaverage3")
    cohort = load_cohort(tmp_path)
    assert_array_equal(cohort.X, X)
    assert list(cohort.subjects) == IDS and cohort.modality == "reho"
    fmriprep_tree(
        tmp_path,
        IDS,
        {s: r + 1 for s, r in MAPS.items()},
        space="space-fsaverage3",
        suffix="stat-alff_boldmap.shape",
    )
    with refused(tmp_path.name):
        load_cohort(tmp_path)
    assert_array_equal(load_cohort(tmp_path, measure="reho").X, X)
    fmriprep_tree(tmp_path, IDS, MAPS, space="space-fsaverage_den-642")
    with refused(tmp_path.name):
        load_cohort(tmp_path, measure="reho")
    assert (
        load_cohort(tmp_path, measure="reho", target="fsaverage", hemisphere="left").sites.name
        == "fsaverage3"
    )


def test_fmriprep_entities_and_missing_files(tmp_path: Path) -> None:
    fmriprep_tree(tmp_path, IDS, MAPS, "task-rest", "space-fsaverage3")
    fmriprep_tree(
        tmp_path, IDS, {s: r + 1 for s, r in MAPS.items()}, "task-motor", "space-fsaverage3"
    )
    with refused("sub-001_task-rest_hemi-L_space-fsaverage3_stat-reho_boldmap.shape.gii"):
        load_cohort(tmp_path)
    assert_array_equal(load_cohort(tmp_path, entities={"task": "rest"}).X, X)
    next((tmp_path / IDS[2] / "func").glob("*task-rest*hemi-R*")).unlink()
    with refused("subject sub-003"):
        load_cohort(tmp_path, entities={"task": "rest"})
    with refused(tmp_path.name):
        load_cohort(tmp_path, measure="thickness")
    with refused(tmp_path.name):
        load_cohort(tmp_path, entities={"task": "nback"})
    with refused(tmp_path.name):
        load_cohort(tmp_path, entities={"ses": "1", "task": "rest"})
    with refused(tmp_path.name):
        load_cohort(tmp_path, target="fsaverage5")


@pytest.mark.slow
def test_fmriprep_on_fs_lr_needs_no_spheres(tmp_path: Path, fs_lr: dict[str, np.ndarray]) -> None:
    """As fMRIPrep writes it: a den-91k CIFTI file, beside it maps on the subject's own surface."""
    for number, subject in enumerate(IDS):
        folder = tmp_path / subject / "anat"
        folder.mkdir(parents=True)
        write_gifti(folder / f"{subject}_hemi-L_thickness.shape.gii", np.ones(100 + number), "left")
        row = {side: rows[number : number + 1] for side, rows in fs_lr.items()}
        write_cifti(folder / f"{subject}_space-fsLR_den-91k_thickness.dscalar.nii", row)
    cohort = load_cohort(tmp_path, measure="thickness", target="32k")
    assert_array_equal(cohort.X, np.concatenate(list(fs_lr.values()), axis=1))
    assert (cohort.hemisphere, cohort.sites.n_roots, list(cohort.subjects)) == ("both", 40, IDS)


def test_fs_lr_of_other_density_asks_for_spheres(tmp_path: Path) -> None:
    folder = tmp_path / "sub-1" / "anat"
    folder.mkdir(parents=True)
    write_cifti(
        folder / "sub-1_space-fsLR_den-170k_thickness.dscalar.nii", {"left": RNG.random((1, 59292))}
    )
    with refused("mesh"):
        load_cohort(tmp_path)


# Names


@pytest.mark.parametrize(
    ("name", "side", "rest"),
    [
        ("lh.thickness", "left", "thickness"),
        ("S1.rh.thickness", "right", "S1.thickness"),
        ("sub-01_hemi-L_space-fsaverage5_thickness", "left", "sub-01_space-fsaverage5_thickness"),
        ("100307.R.thickness.32k_fs_LR", "right", "100307.thickness.32k_fs_LR"),
        ("100307.thickness.32k_fs_LR", None, "100307.thickness.32k_fs_LR"),
        ("sub-L_hemi-R_x", "right", "sub-L_x"),
        ("map_Left", "left", "map"),
        ("left_minus_right", None, "left_minus_right"),
        ("curl", None, "curl"),
    ],
)
def test_hemisphere_in_names(name: str, side: str | None, rest: str) -> None:
    assert side_of(name) == (side, rest)


@pytest.mark.parametrize(
    ("paths", "listed", "subjects"),
    [
        ("bert/surf/lh.thickness ernie/surf/lh.thickness", "", "bert ernie"),
        ("sub-01/ses-1/surf/lh.x.mgh sub-02/ses-1/surf/lh.x.mgh", "", "sub-01 sub-02"),
        ("sub-01_ses-1/surf/lh.x.mgh", "", "sub-01_ses-1"),
        (
            "lh.S1.thickness.fwhm10.fsaverage5.mgz rh.S1.thickness.fwhm10.fsaverage5.mgz",
            "",
            "S1 S1",
        ),
        ("S1_L.thickness_MSMAll.32k_fs_LR.func.gii", "", "S1"),
        ("S1/lh.thickness.fsaverage5.mgz", "", "S1"),
        ("100307/MNINonLinear/f/100307.a.dscalar.nii", "", "100307"),
        ("100307.thickness.dscalar.nii", "", "100307"),
        ("sub-01/anat/sub-01_thickness.shape.gii sub-02/map.gii", "", "sub-01 sub-02"),
        ("lh.S1.thickness.mgh lh.S2.thickness.mgh", "", "S1 S2"),
        ("S_1_thk.mgh S_2_thk.mgh", "", "S_1 S_2"),
        ("S1/lh.thickness.mgh S2/lh.thickness.mgh", "", "S1 S2"),
        ("S1/x/lh.thickness.mgh S2/x/lh.thickness.mgh", "", "S1 S2"),
        ("only.mgh", "", "only"),
        ("lh.thickness.HC01.mgh lh.thickness.HC02.mgh", "", "HC01 HC02"),
        ("OAS1_0001_ct.mgh OAS1_0002_ct.mgh", "", "OAS1_0001 OAS1_0002"),
        ("ct_HC01_a.mgh ct_HC02_a.mgh", "HC02 HC09", "HC01 HC02"),
        ("ct_HC01_a.mgh ct_HC02_a.mgh", "ct_HC01_a", "ct_HC01_a ct_HC02_a"),
        ("surf/lh.thickness.HC01.mgh surf/lh.thickness.HC02.mgh", "", "HC01 HC02"),
        ("surf/lh.thickness.fwhm5.mgh surf/lh.thickness.fwhm10.mgh", "", "d d"),
    ],
)
def test_subjects_in_paths(paths: str, listed: str, subjects: str) -> None:
    files = [Path("/d", path) for path in paths.split()]
    stems = [side_of(without_ending(file.name))[1] for file in files]
    assert subjects_of(files, stems, frozenset(listed.split())) == subjects.split()


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("lh.thickness.fwhm10.fsaverage5.mgh", "fsaverage5"),
        ("lh.thickness.fsaverage.mgh", "fsaverage7"),
        ("sub-1_hemi-L_space-fsaverage_den-10k_x.gii", "fsaverage5"),
        ("100307.thickness.32k_fs_LR.dscalar.nii", "fsLR32k"),
        ("sub-1_space-fsLR_den-91k_thickness.dscalar.nii", "fsLR32k"),
        ("sub-1_space-fsLR_den-170k_thickness.dscalar.nii", "fsLR59k"),
        ("sub-1_space-fsLR_thickness.dscalar.nii", "fsLR"),
        ("lh.thickness.mgh", None),
    ],
)
def test_mesh_in_names(name: str, mesh: str | None) -> None:
    assert mesh_of(name) == mesh


# Participants


def test_participants_select_order_and_exclude(tmp_path: Path) -> None:
    folder = gifti_files(tmp_path / "gii", IDS, MAPS)
    table = tmp_path / "participants.tsv"
    table.write_text(
        "participant_id\tage\tsex\tsite\texclude\n"
        "sub-004\t30.5\tF\t01\t0\nsub-002\tn/a\tM\t02\tn/a\nsub-003\t20\tF\t01\t1\nsub-001\t50\tn/a\t01\t\n"
    )
    cohort = load_cohort(folder, participants=table)
    assert cohort.subjects == ("sub-004", "sub-002", "sub-001")
    assert_array_equal(cohort.X, X[[3, 1, 0]])
    assert_array_equal(cohort.participants["age"], [30.5, np.nan, 50])
    assert list(cohort.participants["sex"]) == ["F", "M", "n/a"]
    assert list(cohort.participants["site"]) == ["01", "02", "01"]
    assert cohort.provenance["participants"]["path"] == str(table)
    assert any(
        "left out 1 subject that the participants table marks for exclusion: sub-003" in s
        for s in cohort.provenance["steps"]
    )


def test_participants_with_and_without_prefix(tmp_path: Path) -> None:
    folder = gifti_files(tmp_path / "gii", IDS, MAPS)
    (tmp_path / "hcp.csv").write_text("Subject,Age_in_Yrs\n002,31\n001,22\n")
    cohort = load_cohort(folder, participants=tmp_path / "hcp.csv")
    assert cohort.subjects == ("002", "001")
    assert_array_equal(cohort.participants["Age_in_Yrs"], [31, 22])
    assert cohort.participants["Age_in_Yrs"].dtype == np.int64
    with refused("participants"):
        load_cohort(folder, participants=["sub-001", "sub-009"])
    assert load_cohort(folder, participants=["sub-001", "sub-009"], missing="skip").subjects == (
        "sub-001",
    )
    with refused("exclude"):
        load_cohort(folder, exclude=["sub-009"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name\tage\na\t1\n",
        "participant_id\tage\nsub-1\n",
        "participant_id\tage\nsub-1\t1\nsub-1\t2\n",
        "participant_id\tage\nsub-1\t1\n1\t2\n",
        "participant_id\tage\tage\nsub-1\t1\t2\n",
        "participant_id\n",
        "participant_id\texclude\na\tperhaps\n",
        "participant_id\texclude\na\t1\n",
    ],
)
def test_wrong_participants(tmp_path: Path, text: str) -> None:
    (tmp_path / "participants.tsv").write_text(text)
    with refused("participants.tsv"):
        read_participants(tmp_path / "participants.tsv")


def test_participants_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "participants.tsv").write_bytes(b"\xff\xfe\x00\x01" * 10)
    with refused("participants.tsv"):
        read_participants(tmp_path / "participants.tsv")
    with refused("nowhere.tsv"):
        read_participants(tmp_path / "nowhere.tsv")


# Masks


def _mask_files(folder: Path) -> dict[str, Any]:
    """The same mask in every form."""
    forms: dict[str, list[Path]] = {form: [] for form in ("annot", "label.gii", "shape.gii", "mgh")}
    for prefix, (_, inside) in zip(("lh", "rh"), CORTEX.items(), strict=True):
        colours = np.array([[0, 0, 0, 0, 0], [1, 2, 3, 0, 0], [9, 8, 7, 0, 0]])
        parcels = np.where(inside, 1 + np.arange(N) % 2, 0)
        forms["annot"].append(folder / f"{prefix}.aparc.annot")
        nib.freesurfer.write_annot(
            forms["annot"][-1], parcels, colours, ["unknown", "a", "b"], fill_ctab=True
        )
        array = nib.gifti.GiftiDataArray(
            parcels.astype(np.int32), "NIFTI_INTENT_LABEL", "NIFTI_TYPE_INT32"
        )
        table = nib.gifti.GiftiLabelTable()
        for key, name in enumerate(["Medial_wall", "a", "b"]):
            label = nib.gifti.GiftiLabel(key)
            label.label = name
            table.labels.append(label)
        forms["label.gii"].append(folder / f"{prefix}.aparc.label.gii")
        nib.save(nib.gifti.GiftiImage(darrays=[array], labeltable=table), forms["label.gii"][-1])
        side = {"lh": "left", "rh": "right"}[prefix]
        forms["shape.gii"].append(
            write_gifti(folder / f"{prefix}.atlasroi.shape.gii", inside.astype(float), side)
        )
        forms["mgh"].append(write_mgh(folder / f"{prefix}.mask.mgh", inside.astype(float)))
    one = write_cifti(
        folder / "mask.dscalar.nii",
        {side: inside[None].astype(float) for side, inside in CORTEX.items()},
    )
    np.save(folder / "mask.npy", (~WALL).astype(np.uint8))
    return {**forms, "dscalar": one, "npy": folder / "mask.npy", "array": ~WALL}


def test_masks_from_files(tmp_path: Path) -> None:
    filled = np.where(WALL, 1.5, X).astype(np.float32)
    maps = gifti_files(tmp_path / "gii", IDS, hemispheres(filled))
    assert load_cohort(maps).mask is None
    for form, mask in _mask_files(tmp_path).items():
        cohort = load_cohort(maps, mask=mask)
        assert_array_equal(cohort.mask, ~WALL, err_msg=form)
        assert_array_equal(cohort.X, filled)
        if isinstance(mask, list):
            assert cohort.provenance["mask"]["source"] == [", ".join(map(str, mask))]
            left = load_cohort(maps, hemisphere="left", mask=mask[0])
            assert_array_equal(left.mask, ~WALL[:N], err_msg=form)


def test_mask_and_empty_sites_together(tmp_path: Path) -> None:
    maps = gifti_files(tmp_path, IDS, MAPS)
    given = np.ones(2 * N, dtype=bool)
    given[:5] = False
    cohort = load_cohort(maps, mask=given)
    assert_array_equal(cohort.mask, given & ~WALL)
    assert cohort.provenance["mask"] == {
        "source": ["array", "NaN or zero in every subject"],
        "left_out": 95,
    }


def test_wrong_masks(tmp_path: Path) -> None:
    maps = gifti_files(tmp_path / "gii", IDS, MAPS)
    label = tmp_path / "lh.cortex.label"
    label.write_text("#!ascii\n3\n0 0 0 0 0\n1 0 0 0 0\n")
    roi = write_gifti(tmp_path / "lh.roi.shape.gii", np.ones(2562), "left")
    annot = tmp_path / "lh.aparc.annot"
    annot.write_bytes(b"\x00\x00\x02\x82\x00")
    wrong = {
        label: "lh.cortex.label",
        roi: "mask",
        annot: "lh.aparc.annot",
        tmp_path / "no.annot": "no.annot",
    }
    for mask, about in wrong.items():
        with refused(about):
            load_cohort(maps, mask=mask, hemisphere="left")
    with refused("mask"):
        load_cohort(maps, mask=roi)
    with refused("mask"):
        load_cohort(maps, mask=np.zeros(2 * N, dtype=bool))
