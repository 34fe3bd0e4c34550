"""Bad files: one report that names every one of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import icofactor.io.maps as formats
from helpers.trees import (
    cifti_files,
    freesurfer_tree,
    gifti_files,
    hemispheres,
    names,
    write_gifti,
    write_mgh,
)
from icofactor import load_cohort
from icofactor.errors import CohortError

N = 642
RNG = np.random.default_rng(1)
WALL = np.zeros(2 * N, dtype=bool)
WALL[20:70] = WALL[N + 300 : N + 340] = True
X = np.where(WALL, 0, RNG.random((9, 2 * N)) + 2).astype(np.float32)
IDS = names(9)
MAPS = hemispheres(X)


def bad_files(paths: object, **asked: object) -> set[str]:
    """Names of the files, subjects and arguments that the one error is about."""
    with pytest.raises(CohortError) as caught:
        load_cohort(paths, **asked)  # type: ignore[arg-type]
    return {path.rsplit("/", 1)[-1] for path, _ in caught.value.problems}


def test_one_report_names_every_bad_file(tmp_path: Path) -> None:
    folder = gifti_files(tmp_path, IDS, MAPS)
    file = lambda i, hemi="L": folder / f"{IDS[i]}_hemi-{hemi}_thickness.shape.gii"
    data = file(0).read_bytes()
    file(0).write_bytes(data[: len(data) // 2])  # truncated
    file(1).write_bytes(b"")  # empty
    write_gifti(file(2), MAPS["left"][2], "right")  # says of itself that it is right
    write_gifti(file(3, "R"), RNG.random(2562) + 1, "right")  # of another mesh
    write_gifti(
        folder / f"{IDS[4]}_ses-2_hemi-L_thickness.shape.gii", MAPS["left"][4] + 1, "left"
    )  # again
    holes = MAPS["left"][5].copy()
    holes[[100, 200, 300]] = np.nan
    write_gifti(file(5), holes, "left")  # NaN in the cortex
    file(6).unlink()  # a missing hemisphere
    write_gifti(file(7, "R"), 1000 * MAPS["right"][7], "right")  # micrometres
    file(8).write_bytes(b"\x00\x01\x02" * 1000)  # unreadable
    assert bad_files(folder) == {
        *(file(number).name for number in (0, 1, 2, 5, 8)),
        *(file(number, "R").name for number in (3, 7)),
        f"{IDS[4]}_ses-2_hemi-L_thickness.shape.gii",
        f"subject {IDS[6]}",
    }


def test_all_files_bad(tmp_path: Path) -> None:
    folder = gifti_files(tmp_path, IDS[:3], {side: rows[:3] for side, rows in MAPS.items()})
    for path in folder.iterdir():
        path.write_bytes(b"")
    assert bad_files(folder) == {path.name for path in folder.iterdir()}


def test_files_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = gifti_files(tmp_path, IDS[:3], {"left": MAPS["left"][:3]})
    forbidden, looped = sorted(folder.iterdir())[:2]
    looped.unlink()
    looped.symlink_to(looped)
    read = formats.read_gifti

    def refuse(
        path: Path,
    ) -> object:  # the superuser may read everything, so permissions cannot be taken away
        if path == forbidden:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(formats, "read_gifti", refuse)
    assert bad_files([*folder.iterdir(), looped]) == {forbidden.name, looped.name}


def test_swapped_hemispheres_are_known_by_their_medial_wall(tmp_path: Path) -> None:
    """FreeSurfer's files do not say which hemisphere they are."""
    tree = freesurfer_tree(tmp_path, IDS, MAPS, target="fsaverage3")
    surf = tree / IDS[3] / "surf"
    for prefix, side in (("lh", "right"), ("rh", "left")):
        write_mgh(surf / f"{prefix}.thickness.fwhm10.fsaverage3.mgh", MAPS[side][3])
    assert bad_files(tree) == {path.name for path in surf.iterdir()}


def test_a_copy_under_another_name(tmp_path: Path) -> None:
    tree = freesurfer_tree(tmp_path, IDS, MAPS, target="fsaverage3")
    name = "surf/lh.thickness.fwhm10.fsaverage3.mgh"
    (tree / IDS[1] / name).write_bytes((tree / IDS[0] / name).read_bytes())
    assert bad_files(tree) == {Path(name).name}


def test_nan_on_the_wall_is_the_mask(tmp_path: Path) -> None:
    rows = np.where(WALL, np.nan, X).astype(np.float32)
    rows[4] = X[4]  # one has zeros there
    cohort = load_cohort(gifti_files(tmp_path, IDS, hemispheres(rows)))
    assert_array_equal(cohort.mask, ~WALL)
    assert_array_equal(cohort.X, X)


def test_the_one_without_nan_on_the_wall_is_named(tmp_path: Path) -> None:
    rows = np.where(WALL, np.nan, X).astype(np.float32)
    rows[4] = np.where(WALL, 1, X[4])
    folder = gifti_files(tmp_path, IDS, hemispheres(rows))
    assert bad_files(folder) == {f"{IDS[4]}_hemi-{h}_thickness.shape.gii" for h in "LR"}
    cohort = load_cohort(folder, mask=~WALL)
    assert_array_equal(cohort.mask, ~WALL)
    assert_array_equal(cohort.X[:4], X[:4])


