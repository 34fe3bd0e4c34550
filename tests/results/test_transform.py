"""Loadings of new subjects: sites that some lack, who is unusual, and maps of another kind."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.problems import relative
from helpers.refusals import refused
from icofactor.cohort.cohort import Measurement
from icofactor.cohort.store.create import create_store
from icofactor.errors import ArgumentError, CohortError
from icofactor.results.diagnostics.diagnose import diagnose
from icofactor.results.transform import check_measurement, distances, limit_of, loadings_of
from icofactor.results.transform_files import write_loadings

N_FITTED = 30
METHODS = ("parts", "CD-PNNMF", "LE-PPNMF", "DL")


@pytest.fixture(scope="module")
def cohort() -> Any:
    """Thickness about 2.5 mm that varies by some tenths: 0 is not a value."""
    drawn = ico.simulate_cohort(40, 3, hemisphere="left", mesh="fsaverage3", random_state=5)
    return replace(
        drawn, X=2.5 + 0.3 * (drawn.X - drawn.X.mean(axis=0)) / drawn.X.std(), truth=None
    )


@pytest.fixture(scope="module", params=METHODS)
def model(request: pytest.FixtureRequest, cohort: Any) -> Any:
    return ico.CorticalFactorization(3, method=request.param, n_starts=2, level=1).fit(
        cohort[:N_FITTED]
    )


def holed(cohort: Any, who: Any, where: slice, value: float) -> Any:
    X = cohort.X.copy()
    X[who, where] = value
    return replace(cohort, X=X, checked=True)


def test_nothing_missing_is_the_plain_transform(model: Any, cohort: Any) -> None:
    found = loadings_of(model, cohort)
    np.testing.assert_allclose(found.loadings, model.transform(cohort), rtol=1e-10, atol=1e-12)
    assert not found.quality["missing_sites"].any() and not found.notes
    variance = np.square(cohort.X - model.mean_).sum(axis=1)
    np.testing.assert_allclose(
        1 - ((1 - found.quality["explained_variance"]) * variance).sum() / variance.sum(),
        model.score(cohort),
        rtol=1e-6,
    )


@pytest.mark.parametrize("value", [0.0, np.nan])
@pytest.mark.parametrize("who", ["one", "all"])
def test_missing_sites(model: Any, cohort: Any, value: float, who: str) -> None:
    """On maps that the components describe fully, the loadings are those of the whole maps, exactly."""
    new, whole = cohort[N_FITTED:], model.transform(cohort[N_FITTED:])
    given: Any = holed(new, 1 if who == "one" else slice(None), slice(40, 60), value)
    found = loadings_of(model, given)
    lacking = np.arange(len(new)) == 1 if who == "one" else np.ones(len(new), dtype=bool)
    assert (found.quality["missing_sites"] == 20 * lacking).all()
    np.testing.assert_allclose(found.loadings[~lacking], whole[~lacking], rtol=1e-9, atol=1e-12)
    away = np.abs(found.loadings - whole)[lacking].max() / np.std(whole)
    counted_as_zero = model.transform(holed(new, slice(None), slice(40, 60), 0.0))
    assert 0 < away < 0.3
    assert away < np.abs(counted_as_zero - whole).max() / np.std(whole)
    made = np.asarray(model.inverse_transform(np.abs(whole)), dtype=np.float32)
    if model.solution_.method == "DL":  # its penalty pulls loadings to zero
        return
    exact, plain = (
        holed(replace(new, X=made), 0, slice(40, 60), np.nan),
        model.transform(replace(new, X=made)),
    )
    tolerance = 1e-4 if model.center_ != "none" else 2e-2  # penalties of the scheme
    np.testing.assert_allclose(
        loadings_of(model, exact).loadings[0], plain[0], rtol=tolerance, atol=tolerance
    )


def test_the_page_of_very_many_subjects(
    cohort: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells with counts instead of dots; what it says of all of them is in the record beside the table."""
    model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort[:N_FITTED])
    model.save(tmp_path / "model.zip")
    found, place = (
        loadings_of(model, cohort),
        {"cohort": cohort, "model_path": tmp_path / "model.zip", "model": model},
    )
    pages = []
    for most in (2000, 5):
        monkeypatch.setattr("icofactor.results.transform_files._MAX_DOTS", most)
        _, record, page = write_loadings(found, tmp_path / "new.tsv", **place, overwrite=True)
        pages.append(page.read_text())
    assert pages[0].count("<circle") == 40 * (1 + 3) and "here</title>" not in pages[0]
    odd = sum(map(bool, found.quality["unusual"]))
    assert (
        pages[1].count("<circle") == (4 * odd if odd <= 5 else 0)
        and "darker: more subjects" in pages[1]
    )
    cells = map(int, re.findall(r"<title>(\d+) here</title>", pages[1]))
    assert sum(cells) == 4 * (40 - (odd if odd <= 5 else 0))
    summary = json.loads(record.read_text())["summary"]
    assert summary["explained_variance_median"] == np.median(found.quality["explained_variance"])
    assert f"{100 * summary['explained_variance_median']:.0f} %" in pages[1]
    assert (summary["subjects"], summary["unusual"]) == (40, odd)


