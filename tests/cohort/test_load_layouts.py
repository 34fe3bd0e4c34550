"""Folders as the tools make them, from one command to a page; and what is said where they are not quite so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

import icofactor as ico
from helpers.refusals import refused
from helpers.trees import write_gifti, write_mgh, write_morph
from icofactor import load_cohort
from icofactor.cli.main import main
from icofactor.io.tables import read_table
from icofactor.results.description import read_fit
from icofactor.sphere.names import N_FS_LR
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import read_surface

N = 642
FACES = np.asarray(Sites.named("fsaverage3").triangles)
IDS = [f"HC{i + 1:02d}" for i in range(6)]
X = (np.random.default_rng(5).random((6, 2 * N)) + 2).astype(np.float32)


def cat12_folder(
    folder: Path, ids: list[str], n: int = N_FS_LR, start: str = "s12.mesh", end: str = "_32k"
) -> np.ndarray:
    """Surface and map in one file, both hemispheres, as CAT12's resampling and smoothing leaves them."""
    (folder / "surf").mkdir(parents=True)
    maps = (np.random.default_rng(2).random((len(ids), 2 * n)) + 2).astype(np.float32)
    for name, values in zip(ids, maps, strict=True):
        points, triangles = np.zeros((2 * n, 3), np.float32), np.zeros((4, 3), np.int32)
        arrays = [
            nib.gifti.GiftiDataArray(triangles, "NIFTI_INTENT_TRIANGLE", "NIFTI_TYPE_INT32"),
            nib.gifti.GiftiDataArray(points, "NIFTI_INTENT_POINTSET", "NIFTI_TYPE_FLOAT32"),
            nib.gifti.GiftiDataArray(values, "NIFTI_INTENT_NONE", "NIFTI_TYPE_FLOAT32"),
        ]
        nib.save(
            nib.gifti.GiftiImage(darrays=arrays),
            folder / "surf" / f"{start}.thickness.resampled{end}.{name}.gii",
        )
        (folder / "surf" / f"lh.thickness.{name}").write_bytes(b"on the subject's own surface")
        (folder / "surf" / f"lh.central.{name}.gii").write_text("its own surface")
    return maps


@pytest.mark.parametrize("given", ["", "surf", "surf/s12.mesh.thickness.resampled_32k.*.gii"])
@pytest.mark.parametrize("form", ["sub-{}", "{}", "IXI-{}_T1w"])
def test_cat12_is_read_from_its_folder(tmp_path: Path, given: str, form: str) -> None:
    ids = [form.format(name) for name in IDS[:3]]
    maps = cat12_folder(tmp_path / "cat12", ids)
    cohort = load_cohort(tmp_path / "cat12" / given)
    assert list(cohort.subjects) == [name.removesuffix("_T1w") for name in ids]
    assert (cohort.hemisphere, cohort.modality) == ("both", "thickness")
    assert_array_equal(cohort.X, maps)


def test_what_cat12_leaves_open_is_said(tmp_path: Path) -> None:
    cat12_folder(tmp_path / "a", IDS[:2], n=4)
    twelve = tmp_path / "a" / "surf" / f"s12.mesh.thickness.resampled_32k.{IDS[0]}.gii"
    twelve.with_name(twelve.name.replace("s12", "s15")).write_bytes(twelve.read_bytes())
    with refused("a"):
        load_cohort(tmp_path / "a")
    with refused("a"):
        load_cohort(tmp_path / "a", measure="gyrification")
    for file in (tmp_path / "a" / "surf").glob("s1*"):
        file.unlink()
    with refused("a"):
        load_cohort(tmp_path / "a")


def test_subjects_by_file_and_by_pattern(tmp_path: Path) -> None:
    for row, name in zip(X, IDS, strict=True):
        write_gifti(tmp_path / f"run_{name}_lh_v2-{name[2:]}.shape.gii", row[:N])
    table, lines = tmp_path / "ids.tsv", tmp_path / "ids.txt"
    table.write_text("participant_id\tage\n" + "".join(f"{name}\t1\n" for name in IDS))
    lines.write_text("\n".join(IDS) + "\n")
    for given in (str(table), lines, "run_{subject}_lh_*.gii", IDS):
        assert list(load_cohort(str(tmp_path / "run*"), subjects=given).subjects) == IDS
    with refused("run_HC01_lh_v2-01.shape.gii"):
        load_cohort(str(tmp_path / "run*"), subjects="nothing_{subject}")
    with refused("HC01"):
        load_cohort(str(tmp_path / "run*"), subjects="HC01")
    lines.write_bytes(b"\x00\xff" * 10)
    with refused("ids.txt"):
        load_cohort(str(tmp_path / "run*"), subjects=lines)


