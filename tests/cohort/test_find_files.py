"""The table of files: a layout is one declaration, links do not trap a search, a dry run reads no data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from helpers.trees import freesurfer_tree, gifti_files, hemispheres, names, write_mgh, write_npz
from icofactor import load_cohort
from icofactor.cli.main import main
from icofactor.cohort.find import COLUMNS, layouts
from icofactor.cohort.find.files import find_files
from icofactor.cohort.load import plan_cohort
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.request import Request
from icofactor.errors import CohortError

N = 642
IDS = names(6)
X = (np.random.default_rng(4).random((6, 2 * N)) + 2).astype(np.float32)
MAPS = hemispheres(X)


def test_a_new_layout_is_one_declaration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = layouts.Layout(
        name="folders of a toy tool",
        folders=("cortex",),
        patterns=(
            r"toy_(?P<hemisphere>[LR])_(?P<measure>[a-z]+)_(?P<smoothing>\d+)_(?P<target>\w+)\.mgh",
        ),
        options=frozenset({"smoothing", "target"}),
        default_measure="thickness",
    )
    monkeypatch.setattr("icofactor.cohort.find.files.LAYOUTS", [toy, *layouts.LAYOUTS])
    for name, row in zip(IDS, X, strict=True):
        (tmp_path / name / "cortex").mkdir(parents=True)
        for letter, half in (("L", row[:N]), ("R", row[N:])):
            for fwhm in (5, 10):
                file = f"toy_{letter}_thickness_{fwhm}_fsaverage3.mgh"
                write_mgh(tmp_path / name / "cortex" / file, half + fwhm)
    assert_array_equal(load_cohort(tmp_path, smoothing=10).X, X + 10)
    with pytest.raises(CohortError):
        load_cohort(tmp_path)
    (tmp_path / IDS[1] / "cortex" / "toy_R_thickness_5_fsaverage3.mgh").unlink()
    with pytest.raises(CohortError) as caught:
        load_cohort(tmp_path, smoothing=5)
    assert caught.value.path == f"subject {IDS[1]}"
    assert str(tmp_path / IDS[1] / "cortex" / "toy_R_thickness_5_fsaverage3.mgh") in str(
        caught.value
    )


def test_the_columns_of_the_table(tmp_path: Path) -> None:
    tree = freesurfer_tree(tmp_path, IDS, MAPS, target="fsaverage3")
    (tree / IDS[2] / "surf" / "rh.thickness.fwhm10.fsaverage3.mgh").unlink()
    files = find_files(tree, Request(), ReadProblems(), Journal())
    assert tuple(files.columns) == COLUMNS
    assert files["subject"].tolist() == [name for name in IDS for _ in "lr"]
    assert files["hemisphere"].tolist() == ["left", "right"] * 6
    assert set(files["measure"]) == {"thickness", None} and set(files["mesh"]) == {
        "fsaverage3",
        None,
    }
    missing = files[files["size"] < 0]
    assert missing["path"].tolist() == [
        tree / IDS[2] / "surf" / "rh.thickness.fwhm10.fsaverage3.mgh"
    ]
    present = files[files["size"] >= 0]
    assert present["size"].tolist() == [path.stat().st_size for path in present["path"]]


def test_sessions_in_a_pattern(tmp_path: Path) -> None:
    for number, row in enumerate(X):
        write_mgh(tmp_path / f"p{number // 2}-s{number % 2}.lh.mgh", row[:N])
    pattern = "{subject}-{session}.lh.mgh"
    cohort = load_cohort(tmp_path, subjects=pattern, sessions="all", hemisphere="left")
    assert cohort.participants["participant_id"].tolist() == ["p0", "p0", "p1", "p1", "p2", "p2"]
    assert cohort.participants["session_id"].tolist() == ["s0", "s1"] * 3
    one = load_cohort(tmp_path, subjects=pattern, sessions="s1", hemisphere="left")
    assert_array_equal(one.X, X[1::2, :N])


def test_recursive_globs_follow_links_but_not_in_circles(tmp_path: Path) -> None:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    write_npz(tmp_path / "data" / "deep" / "a.npz", IDS[:3], hemispheres(X[:3]))
    write_npz(tmp_path / "elsewhere" / "b.npz", IDS[3:], hemispheres(X[3:]))
    os.symlink(tmp_path / "data", tmp_path / "data" / "deep" / "loop")
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "linked")
    cohort = load_cohort(str(tmp_path / "data" / "**" / "*.npz"))
    assert list(cohort.subjects) == IDS
    assert_array_equal(cohort.X, X)


def test_a_dry_run_notices_truncated_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = freesurfer_tree(tmp_path / "fs", IDS, MAPS, target="fsaverage3")
    bad = tree / IDS[4] / "surf" / "lh.thickness.fwhm10.fsaverage3.mgh"
    bad.write_bytes(bad.read_bytes()[:-500])
    folder = gifti_files(tmp_path / "gii", IDS, MAPS)
    half = folder / f"{IDS[3]}_hemi-R_thickness.shape.gii"
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 3])
    for place, path in ((tree, bad), (folder, half)):
        with pytest.raises(CohortError) as caught:
            plan_cohort(place).check()
        assert [name for name, _ in caught.value.problems] == [str(path)]
        assert main(["fit", str(place), "-o", str(tmp_path / "out"), "--dry-run"]) == 2
        assert path.name in capsys.readouterr().err


def test_a_dry_run_hashes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of 40,000 people of fsaverage6 that is a hole on the disk: 13 GB."""
    maps = np.lib.format.open_memmap(
        tmp_path / "lh.thickness.npy", "w+", dtype=np.float64, shape=(40_000, 40_962)
    )
    del maps
    monkeypatch.setattr("icofactor.cohort.reader.hash_file", None)
    plan = plan_cohort(tmp_path / "lh.thickness.npy", mesh="fsaverage6")
    plan.check()
    assert (len(plan.subjects), plan.n_sites, plan.n_files) == (40_000, 40_962, 1)


@pytest.mark.parametrize("measure", ["thickness", "area"])
def test_tables_of_a_real_study(measure: str, data_folder: Path) -> None:
    """Destrieux tables that aparcstats2table wrote for the 216 people of AOMIC PIOP1."""
    import pandas as pd

    folder = data_folder / "aomic_piop1"
    if not folder.is_dir():
        pytest.skip("needs the tables of AOMIC PIOP1")
    files = [
        folder / f"data-cortical_type-aparc.a2009s_measure-{measure}_hemi-{prefix}.tsv"
        for prefix in ("lh", "rh")
    ]
    cohort = load_cohort(files, participants=folder / "participants.tsv")
    tables = [pd.read_csv(file, sep="\t", index_col=0) for file in files]
    shared = [
        table[[name for name in table if name.startswith(("lh_", "rh_")) and "Mean" not in name
               and "WhiteSurfArea" not in name]]
        for table in tables
    ]  # fmt: skip
    expected = np.hstack([table.loc[list(cohort.subjects)] for table in shared])
    assert cohort.modality == measure and cohort.hemisphere == "both"
    np.testing.assert_allclose(cohort.X, expected, rtol=1e-6)
    assert len(cohort) == 216 and cohort.sites.n == 148
