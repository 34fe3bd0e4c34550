"""What users see and what is written: one line instead of a traceback, nothing outside the folder named, nothing
replaced without being asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hostile_fit import small_fit
from helpers.stores import cohort, contents
from icofactor.cli.main import main
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import save_store
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.preprocessing._prepare_hcp import map_key
from icofactor.preprocessing.finished_maps import FinishedMaps
from icofactor.results.diagnostics.record import save_diagnostics
from icofactor.results.fit_cohort import fit_cohort
from icofactor.sphere.sites import Sites

pytestmark = pytest.mark.hostile

SITES = Sites.named("fsaverage3")
HOSTILE = [
    "../x",
    "/etc/x",
    "..",
    "a/b/c",
    "~root",
    "$(id)",
    "`id`",
    "con",
    "CON",
    "Sub-01",
    "sub-01",
    "É" * 100,
    "x" * 200,
    "-rf",
    "*",
    "a b",
    "é",
    ".h",
]
FIT = ["--n-components", "2", "--n-starts", "1", "--level", "0"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    model, d = small_fit(SITES, "left", k=2)
    model.save(folder / "model.zip")
    save_diagnostics(d, folder / "diagnostics.npz")
    return folder


def maps(folder: Path, n: int = 3) -> list[str]:
    """Files that `icofactor fit` reads."""
    rng = np.random.default_rng(0)
    files = [folder / f"sub-{i}_hemi-L_thickness.npy" for i in range(n)]
    for file in files:
        np.save(file, rng.gamma(2, 1, (1, SITES.n)).astype(np.float32) + 1)
    return list(map(str, files))


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What a command that must fail says."""
    status = main([*(str(word) for word in words), "-q"])
    out, err = capsys.readouterr()
    assert status == 2, err
    assert "Traceback" not in err + out
    assert err.startswith(f"icofactor {words[0]}: ")
    return err


DAMAGE = {
    "empty": b"",
    "text": b"no such thing\n",
    "zeros": bytes(2000),
    "gzip": b"\x1f\x8b\x08" + bytes(50),
    "zip": b"PK\x03\x04",
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize(
    "ending",
    [
        "mgh",
        "mgz",
        "shape.gii",
        "shape.gii.gz",
        "dscalar.nii",
        "dtseries.nii",
        "npy",
        "npz",
        "curv",
    ],
)
def test_bad_maps_give_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str, how: str
) -> None:
    bad = tmp_path / f"lh.bad.{ending}"
    bad.write_bytes(DAMAGE[how])
    err = told(capsys, "fit", bad, "-o", tmp_path / "out", "--mesh", "fsaverage3")
    assert bad.name in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", DAMAGE)
def test_other_bad_files_give_one_line(
    tmp_path: Path, fitted: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    good, out = maps(tmp_path), tmp_path / "out"
    read = ["--mesh", "fsaverage3", "--hemisphere", "left"]

    def bad(name: str) -> Path:
        (tmp_path / name).write_bytes(DAMAGE[how])
        return tmp_path / name

    table, sphere = bad("participants.tsv"), bad("lh.sphere")
    asked: list[tuple[str, list[Any]]] = [
        ("participants.tsv", ["fit", *good, *read, "--participants", table, "-o", out]),
        ("lh.sphere", ["fit", *good, "--mesh", sphere, "--hemisphere", "left", "-o", out]),
        ("model.zip", ["transform", bad("model.zip"), *good, "-o", tmp_path / "new.tsv"]),
    ]
    asked += [
        (name, ["fit", *good, *read, "--mask", bad(name), "-o", out])
        for name in ("lh.m.annot", "lh.cortex.label", "L.m.label.gii", "lh.m.mgh")
    ]
    asked += [
        (name, ["report", fitted, "-o", out, "--atlas", bad(name)])
        for name in ("lh.a.annot", "L.a.label.gii", "a.dlabel.nii")
    ]
    for name, words in asked:
        assert name in told(capsys, *words), name
        assert not out.exists() or not contents(out)
    store = tmp_path / "cohort.store"
    save_store(cohort(), store)
    (store / "commit.json").write_bytes(DAMAGE[how])
    assert "commit.json" in told(capsys, "fit", store, "-o", out)


@pytest.mark.parametrize(
    "name", ["model.zip", "diagnostics.npz", "selection.json", "provenance.json"]
)
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_fit_is_not_reported(
    tmp_path: Path, fitted: Path, capsys: pytest.CaptureFixture[str], name: str, how: str
) -> None:
    folder = tmp_path / "fitted"
    folder.mkdir()
    for file in fitted.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / name).write_bytes(DAMAGE[how])
    assert name in told(capsys, "report", folder, "-o", tmp_path / "out")
    assert not (tmp_path / "out" / "report.html").exists()


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\tb", "a\0b", "a\x1b[2J", "x" * 201, "\ud800"])
def test_names_that_no_table_holds_are_refused_at_once(name: str) -> None:
    X = np.ones((2, SITES.n), dtype=np.float32)
    with pytest.raises(ValueError, match="1 to 200 printable characters"):
        Cohort(X, ("sub-1", name), SITES)


def test_subjects_never_become_paths(tmp_path: Path) -> None:
    """Names are cells of tables and words of a page; files are named by icofactor alone."""
    given = cohort(
        len(HOSTILE), subjects=HOSTILE, participants={"participant_id": np.array(HOSTILE)}
    )
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    save_store(given, inside / "cohort.store")
    model = CorticalFactorization(2, n_starts=1, n_iter=20, random_state=0)
    fit_cohort(given, model, inside / "fit", figures=False)
    outside = [
        path for path in tmp_path.rglob("*") if path.is_file() and inside not in path.parents
    ]
    assert not outside
    names = {path.name for path in inside.rglob("*")}
    assert not names & {"x", "con", ".h", "a b", "*"}


@pytest.mark.parametrize("name", HOSTILE)
def test_subjects_of_prepared_trees_are_plain_keys(tmp_path: Path, name: str) -> None:
    maps = FinishedMaps(tmp_path / "work", {})
    maps.save(map_key(name, "thickness"), [], {"map": np.ones(3)})
    made = list(tmp_path.rglob("*.npz"))
    assert [path.parent for path in made] == [tmp_path / "work"]


def test_prepared_keys_differ_where_subjects_do() -> None:
    long = ["É" * 99 + end for end in "aA"]
    keys = {map_key(name, "thickness").lower() for name in HOSTILE + long}
    assert len(keys) == len(HOSTILE) + 2, "also where A and a are one"
    assert max(map(len, keys)) < 200
    assert all(key.startswith("s=") for key in keys), "no name of a device on Windows"
