"""What users see and what is written: one line instead of a traceback, nothing outside the folder named, nothing
replaced without being asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.hostile_fit import small_fit
from helpers.stores import cohort
from icofactor.cli.main import main
from icofactor.cohort.store.create import save_store
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.preprocessing.finished_maps import map_key
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


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    model, d = small_fit(SITES, "left", k=2)
    model.save(folder / "model.zip")
    save_diagnostics(d, folder / "diagnostics.npz")
    return folder


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


def test_prepared_keys_differ_where_subjects_do() -> None:
    long = ["É" * 99 + end for end in "aA"]
    keys = {map_key(name, "thickness").lower() for name in HOSTILE + long}
    assert len(keys) == len(HOSTILE) + 2, "also where A and a are one"
    assert max(map(len, keys)) < 200
    assert all(key.startswith("s=") for key in keys), "no name of a device on Windows"
    assert not any("/" in key for key in keys)
