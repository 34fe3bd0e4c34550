"""Bad files: one report that names every one of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
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
from icofactor.errors import CohortError

N = 642
RNG = np.random.default_rng(1)
WALL = np.zeros(2 * N, dtype=bool)
WALL[20:70] = WALL[N + 300 : N + 340] = True
X = np.where(WALL, 0, RNG.random((9, 2 * N)) + 2).astype(np.float32)
IDS = names(9)
MAPS = hemispheres(X)
EMPTY = "is empty; copy it from its source again"


def report(paths: object, **asked: object) -> dict[str, str]:
    """What the error says: name of the file (or subject) → what is wrong."""
    with pytest.raises(CohortError) as caught:
        ico.load_cohort(paths, **asked)  # type: ignore[arg-type]
    lines = str(caught.value).splitlines()
    if len(lines) > 1:
        assert lines.pop(0) == f"{len(lines)} problems:"
    pairs = [line.strip().split(": ", 1) for line in lines]
    return {where.rsplit("/", 1)[-1]: what for where, what in pairs}


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
    found = report(folder)
    assert set(found) == {
        *(file(number).name for number in (0, 1, 2, 5, 8)),
        *(file(number, "R").name for number in (3, 7)),
        f"{IDS[4]}_ses-2_hemi-L_thickness.shape.gii",
        f"subject {IDS[6]}",
    }


def test_all_files_bad(tmp_path: Path) -> None:
    folder = gifti_files(tmp_path, IDS[:3], {side: rows[:3] for side, rows in MAPS.items()})
    for path in folder.iterdir():
        path.write_bytes(b"")
    with pytest.raises(CohortError) as caught:
        ico.load_cohort(folder)
    assert sorted(caught.value.problems) == sorted((str(path), EMPTY) for path in folder.iterdir())


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
    found = report([*folder.iterdir(), looped])
    assert found[forbidden.name] == "cannot be read (permission denied)"
    assert "symbolic links" in found[looped.name] and len(found) == 2


def test_swapped_hemispheres_are_known_by_their_medial_wall(tmp_path: Path) -> None:
    """FreeSurfer's files do not say which hemisphere they are."""
    tree = freesurfer_tree(tmp_path, IDS, MAPS, target="fsaverage3")
    surf = tree / IDS[3] / "surf"
    for prefix, side in (("lh", "right"), ("rh", "left")):
        write_mgh(surf / f"{prefix}.thickness.fwhm10.fsaverage3.mgh", MAPS[side][3])
    found = report(tree)
    assert found == {
        "lh.thickness.fwhm10.fsaverage3.mgh": "is named left, but it has the medial wall of the right hemisphere",
        "rh.thickness.fwhm10.fsaverage3.mgh": "is named right, but it has the medial wall of the left hemisphere",
    }


def test_a_copy_under_another_name(tmp_path: Path) -> None:
    tree = freesurfer_tree(tmp_path, IDS, MAPS, target="fsaverage3")
    name = "surf/lh.thickness.fwhm10.fsaverage3.mgh"
    (tree / IDS[1] / name).write_bytes((tree / IDS[0] / name).read_bytes())
    found = report(tree)
    assert list(found.values()) == [f"is identical to {tree / IDS[0] / name}, byte for byte"]


def test_nan_on_the_wall_is_the_mask(tmp_path: Path) -> None:
    rows = np.where(WALL, np.nan, X).astype(np.float32)
    rows[4] = X[4]  # one has zeros there
    cohort = ico.load_cohort(gifti_files(tmp_path, IDS, hemispheres(rows)))
    np.testing.assert_array_equal(cohort.mask, ~WALL)
    np.testing.assert_array_equal(cohort.X, X)


def test_the_one_without_nan_on_the_wall_is_named(tmp_path: Path) -> None:
    rows = np.where(WALL, np.nan, X).astype(np.float32)
    rows[4] = np.where(WALL, 1, X[4])
    folder = gifti_files(tmp_path, IDS, hemispheres(rows))
    found = report(folder)
    assert set(found) == {
        f"{IDS[4]}_hemi-L_thickness.shape.gii",
        f"{IDS[4]}_hemi-R_thickness.shape.gii",
    }
    assert all(
        "where most subjects have NaN; leave them out with mask" in what for what in found.values()
    )
    cohort = ico.load_cohort(folder, mask=~WALL)
    np.testing.assert_array_equal(cohort.mask, ~WALL)
    np.testing.assert_array_equal(cohort.X[:4], X[:4])


def test_infinite_and_flat_maps(tmp_path: Path) -> None:
    rows = X.copy()
    rows[0, 100] = np.inf
    rows[1] = 0
    rows[2, :N] = 3
    found = report(gifti_files(tmp_path, IDS, hemispheres(rows)))
    assert set(found) == {
        f"{IDS[i]}_hemi-{h}_thickness.shape.gii"
        for i, h in ((0, "L"), (1, "L"), (1, "R"), (2, "L"))
    }
    assert (
        found[f"{IDS[1]}_hemi-R_thickness.shape.gii"] == "is 0 at every vertex; it contains no map"
    )
    assert (
        found[f"{IDS[2]}_hemi-L_thickness.shape.gii"] == "is 3 at every vertex; it contains no map"
    )


def test_all_maps_empty(tmp_path: Path) -> None:
    found = report(cifti_files(tmp_path, IDS[:2], {"left": np.zeros((2, N), dtype=np.float32)}))
    assert len(found) == 2 and all(
        "is 0 at every vertex; it contains no map" in what for what in found.values()
    )


def test_values_too_large_for_the_cohort(tmp_path: Path) -> None:
    rows = X.astype(np.float64)
    rows[2, 100] = 1e300
    np.save(tmp_path / "thickness.npy", rows)
    assert "map 2, subject map0003" in next(iter(report(tmp_path / "thickness.npy")))


