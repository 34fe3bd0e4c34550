"""Stores of two bytes per value: what rounding changes is small, stated, and the same after copying and appending."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from icofactor.cli.estimate import estimate_pass, writing
from icofactor.cli.main import main
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.simulate import simulate_cohort
from icofactor.cohort.store import append_store, compact_store, create_store, open_store, save_store
from icofactor.errors import ArgumentError, CohortError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.results.methods_text import methods_text
from icofactor.results.provenance import provenance_of

BOTH = pytest.mark.parametrize("dtype", ["float16", "int16"])


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    found = simulate_cohort(14, 3, mesh="fsaverage3", random_state=1)
    mask = np.ones(found.sites.n, dtype=bool)
    mask[:40] = False
    return replace(found, X=np.where(mask, found.X, 0).astype(np.float32), mask=mask, truth=None)


@BOTH
def test_rounding_is_what_the_store_says(tmp_path: Path, cohort: Cohort, dtype: str) -> None:
    pieces = (cohort[i : i + 3] for i in range(0, 9, 3))
    create_store(tmp_path / "a", pieces, dtype=dtype, chunk_sites=100, chunk_subjects=4)
    stored = append_store(tmp_path / "a", cohort[9:])
    found = np.asarray(stored.X)
    assert found.dtype == np.float32
    error, used = found.astype(float) - cohort.X, cohort.mask
    said = stored.rounding
    assert said is not None and said.dtype == dtype and said.values == error[:, used].size
    np.testing.assert_allclose(said.largest, np.abs(error[:, used]).max(), rtol=1e-12)
    np.testing.assert_allclose(said.rms, np.sqrt(np.square(error[:, used]).mean()), rtol=1e-12)
    each = [cohort.X[:9, used].var(axis=0, ddof=1).mean(), cohort.X[9:, used].var(axis=0, ddof=1).mean()]
    np.testing.assert_allclose(said.deviation, np.sqrt(np.average(each, weights=[9, 5])), rtol=1e-6)
    # the naive bound: half a step of the type
    largest = np.abs(cohort.X).max(axis=1)
    bound = largest * 2**-11 if dtype == "float16" else np.ptp(cohort.X, axis=1) / 65532 / 2 * 1.01
    assert (np.abs(error) <= bound[:, None]).all()
    assert (found[:, ~used] == 0).all()  # 0 means that there is no value, and stays 0
    np.testing.assert_array_equal(stored.X[3:11, 50:60], found[3:11, 50:60])
    np.testing.assert_array_equal(stored.read_sites(slice(90, 210)), found[:, stored.order[90:210]].T)
    np.testing.assert_array_equal(stored.X.map_source().read(np.arange(7)), found[:, stored.order[:7]].T)
    compact = compact_store(tmp_path / "a")
    np.testing.assert_array_equal(np.asarray(compact.X), found)
    assert compact.rounding == said
    assert [one.name for one in (tmp_path / "a").glob("part-*")] != [] and compact.X.stored_dtype == dtype


@BOTH
def test_a_fit_reads_half_and_says_what_rounding_did(tmp_path: Path, cohort: Cohort, dtype: str) -> None:
    stored = save_store(cohort, tmp_path / "a", dtype=dtype)
    settings = {"n_components": 3, "level": 1, "n_starts": 4, "random_state": 0}
    model = CorticalFactorization(**settings).fit(stored)
    again = CorticalFactorization(**settings).fit(replace(cohort, X=np.asarray(stored.X)))
    np.testing.assert_allclose(model.components_, again.components_, rtol=0, atol=1e-10 * again.components_.max())
    assert model.bytes_read_ == model.passes_ * 2 * cohort.X.size
    text = methods_text(model, stored)
    kind = {"float16": "16-bit floating-point numbers", "int16": "16-bit integers"}[dtype]
    assert f"The maps were stored as {kind}" in text and "% of the standard deviation between subjects" in text
    assert provenance_of(model, stored)["data"]["rounding"]["rms"] == stored.rounding.rms


def test_nan_zero_and_constant_maps_keep_their_values(tmp_path: Path, cohort: Cohort) -> None:
    X = np.array(cohort.X - 2)
    X[0, 5:10], X[1, :40], X[2], X[3] = np.nan, np.nan, 7.25, 0
    X[4] = np.float32(1e6) + np.arange(X.shape[1])
    for dtype in ("float16", "int16"):
        given = X[:4] if dtype == "float16" else X
        stored = save_store(replace(cohort[: len(given)], X=given), tmp_path / dtype, dtype=dtype)
        found = np.asarray(stored.X)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(given))
        assert (found[2] == 7.25).all() and (found[3] == 0).all()
        np.testing.assert_array_equal(np.asarray(stored.X[0:2, 3:65]), found[0:2, 3:65])
    np.testing.assert_allclose(found[4], X[4], atol=np.ptp(X[4]) / 65532 + 0.07)


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [("float16", 70000, "up to 65504"), ("int16", np.inf, "infinite"), ("int16", np.finfo(np.float32).max, "beyond")],
)
def test_values_that_do_not_fit_are_refused(
    tmp_path: Path, cohort: Cohort, dtype: str, value: float, words: str
) -> None:
    X = np.array(cohort.X)
    X[5, 7:9] = value, -value
    with pytest.raises(CohortError, match=words) as raised:
        save_store(replace(cohort, X=X), tmp_path / "a", dtype=dtype)
    assert raised.value.path == str(tmp_path / "a") and not (tmp_path / "a").exists()
    with pytest.raises(ArgumentError) as wrong:
        save_store(cohort, tmp_path / "a", dtype="float8")
    assert wrong.value.argument == "dtype"


@pytest.mark.parametrize("dtype", ["float16", "int16", "float32"])
def test_a_store_of_a_rounded_store_says_what_both_changed(tmp_path: Path, cohort: Cohort, dtype: str) -> None:
    first = save_store(cohort, tmp_path / "a", dtype="float16")
    again = save_store(first, tmp_path / "b", dtype=dtype)
    said, error = again.provenance["rounding"], np.abs(again.X[:, :] - cohort.X.astype(np.float64))
    assert error.max() <= said["largest"] <= 1.2 * error.max()
    assert np.sqrt((error**2).mean()) * (1 - 1e-9) <= said["rms"] <= 1.2 * np.sqrt((error**2).mean())


def test_a_rounded_wave_of_a_store_in_float32_is_stated(tmp_path: Path, cohort: Cohort) -> None:
    save_store(cohort[:5], tmp_path / "a")
    wave = save_store(cohort[5:], tmp_path / "b", dtype="float16")
    stored = append_store(tmp_path / "a", wave)
    assert stored.X.stored_dtype == np.float32
    assert stored.rounding == wave.rounding
    assert np.abs(np.asarray(stored.X) - cohort.X).max() <= stored.rounding.largest
    assert compact_store(tmp_path / "a").rounding == wave.rounding


def test_sites_out_of_use_do_not_widen_the_steps_of_int16(tmp_path: Path, cohort: Cohort) -> None:
    X = np.array(cohort.X)
    X[:, 0], X[:, 1], X[0, 2], X[:, 3] = 1e30, -99999, np.nan, 3.0  # at masked sites, where others are 0
    found = save_store(replace(cohort, X=X), tmp_path / "a", dtype="int16")
    plain = save_store(cohort, tmp_path / "b", dtype="int16")
    used = cohort.mask
    np.testing.assert_array_equal(np.asarray(found.X)[:, used], np.asarray(plain.X)[:, used])
    assert found.rounding == plain.rounding
    ends = np.clip(X[:, :4], 0.0, X[:, used].max(axis=1, keepdims=True))
    np.testing.assert_allclose(found.X[:, :4], ends, atol=1e-3)
    assert (np.asarray(found.X)[:, 4:40] == 0).all()


def test_coarse_rounding_is_warned_of(tmp_path: Path, cohort: Cohort) -> None:
    with pytest.warns(UserWarning, match="float16 is coarse for these maps"):
        save_store(replace(cohort, X=cohort.X + np.float32(1000)), tmp_path / "a", dtype="float16")


@BOTH
def test_a_record_of_rounding_that_was_changed_is_refused(tmp_path: Path, cohort: Cohort, dtype: str) -> None:
    save_store(cohort, tmp_path / "a", dtype=dtype)
    commit = tmp_path / "a" / "commit.json"
    assert json.loads(commit.read_text())["version"] == 3
    commit.write_text(commit.read_text().replace(f'"{dtype}"', '"float64"'))
    with pytest.raises(CohortError):
        open_store(tmp_path / "a")
    save_store(cohort, tmp_path / "b")
    assert json.loads((tmp_path / "b" / "commit.json").read_text())["version"] == 2


def test_prepare_writes_and_appends(tmp_path: Path, cohort: Cohort, capsys: pytest.CaptureFixture[str]) -> None:
    save_store(cohort[:9], tmp_path / "a")
    save_store(cohort[9:], tmp_path / "b")
    small = str(tmp_path / "small")
    assert main(["prepare", str(tmp_path / "a"), "-o", small, "--dtype", "int16", "-q"]) == 0
    assert "Stored as 16-bit integers scaled to the range of each map; rounding changed" in capsys.readouterr().out
    assert main(["prepare", str(tmp_path / "b"), "-o", small, "--append", "-q"]) == 0
    stored = open_store(small)
    assert stored.subjects == cohort.subjects and stored.X.stored_dtype == np.int16
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
    assert f"a folder of its own, e.g. {tmp_path / 'fitted'}; found {small}" in capsys.readouterr().err
    assert main(["prepare", str(tmp_path / "b"), "-o", str(tmp_path / "a"), "--append", "--dry-run"]) == 0
    assert f"and add them to the 9 subjects of {tmp_path / 'a'}." in capsys.readouterr().out
    assert open_store(small).subjects == cohort.subjects and open_store(tmp_path / "a").subjects == cohort.subjects[:9]
    for wrong in (["--append", "--dtype", "float16"], ["--append"]):
        out = small if len(wrong) > 1 else str(tmp_path / "none")
        assert main(["prepare", str(tmp_path / "b"), "-o", out, *wrong]) == 2


def test_a_dry_run_counts_the_subjects_that_wait_to_be_written() -> None:
    """Measured with 550 subjects on both hemispheres of fsaverage7: 1.07 GB for float32, 1.74 GB for int16."""
    for itemsize, measured in ((4, 1.07e9), (2, 1.74e9)):
        told = estimate_pass(550, 327684, in_memory=False, more=writing(550, 327684, itemsize)).memory
        assert measured < told < 1.25 * measured
    assert writing(60, 2562, 2) == 0
