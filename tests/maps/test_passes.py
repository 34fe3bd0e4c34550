"""Passes: how results come together, how often maps are read, and what is found wrong on the way."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.refusals import refused
from helpers.sources import KINDS, N_SITES, N_SUBJECTS, Sliced, source
from icofactor.errors import CohortError
from icofactor.maps import passes
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.maps.workers import in_order
from icofactor.results.diagnostics.diagnose import diagnose

pytestmark = pytest.mark.usefixtures("small_blocks")


def model(n_components: int = 3, **changes: Any) -> ico.CorticalFactorization:
    return ico.CorticalFactorization(n_components, **{"n_starts": 2, "level": 1, **changes})


def test_results_of_strips_are_joined(cohort: ico.Cohort) -> None:
    fractions: list[float] = []

    def function(x: np.ndarray, shared: Any, factor: np.ndarray, absent: None) -> Any:
        scaled = x * factor[:, None] + shared["shift"]
        return {
            "site.mean": scaled.mean(axis=1),
            "sum.total": scaled.sum(axis=0),
            "min.low": scaled.min(axis=0),
            "max.high": scaled.max(axis=0),
        }

    factor = np.linspace(1, 2, N_SITES)
    maps = Maps(cohort.X)
    options = {"shared": {"shift": 3.0}, "report": fractions.append}
    results = [result for _, result in map_strips(function, maps, factor, None, **options)]
    expected = cohort.X.astype(np.float64) * factor + 3
    mean = np.concatenate([result["site.mean"] for result in results])
    np.testing.assert_allclose(mean, expected.mean(axis=0))
    total = sum(result["sum.total"] for result in results)
    np.testing.assert_allclose(total, expected.sum(axis=1))
    assert min(result["min.low"].min() for result in results) == pytest.approx(expected.min())
    assert max(result["max.high"].max() for result in results) == pytest.approx(expected.max())
    n_blocks = len(maps.blocks())
    np.testing.assert_allclose(fractions, np.arange(1, n_blocks + 1) / n_blocks)


def test_work_inside_a_worker_starts_no_further_threads() -> None:
    inner = lambda _: set(in_order(lambda _: threading.get_ident(), range(4), 4))
    assert all(len(threads) == 1 for threads in in_order(inner, range(3), 2))


def test_blocks_in_memory_at_the_same_time_are_limited(
    cohort: ico.Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = Maps(Sliced(cohort.X))
    n_workers: list[int] = []
    record = lambda work, items, workers: n_workers.append(workers) or map(work, items)
    monkeypatch.setattr(passes, "in_order", record)
    monkeypatch.setattr(passes, "n_threads", lambda: 64)
    bytes_of_block = 8 * N_SITES * N_SUBJECTS // len(maps.blocks())
    for limit in (3, 2):
        monkeypatch.setattr(passes, "BYTES_IN_MEMORY", limit * bytes_of_block)
        list(map_strips(lambda x, shared: {}, maps))
    assert n_workers == [3, 2]


# ---------------------------------------------------------------------- how often maps are read


@pytest.mark.parametrize("kind", ["memmap", "store"])
@pytest.mark.parametrize(
    ("settings", "n_passes"),
    [
        ({}, 2),
        ({"method": "CD-PNNMF"}, 2),
        ({"center": "zscore"}, 3),
        ({"polish": 2}, 4),
        ({"method": "CD-PNNMF", "polish": 1}, 3),
        ({"method": "LE-PPNMF", "tol": 1e-2}, 4),
        ({"lift": False}, 1),
    ],
    ids=str,
)
def test_a_fit_reads_twice(
    kind: str, settings: dict[str, Any], n_passes: int, cohort: ico.Cohort, tmp_path: Path
) -> None:
    X = source(kind, cohort, tmp_path)
    mask = np.arange(N_SITES) % 5 > 0
    for sites, masked in ((slice(None), None), (mask, mask)):
        fitted = model(mesh="fsaverage3", mask=masked, **settings).fit(X)
        assert fitted.passes_ == n_passes
        assert fitted.bytes_read_ == n_passes * cohort.X[:, sites].nbytes


def test_what_covariates_scanners_and_the_page_read(cohort: ico.Cohort, tmp_path: Path) -> None:
    table = {"age": np.linspace(20, 80, N_SUBJECTS), "site": ["A", "B"] * (N_SUBJECTS // 2)}
    stored = source("store", replace(cohort, participants=table), tmp_path)
    combat = ico.preprocessing.ComBat("site", nonnegative=False, min_scans=3)
    bytes_read = [0]

    def count() -> None:
        bytes_read.append(stored.X.counter.n_bytes)

    harmonized = combat.fit_transform(stored)
    count()
    adjusted = ico.Covariates.fit(harmonized, ["age"], nonnegative=False).apply(harmonized)
    count()
    fitted = model().fit(adjusted)
    count()
    diagnose(fitted, adjusted)
    count()
    n_passes = np.diff(bytes_read) / stored.X.n_bytes
    assert n_passes.tolist() == [2, 1, 2, 1]


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("value", "sites", "rows"),
    [
        (np.nan, [0, 150, -1], [3]),
        (-np.inf, [-1, 0, 150], [7]),
        (-1.0, [0, 150, -1], [3, 7, 8]),
        (2.5, slice(None), [3, 7, 8]),
    ],
)
def test_bad_subjects_are_named(
    kind: str, value: float, sites: Any, rows: list[int], cohort: ico.Cohort, tmp_path: Path
) -> None:
    """The first that is not finite; all that are negative or constant, in whichever blocks."""
    X = cohort.X.copy()
    X[[3, 7, 8], sites] = value
    bad = replace(cohort, X=X, checked=True)
    if kind == "store" and not np.isfinite(value):
        with pytest.raises(CohortError):
            source(kind, bad, tmp_path)
        return
    data = source(kind, bad, tmp_path)
    names = ", ".join(cohort.subjects[row] if kind == "store" else str(row) for row in rows)
    nmf = model(method="CD-PNNMF", mesh="fsaverage3")
    with refused("X", f"{names}\\b(?!,)"):
        nmf.fit(data)
    if value == 2.5:
        return
    with refused("X", f"{names}\\b(?!,)"):
        nmf.fit(cohort).transform(data)
