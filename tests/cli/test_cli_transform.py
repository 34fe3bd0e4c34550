"""`icofactor transform`: new subjects get what the fitted ones got, or a clear word why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.commands import run_cli
from helpers.sidecars import undescribed
from helpers.trees import freesurfer_tree, gifti_files, hemispheres, names
from icofactor import CorticalFactorization, Covariates, load_model, simulate_cohort
from icofactor.cohort.load import load_cohort
from icofactor.cohort.store.create import save_store
from icofactor.results.report.page import Report
from icofactor.results.transform import QUALITY

N_FITTED, N = 14, 18
IDS = names(N)
MAPS, BESIDE = "new.tsv", "new.json"


@pytest.fixture(scope="module")
def maps() -> np.ndarray:
    """Both hemispheres of fsaverage4, 0 at a medial wall."""
    cohort = simulate_cohort(N, 3, hemisphere="both", mesh="fsaverage4", random_state=5)
    side = np.where(np.arange(cohort.sites.n) < cohort.sites.n // 2, 1, -1)
    return np.where(cohort.sites.coordinates[:, 0] * side > 0.9, 0, cohort.X)


def people(rows: range, **changes: Any) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    age = rng.uniform(20, 80, N).round(1)
    sex = rng.permutation(["F", "M"] * (N // 2))
    table = pd.DataFrame({"participant_id": IDS, "age": age, "sex": sex}).iloc[rows]
    return table.assign(**changes)


def write_people(path: Path, rows: range, **changes: Any) -> str:
    """Write a table of people, and return the option that names it."""
    people(rows, **changes).to_csv(path, sep="\t", index=False)
    return f"--participants {path}"


def loadings_of(path: Path) -> tuple[list[str], np.ndarray]:
    """Return participants and loadings; new people have measures of quality beside them."""
    table = pd.read_table(path, index_col=0)
    assert list(table)[:3] == ["component01", "component02", "component03"]
    assert list(table)[3 : 3 + len(QUALITY)] in ([], list(QUALITY))
    return list(table.index), table.iloc[:, :3].to_numpy()


FITTED, NEW = range(N_FITTED), range(N_FITTED, N)


@pytest.fixture(scope="module")
def fits(maps: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two fits of the same subjects, with covariates and without, and trees of fitted and new subjects."""
    root = tmp_path_factory.mktemp("transform")
    for tree, rows in (("fitted", FITTED), ("new", NEW)):
        ids = [IDS[row] for row in rows]
        freesurfer_tree(root / tree, ids, hemispheres(maps[rows]), target="fsaverage4")
        write_people(root / f"{tree}.people.tsv", rows)
    words = f"fit {root}/fitted --n-components 3 --n-starts 2 --no-figures -q --method CD-PNNMF"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
        patch.setattr("icofactor.results.report.page.draw_report", lambda *more: Report("", {}))
        assert run_cli(words, f"-o {root}/plain") == 0
        table = f"--participants {root}/fitted.people.tsv --covariates age,sex"
        assert run_cli(words, f"-o {root}/adjusted", table) == 0
    return root


def transform(fits: Path, model: str, tree: str, out: Path, *options: str) -> int:
    return run_cli(f"transform {fits}/{model} {fits}/{tree} -o {out}", *options)


def test_the_fitted_subjects_get_their_own_loadings(fits: Path, tmp_path: Path) -> None:
    table = f"--participants {fits}/fitted.people.tsv"
    for model, options in (("plain", ""), ("adjusted", table)):
        assert transform(fits, model, "fitted", tmp_path / f"{model}.tsv", options) == 0
        subjects, loadings = loadings_of(tmp_path / f"{model}.tsv")
        fitted, expected = loadings_of(fits / model / "desc-icofactor_loadings.tsv")
        assert subjects == fitted == IDS[:N_FITTED]
        np.testing.assert_allclose(loadings, expected, rtol=1e-9, atol=1e-12)


