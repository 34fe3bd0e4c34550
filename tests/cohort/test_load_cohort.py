"""Cohorts read back from every format are the same cohort."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from helpers.refusals import refused
from helpers.trees import (
    cifti_files,
    freesurfer_tree,
    gifti_files,
    hemispheres,
    names,
    write_cifti,
    write_gifti,
    write_mgh,
    write_npz,
)
from icofactor import load_cohort
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import save_store
from icofactor.sphere.meshes import same_sites
from icofactor.sphere.sites import Sites

N = 642
RNG = np.random.default_rng(0)
WALL = np.zeros(2 * N, dtype=bool)
WALL[20:70] = WALL[N + 300 : N + 340] = True
X = np.where(WALL, 0, RNG.random((5, 2 * N)) + 2).astype(np.float32)
IDS = names(5)
SIDES = ("both", "left", "right")
N_REAL = 24


def columns(hemisphere: str, n: int = N) -> slice:
    return {"both": slice(0, 2 * n), "left": slice(0, n), "right": slice(n, 2 * n)}[hemisphere]


def check(cohort: Any, X: np.ndarray, used: np.ndarray, hemisphere: str, ids: list[str]) -> None:
    assert_array_equal(cohort.X, X)
    assert cohort.X.dtype == np.float32 and cohort.X.flags.c_contiguous
    assert_array_equal(cohort.mask, used)
    assert cohort.hemisphere == hemisphere and list(cohort.subjects) == ids
    assert list(cohort.participants["participant_id"]) == ids
    assert (cohort.modality, cohort.units) == ("thickness", "mm")


def test_real_subjects_come_back_from_every_format(tmp_path: Path, data_folder: Path) -> None:
    with np.load(data_folder / "thickness_fsaverage5_n200.npz") as archive:
        real, cortex, ids = (
            archive["thickness"][:N_REAL],
            archive["cortex"],
            archive["subject"][:N_REAL],
        )
    ids = [f"sub-{name}" for name in ids]
    maps = hemispheres(real)
    inside = {side: rows[0] for side, rows in hemispheres(cortex[None]).items()}
    freesurfer_tree(tmp_path / "freesurfer", ids, maps, smoothing=20)
    gifti_files(tmp_path / "gifti", ids, maps)
    cifti_files(tmp_path / "cifti", ids, maps, inside)
    write_npz(tmp_path / "thickness.npz", ids, maps)
    for place in ("freesurfer", "gifti", "cifti", "thickness.npz"):
        for hemisphere in SIDES:
            cohort = load_cohort(tmp_path / place, hemisphere=hemisphere)
            part = columns(hemisphere, 10242)
            check(cohort, real[:, part], cortex[part], hemisphere, ids)
            assert cohort.sites.name == "fsaverage5"


def test_real_subjects_on_the_hcp_mesh(tmp_path: Path, data_folder: Path) -> None:
    """CIFTI dscalars of fs_LR 32k with 59412 ordinates, resampled from fsaverage5."""
    import nibabel as nib

    from icofactor.preprocessing.resampling import Resampler

    with np.load(data_folder / "thickness_fsaverage5_n200.npz") as archive:
        real = archive["thickness"][:N_REAL]
    folder, maps, cortex = data_folder / "resample", {}, {}
    spheres = [folder / f"{letter}.sphere.32k_fs_LR.surf.gii" for letter in "LR"]
    for letter, (side, rows) in zip("LR", hemispheres(real).items(), strict=True):
        target = folder / f"fs_LR-deformed_to-fsaverage.{letter}.sphere.32k_fs_LR.surf.gii"
        source = folder / f"fsaverage5_std_sphere.{letter}.10k_fsavg_{letter}.surf.gii"
        roi = nib.load(folder / f"{letter}.atlasroi.32k_fs_LR.shape.gii").agg_data() > 0
        resampled = Resampler(source, target, "barycentric", check_registration=False)(rows).astype(
            np.float32
        )
        maps[side], cortex[side] = np.where(roi, np.maximum(resampled, 0.1), 0), roi
    assert sum(roi.sum() for roi in cortex.values()) == 59412
    used = np.concatenate(list(cortex.values()))
    X = np.concatenate(list(maps.values()), axis=1)
    cifti_files(tmp_path / "59412", names(N_REAL), maps, cortex)
    check(load_cohort(tmp_path / "59412", mesh=spheres), X, used, "both", names(N_REAL))
    cifti_files(tmp_path / "64984", names(5), {side: rows[:5] for side, rows in maps.items()})
    given = load_cohort(tmp_path / "64984", mesh=spheres)
    check(given, X[:5], used, "both", names(5))
    for mesh in (None, "fs_LR_32k"):
        known = load_cohort(tmp_path / "64984", mesh=mesh)
        check(known, X[:5], used, "both", names(5))
        assert same_sites(known.sites, given.sites)


def test_npz_brings_subjects_mask_and_columns(tmp_path: Path) -> None:
    filled = np.where(WALL, 7, X)
    np.savez(tmp_path / "a.npz", thickness=filled, subject=IDS, age=np.arange(5.0), cortex=~WALL)
    for hemisphere in SIDES:
        cohort = load_cohort(tmp_path / "a.npz", hemisphere=hemisphere)
        check(cohort, filled[:, columns(hemisphere)], ~WALL[columns(hemisphere)], hemisphere, IDS)
        assert_array_equal(cohort.participants["age"], np.arange(5.0))
        assert cohort.provenance["mask"]["source"] == ["the files of maps"]


def _lists(tmp_path: Path) -> dict[str, Callable[[], Any]]:
    maps = hemispheres(X)
    tree = freesurfer_tree(tmp_path / "fs", IDS, maps, target="fsaverage3")
    gifti = gifti_files(tmp_path / "gii", IDS, maps)
    return {
        "glob": lambda: str(tree / "*" / "surf" / "?h.thickness.fwhm10.fsaverage3.mgh"),
        "recursive glob": lambda: str(tree / "**" / "*.mgh"),
        "list": lambda: sorted(gifti.iterdir()),
        "list of globs": lambda: [str(gifti / "*hemi-L*"), gifti / "*hemi-R*"],
        "subjects one by one": lambda: [tree / subject / "surf" / f"{h}.thickness.fwhm10.fsaverage3.mgh"
                                        for subject in IDS for h in ("rh", "lh")],
    }  # fmt: skip


def test_lists_and_globs(tmp_path: Path) -> None:
    for paths in _lists(tmp_path).values():
        check(load_cohort(paths()), X, ~WALL, "both", IDS)


def test_compressed_maps_and_threads(tmp_path: Path) -> None:
    tree = freesurfer_tree(tmp_path, IDS, hemispheres(X), target="fsaverage3", ending="mgz")
    for n_threads in (1, 8):
        check(load_cohort(tree, n_threads=n_threads), X, ~WALL, "both", IDS)


def test_provenance_lists_every_file(tmp_path: Path) -> None:
    tree = freesurfer_tree(tmp_path, IDS, hemispheres(X), target="fsaverage3")
    provenance = load_cohort(tree).provenance
    assert len(provenance["inputs"]) == 10
    for record in provenance["inputs"]:
        data = Path(record["path"]).read_bytes()
        assert record["sha256"] == hashlib.sha256(data).hexdigest() and record["bytes"] == len(data)
        assert record["reader"] == "MGH" and record["subject"] in record["path"]
        assert Path(record["path"]).name.startswith(
            {"left": "lh.", "right": "rh."}[record["hemisphere"]]
        )
    assert provenance["mask"] == {"source": ["NaN or zero in every subject"], "left_out": 90}


# Files with one map per subject


def test_pair_of_files_with_all_subjects(tmp_path: Path) -> None:
    """As mris_preproc writes them; names of the subjects come from participants."""
    for side, rows in hemispheres(X).items():
        write_mgh(tmp_path / f"{side[0]}h.all.thickness.fsaverage3.mgz", rows)
    cohort = load_cohort(tmp_path, participants=IDS)
    check(cohort, X, ~WALL, "both", IDS)
    assert any("are the 5 subjects of participants" in step for step in cohort.provenance["steps"])
    assert load_cohort(tmp_path).subjects == (
        "map0001",
        "map0002",
        "map0003",
        "map0004",
        "map0005",
    )
    check(load_cohort(tmp_path, subjects=IDS), X, ~WALL, "both", IDS)
    with refused("subjects"):
        load_cohort(tmp_path, subjects=IDS[:2])
    with refused("lh.all.thickness.fsaverage3.mgz"):
        load_cohort(tmp_path, participants=IDS[:3])
    # The table lists all maps and leaves out one.
    some = load_cohort(tmp_path, participants={"participant_id": IDS, "exclude": [0, 1, 0, 0, 0]})
    check(some, X[[0, 2, 3, 4]], ~WALL, "both", [IDS[i] for i in (0, 2, 3, 4)])


def test_names_of_maps_are_subjects(tmp_path: Path) -> None:
    maps = hemispheres(X)
    write_cifti(
        tmp_path / "all_thickness.dscalar.nii", maps, map_names=[f"{s}_thickness" for s in IDS]
    )
    check(load_cohort(tmp_path / "all_thickness.dscalar.nii"), X, ~WALL, "both", IDS)
    for side, rows in maps.items():
        write_gifti(tmp_path / f"{side[0]}h.thickness.func.gii", rows, side, IDS)
    chosen = [IDS[3], IDS[0]]
    cohort = load_cohort(str(tmp_path / "?h.thickness.func.gii"), participants=chosen)
    check(cohort, X[[3, 0]], ~WALL, "both", chosen)


def test_one_of_several_maps_of_each_subject(tmp_path: Path) -> None:
    for i, subject in enumerate(IDS):
        rows = np.stack([X[i], 2 * X[i] + 1])
        write_cifti(
            tmp_path / f"{subject}.dscalar.nii", hemispheres(rows), map_names=["thickness", "other"]
        )
    with refused("sub-001.dscalar.nii"):
        load_cohort(tmp_path)
    check(
        load_cohort(tmp_path, map_name="thickness", modality="thickness", units="mm"),
        X,
        ~WALL,
        "both",
        IDS,
    )
    assert_array_equal(load_cohort(tmp_path, map_name=1).X, 2 * X + 1)
    with refused("sub-001.dscalar.nii"):
        load_cohort(tmp_path, map_name="area")


def test_several_archives_are_one_cohort(tmp_path: Path) -> None:
    write_npz(tmp_path / "site1_thickness.npz", IDS[:2], hemispheres(X[:2]), age=np.array([1, 2]))
    write_npz(
        tmp_path / "site2_thickness.npz", IDS[2:], hemispheres(X[2:]), age=np.array([3, 4, 5])
    )
    cohort = load_cohort(tmp_path)
    check(cohort, X, ~WALL, "both", IDS)
    assert_array_equal(cohort.participants["age"], [1, 2, 3, 4, 5])


def test_maps_of_faces_and_one_hemisphere(tmp_path: Path) -> None:
    faces = (RNG.random((3, 1280)) + 1).astype(np.float32)
    np.save(tmp_path / "faces.npy", faces)
    with refused("faces.npy"):
        load_cohort(tmp_path / "faces.npy")
    cohort = load_cohort(tmp_path / "faces.npy", hemisphere="right", modality="area")
    assert cohort.sites.on == "faces" and cohort.hemisphere == "right" and cohort.mask is None
    assert (cohort.modality, cohort.units) == ("area", "mm^2")


# Other sources


def test_surface_images() -> None:
    from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage

    sites = Sites.named("fsaverage3")
    half = InMemoryMesh(100 * sites.coordinates, np.asarray(sites.triangles))

    def image(rows: np.ndarray) -> SurfaceImage:
        parts = {side: maps.T for side, maps in hemispheres(rows).items()}
        return SurfaceImage(PolyMesh(left=half, right=half), parts)

    for hemisphere in SIDES:
        cohort = load_cohort(image(X), hemisphere=hemisphere, subjects=IDS, measure="thickness")
        check(cohort, X[:, columns(hemisphere)], ~WALL[columns(hemisphere)], hemisphere, IDS)
    with refused("SurfaceImage"):
        load_cohort(image(X), participants=IDS[:2])
    mask = image((~WALL)[None].astype(np.int8))
    assert_array_equal(load_cohort(image(X + 1), mask=mask).mask, ~WALL)
    one_by_one = [image(row[None]) for row in X]
    assert_array_equal(load_cohort(one_by_one, subjects=IDS).X, X)


def test_store(tmp_path: Path) -> None:
    np.save(tmp_path / "thickness.npy", X)
    cohort = load_cohort(tmp_path / "thickness.npy")
    assert isinstance(cohort, Cohort)
    save_store(cohort, tmp_path / "store")
    stored = load_cohort(tmp_path / "store")
    assert not isinstance(stored, Cohort)
    assert_array_equal(np.asarray(stored.X), cohort.X)
    assert_array_equal(np.asarray(load_cohort([str(tmp_path / "store")]).X), cohort.X)


# Meshes


def test_mesh_by_name_file_and_sites(tmp_path: Path) -> None:
    from helpers.trees import write_surface

    sites = Sites.named("fsaverage3")
    sphere = write_surface(
        tmp_path / "lh.sphere.surf.gii", sites.coordinates, np.asarray(sites.triangles)
    )
    np.save(tmp_path / "thickness.npy", X)
    given: tuple[Any, ...] = (
        "fsaverage3",
        Sites.named("fsaverage3", hemi="both"),
        (sphere, sphere),
        (sites, sites),
    )
    for mesh in given:
        cohort = load_cohort(tmp_path / "thickness.npy", mesh=mesh)
        check(cohort, X, ~WALL, "both", [f"map{i:04d}" for i in range(1, 6)])
    left = load_cohort(tmp_path / "thickness.npy", mesh=(sphere, sphere), hemisphere="left")
    assert left.sites.n == N
    assert_array_equal(
        load_cohort(tmp_path / "thickness.npy", mesh=sites, hemisphere="left").X, X[:, :N]
    )
    with refused("mesh"):
        load_cohort(tmp_path / "thickness.npy", mesh=sites)
    with refused("thickness.npy"):
        load_cohort(tmp_path / "thickness.npy", mesh="fsaverage4")
    with refused("thickness.npy"):
        load_cohort(tmp_path / "thickness.npy", mesh="fsLR32k")
    with refused("mesh"):
        load_cohort(tmp_path / "thickness.npy", mesh="fsLR59k")


def test_a_mesh_that_may_be_two_is_asked_for(tmp_path: Path) -> None:
    rows = (RNG.random((2, 40962)) + 1).astype(np.float32)
    paths = [
        write_mgh(tmp_path / f"lh.{s}.thickness.mgh", row)
        for s, row in zip("ab", rows, strict=True)
    ]
    with refused("mesh"):
        load_cohort(paths)
    assert load_cohort(paths, mesh="fsaverage6").subjects == ("a", "b")
    for path in paths:
        path.rename(path.with_name(path.name.replace(".mgh", ".fsaverage6.mgh")))
    assert load_cohort(tmp_path).sites.name == "fsaverage6"


@pytest.mark.parametrize(
    ("about", "asked"),
    [
        ("hemisphere", {"hemisphere": "lh"}),
        ("missing", {"missing": "ignore"}),
        ("mesh", {"mesh": 5}),
        ("mesh", {"mesh": ("fsaverage3",)}),
        ("participants", {"participants": 3}),
        ("subjects", {"subjects": ["a"]}),
        ("smoothing", {"smoothing": -1}),
    ],
)
def test_wrong_arguments(tmp_path: Path, about: str, asked: dict[str, Any]) -> None:
    np.save(tmp_path / "thickness.npy", X)
    with refused(about):
        load_cohort(tmp_path / "thickness.npy", **asked)


@pytest.mark.parametrize("paths", [[], 3, [3, 4]])
def test_wrong_paths(paths: Any) -> None:
    with refused("paths"):
        load_cohort(paths)
