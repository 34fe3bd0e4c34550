"""Stores in float16: the same values however they are read, and an error where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from icofactor.cli.main import main
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.simulate import simulate_cohort
from icofactor.cohort.store import append_store, compact_store, create_store, open_store, save_store
from icofactor.errors import ArgumentError, CohortError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.results.methods_text import methods_text
from icofactor.results.provenance import provenance_of


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    simulated = simulate_cohort(14, 3, mesh="fsaverage3", random_state=1)
    mask = np.ones(simulated.sites.n, dtype=bool)
    mask[:40] = False
    return replace(
        simulated, X=np.where(mask, simulated.X, 0).astype(np.float32), mask=mask, truth=None
    )


def test_values_are_those_of_float16_however_they_are_read(tmp_path: Path, cohort: Cohort) -> None:
    pieces = (cohort[i : i + 3] for i in range(0, 9, 3))
    create_store(tmp_path / "a", pieces, dtype="float16", chunk_sites=100, chunk_subjects=4)
    stored = append_store(tmp_path / "a", cohort[9:])
    values = cohort.X.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(stored.X), values)
    np.testing.assert_array_equal(stored.X[3:11, 50:60], values[3:11, 50:60])
    np.testing.assert_array_equal(
        stored.read_sites(slice(90, 210)), values[:, stored.order[90:210]].T
    )
    np.testing.assert_array_equal(stored.X.read(stored.order[:7]), values[:, stored.order[:7]].T)
    compact = compact_store(tmp_path / "a")
    np.testing.assert_array_equal(np.asarray(compact.X), values)
    assert compact.stored_dtype == np.float16


def test_a_fit_reads_half_and_says_how_maps_were_stored(tmp_path: Path, cohort: Cohort) -> None:
    stored = save_store(cohort, tmp_path / "a", dtype="float16")
    settings = {"n_components": 3, "level": 1, "n_starts": 4, "random_state": 0}
    model = CorticalFactorization(**settings).fit(stored)
    in_memory = CorticalFactorization(**settings).fit(replace(cohort, X=np.asarray(stored.X)))
    largest = in_memory.components_.max()
    np.testing.assert_allclose(
        model.components_, in_memory.components_, rtol=0, atol=1e-10 * largest
    )
    assert model.bytes_read_ == model.passes_ * 2 * cohort.X[:, cohort.mask].size
    assert "16-bit floating-point numbers" in methods_text(model, stored)
    assert provenance_of(model, stored)["data"]["stored_dtype"] == "float16"
    copied = save_store(stored, tmp_path / "b")
    assert copied.provenance["stored_dtype"] == "float16" and copied.stored_dtype == np.float32


def test_nan_and_zero_keep_their_values(tmp_path: Path, cohort: Cohort) -> None:
    X = np.array(cohort.X)
    X[0, 5:10], X[1, :40], X[2], X[3] = np.nan, np.nan, 7.25, 0
    stored = np.asarray(save_store(replace(cohort, X=X), tmp_path / "a", dtype="float16").X)
    np.testing.assert_array_equal(np.isnan(stored), np.isnan(X))
    assert (stored[2] == 7.25).all() and (stored[3] == 0).all()


def test_values_beyond_float16_are_refused(tmp_path: Path, cohort: Cohort) -> None:
    X = np.array(cohort.X)
    X[5, 7] = 70000
    with pytest.raises(CohortError, match="up to 65504") as raised:
        save_store(replace(cohort, X=X), tmp_path / "a", dtype="float16")
    assert raised.value.path == str(tmp_path / "a") and not (tmp_path / "a").exists()


@pytest.mark.parametrize("dtype", ["int16", "float8"])
def test_other_types_are_refused(tmp_path: Path, cohort: Cohort, dtype: str) -> None:
    with pytest.raises(ArgumentError) as wrong:
        save_store(cohort, tmp_path / "a", dtype=dtype)
    assert wrong.value.argument == "dtype"


def test_coarse_rounding_is_warned_of(tmp_path: Path, cohort: Cohort) -> None:
    with pytest.warns(UserWarning, match="float16 is coarse for these maps"):
        save_store(replace(cohort, X=cohort.X + np.float32(1000)), tmp_path / "a", dtype="float16")


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_stores_of_other_versions_are_refused(tmp_path: Path, cohort: Cohort, version: int) -> None:
    """Version 3 had int16."""
    save_store(cohort, tmp_path / "a")
    for name in ("commit.json", "zarr.json"):
        file = tmp_path / "a" / name
        text = file.read_text()
        assert text.count('"version": 4') == 1
        file.write_text(text.replace('"version": 4', f'"version": {version}'))
    with pytest.raises(CohortError) as refusal:
        open_store(tmp_path / "a")
    assert refusal.value.path.startswith(str(tmp_path / "a"))


def test_prepare_writes_and_appends(
    tmp_path: Path, cohort: Cohort, capsys: pytest.CaptureFixture[str]
) -> None:
    save_store(cohort[:9], tmp_path / "a")
    save_store(cohort[9:], tmp_path / "b")
    small = str(tmp_path / "small")
    assert main(["prepare", str(tmp_path / "a"), "-o", small, "--dtype", "float16", "-q"]) == 0
    assert main(["prepare", str(tmp_path / "b"), "-o", small, "--append", "-q"]) == 0
    stored = open_store(small)
    assert stored.subjects == cohort.subjects and stored.stored_dtype == np.float16
    capsys.readouterr()
    again = ["prepare", str(tmp_path / "b"), "-o", small, "--append"]
    for more, problem in (
        ([], f"{small}: already has these subjects: {cohort.subjects[9]}"),
        (["--dry-run"], f"{small}: already has these subjects: {cohort.subjects[9]}"),
        (["--overwrite"], "Give either --overwrite or --append"),
    ):
        assert main([*again, *more, "-q"]) == 2
        assert problem in capsys.readouterr().err
    assert main(["prepare", small, "-o", small, "--overwrite"]) == 2
    assert (
        f"a folder of its own, e.g. {tmp_path / 'fitted'}; found {small}" in capsys.readouterr().err
    )
    assert (
        main(["prepare", str(tmp_path / "b"), "-o", str(tmp_path / "a"), "--append", "--dry-run"])
        == 0
    )
    assert f"and add them to the 9 subjects of {tmp_path / 'a'}." in capsys.readouterr().out
    assert (
        open_store(small).subjects == cohort.subjects
        and open_store(tmp_path / "a").subjects == cohort.subjects[:9]
    )
    for wrong in (["--append", "--dtype", "float16"], ["--append"]):
        out = small if len(wrong) > 1 else str(tmp_path / "none")
        assert main(["prepare", str(tmp_path / "b"), "-o", out, *wrong]) == 2
