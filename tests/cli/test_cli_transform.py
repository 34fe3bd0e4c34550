"""`icofactor transform`: new subjects get what the fitted ones got, or a clear word why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import run_cli
from helpers.sidecars import undescribed
from helpers.trees import freesurfer_tree, gifti_files, hemispheres, names
from icofactor import CorticalFactorization, Covariates, load_model, simulate_cohort
from icofactor.cohort.store.create import save_store
from icofactor.preprocessing.covariates import Term
from icofactor.results.fit_cohort import fit_cohort
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


def people(rows: range) -> dict[str, list[Any]]:
    rng = np.random.default_rng(1)
    age, sex = rng.uniform(20, 80, N).round(1), rng.permutation(["F", "M"] * (N // 2))
    return {
        "participant_id": [IDS[i] for i in rows],
        "age": [age[i] for i in rows],
        "sex": [sex[i] for i in rows],
    }


def write_table(path: Path, columns: dict[str, list[Any]]) -> Path:
    rows = zip(*columns.values(), strict=True)
    path.write_text(
        "\n".join(["\t".join(columns), *("\t".join(map(str, row)) for row in rows)]) + "\n"
    )
    return path


def read_table(path: Path) -> tuple[list[str], np.ndarray]:
    header, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    assert header[:4] == ["participant_id", "component01", "component02", "component03"]
    assert len(header) == 4 or header[4 : 4 + len(QUALITY)] == list(QUALITY)
    return [row[0] for row in rows], np.array([row[1:4] for row in rows], dtype=np.float64)


@pytest.fixture(scope="module")
def place(maps: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two fits of the same subjects, with covariates and without, and trees of fitted and new subjects."""
    root = tmp_path_factory.mktemp("transform")
    for tree, rows in (("fitted", range(N_FITTED)), ("new", range(N_FITTED, N))):
        freesurfer_tree(
            root / tree, [IDS[i] for i in rows], hemispheres(maps[list(rows)]), target="fsaverage4"
        )
        write_table(root / f"{tree}.people.tsv", people(rows))
    words = f"fit {root}/fitted --n-components 3 --n-starts 2 --no-figures -q --method CD-PNNMF"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
        patch.setattr("icofactor.results.report.page.draw_report", lambda *more: Report("", {}))
        assert run_cli(words, f"-o {root}/plain") == 0
        table = f"--participants {root}/fitted.people.tsv --covariates age,sex"
        assert run_cli(words, f"-o {root}/adjusted", table) == 0
    return root


def transform(place: Path, model: str, tree: str, out: Path, *more: str) -> int:
    return run_cli(f"transform {place}/{model} {place}/{tree} -o {out}", more)


def test_the_fitted_subjects_get_their_own_loadings(place: Path, tmp_path: Path) -> None:
    table = ["--participants", str(place / "fitted.people.tsv")]
    for model, more in (("plain", []), ("adjusted", table)):
        assert transform(place, model, "fitted", tmp_path / f"{model}.tsv", *more) == 0
        subjects, loadings = read_table(tmp_path / f"{model}.tsv")
        fitted, expected = read_table(place / model / "desc-icofactor_loadings.tsv")
        assert subjects == fitted == IDS[:N_FITTED]
        np.testing.assert_allclose(loadings, expected, rtol=1e-9, atol=1e-12)


def test_new_subjects(place: Path, maps: np.ndarray, tmp_path: Path) -> None:
    table = ["--participants", str(place / "new.people.tsv")]
    assert transform(place, "adjusted/model.zip", "new", tmp_path / MAPS, *table) == 0
    subjects, loadings = read_table(tmp_path / MAPS)
    assert subjects == IDS[N_FITTED:]
    old, new = people(range(N_FITTED)), people(range(N_FITTED, N))
    mask = maps.any(axis=0)
    X = maps.astype(np.float32)
    covariates = Covariates.fit(X[:N_FITTED], ["age", "sex"], old, mask=mask)
    model = CorticalFactorization(3, method="CD-PNNMF", n_starts=2, hemi="both", mask=mask)
    model.fit(covariates.apply(X[:N_FITTED], old))
    np.testing.assert_allclose(
        loadings, model.transform(covariates.apply(X[N_FITTED:], new)), rtol=1e-9, atol=1e-12
    )
    about = json.loads((tmp_path / BESIDE).read_text())
    assert about["model"]["path"].endswith("adjusted/model.zip")
    assert len(about["data"]["inputs"]) == 2 * (N - N_FITTED)
    assert any("adjusted for age" in note for note in about["notes"])
    assert not undescribed(tmp_path)