def test_a_mask_of_the_new_cohort_is_missing_too(model: Any, cohort: Any) -> None:
    mask = np.ones(cohort.sites.n, dtype=bool)
    mask[40:60] = False
    by_mask = loadings_of(model, replace(cohort, mask=mask))
    by_nan = loadings_of(model, holed(cohort, slice(None), slice(40, 60), np.nan))
    np.testing.assert_allclose(by_mask.loadings, by_nan.loadings, rtol=1e-9, atol=1e-12)
    assert "20 sites that the fit uses are NaN or zero in every new subject" in by_mask.notes[0]


def test_too_much_is_missing(model: Any, cohort: Any) -> None:
    with pytest.raises(CohortError, match="sub-0003 lack up to 16 %"):
        loadings_of(model, holed(cohort, 2, slice(0, 100), np.nan))
    small = np.zeros(cohort.sites.n)
    small[10:20] = 1.0
    twin: Any = ico.CorticalFactorization(3, method="parts", n_starts=2, level=1).fit(cohort)
    twin.components_ = np.vstack([twin.components_[:2], small])
    with pytest.raises(CohortError, match="component 3 is where sub-0003"):
        loadings_of(twin, holed(cohort, 2, slice(10, 18), np.nan))


def test_zero_is_a_value_where_it_is_near_the_mean(cohort: Any) -> None:
    signed = replace(cohort, X=cohort.X - 2.5)
    model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(signed)
    given = holed(signed, 1, slice(40, 60), 0.0)
    found = loadings_of(model, given)
    assert not found.quality["missing_sites"].any()
    np.testing.assert_allclose(found.loadings, model.transform(given), rtol=1e-9, atol=1e-12)


def test_distances() -> None:
    """Those of left-out subjects are what leaving them out gives."""
    rng = np.random.default_rng(0)
    fitted, new = (
        rng.standard_normal((12, 3)) @ rng.standard_normal((3, 3)),
        rng.standard_normal((2, 3)),
    )
    far, own = distances(fitted, new)
    for i in range(len(fitted)):
        rest = np.delete(fitted, i, axis=0)
        away = fitted[i] - rest.mean(axis=0)
        np.testing.assert_allclose(own[i] ** 2, away @ np.linalg.inv(np.cov(rest.T)) @ away)
    away = new - fitted.mean(axis=0)
    np.testing.assert_allclose(
        far**2, np.einsum("ij,jk,ik->i", away, np.linalg.inv(np.cov(fitted.T)), away)
    )
    assert np.isnan(distances(fitted[:5], new)[0]).all()
    assert limit_of(4) == 3.5 < limit_of(10_000)