def test_new_subjects(fits: Path, maps: np.ndarray, tmp_path: Path) -> None:
    table = f"--participants {fits}/new.people.tsv"
    assert transform(fits, "adjusted/model.zip", "new", tmp_path / MAPS, table) == 0
    subjects, loadings = loadings_of(tmp_path / MAPS)
    assert subjects == IDS[N_FITTED:]
    old, new = (people(rows).to_dict("list") for rows in (FITTED, NEW))
    mask = maps.any(axis=0)
    X = maps.astype(np.float32)
    covariates = Covariates.fit(X[:N_FITTED], ["age", "sex"], old, mask=mask)
    model = CorticalFactorization(3, method="CD-PNNMF", n_starts=2, hemi="both", mask=mask)
    model.fit(covariates.apply(X[:N_FITTED], old))
    expected = model.transform(covariates.apply(X[N_FITTED:], new))
    np.testing.assert_allclose(loadings, expected, rtol=1e-9, atol=1e-12)
    record = json.loads((tmp_path / BESIDE).read_text())
    assert record["model"]["path"].endswith("adjusted/model.zip")
    assert len(record["data"]["inputs"]) == 2 * (N - N_FITTED)
    assert any("adjusted for age" in note for note in record["notes"])
    assert not undescribed(tmp_path)


def test_a_folder_one_subject_and_other_files(fits: Path, maps: np.ndarray, tmp_path: Path) -> None:
    """The same loadings from another format, alone, into a folder."""
    assert transform(fits, "plain", "new", tmp_path / MAPS, "-q") == 0
    _, together = loadings_of(tmp_path / MAPS)
    gifti_files(tmp_path / "maps", IDS[-1:], hemispheres(maps[-1:]))
    assert run_cli(f"transform {fits}/plain {tmp_path}/maps -o {tmp_path}/results -q") == 0
    subjects, alone = loadings_of(tmp_path / "results" / "desc-icofactor_loadings.tsv")
    assert subjects == IDS[-1:]
    np.testing.assert_allclose(alone, together[-1:], rtol=1e-9, atol=1e-12)


def test_a_store(fits: Path, tmp_path: Path) -> None:
    cohort = load_cohort(fits / "new", participants=fits / "new.people.tsv")
    save_store(cohort, tmp_path / "new.store")  # type: ignore[arg-type]
    assert run_cli(f"transform {fits}/adjusted {tmp_path}/new.store -o {tmp_path}/{MAPS}") == 0
    subjects, loadings = loadings_of(tmp_path / MAPS)
    assert subjects == IDS[N_FITTED:]
    expected = load_model(fits / "adjusted" / "model.zip").transform(cohort)
    np.testing.assert_allclose(loadings, expected, rtol=1e-9)


def test_values_below_zero_are_counted(fits: Path, tmp_path: Path) -> None:
    table = write_people(tmp_path / "old.tsv", range(N - 1, N), age=400.0)
    assert transform(fits, "adjusted", "new", tmp_path / MAPS, table) == 0
    notes = json.loads((tmp_path / BESIDE).read_text())["notes"]
    assert any("set to 0" in note for note in notes)