def test_a_folder_one_subject_and_other_files(
    place: Path, maps: np.ndarray, tmp_path: Path
) -> None:
    """The same loadings from another format, alone, into a folder."""
    assert transform(place, "plain", "new", tmp_path / MAPS, "-q") == 0
    _, together = read_table(tmp_path / MAPS)
    gifti_files(tmp_path / "maps", IDS[-1:], hemispheres(maps[-1:]))
    words = f"transform {place}/plain {tmp_path}/maps -o {tmp_path}/results -q"
    assert run_cli(words) == 0
    subjects, alone = read_table(tmp_path / "results" / "desc-icofactor_loadings.tsv")
    assert subjects == IDS[-1:]
    np.testing.assert_allclose(alone, together[-1:], rtol=1e-9, atol=1e-12)


def test_a_store(place: Path, tmp_path: Path) -> None:
    from icofactor.cohort.load import load_cohort

    cohort: Any = load_cohort(place / "new", participants=place / "new.people.tsv")
    save_store(cohort, tmp_path / "new.store")
    assert run_cli(f"transform {place}/adjusted {tmp_path}/new.store -o {tmp_path}/{MAPS}") == 0
    subjects, loadings = read_table(tmp_path / MAPS)
    assert subjects == IDS[N_FITTED:]
    np.testing.assert_allclose(
        loadings, load_model(place / "adjusted" / "model.zip").transform(cohort), rtol=1e-9
    )


def test_values_below_zero_are_counted(place: Path, maps: np.ndarray, tmp_path: Path) -> None:
    old = {**people(range(N_FITTED)), "participant_id": IDS[-1:], "age": [400.0], "sex": ["F"]}
    write_table(tmp_path / "old.tsv", old)
    table = ["--participants", str(tmp_path / "old.tsv")]
    assert transform(place, "adjusted", "new", tmp_path / MAPS, *table) == 0
    notes = json.loads((tmp_path / BESIDE).read_text())["notes"]
    assert any("became negative and were set to 0" in note for note in notes)


def test_a_dry_run_writes_nothing(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ["--participants", str(place / "new.people.tsv"), "--dry-run"]
    assert transform(place, "adjusted", "new", tmp_path / MAPS, *table) == 0
    assert "of 4 subjects" in capsys.readouterr().out
    assert not any(tmp_path.iterdir())
    save_store(simulate_cohort(3, 2, mesh="fsaverage3"), tmp_path / "coarse.store")
    words = f"transform {place}/plain {tmp_path}/coarse.store -o {tmp_path}/{MAPS} --dry-run"
    assert run_cli(words) == 2
    assert capsys.readouterr().err.startswith("icofactor transform: ")


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("age", "n/a", "Covariate 'age' is missing for subject sub-016"),
        ("sex", "X", "Covariate 'sex' is X in subject sub-016; the fit had only F, M"),
        ("age", "old", "Covariate 'age'"),
    ],
)
def test_subjects_that_cannot_be_adjusted(
    column: str,
    value: str,
    message: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*given: Any, **more: Any) -> None:
        raise AssertionError("the maps were read")

    monkeypatch.setattr("icofactor.cohort.plan.Plan.read", never)
    columns = people(range(N_FITTED, N))
    columns[column][1] = value
    table = write_table(tmp_path / "table.tsv", columns)
    assert (
        transform(place, "adjusted", "new", tmp_path / MAPS, "--participants", str(table), "-q")
        == 2
    )
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["table.tsv"]