def test_unusual_subjects(cohort: Any) -> None:
    """A noisy map is unusual by its residual, strange loadings by their distance; others are not."""
    model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort[:N_FITTED])
    X = cohort[N_FITTED:].X.copy()
    X[2] += 5 * np.random.default_rng(0).standard_normal(X.shape[1])
    X[4] = model.mean_ + 40 * (cohort[:N_FITTED].X[0] - model.mean_)
    found = loadings_of(model, replace(cohort[N_FITTED:], X=X))
    unusual = found.quality["unusual"]
    assert "residual" in unusual[2] and "distance" in unusual[4]
    assert sum(map(bool, unusual)) <= 3 and "of the 30 fitted subjects would be" in found.rule
    assert found.doubt == "" and found.summary[-1].endswith(found.rule)
    everyone = replace(found, quality={**found.quality, "unusual": ["residual"] * len(unusual)})
    assert everyone.summary[-1] == everyone.doubt and "units" in everyone.doubt


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"modality": "area"}, "measure thickness in the fit, area in the new maps"),
        ({"units": "cm"}, "unit mm in the fit, cm in the new maps"),
        (
            {"provenance": {"inputs": [{"path": "lh.thickness.fwhm5.mgh"}]}},
            "smoothing 10 mm FWHM in the fit, 5 mm FWHM",
        ),
        (
            {
                "provenance": {
                    "preprocessing": [{"step": "smooth", "fwhm_mm": 6.0, "icofactor": "0"}]
                }
            },
            "preprocessing none in the fit, smooth (fwhm_mm 6.0) in the new maps",
        ),
        (
            {
                "provenance": {
                    "preprocessing": [
                        {"step": "resample", "from": "fsLR32k", "to": "x", "method": "area"}
                    ]
                }
            },
            "resampling none in the fit, area from fsLR32k in the new maps",
        ),
    ],
)
def test_maps_of_another_kind(
    cohort: Any, changes: dict[str, Any], said: str, tmp_path: Any
) -> None:
    known = replace(cohort, provenance={"inputs": [{"path": "lh.thickness.fwhm10.mgh"}]})
    model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(known)
    model.save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    assert again.measurement_ == model.measurement_ == Measurement("thickness", "mm", 10)
    assert check_measurement(again, known) == []
    other = replace(known, **changes)
    with refused("the new subjects", re.escape(said)):
        check_measurement(again, other)
    assert any(said in note for note in check_measurement(again, other, force=True))


def test_models_that_did_not_keep_it(cohort: Any) -> None:
    model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort.X)
    assert model.measurement_ is None
    assert "not recorded in the model" in check_measurement(model, cohort)[0]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_loadings_of_stores_name_people_with_nan(dtype: str, tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(20, 2, mesh="fsaverage3", hemisphere="left", random_state=0)
    model = ico.CorticalFactorization(2, level=1, n_starts=1, random_state=0).fit(cohort)
    X = np.array(cohort.X)
    X[7, 5] = np.nan
    masked = replace(cohort, X=X, mask=np.arange(642) != 5)
    stored = create_store(tmp_path / "a", [masked], dtype=dtype, chunk_sites=100, chunk_subjects=6)
    with pytest.raises(ArgumentError, match=r"NaN or infinite values in subject .*8"):
        model.transform(stored)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-28, 1e-24, 1e20])
@pytest.mark.parametrize(
    ("method", "center"), [("parts", "auto"), ("parts", "none"), ("CD-PNNMF", "auto")]
)
def test_maps_in_small_and_large_units(method: str, center: str, unit: float) -> None:
    """Power of a magnetoencephalogram is 1e-20 (A m)² or less: its squares are beyond float32."""
    cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3", hemisphere="left", random_state=0)
    narrow = (unit * np.asarray(cohort.X, np.float64)).astype(np.float32)
    settings = {"method": method, "center": center, "level": 1, "n_starts": 1, "random_state": 0}
    answers = []
    for maps in (narrow, narrow.astype(np.float64)):
        data = replace(cohort, X=maps, checked=True)
        model = ico.CorticalFactorization(3, **settings).fit(data)
        new, fitted = loadings_of(model, data), diagnose(model, data)
        quality = [new.quality[name] for name in ("explained_variance", "residual", "distance")]
        answers.append(
            [model.components_, new.loadings, *quality, fitted.residual, fitted.subject_explained]
        )
    assert all(relative(found, expected) < 1e-5 for found, expected in zip(*answers, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-9)])
@pytest.mark.parametrize("method", ["parts", "LE-PPNMF"])
def test_residuals_of_maps_far_from_zero(
    method: str, dtype: str, close: float, tmp_path: Path
) -> None:
    """10,000 ± 1, with the mean map left in: squares of values are 1e8 times as large as those of residuals."""
    cohort = ico.simulate_cohort(40, 3, mesh="fsaverage3", hemisphere="left", random_state=0)
    X = np.asarray(cohort.X, np.float64)
    cohort = replace(cohort, X=1e4 + (X - X.mean()) / X.std(), checked=True)
    settings = {"method": method, "center": "none", "level": 1, "n_starts": 1, "random_state": 0}
    model = ico.CorticalFactorization(3, **settings).fit(cohort[:25])
    stored = create_store(
        tmp_path / "a", [cohort[25:]], dtype=dtype, chunk_sites=100, chunk_subjects=6
    )
    expected = np.sqrt(
        np.square(stored.X[:, :] - model.transform(stored) @ model.components_).mean(axis=1)
    )
    assert relative(loadings_of(model, stored).quality["residual"], expected) < close