@pytest.mark.parametrize("shape", [(N, 1, 1), (6, 107, 1), (N,)])
def test_nifti_of_mri_surf2surf(tmp_path: Path, shape: tuple[int, ...]) -> None:
    for row, name in zip(X, IDS, strict=True):
        nib.save(
            nib.Nifti1Image(row[:N].reshape(shape, order="F"), np.eye(4)),
            tmp_path / f"lh.thickness.{name}.nii.gz",
        )
    cohort = load_cohort(tmp_path)
    assert list(cohort.subjects) == IDS
    assert_array_equal(cohort.X, X[:, :N])


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("ids", [True, False])
def test_csv_of_people_by_vertices(tmp_path: Path, header: bool, ids: bool) -> None:
    lines = [
        ",".join([*([name] if ids else []), *map(str, row)])
        for row, name in zip(X, IDS, strict=True)
    ]
    top = ",".join([*(["participant_id"] if ids else []), *(f"v{i}" for i in range(2 * N))])
    (tmp_path / "x.csv").write_text("\n".join([*([top] if header else []), *lines]) + "\n")
    cohort = load_cohort(tmp_path / "x.csv", subjects=None if ids else IDS)
    assert list(cohort.subjects) == IDS
    assert_array_equal(cohort.X, X)


def test_a_link_of_git_annex_says_to_get_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"lh.{name}.mgh").symlink_to(
            ".git/annex/objects/Xx/Yy/MD5E-s1--0.mgh/MD5E-s1--0.mgh"
        )
    for given in (tmp_path / "lh.a.mgh", tmp_path, tmp_path / "*.mgh"):
        with refused("lh.a.mgh"):
            load_cohort(given)


def test_tables_in_memory() -> None:
    import pandas as pd

    cohort = load_cohort(pd.DataFrame(X, index=IDS), mesh="fsaverage3", participants=IDS[::-1])
    assert list(cohort.subjects) == IDS[::-1]
    assert_array_equal(cohort.X, X[::-1])