@pytest.mark.parametrize("scale", [1e-160, -1e-41])
def test_values_too_small_for_the_cohort(tmp_path: Path, scale: float) -> None:
    rows = X.astype(np.float64)
    rows[2] *= scale
    np.save(tmp_path / "thickness.npy", rows)
    found = report(tmp_path / "thickness.npy")
    assert "too small to distinguish from zero in single precision" in found.pop(
        "thickness.npy (map 2, subject map0003)"
    )
    assert not found
    rows[1] = 0
    np.save(tmp_path / "thickness.npy", rows[1:3])
    found = report(tmp_path / "thickness.npy")
    assert (
        found["thickness.npy (map 0, subject map0001)"]
        == "is 0 at every vertex; it contains no map"
    )
    assert "single precision" in found["thickness.npy (map 1, subject map0002)"]


def test_duplicate_subjects(tmp_path: Path) -> None:
    one = gifti_files(tmp_path / "one", IDS[:3], {"left": MAPS["left"][:3]})
    two = gifti_files(tmp_path / "two", IDS[1:4], {"left": MAPS["left"][5:8]})
    found = report([one, two])
    assert list(found) == [f"{IDS[i]}_hemi-L_thickness.shape.gii" for i in (1, 2)]
    cifti_files(tmp_path / "three", IDS[:1], {"left": MAPS["left"][:1]})
    assert "is also in" in report([one, tmp_path / "three"])[f"{IDS[0]}_thickness.dscalar.nii"]
    np.savez(tmp_path / "a.npz", thickness=X, subjects=["a"] * 9)
    np.savez(tmp_path / "b.npz", thickness=X[:2], subjects=["a", "b"])
    np.savez(tmp_path / "c.npz", thickness=X[2:4], subjects=["b", "c"])
    assert report([tmp_path / "b.npz", tmp_path / "c.npz"])


def test_both_hemispheres_asked_for_and_one_there(tmp_path: Path) -> None:
    left = {"left": MAPS["left"][:2]}
    cifti_files(tmp_path / "cifti", IDS[:2], left)
    gifti_files(tmp_path / "gifti", IDS[:2], left)
    write_mgh(tmp_path / "lh.thickness.mgh", MAPS["left"])
    found = report(tmp_path / "cifti", hemisphere="both")
    assert set(found.values()) == {f"subject {name} lacks the right hemisphere" for name in IDS[:2]}
    assert list(report(tmp_path / "gifti", hemisphere="both")) == [
        f"subject {name}" for name in IDS[:2]
    ]
    assert report(tmp_path / "lh.thickness.mgh", hemisphere="both")
    found = report(tmp_path / "cifti", hemisphere="right")
    assert set(found.values()) == {
        "contains only the left hemisphere; hemisphere='right' was requested"
    }


def test_hemispheres_with_different_numbers_of_maps(tmp_path: Path) -> None:
    write_mgh(tmp_path / "lh.thickness.mgh", MAPS["left"])
    write_mgh(tmp_path / "rh.thickness.mgh", MAPS["right"][:4])
    assert report(tmp_path)["rh.thickness.mgh"].startswith("contains 4 maps; ")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    np.save(tmp_path / "thickness.npy", X)
    (tmp_path / "empty").mkdir()
    found = report(
        [
            tmp_path / "thickness.npy",
            tmp_path / "no.mgh",
            str(tmp_path / "*.gii"),
            tmp_path / "empty",
        ]
    )
    assert found["no.mgh"] == "no such file"
    assert found["*.gii"] == "no file matches this pattern"
    assert "contains no map files, and is not a SUBJECTS_DIR" in found["empty"]


def test_a_wrong_mask_is_reported_with_the_files(tmp_path: Path) -> None:
    folder = gifti_files(tmp_path, IDS, MAPS)
    (folder / f"{IDS[0]}_hemi-L_thickness.shape.gii").write_bytes(b"")
    found = report(folder, mask=np.ones(5, dtype=bool))
    assert found["mask"] == "must contain True or False for each of 1284 sites; found shape (5,)"
    assert found[f"{IDS[0]}_hemi-L_thickness.shape.gii"] == EMPTY


def test_one_line_per_cause(tmp_path: Path) -> None:
    """Sixty files with one fault are one line with two examples; the error holds all of them."""
    folder = gifti_files(tmp_path, names(61), {"left": RNG.random((61, 12)) + 1})
    first, *others = sorted(folder.iterdir())
    first.write_bytes(b"\x1f\x8b")
    for path in others:
        path.write_bytes(b"")
    with pytest.raises(CohortError) as caught:
        ico.load_cohort(folder)
    head, *lines = str(caught.value).splitlines()
    assert head == "61 problems:" and len(lines) == 2
    assert lines[1].strip() == f"{others[0]}, {others[1]} and 58 more: {EMPTY}"
    assert {where for where, _ in caught.value.problems} == {str(path) for path in (first, *others)}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PK\x03\x04\x14\x00\x06\x00\xff\xff", "is an Excel workbook; save it as CSV or TSV"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an Excel workbook; save it as CSV or TSV"),
    ],
)
def test_tables_of_spreadsheets(tmp_path: Path, content: bytes, problem: str) -> None:
    folder = gifti_files(tmp_path / "maps", IDS, MAPS)
    (tmp_path / "table").write_bytes(content)
    assert report(folder, participants=tmp_path / "table")["table"].startswith(problem)


def test_reports_of_many_causes_are_cut() -> None:
    error = CohortError.of([(f"{i}.gii", f"fault {i}") for i in range(60)])
    assert len(error.lines()) == 52 and error.lines()[-1] == "... and 10 more causes"