def test_infinite_and_flat_maps(tmp_path: Path) -> None:
    rows = X.copy()
    rows[0, 100] = np.inf
    rows[1] = 0
    rows[2, :N] = 3
    assert bad_files(gifti_files(tmp_path, IDS, hemispheres(rows))) == {
        f"{IDS[i]}_hemi-{h}_thickness.shape.gii"
        for i, h in ((0, "L"), (1, "L"), (1, "R"), (2, "L"))
    }


def test_values_too_large_for_the_cohort(tmp_path: Path) -> None:
    rows = X.astype(np.float64)
    rows[2, 100] = 1e300
    np.save(tmp_path / "thickness.npy", rows)
    assert bad_files(tmp_path / "thickness.npy") == {"thickness.npy (map 2, subject map0003)"}


@pytest.mark.parametrize("scale", [1e-160, -1e-41])
def test_values_too_small_for_the_cohort(tmp_path: Path, scale: float) -> None:
    rows = X.astype(np.float64)
    rows[2] *= scale
    np.save(tmp_path / "thickness.npy", rows)
    assert bad_files(tmp_path / "thickness.npy") == {"thickness.npy (map 2, subject map0003)"}
    rows[1] = 0
    np.save(tmp_path / "thickness.npy", rows[1:3])
    assert bad_files(tmp_path / "thickness.npy") == {
        "thickness.npy (map 0, subject map0001)",
        "thickness.npy (map 1, subject map0002)",
    }


def test_duplicate_subjects(tmp_path: Path) -> None:
    one = gifti_files(tmp_path / "one", IDS[:3], {"left": MAPS["left"][:3]})
    two = gifti_files(tmp_path / "two", IDS[1:4], {"left": MAPS["left"][5:8]})
    assert bad_files([one, two]) == {f"{IDS[i]}_hemi-L_thickness.shape.gii" for i in (1, 2)}
    cifti_files(tmp_path / "three", IDS[:1], {"left": MAPS["left"][:1]})
    assert bad_files([one, tmp_path / "three"]) == {f"{IDS[0]}_thickness.dscalar.nii"}
    np.savez(tmp_path / "b.npz", thickness=X[:2], subjects=["a", "b"])
    np.savez(tmp_path / "c.npz", thickness=X[2:4], subjects=["b", "c"])
    assert bad_files([tmp_path / "b.npz", tmp_path / "c.npz"]) == {"b.npz", "c.npz"}


def test_both_hemispheres_asked_for_and_one_there(tmp_path: Path) -> None:
    left = {"left": MAPS["left"][:2]}
    cifti_files(tmp_path / "cifti", IDS[:2], left)
    gifti_files(tmp_path / "gifti", IDS[:2], left)
    write_mgh(tmp_path / "lh.thickness.mgh", MAPS["left"])
    names_of = lambda folder: {path.name for path in (tmp_path / folder).iterdir()}
    assert bad_files(tmp_path / "cifti", hemisphere="both") == names_of("cifti")
    assert bad_files(tmp_path / "gifti", hemisphere="both") == {
        f"subject {name}" for name in IDS[:2]
    }
    assert bad_files(tmp_path / "lh.thickness.mgh", hemisphere="both") == {"lh.thickness.mgh"}
    assert bad_files(tmp_path / "cifti", hemisphere="right") == names_of("cifti")


def test_hemispheres_with_different_numbers_of_maps(tmp_path: Path) -> None:
    write_mgh(tmp_path / "lh.thickness.mgh", MAPS["left"])
    write_mgh(tmp_path / "rh.thickness.mgh", MAPS["right"][:4])
    assert bad_files(tmp_path) == {"rh.thickness.mgh"}


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    np.save(tmp_path / "thickness.npy", X)
    (tmp_path / "empty").mkdir()
    paths = ["thickness.npy", "no.mgh", "*.gii", "empty"]
    assert bad_files([str(tmp_path / name) for name in paths]) >= set(paths[1:])


def test_a_wrong_mask_is_reported_with_the_files(tmp_path: Path) -> None:
    folder = gifti_files(tmp_path, IDS, MAPS)
    (folder / f"{IDS[0]}_hemi-L_thickness.shape.gii").write_bytes(b"")
    wrong = {"mask", f"{IDS[0]}_hemi-L_thickness.shape.gii"}
    assert bad_files(folder, mask=np.ones(5, dtype=bool)) == wrong


def test_one_line_per_cause(tmp_path: Path) -> None:
    """Sixty files with one fault are one line with two examples; the error holds all of them."""
    folder = gifti_files(tmp_path, names(61), {"left": RNG.random((61, 12)) + 1})
    first, *others = sorted(folder.iterdir())
    first.write_bytes(b"\x1f\x8b")
    for path in others:
        path.write_bytes(b"")
    with pytest.raises(CohortError) as caught:
        load_cohort(folder)
    head, *lines = str(caught.value).splitlines()
    assert head == "61 problems:" and len(lines) == 2
    assert lines[1].strip().startswith(f"{others[0]}, {others[1]} and 58 more: ")
    assert {where for where, _ in caught.value.problems} == {str(path) for path in (first, *others)}


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04\x14\x00\x06\x00\xff\xff", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"]
)
def test_tables_of_spreadsheets(tmp_path: Path, content: bytes) -> None:
    folder = gifti_files(tmp_path / "maps", IDS, MAPS)
    (tmp_path / "table").write_bytes(content)
    assert bad_files(folder, participants=tmp_path / "table") == {"table"}


def test_reports_of_many_causes_are_cut() -> None:
    error = CohortError.of([(f"{i}.gii", f"fault {i}") for i in range(60)])
    assert len(error.lines()) == 52 and error.lines()[-1] == "... and 10 more causes"