@pytest.mark.parametrize("kind", ["images", "frame"])
def test_what_is_in_memory_is_fitted_to_a_page(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd
    from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage

    monkeypatch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
    half = InMemoryMesh(Sites.named("fsaverage3").coordinates, FACES)
    image = lambda row: SurfaceImage(PolyMesh(half, half), {"left": row[:N], "right": row[N:]})
    given = pd.DataFrame(X).assign(participant_id=IDS) if kind == "frame" else list(map(image, X))
    cohort = ico.load_cohort(given, subjects=None if kind == "frame" else IDS, modality="thickness")
    ico.fit_cohort(
        cohort, ico.CorticalFactorization(2, n_starts=1), tmp_path / "out", figures=False
    )
    assert read_table(tmp_path / "out" / "desc-icofactor_loadings.tsv")[0]["participant_id"] == IDS
    assert (
        tmp_path / "out" / "hemi-R_space-fsaverage_den-642_desc-icofactor_components.shape.gii"
    ).is_file()
    assert "Component 2" in (tmp_path / "out" / "report.html").read_text()


def test_what_is_in_memory_and_wrong_is_told_what_to_do() -> None:
    import pandas as pd
    from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage

    image = lambda n: SurfaceImage(
        PolyMesh(InMemoryMesh((s := Sites.named(f"fsaverage{n}")).coordinates, s.triangles)),
        {"left": np.arange(s.n)},
    )
    wrong = [
        ("paths", [image(3), image(4)]),
        ("paths", pd.DataFrame(X[:, :1000], index=IDS)),
        ("paths", pd.DataFrame(X.T, columns=IDS)),
        ("subjects", pd.DataFrame(X, index=["a"] * 6)),
        ("paths", pd.DataFrame()),
    ]
    for about, given in wrong:
        with refused(about):
            load_cohort(given)
    assert load_cohort(pd.DataFrame(X)).subjects[0] == "map0001"  # no index of people


def test_fsaverage6_to_fsaverage5_needs_no_spheres(tmp_path: Path) -> None:
    from icofactor.preprocessing import Changes, prepare_cohort

    maps = np.random.default_rng(0).random((2, 2 * 40962)).astype(np.float32) + 1
    cohort = ico.Cohort.from_array(maps, "fsaverage6", "both")
    made = prepare_cohort(cohort, tmp_path / "s", Changes(resample_to="fsaverage5"))
    fine, coarse = cohort.sites.coordinates, made.sites.coordinates
    kept = [*range(10242), *range(40962, 40962 + 10242)]
    assert_allclose(fine[kept], coarse, atol=1e-6)
    assert_array_equal(made.X[:], maps[:, kept])
    assert made.provenance["preprocessing"][-1]["method"] == "nested"


# ---------------------------------------------------------------------- from a folder to a page


def fastsurfer(root: Path) -> list[str]:
    """A SUBJECTS_DIR of FastSurfer, resampled by recon-all -qcache."""
    for row, name in zip(X, IDS, strict=True):
        for place in ("surf", "mri"):
            (root / name / place).mkdir(parents=True)
        (root / name / "mri" / "aparc.DKTatlas+aseg.deep.mgz").write_bytes(b"a volume")
        for letter, half in (("l", row[:N]), ("r", row[N:])):
            write_morph(root / name / "surf" / f"{letter}h.thickness", half[:600])
            write_mgh(root / name / "surf" / f"{letter}h.thickness.fwhm10.fsaverage3.mgh", half)
    return ["fit", str(root)]


def matlab(root: Path) -> list[str]:
    root.mkdir()
    savemat(root / "maps.mat", {"thickness": X, "age": np.arange(6.0)})
    (root / "ids.txt").write_text("\n".join(IDS))
    return ["fit", str(root / "maps.mat"), "--subjects", str(root / "ids.txt")]


def ids_at_the_end(root: Path) -> list[str]:
    root.mkdir()
    for row, name in zip(X, IDS, strict=True):
        write_mgh(root / f"lh.thickness.{name}.mgh", row[:N])
        write_mgh(root / f"rh.thickness.{name}.mgh", row[N:])
    return ["fit", str(root)]


def ids_by_pattern(root: Path) -> list[str]:
    root.mkdir()
    for row, name in zip(X, IDS, strict=True):
        write_gifti(root / f"run_{name}_lh_v2-{name[2:]}.shape.gii", row[:N])
    return ["fit", str(root), "--subjects", "run_{subject}_lh_*.gii"]


def civet(root: Path) -> list[str]:
    """CIVET's folders; its mesh is an icosphere in an order of its own, which only its surfaces tell."""
    order = np.random.default_rng(1).permutation(N)
    points = np.empty((N, 3))
    points[order] = Sites.named("fsaverage3").coordinates
    for row, name in zip(X, IDS, strict=True):
        for place in ("thickness", "surfaces", "logs"):
            (root / name / place).mkdir(parents=True)
        for side, half in (("left", row[:N]), ("right", row[N:])):
            values = np.empty(N)
            values[order] = half
            np.savetxt(
                root / name / "thickness" / f"ox_{name}_native_rms_rsl_tlink_30mm_{side}.txt",
                values,
                "%.6f",
            )
            np.savetxt(
                root / name / "thickness" / f"ox_{name}_native_rms_tlink_30mm_{side}.txt",
                values,
                "%.6f",
            )
            np.savetxt(
                root / name / "surfaces" / f"ox_{name}_mid_surface_rsl_{side}_native_area_40mm.txt",
                values,
            )
            mid = root / name / "surfaces" / f"ox_{name}_mid_surface_rsl_{side}_81920.obj"
            write_mni_obj(
                mid,
                points * [60, 85, 50] * (1 + 0.1 * np.sin(9 * points[:, :1])) + [30, 0, 10],
                order[FACES],
            )
    return ["fit", str(root)]


def write_mni_obj(path: Path, points: np.ndarray, faces: np.ndarray) -> None:
    rows = lambda table: "\n".join(" ".join(f"{x:.5f}" for x in row) for row in table)
    ends, corners = (
        " ".join(map(str, numbers)) for numbers in (3 * np.arange(1, len(faces) + 1), faces.ravel())
    )
    head = f"P 0.3 0.3 0.4 10 1 {len(points)}\n{rows(points)}\n\n{rows(points)}\n\n"
    path.write_text(f"{head}{len(faces)}\n0 1 1 1 1\n\n{ends}\n\n{corners}\n")


def cat12(root: Path) -> list[str]:
    cat12_folder(root, IDS)
    return ["fit", str(root)]


PAGE = ["--n-components", "2", "--n-starts", "1", "--no-figures", "-q"]


@pytest.mark.parametrize(
    "layout",
    [
        *(fastsurfer, matlab, civet),
        pytest.param(cat12, marks=pytest.mark.slow),
    ],
)
def test_from_a_folder_to_a_page(
    layout: Callable[[Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
    out = tmp_path / "out"
    assert main([*layout(tmp_path / "data"), "-o", str(out), *PAGE]) == 0
    assert read_table(out / "desc-icofactor_loadings.tsv")[0]["participant_id"] == IDS
    assert "Component 2" in (out / "report.html").read_text()
    if (
        layout is civet
    ):  # maps are called after its mesh, and drawn on the people's own surfaces, also once more
        names = [path.name for path in out.glob("hemi-L*components.shape.gii")]
        assert names == ["hemi-L_space-civet_den-642_desc-icofactor_components.shape.gii"]
        mid = [
            read_surface(path)[0]
            for path in (tmp_path / "data").glob("*/surfaces/*rsl_left_81920.obj")
        ]
        cortex = read_fit(out).cortex
        assert_allclose(
            cortex.hemispheres[0].shapes["midthickness"], np.mean(mid, axis=0), rtol=1e-6
        )
        assert cortex.note == "Drawn on the mean surface of subjects." and list(
            out.glob("hemi-R*_midthickness.surf.gii")
        )
        assert "of CIVET's mesh (642 vertices per hemisphere)" in (out / "methods.md").read_text()


def test_civets_own_surfaces_give_its_mesh(tmp_path: Path) -> None:
    """The order of the vertices is found, and the sphere lies as the folds do; so for files named one by one."""
    civet(tmp_path / "data")
    cohort = load_cohort(tmp_path / "data")
    globbed = load_cohort(str(tmp_path / "data" / "*" / "thickness" / "*_rsl_*.txt"))
    assert [(one.sites.level, one.modality) for one in (cohort, globbed)] == [(3, "thickness")] * 2
    truth = Sites.named("fsaverage3").coordinates
    order = np.random.default_rng(1).permutation(N)
    found = cohort.sites.coordinates[:N][order]
    assert_allclose(found @ found.T, truth @ truth.T, atol=1e-3)
    assert np.einsum("ij,ij->i", found, truth).min() > 0.9
    assert_allclose(cohort.X[:, :N][:, order], X[:, :N], rtol=1e-5)
    assert load_cohort(tmp_path / "data", measure="area").units == "mm^2"


def no_qcache(root: Path) -> list[str]:
    fastsurfer(root)
    for file in root.glob("*/surf/*.mgh"):
        file.unlink()
    return ["fit", str(root)]


def csv_of_columns(root: Path) -> list[str]:
    root.mkdir()
    np.savetxt(root / "maps.csv", X.T, "%.5f", ",")
    return ["fit", str(root / "maps.csv")]


def one_side_missing(root: Path) -> list[str]:
    ids_at_the_end(root)
    (root / f"rh.thickness.{IDS[2]}.mgh").unlink()
    return ["fit", str(root)]


def unnamed(root: Path) -> list[str]:
    root.mkdir()
    return ["fit", *ids_by_pattern(root / "a")[1:-1], "run-{subject}.gii"]


def civet_without_surfaces(root: Path) -> list[str]:
    (root / "a" / "thickness").mkdir(parents=True)
    np.savetxt(
        root / "a" / "thickness" / "a_native_rms_rsl_tlink_30mm_left.txt",
        np.arange(40962) % 7,
        "%d",
    )
    return ["fit", str(root)]


def a_damaged_surface(root: Path) -> list[str]:
    civet(root)
    for file in root.glob("*/surfaces/*.obj"):
        file.write_bytes(file.read_bytes()[:9000])
    return ["fit", str(root)]


def with_file(name: str, content: bytes | str) -> Callable[[Path], list[str]]:
    """One file, named itself."""

    def layout(root: Path) -> list[str]:
        root.mkdir()
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return ["fit", str(root / name)]

    return layout


def a_short_mask(root: Path) -> list[str]:
    np.save(root.with_suffix(".npy"), np.ones(700, dtype=bool))
    return [*ids_at_the_end(root), "--mask", str(root.with_suffix(".npy"))]


def civet_with_commas(root: Path) -> list[str]:
    civet(root)
    for file in root.glob("*/thickness/*.txt"):
        file.write_text(file.read_text().replace(".", ","))
    return ["fit", str(root)]


def an_empty_table(root: Path) -> list[str]:
    root.mkdir()
    (root / "lh.aparc.tsv").write_text("id\tlh_insula\tlh_cuneus\na\t1\t2\nb\t2\t1\n")
    (root / "rh.aparc.tsv").write_text("")
    return ["fit", str(root)]


ROWS = [",".join(map(str, row)) for row in X]


@pytest.mark.parametrize(
    ("layout", "about"),
    [
        (a_short_mask, "data.npy"),
        (with_file("m.csv", "\n".join(f"a,{row}" for row in ROWS)), "m.csv"),
        (civet_with_commas, "tlink_30mm_left.txt"),
        (an_empty_table, "rh.aparc.tsv"),
        (no_qcache, "data: has thickness on the subjects' own surfaces only"),
        (csv_of_columns, "maps.csv"),
        (one_side_missing, "subject HC03: missing"),
        (unnamed, "run_HC01_lh_v2-01.shape.gii"),
        (civet_without_surfaces, "--mesh: is needed"),
        (a_damaged_surface, "81920.obj"),
    ],
)
def test_each_wrong_version_is_one_line_that_names_it(
    layout: Callable[[Path], list[str]],
    about: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*layout(tmp_path / "data"), "-o", str(tmp_path / "out"), *PAGE]) == 2
    *head, line = capsys.readouterr().err.splitlines()
    assert about in line
    assert not head or re.fullmatch(r"icofactor fit: \d+ problems:", *head)
    assert not (tmp_path / "out").exists()