def test_ages_outside_the_fitted_range_are_told(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (term, sex), columns = (
        load_model(place / "adjusted").covariates_.terms,
        people(range(N_FITTED, N)),
    )
    ages = people(range(N_FITTED))["age"]
    assert term.span == (min(ages), max(ages)) and sex.span == ()
    columns["age"] = [min(ages), 95.5, max(ages), 3]
    table = ["--participants", str(write_table(tmp_path / "people.tsv", columns))]
    assert transform(place, "adjusted", "new", tmp_path / MAPS, *table) == 0
    said = [
        line for line in capsys.readouterr().out.splitlines() if "outside the fitted range" in line
    ]
    who = f"subjects {IDS[N_FITTED + 1]}, {IDS[N - 1]}"
    assert len(said) == 1 and said[0].endswith(
        f"age (fitted: {min(ages):g} to {max(ages):g}) in {who}"
    )
    assert said[0] in json.loads((tmp_path / BESIDE).read_text())["notes"]
    assert (
        Term("age", None, (40.0,)).beyond(columns["age"], columns["participant_id"]) == ""
    )  # of an older model
    assert Term("age", None, term.means) == term


def test_new_subjects_without_covariates_can_be_left_out(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = people(range(N_FITTED, N))
    columns["sex"][2] = "n/a"
    table = ["--participants", str(write_table(tmp_path / "people.tsv", columns))]
    assert transform(place, "adjusted", "new", tmp_path / MAPS, *table) == 2
    assert f"missing for subject {IDS[N_FITTED + 2]}" in capsys.readouterr().err
    assert (
        transform(place, "adjusted", "new", tmp_path / MAPS, *table, "--missing-covariates", "skip")
        == 0
    )
    subjects, _ = read_table(tmp_path / MAPS)
    assert subjects == [name for name in IDS[N_FITTED:] if name != IDS[N_FITTED + 2]]
    about = json.loads((tmp_path / BESIDE).read_text())
    assert about["data"]["left_out"] == {"with missing covariates": [IDS[N_FITTED + 2]]}


def test_a_table_is_needed_for_covariates(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert transform(place, "adjusted", "new", tmp_path / MAPS, "-q") == 2
    err = capsys.readouterr().err
    assert (
        "Covariate 'age' needs --participants, a table with that column" in err
        and "Covariate 'sex' needs" in err
    )
    assert not any(tmp_path.iterdir())


def test_maps_of_another_mesh_or_hemisphere(
    place: Path, maps: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    freesurfer_tree(
        tmp_path / "coarse", ["a"], {s: 1 + np.arange(642.0)[None] for s in ("left", "right")}
    )
    assert run_cli(f"transform {place}/plain {tmp_path}/coarse -o {tmp_path}/{MAPS} -q") == 2
    err = capsys.readouterr().err
    assert (
        "642 vertices" in err and "mask" not in err
    )  # that of the model was not given by the user
    left = freesurfer_tree(tmp_path / "left", ["a"], {"left": maps[:1, :2562]}, target="fsaverage4")
    assert run_cli(f"transform {place}/plain {left} -o {tmp_path}/{MAPS} -q") == 2
    assert "no right thickness" in capsys.readouterr().err
    assert not (tmp_path / MAPS).exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere.zip", "no such file"),
        ("new", "contains no model.zip; give the folder that icofactor fit wrote"),
        ("new.people.tsv", "does not contain a model of icofactor"),
    ],
)
def test_what_is_no_model(
    model: str, message: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert transform(place, model, "new", tmp_path / MAPS, "-q") == 2
    assert message in capsys.readouterr().err


def test_places_that_cannot_take_the_table(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / MAPS).write_text("mine")
    for more in ([], ["--overwrite"]):
        assert transform(place, "plain", "new", tmp_path / MAPS, "-q", *more) == 2
    assert (tmp_path / MAPS).read_text() == "mine"
    assert transform(place, "plain", "new", tmp_path / "new.csv", "-q") == 2
    assert transform(place, "plain", "new", tmp_path / "deep" / MAPS, "-q") == 2
    (tmp_path / MAPS).unlink()
    assert transform(place, "plain", "new", tmp_path / MAPS, "-q") == 0
    assert transform(place, "plain", "new", tmp_path / MAPS, "-q") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert transform(place, "plain", "new", tmp_path / MAPS, "-q", "--overwrite") == 0
    assert read_table(tmp_path / MAPS)[0] == IDS[N_FITTED:]
    assert not list(tmp_path.glob(".*"))
    # The loadings of the fit have the name that new ones would have.
    assert transform(place, "plain", "new", place / "plain", "-q", "--overwrite") == 2
    assert transform(place, "plain", "new", place / "new", "-q") == 2


def test_trouble_leaves_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("icofactor.results.transform_files.write_tsv", fail)
    assert transform(place, "plain", "new", tmp_path / "results", "-q") == 130
    assert transform(place, "plain", "new", tmp_path / MAPS, "-q") == 130
    assert not any(tmp_path.iterdir())


def test_a_model_of_the_library_does_too(maps: np.ndarray, place: Path, tmp_path: Path) -> None:
    """A model that was fitted to an array knows no hemisphere beyond "both"; a fit of one side takes that side."""
    left = CorticalFactorization(3, n_starts=2, hemi="left", mask=maps.any(axis=0)[:2562]).fit(
        maps[:, :2562]
    )
    left.save(tmp_path / "left.zip")
    assert run_cli(f"transform {tmp_path}/left.zip {place}/new -o {tmp_path}/{MAPS} -q") == 0
    np.testing.assert_allclose(
        read_table(tmp_path / MAPS)[1], left.loadings_[N_FITTED:], rtol=1e-6, atol=1e-9
    )
    np.save(tmp_path / "both.npy", maps[N_FITTED:])
    words = f"transform {tmp_path}/left.zip {tmp_path}/both.npy -o {tmp_path}/{MAPS} -q"
    assert run_cli(words, "--overwrite") == 0
    np.testing.assert_allclose(
        read_table(tmp_path / MAPS)[1], left.loadings_[N_FITTED:], rtol=1e-6, atol=1e-9
    )


def test_fit_cohort_refuses_before_it_works(place: Path) -> None:
    cohort = simulate_cohort(4, 2, mesh="fsaverage3")
    model = CorticalFactorization(2)
    with pytest.raises(FileExistsError, match=r"components\.png exists; pass overwrite=True"):
        fit_cohort(cohort, model, place / "plain")
    assert not hasattr(model, "components_")


def test_the_table_says_how_well_it_went(place: Path, tmp_path: Path) -> None:
    """Explained variance as `score` has it, participants beside it, a page without scripts."""
    people_too = ["--participants", str(place / "new.people.tsv")]
    assert transform(place, "plain", "new", tmp_path / MAPS, *people_too) == 0
    header, *rows = [line.split("\t") for line in (tmp_path / MAPS).read_text().splitlines()]
    assert header[4:] == [*QUALITY, "age", "sex"]
    assert [row[header.index("sex")] for row in rows] == people(range(N_FITTED, N))["sex"]
    page = (tmp_path / "new.html").read_text()
    assert '<a href="new.tsv">new.tsv</a>' in page and page.count('role="img" aria-label="') == 2
    assert "<script" not in page and "default-src &#x27;none&#x27;" in page.replace("'", "&#x27;")
    assert all(name in page for name in IDS[N_FITTED:])
    about = json.loads((tmp_path / BESIDE).read_text())
    assert {*QUALITY, "rule"} <= set(about)
    assert transform(place, "plain", "new", tmp_path / MAPS, "-q", "--overwrite") == 0


@pytest.mark.parametrize(
    ("file", "found"),
    [("lh.area.fwhm10.fsaverage4.mgh", "measure thickness in the fit, area in the new maps"),
     ("lh.thickness.fwhm5.fsaverage4.mgh", "smoothing 10 mm FWHM in the fit, 5 mm FWHM in the new maps")],
)  # fmt: skip
def test_other_maps_than_the_fits(
    file: str,
    found: str,
    place: Path,
    maps: np.ndarray,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Another measure, another smoothing: refused with both named, unless told."""
    measure, fwhm = file.split(".")[1], int(file.split(".")[2].removeprefix("fwhm"))
    tree = freesurfer_tree(
        tmp_path / "tree", IDS[-2:], hemispheres(maps[-2:]), measure, fwhm, "fsaverage4"
    )
    words = [
        "transform",
        str(place / "plain"),
        str(tree),
        "-o",
        str(tmp_path / MAPS),
        "--measure",
        measure,
    ]
    assert run_cli(words) == 2
    err = capsys.readouterr().err
    assert found in err and "--force" in err and not (tmp_path / MAPS).exists()
    assert run_cli(words, "--force") == 0
    assert f"differs from the fit (forced): {found}" in capsys.readouterr().out


def test_nan_in_a_file(
    place: Path, maps: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few vertices of one subject are solved without; others keep their loadings, and many are refused."""
    used = np.flatnonzero(maps.any(axis=0)[:2562])
    _, whole = (
        transform(place, "plain", "new", tmp_path / "whole.tsv", "-q"),
        read_table(tmp_path / "whole.tsv")[1],
    )
    for n, status in ((30, 0), (400, 2)):
        holed = maps[N_FITTED:].copy()
        holed[1, used[:n]] = np.nan
        tree = freesurfer_tree(
            tmp_path / f"nan{n}", IDS[N_FITTED:], hemispheres(holed), target="fsaverage4"
        )
        assert run_cli(f"transform {place}/plain {tree} -o {tmp_path}/{n}.tsv") == status
        out, err = capsys.readouterr()
        if status:
            assert f"{IDS[N_FITTED + 1]} lack up to" in err and "--exclude" in err
            continue
        assert "1 subject has NaN or 0 at some sites, 30 of" in out
        _, found = read_table(tmp_path / f"{n}.tsv")
        np.testing.assert_allclose(found[[0, 2, 3]], whole[[0, 2, 3]], rtol=1e-9)
        assert 0 < np.abs(found[1] - whole[1]).max() < 0.15 * whole.std()
