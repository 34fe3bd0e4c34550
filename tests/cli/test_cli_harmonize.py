"""Harmonization from the command line: `icofactor fit --harmonize`, what the folder says of it, `transform`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import run_cli
from icofactor import load_model, simulate_cohort
from icofactor.cohort.store.create import save_store
from icofactor.io.tables import write_tsv
from icofactor.preprocessing import ComBat
from icofactor.results.associations import write_associations

N = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, tables of its subjects, and a fit that is harmonized over site and adjusted for age."""
    root = tmp_path_factory.mktemp("harmonize")
    cohort = simulate_cohort(N, 2, mesh="fsaverage3", random_state=2)
    save_store(cohort, root / "store")
    people = {
        "participant_id": cohort.subjects,
        "age": 20 + np.arange(N) % 17,
        "sex": ["F", "M"] * (N // 2),
    }
    tables = {
        "two": ["A", "A", "B", "B"] * (N // 4),
        "one": ["A"] * N,
        "few": ["A"] * (N - 4) + ["B"] * 4,
        "known": ["A"] * (N - 12) + ["C"] * 12,
        "group": ["A", "B"] * (N // 2),
    }
    for name, site in tables.items():
        write_tsv(root / f"{name}.tsv", {**people, "site": site})
    assert fit(root, "two", "out", "--keep sex --covariates age") == 0
    return root


def fit(root: Path, table: str, out: str, *options: str) -> int:
    words = f"fit {root}/store --participants {root}/{table}.tsv --harmonize site"
    small = "--n-components 2 --n-starts 2 --level 1 --no-figures -q"
    return run_cli(words, small, f"-o {root}/{out}", *options)


def test_a_fit_says_what_was_done(folder: Path) -> None:
    out = folder / "out"
    model = load_model(out)
    assert (model.harmonization_.names, model.covariates_.names) == (("site",), ("age",))
    record = json.loads((out / "provenance.json").read_text())
    assert record["harmonization"] == "site (A: 20, B: 20), keeping the effects of sex (F, M)"


def test_new_subjects_and_scanners(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"transform {folder}/out {folder}/store -o {tmp_path}/new.tsv --participants"
    assert run_cli(words, f"{folder}/two.tsv") == 0
    loadings = np.loadtxt(tmp_path / "new.tsv", skiprows=1, usecols=(1, 2))
    np.testing.assert_allclose(loadings, load_model(folder / "out").loadings_, rtol=1e-6, atol=1e-9)
    # a table of loadings says what its fit took out, which is not tested
    options = {"participants": folder / "two.tsv", "n_permutations": 0}
    associations = write_associations(
        tmp_path / "new.tsv", tmp_path / "found", "site + age + sex", **options
    ).associations
    assert (
        associations is not None
        and set(associations.table["term"]) == {"sex"}
        and len(associations.notes) == 2
    )
    assert run_cli(words, f"{folder}/known.tsv --overwrite") == 0
    write_tsv(
        tmp_path / "few.tsv",
        {"participant_id": ["sub-0001"], "age": [30], "sex": ["F"], "site": ["D"]},
    )
    assert run_cli(words, f"{tmp_path}/few.tsv --overwrite --dry-run") == 2
    assert "harmonize" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "words", "option"),
    [
        ("one", "", "--harmonize"),
        ("few", "", "--harmonize"),
        ("group", "--keep sex", "--keep"),
        ("two", "--keep iq", "--keep"),
        ("two", "--harmonize scanner", "--harmonize"),
        ("two", "--reference-site C", "--reference-site"),
        ("two", "--covariates site", "site"),
    ],
)
def test_what_is_refused(
    folder: Path, table: str, words: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(folder, table, "refused", words) == 2
    message = capsys.readouterr().err
    assert option in message and message.count("\n") == 1
    assert not (folder / "refused").exists()


@pytest.mark.slow
def test_a_selection_is_harmonized_in_every_part(folder: Path, tmp_path: Path) -> None:
    words = f"select {folder}/store --participants {folder}/two.tsv --ranks 2 --level 1"
    fast = "--splits 2 --nulls 5 --n-starts 1 -q"
    options = {
        "plain": "",
        "harmonized": "--harmonize site --keep sex --covariates age",
        # What a model was harmonized and adjusted by is done without saying it again.
        "model": f"--model {folder}/out",
    }
    tables = {}
    for name, confounds in options.items():
        assert run_cli(words, fast, f"-o {tmp_path}/{name}", confounds) == 0
        tables[name] = json.loads((tmp_path / name / "selection.json").read_text())["table"]
    assert tables["harmonized"]["error"] != tables["plain"]["error"]
    assert tables["model"] == tables["harmonized"]
    assert run_cli(words, fast, f"-o {tmp_path}/not --harmonize scanner") == 2


def test_what_would_be_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(folder, "two", "planned", "--covariates age --dry-run") == 0
    assert "harmonize over site (A, B), regress out age" in capsys.readouterr().out
    assert run_cli(f"fit {folder}/store --keep age -o {folder}/planned") == 2
    assert "--keep" in capsys.readouterr().err


def test_as_from_python(folder: Path) -> None:
    model = load_model(folder / "out")
    cohort = simulate_cohort(N, 2, mesh="fsaverage3", random_state=2)
    people = {"site": ["A", "A", "B", "B"] * (N // 4), "sex": ["F", "M"] * (N // 2)}
    expected = ComBat(keep=["sex"], nonnegative=False).fit(cohort, people).harmonization_
    np.testing.assert_allclose(
        model.harmonization_.location, expected.location, rtol=1e-9, atol=1e-12
    )
