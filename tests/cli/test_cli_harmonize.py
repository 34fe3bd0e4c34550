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
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    assert fit(root, "two", "out", "--keep", "sex", "--covariates", "age") == 0
    return root


def fit(root: Path, table: str, out: str, *more: str) -> int:
    words = f"fit {root}/store --participants {root}/{table}.tsv --harmonize site"
    small = "--n-components 2 --n-starts 2 --level 1 --no-figures -q"
    return run_cli(words, small, f"-o {root}/{out}", more)


def test_a_fit_says_what_was_done(place: Path) -> None:
    out = place / "out"
    model = load_model(out)
    assert (model.harmonization_.names, model.covariates_.names) == (("site",), ("age",))
    record = json.loads((out / "provenance.json").read_text())
    assert record["harmonization"] == "site (A: 20, B: 20), keeping the effects of sex (F, M)"


def test_new_subjects_and_scanners(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"transform {place}/out {place}/store -o {tmp_path}/new.tsv --participants"
    assert run_cli(words, f"{place}/two.tsv") == 0
    shown = np.loadtxt(tmp_path / "new.tsv", skiprows=1, usecols=(1, 2))
    np.testing.assert_allclose(shown, load_model(place / "out").loadings_, rtol=1e-6, atol=1e-9)
    # a table of loadings says what its fit took out, which is not tested
    given = {"participants": place / "two.tsv", "n_permutations": 0}
    done = write_associations(
        tmp_path / "new.tsv", tmp_path / "found", "site + age + sex", **given
    ).associations
    assert done is not None and set(done.table["term"]) == {"sex"} and len(done.notes) == 2
    assert run_cli(words, f"{place}/known.tsv --overwrite") == 0
    assert "12 scans" in capsys.readouterr().out
    write_tsv(
        tmp_path / "few.tsv",
        {"participant_id": ["sub-0001"], "age": [30], "sex": ["F"], "site": ["D"]},
    )
    few = str(tmp_path / "few.tsv")
    capsys.readouterr()
    assert run_cli(words, [few], "--overwrite --dry-run") == 2
    assert "10 scans" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "more", "message"),
    [
        ("one", [], "'site' is A in all subjects: nothing to harmonize; leave out --harmonize"),
        ("few", [], "'site' has fewer than 10 scans of B (4)"),
        ("group", ["--keep", "sex"], "'sex' cannot be distinguished from 'site'"),
        ("two", ["--keep", "iq"], "no column 'iq'"),
        ("two", ["--harmonize", "scanner"], "no column 'scanner'"),
        (
            "two",
            ["--reference-site", "C"],
            "--reference-site must be a value of column 'site': A, B",
        ),
        ("two", ["--covariates", "site"], "'site' is already harmonized"),
    ],
)
def test_what_is_refused(
    place: Path, table: str, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(place, table, "refused", *more) == 2
    found = capsys.readouterr().err
    assert message in found and found.count("\n") == 1
    assert not (place / "refused").exists()


@pytest.mark.slow
def test_a_selection_is_harmonized_in_every_part(place: Path, tmp_path: Path) -> None:
    words = f"select {place}/store --participants {place}/two.tsv --ranks 2 --level 1"
    few = "--splits 2 --nulls 5 --n-starts 1 -q"
    options = {
        "plain": [],
        "harmonized": ["--harmonize", "site", "--keep", "sex", "--covariates", "age"],
        # What a model was harmonized and adjusted by is done without saying it again.
        "model": ["--model", str(place / "out")],
    }
    tables = {}
    for name, more in options.items():
        assert run_cli(words, few, f"-o {tmp_path}/{name}", more) == 0
        tables[name] = json.loads((tmp_path / name / "selection.json").read_text())["table"]
    assert tables["harmonized"]["error"] != tables["plain"]["error"]
    assert tables["model"] == tables["harmonized"]
    assert run_cli(words, few, f"-o {tmp_path}/not --harmonize scanner") == 2


def test_what_would_be_done(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(place, "two", "planned", "--covariates", "age", "--dry-run") == 0
    assert "harmonize over site (A, B), regress out age\nand fit" in capsys.readouterr().out
    words = f"fit {place}/store --keep age -o {place}/planned"
    assert run_cli(words) == 2
    assert "--keep needs --harmonize" in capsys.readouterr().err


def test_as_from_python(place: Path) -> None:
    model = load_model(place / "out")
    cohort = simulate_cohort(N, 2, mesh="fsaverage3", random_state=2)
    people = {"site": ["A", "A", "B", "B"] * (N // 4), "sex": ["F", "M"] * (N // 2)}
    found = ComBat(keep=["sex"], nonnegative=False).fit(cohort, people).harmonization_
    np.testing.assert_allclose(model.harmonization_.location, found.location, rtol=1e-9, atol=1e-12)