def test_a_dry_run_writes_nothing(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = f"--participants {fits}/new.people.tsv --dry-run"
    assert transform(fits, "adjusted", "new", tmp_path / MAPS, table) == 0
    assert "of 4 subjects" in capsys.readouterr().out
    assert not any(tmp_path.iterdir())
    save_store(simulate_cohort(3, 2, mesh="fsaverage3"), tmp_path / "coarse.store")
    words = f"transform {fits}/plain {tmp_path}/coarse.store -o {tmp_path}/{MAPS} --dry-run"
    assert run_cli(words) == 2
    assert capsys.readouterr().err.startswith("icofactor transform: ")


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("column", "value"), [("age", "n/a"), ("sex", "X"), ("age", "old")])
def test_subjects_that_cannot_be_adjusted(
    column: str,
    value: str,
    fits: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("icofactor.cohort.plan.Plan.read", None)
    values = people(NEW)[column].astype(object)
    values.iloc[1] = value
    table = write_people(tmp_path / "table.tsv", NEW, **{column: values})
    assert transform(fits, "adjusted", "new", tmp_path / MAPS, table, "-q") == 2
    message = capsys.readouterr().err
    assert f"'{column}'" in message and "sub-016" in message
    assert [path.name for path in tmp_path.iterdir()] == ["table.tsv"]


def test_ages_outside_the_fitted_range_are_told(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    term, sex = load_model(fits / "adjusted").covariates_.terms
    ages = people(FITTED)["age"]
    assert term.span == (ages.min(), ages.max()) and sex.span == ()
    table = write_people(tmp_path / "people.tsv", NEW, age=[ages.min(), 95.5, ages.max(), 3])
    assert transform(fits, "adjusted", "new", tmp_path / MAPS, table) == 0
    notes = json.loads((tmp_path / BESIDE).read_text())["notes"]
    (note,) = [note for note in notes if f"subjects {IDS[N_FITTED + 1]}, {IDS[N - 1]}" in note]
    assert note in capsys.readouterr().out


def test_new_subjects_without_covariates_can_be_left_out(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sex = people(NEW)["sex"].astype(object)
    sex.iloc[2] = "n/a"
    table = write_people(tmp_path / "people.tsv", NEW, sex=sex)
    assert transform(fits, "adjusted", "new", tmp_path / MAPS, table) == 2
    assert IDS[N_FITTED + 2] in capsys.readouterr().err
    skip = "--missing-covariates skip"
    assert transform(fits, "adjusted", "new", tmp_path / MAPS, table, skip) == 0
    complete = [name for name in IDS[N_FITTED:] if name != IDS[N_FITTED + 2]]
    assert loadings_of(tmp_path / MAPS)[0] == complete
    record = json.loads((tmp_path / BESIDE).read_text())
    assert record["data"]["left_out"] == {"with missing covariates": [IDS[N_FITTED + 2]]}


def test_a_table_is_needed_for_covariates(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert transform(fits, "adjusted", "new", tmp_path / MAPS, "-q") == 2
    message = capsys.readouterr().err
    assert "'age'" in message and "'sex'" in message
    assert not any(tmp_path.iterdir())


def test_maps_of_another_mesh_or_hemisphere(
    fits: Path, maps: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coarse = {side: 1 + np.arange(642.0)[None] for side in ("left", "right")}
    trees = [
        (freesurfer_tree(tmp_path / "coarse", ["a"], coarse), "642 vertices"),
        (
            freesurfer_tree(
                tmp_path / "left", ["a"], {"left": maps[:1, :2562]}, target="fsaverage4"
            ),
            "right",
        ),
    ]
    for tree, problem in trees:
        assert run_cli(f"transform {fits}/plain {tree} -o {tmp_path}/{MAPS} -q") == 2
        message = capsys.readouterr().err
        # the mask is that of the model, not of the user
        assert problem in message and "mask" not in message
    assert not (tmp_path / MAPS).exists()


@pytest.mark.parametrize("model", ["nowhere.zip", "new", "new.people.tsv"])
def test_what_is_no_model(
    model: str, fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert transform(fits, model, "new", tmp_path / MAPS, "-q") == 2
    assert model in capsys.readouterr().err


def test_places_that_cannot_take_the_table(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / MAPS).write_text("mine")
    for overwrite in ("", "--overwrite"):
        assert transform(fits, "plain", "new", tmp_path / MAPS, "-q", overwrite) == 2
    assert (tmp_path / MAPS).read_text() == "mine"
    assert transform(fits, "plain", "new", tmp_path / "new.csv", "-q") == 2
    assert transform(fits, "plain", "new", tmp_path / "deep" / MAPS, "-q") == 2
    (tmp_path / MAPS).unlink()
    assert transform(fits, "plain", "new", tmp_path / MAPS, "-q") == 0
    assert transform(fits, "plain", "new", tmp_path / MAPS, "-q") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert transform(fits, "plain", "new", tmp_path / MAPS, "-q", "--overwrite") == 0
    assert loadings_of(tmp_path / MAPS)[0] == IDS[N_FITTED:]
    assert not list(tmp_path.glob(".*"))
    # The loadings of the fit have the name that new ones would have.
    assert transform(fits, "plain", "new", fits / "plain", "-q", "--overwrite") == 2
    assert transform(fits, "plain", "new", fits / "new", "-q") == 2


def test_trouble_leaves_nothing(
    fits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("icofactor.results.transform_files.write_tsv", fail)
    assert transform(fits, "plain", "new", tmp_path / "results", "-q") == 130
    assert transform(fits, "plain", "new", tmp_path / MAPS, "-q") == 130
    assert not any(tmp_path.iterdir())


def test_a_model_of_the_library_does_too(maps: np.ndarray, fits: Path, tmp_path: Path) -> None:
    """A model that was fitted to an array knows no hemisphere beyond "both"; a fit of one side takes that side."""
    left = CorticalFactorization(3, n_starts=2, hemi="left", mask=maps.any(axis=0)[:2562])
    left.fit(maps[:, :2562]).save(tmp_path / "left.zip")
    np.save(tmp_path / "both.npy", maps[N_FITTED:])
    for data in (fits / "new", tmp_path / "both.npy"):
        words = f"transform {tmp_path}/left.zip {data} -o {tmp_path}/{MAPS} -q --overwrite"
        assert run_cli(words) == 0
        loadings = loadings_of(tmp_path / MAPS)[1]
        np.testing.assert_allclose(loadings, left.loadings_[N_FITTED:], rtol=1e-6, atol=1e-9)


def test_the_table_says_how_well_it_went(fits: Path, tmp_path: Path) -> None:
    """Explained variance as `score` has it, participants beside it, a page without scripts."""
    table = f"--participants {fits}/new.people.tsv"
    assert transform(fits, "plain", "new", tmp_path / MAPS, table) == 0
    columns = pd.read_table(tmp_path / MAPS)
    assert list(columns)[4:] == [*QUALITY, "age", "sex"]
    assert list(columns["sex"]) == list(people(NEW)["sex"])
    page = (tmp_path / "new.html").read_text()
    assert "<script" not in page and page.count('role="img" aria-label="') == 2
    assert all(name in page for name in IDS[N_FITTED:])
    assert {*QUALITY, "rule"} <= set(json.loads((tmp_path / BESIDE).read_text()))


@pytest.mark.parametrize(
    ("measure", "fwhm", "differences"),
    [("area", 10, ("thickness", "area")), ("thickness", 5, ("10 mm", "5 mm"))],
)
def test_other_maps_than_the_fits(
    measure: str,
    fwhm: int,
    differences: tuple[str, str],
    fits: Path,
    maps: np.ndarray,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another measure, another smoothing: refused with both named, unless told."""
    tree = tmp_path / "tree"
    freesurfer_tree(tree, IDS[-2:], hemispheres(maps[-2:]), measure, fwhm, "fsaverage4")
    words = f"transform {fits}/plain {tree} -o {tmp_path}/{MAPS} --measure {measure}"
    assert run_cli(words) == 2
    message = capsys.readouterr().err
    assert "--force" in message and all(name in message for name in differences)
    assert not (tmp_path / MAPS).exists()
    assert run_cli(words, "--force") == 0
    assert all(name in capsys.readouterr().out for name in differences[:1])


def test_nan_in_a_file(
    fits: Path, maps: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few vertices of one subject are solved without; others keep their loadings, and many are refused."""
    used = np.flatnonzero(maps.any(axis=0)[:2562])
    transform(fits, "plain", "new", tmp_path / "complete.tsv", "-q")
    complete = loadings_of(tmp_path / "complete.tsv")[1]
    for n, status in ((30, 0), (400, 2)):
        holed = maps[N_FITTED:].copy()
        holed[1, used[:n]] = np.nan
        tree = tmp_path / f"nan{n}"
        freesurfer_tree(tree, IDS[N_FITTED:], hemispheres(holed), target="fsaverage4")
        assert run_cli(f"transform {fits}/plain {tree} -o {tmp_path}/{n}.tsv") == status
    printed = capsys.readouterr()
    assert "30 of" in printed.out
    assert IDS[N_FITTED + 1] in printed.err and "--exclude" in printed.err
    loadings = loadings_of(tmp_path / "30.tsv")[1]
    np.testing.assert_allclose(loadings[[0, 2, 3]], complete[[0, 2, 3]], rtol=1e-9)
    assert 0 < np.abs(loadings[1] - complete[1]).max() < 0.15 * complete.std()
