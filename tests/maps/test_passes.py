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
    X, fractions = cohort.X.astype(np.float64), list[float]()

    def function(x: np.ndarray, shared: Any, factor: np.ndarray, none: None) -> Any:
        scaled = x * factor[:, None] + shared["shift"]
        return {
            "site.mean": scaled.mean(axis=1),
            "sum.total": scaled.sum(axis=0),
            "min.low": scaled.min(axis=0),
            "max.high": scaled.max(axis=0),
        }

    factor = np.linspace(1, 2, N_SITES)
    maps = Maps(cohort.X)
    blocks = list(
        map_strips(function, maps, factor, None, shared={"shift": 3.0}, report=fractions.append)
    )
    expected = X * factor + 3
    mean = np.concatenate([result["site.mean"] for _, result in blocks])
    np.testing.assert_allclose(mean, expected.mean(axis=0))
    np.testing.assert_allclose(sum(r["sum.total"] for _, r in blocks), expected.sum(axis=1))
    np.testing.assert_allclose(min(r["min.low"].min() for _, r in blocks), expected.min())
    np.testing.assert_allclose(max(r["max.high"].max() for _, r in blocks), expected.max())
    np.testing.assert_allclose(fractions, np.arange(1, len(blocks) + 1) / len(blocks))
    assert len(blocks) == len(maps.blocks())


def test_work_inside_a_worker_starts_no_further_threads() -> None:
    inner = lambda _: set(in_order(lambda _: threading.get_ident(), range(4), 4))
    assert all(len(threads) == 1 for threads in in_order(inner, range(3), 2))


def test_blocks_in_memory_at_the_same_time_are_limited(
    cohort: ico.Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps, used = Maps(Sliced(cohort.X)), list[int]()
    record = lambda work, items, workers: used.append(workers) or map(work, items)
    monkeypatch.setattr(passes, "in_order", record)
    monkeypatch.setattr(passes, "n_threads", lambda: 64)
    bytes_of_block = 8 * N_SITES * N_SUBJECTS // len(maps.blocks())
    for limit in (3 * bytes_of_block, 2 * bytes_of_block):
        monkeypatch.setattr(passes, "BYTES_IN_MEMORY", limit)
        list(map_strips(lambda x, shared: {}, maps))
    assert used == [3, 2]


# ---------------------------------------------------------------------- how often maps are read


@pytest.mark.parametrize("kind", ["memmap", "store"])
@pytest.mark.parametrize(
    ("settings", "n_passes"),
    [
        ({}, 2),
        ({"method": "CD-PNNMF"}, 2),
        ({"center": "zscore"}, 3),
        ({"polish": 2}, 4),
        ({"method": "LE-PPNMF", "tol": 1e-2}, 4),
        ({"lift": False}, 1),
    ],
    ids=str,
)
def test_a_fit_reads_twice(
    kind: str, settings: dict[str, Any], n_passes: int, cohort: ico.Cohort, tmp_path: Path
) -> None:
    X, mask = source(kind, cohort, tmp_path), np.arange(N_SITES) % 5 > 0
    for used in (None, mask):
        fitted = model(mesh="fsaverage3", mask=used, **settings).fit(X)
        assert fitted.passes_ == n_passes
        assert (
            fitted.bytes_read_
            == n_passes * cohort.X[:, slice(None) if used is None else used].nbytes
        )
    assert model(mesh="fsaverage3").fit(cohort.X).bytes_read_ == 0


def test_what_covariates_scanners_and_the_page_read(cohort: ico.Cohort, tmp_path: Path) -> None:
    table = {"age": np.linspace(20, 80, N_SUBJECTS), "site": ["A", "B"] * (N_SUBJECTS // 2)}
    stored = source("store", replace(cohort, participants=table), tmp_path)
    combat = ico.preprocessing.ComBat("site", nonnegative=False, min_scans=3)
    n_bytes = stored.X.n_bytes

    def n_reads(step: Any) -> tuple[Any, float]:
        before = stored.X.counter.n_bytes
        result = step()
        return result, (stored.X.counter.n_bytes - before) / n_bytes

    harmonized, n_combat = n_reads(lambda: combat.fit_transform(stored))
    covariates, n_covariates = n_reads(
        lambda: ico.Covariates.fit(harmonized, ["age"], nonnegative=False)
    )
    adjusted = covariates.apply(harmonized)
    fitted, n_fit = n_reads(lambda: model().fit(adjusted))
    _, n_page = n_reads(lambda: diagnose(fitted, adjusted))
    assert (n_combat, n_covariates, n_fit, n_page) == (2, 1, 2, 1)


def test_overlapping_columns_read_more_and_say_so(cohort: ico.Cohort, tmp_path: Path) -> None:
    fitted = model(columns="smooth", tol=1e-3, refinement=ico.Refinement(steps=3))
    assert fitted.fit(source("store", cohort, tmp_path)).passes_ > 2


# ---------------------------------------------------------------------- what is found wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("value", "sites", "rows", "found"),
    [
        (np.nan, [0, 150, -1], [3], "NaN or infinite values in"),
        (-np.inf, [-1, 0, 150], [7], "NaN or infinite values in"),
        (-1.0, [0, 150, -1], [3, 7, 8], "negative values in"),
        (2.5, slice(None), [3, 7, 8], "constant over all sites in"),
    ],
)
def test_bad_subjects_are_named(
    kind: str,
    value: float,
    sites: Any,
    rows: list[int],
    found: str,
    cohort: ico.Cohort,
    tmp_path: Path,
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
    names = [cohort.subjects[row] if kind == "store" else str(row) for row in rows]
    models = [model(method="CD-PNNMF", mesh="fsaverage3") for _ in range(2)]
    acts = [models[0].fit, models[1].fit(cohort).transform]
    for act in acts[: 1 if value > 0 else 2]:
        with refused("X", f"{found} subjects? {', '.join(names)} ?[(;,]"):
            act(data)
