"""Data that are never held: the same answer, two passes, bounded parts, and every check still made."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import icofactor as ico
from helpers.problems import relative
from icofactor import CorticalFactorization, Refinement
from icofactor.cohort.store.create import create_store, save_store
from icofactor.cohort.store.read import open_store
from icofactor.errors import ArgumentError
from icofactor.factorization.design import Design
from icofactor.factorization.statistics import Pyramid, Statistics, pyramid_level
from icofactor.streaming import passes, runners
from icofactor.streaming import source as sources
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.joined import Chained, Stacked
from icofactor.streaming.passes import Stream, each_block, pass_over
from icofactor.streaming.runners import in_order
from icofactor.streaming.source import (
    Adjusted,
    Adjustment,
    ArraySource,
    MapSource,
    Subset,
    even_slices,
    is_held,
    source_of,
    transposed,
)

N_SUBJECTS, N_SITES = 24, 642


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven parts instead of one."""
    monkeypatch.setattr(sources, "PART_BYTES", N_SUBJECTS * 4 * 100)


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    return ico.simulate_cohort(N_SUBJECTS, 4, mesh="fsaverage3", random_state=0)


@pytest.fixture(scope="module")
def mask() -> np.ndarray:
    return np.random.default_rng(1).random(N_SITES) < 0.8


@pytest.fixture(scope="module")
def stored(cohort: ico.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return create_store(
        tmp_path_factory.mktemp("stores") / "s", [cohort], chunk_sites=50, chunk_subjects=10
    )


def quick(**changes: Any) -> CorticalFactorization:
    return CorticalFactorization(
        4, **{"n_starts": 2, "level": 1, "refinement": Refinement(steps=3), **changes}
    )


class Sliced:
    """Something sliced like an array, which remembers the most that was asked for at once."""

    ndim = 2

    def __init__(self, X: np.ndarray) -> None:
        self._X, self.shape, self.dtype, self.most = X, X.shape, X.dtype, 0

    def __getitem__(self, key: Any) -> np.ndarray:
        found = self._X[key]
        self.most = max(self.most, found.size)
        return found


def on_disk(kind: str, cohort: ico.Cohort, stored: Any, folder: Path) -> Any:
    """The cohort's maps as something that is not in memory."""
    if kind == "store":
        return stored
    if kind == "sliced":
        return Sliced(cohort.X)
    if kind == "dask":
        return pytest.importorskip("dask.array").from_array(cohort.X, chunks=(7, 90))
    np.save(
        folder / "X.npy", np.asfortranarray(cohort.X) if kind == "memmap of sites" else cohort.X
    )
    return np.load(folder / "X.npy", mmap_mode="r")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["store", "memmap", "memmap of sites", "sliced", "dask"])
def test_the_answer_is_that_of_the_array_in_memory(
    kind: str, masked: bool, cohort: ico.Cohort, stored: Any, mask: np.ndarray, tmp_path: Path
) -> None:
    given = {"mask": mask if masked else None, "mesh": "fsaverage3"}
    X = on_disk(kind, cohort, stored, tmp_path)
    model, held = quick(**given).fit(X), quick(**given).fit(cohort.X)
    for name in ("components_", "loadings_", "mean_", "total_variance_", "error_", "depth_"):
        assert relative(getattr(model, name), getattr(held, name)) < 1e-9, name
    assert model.passes_ == 2
    assert model.bytes_read_ == 2 * cohort.X.nbytes
    assert (held.passes_, held.bytes_read_) == (0, 0)
    assert relative(model.transform(X), held.transform(cohort.X)) < 1e-9
    assert model.score(X) == pytest.approx(held.score(cohort.X), abs=1e-10)


OTHERS = [{"method": "LE-PPNMF"}, {"method": "E-DL", "tol": 1e-3}, {"polish": 2}, {"lift": False}]


@pytest.mark.parametrize("changes", OTHERS)
def test_other_settings_stream_too(
    changes: dict[str, Any], cohort: ico.Cohort, stored: Any
) -> None:
    model, held = quick(**changes).fit(stored), quick(**changes).fit(cohort)
    assert relative(model.components_, held.components_) < 1e-6
    assert relative(model.loadings_, held.loadings_) < 1e-6


def test_overlapping_columns_read_more_and_say_so(cohort: ico.Cohort, stored: Any) -> None:
    changes = {"columns": "smooth", "tol": 1e-3}
    model, held = quick(**changes).fit(stored), quick(**changes).fit(cohort)
    assert relative(model.components_, held.components_) < 1e-6
    assert model.passes_ > 2


def test_maps_adjusted_for_covariates_stream_from_a_store(cohort: ico.Cohort, stored: Any) -> None:
    age = {"age": np.linspace(20, 80, N_SUBJECTS)}
    adjust = ico.Covariates.fit(cohort, ["age"], age)
    model = quick().fit(adjust.apply(stored, age))
    held = quick().fit(np.asarray(adjust.apply(cohort, age).X))
    assert relative(model.components_, held.components_) < 1e-9
    assert model.covariates_ is adjust


def test_no_more_than_a_part_is_asked_for(cohort: ico.Cohort) -> None:
    X = Sliced(cohort.X)
    quick().fit(X).transform(X)
    assert X.most <= N_SUBJECTS * 100


def test_mapped_pages_are_given_back_but_never_changed_copies(
    cohort: ico.Cohort, tmp_path: Path
) -> None:
    np.save(tmp_path / "X.npy", cohort.X)
    X = np.load(tmp_path / "X.npy", mmap_mode="c")
    X[3] += 1
    source = ArraySource(X)
    np.testing.assert_array_equal(source.read(slice(10, 20)), X[:, 10:20].T)
    np.testing.assert_array_equal(X[3], cohort.X[3] + 1)


def test_what_is_held(cohort: ico.Cohort, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", cohort.X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert is_held(cohort.X) and is_held(cohort.X[:, ::2])
    assert (
        not is_held(mapped)
        and not is_held(np.asarray(mapped)[3:])
        and not is_held(Sliced(cohort.X))
    )


@pytest.mark.parametrize("site", [0, 150, N_SITES - 1])
def test_bad_values_are_found_in_any_part(site: int, cohort: ico.Cohort) -> None:
    for value, message in (
        (np.nan, "NaN or infinite values in subject 3 "),
        (-1, "negative values in subject 3 "),
    ):
        X = cohort.X.copy()
        X[3, site] = value
        with pytest.raises(ValueError, match=message):
            quick(method="CD-PNNMF").fit(Sliced(X))
        with pytest.raises(ValueError, match=message):
            quick(method="CD-PNNMF").fit(cohort).transform(Sliced(X))
    X = cohort.X.copy()
    X[5] = 2.5
    with pytest.raises(ValueError, match="constant over all sites in subject 5"):
        quick(method="CD-PNNMF").fit(Sliced(X))


def test_all_bad_subjects_of_a_cohort_are_named(cohort: ico.Cohort, tmp_path: Path) -> None:
    """Also when they are bad in different parts of the maps."""
    X = cohort.X.copy()
    X[3, 0] = X[7, 150] = -1
    X[8, -1] = -2.5
    bad = dataclasses.replace(cohort, X=X)
    wanted = f"negative values in subjects {', '.join(cohort.subjects[i] for i in (3, 7, 8))} \\(3 of {len(X)}\\), "
    fitted = quick(method="CD-PNNMF").fit(cohort)
    save_store(bad, tmp_path / "store")
    for data in (bad, open_store(tmp_path / "store")):
        for act in (quick(method="CD-PNNMF").fit, fitted.transform):
            with pytest.raises(
                ValueError, match=wanted + r"down to -2\.5, which method 'CD-PNNMF' does not allow"
            ):
                act(data)


# ---------------------------------------------------------------------- parts and pyramids


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    part_bytes=st.integers(1, N_SUBJECTS * 4 * 700), masked=st.booleans(), level=st.integers(0, 3)
)
def test_statistics_do_not_depend_on_the_parts(part_bytes: int, masked: bool, level: int) -> None:
    sites = ico.Sites.named("fsaverage3")
    rng = np.random.default_rng(0)
    mask = rng.random(N_SITES) < 0.8 if masked else None
    X = rng.random((N_SUBJECTS, N_SITES)).astype(np.float32)
    used = sites if mask is None else sites.subset(mask)
    expected = Pyramid.from_data(X.T if mask is None else X.T[mask], used, level)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PART_BYTES", part_bytes)
        inspector = Inspector(used.n, N_SUBJECTS, "PNNMF forbids")
        found = Pyramid.from_data(
            Stream(Subset(ArraySource(Sliced(X)), mask)), used, level, inspector=inspector
        )
    design = Design(used, level=level)
    for name in ("L", "energy", "counts", "sq_norm", "root_L"):
        assert (
            relative(
                getattr(found.statistics(design), name), getattr(expected.statistics(design), name)
            )
            < 1e-12
        )
    assert (
        relative(
            inspector.mean, (X if mask is None else X[:, mask]).astype(np.float64).mean(axis=0)
        )
        < 1e-12
    )


@pytest.mark.parametrize("kind", ["smooth", "exponential"])
def test_statistics_of_overlapping_columns(kind: str, cohort: ico.Cohort, mask: np.ndarray) -> None:
    sites = cohort.sites.subset(mask)
    design = Design(sites, kind, level=1, sigma=0.1).divide([2, 5])
    inspector = Inspector(sites.n, N_SUBJECTS, "PNNMF forbids")
    stream = Stream(Subset(ArraySource(Sliced(cohort.X)), mask))
    found = Statistics.from_data(stream, design, inspector=inspector)
    expected = Statistics.from_data(cohort.X.T[mask], design)
    for name in ("L", "energy", "counts", "sq_norm", "root_L"):
        assert relative(getattr(found, name), getattr(expected, name)) < 1e-12
    assert relative(found.K.toarray(), expected.K.toarray()) < 1e-12


@given(n_sites=st.integers(1, 10**6), n_subjects=st.integers(1, 10**5), step=st.integers(1, 5000))
def test_parts_are_whole_chunks_and_hold_every_site_once(
    n_sites: int, n_subjects: int, step: int
) -> None:
    slices = even_slices(n_sites, n_subjects, 4, step)
    assert [s.start for s in slices] == [0, *(s.stop for s in slices[:-1])]
    assert slices[-1].stop == n_sites
    assert all(s.start % step == 0 for s in slices)
    assert len(slices) <= 2 * sources.MOST_PARTS


def test_a_pyramid_is_as_deep_as_memory_allows() -> None:
    sites = ico.Sites.icosphere(7, on="faces")
    assert pyramid_level(sites, 200, level=2, steps=10) == 6
    assert pyramid_level(sites, 5000, level=2, steps=10) == 4
    assert pyramid_level(sites, 5000, level=2, steps=1) == 3
    assert pyramid_level(sites, 10**6, level=2, steps=10) == 3
    assert pyramid_level(sites, 200, level=2, steps=0) == 2
    assert pyramid_level(ico.Sites.icosphere(3), 10, level=2, steps=10) == 3


def test_refinement_ends_with_the_pyramid(
    cohort: ico.Cohort, stored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icofactor.factorization.statistics.PYRAMID_BYTES", 1)
    model = quick(refinement=Refinement(steps=40, faces=10, n_iter=1)).fit(stored)
    assert model.design_.faces[:, 0].max() == 2
    assert model.refined_.exhausted
    assert model.passes_ == 2


# ---------------------------------------------------------------------- sources and their wrappers


def seen(source: MapSource) -> np.ndarray:
    """All that a pass over a source shows, sites × subjects, in the order of the sites."""
    found = np.full(source.shape, np.nan)
    for rows, part in pass_over(Stream(source), each_block(lambda x, shared: {"site.x": x})):
        assert part["site.x"].flags.c_contiguous and part["site.x"].dtype == np.float64
        found[rows] = part["site.x"]
    return found


@pytest.mark.parametrize("kind", ["held", "store", "memmap", "memmap of sites", "sliced", "dask"])
def test_wrappers_show_what_they_say(
    kind: str, cohort: ico.Cohort, stored: Any, mask: np.ndarray, tmp_path: Path
) -> None:
    X = cohort.X if kind == "held" else on_disk(kind, cohort, stored, tmp_path)
    X = stored.X if kind == "store" else X
    values, who = cohort.X.T.astype(np.float64), np.array([5, 0, 0, 17])
    rng = np.random.default_rng(2)
    Z, coefficients = rng.standard_normal((N_SUBJECTS, 2)), rng.standard_normal((2, N_SITES))
    offset, scale = rng.standard_normal(N_SITES), rng.random(N_SITES) + 0.5
    expected = (values - (Z @ coefficients).T - offset[:, None]) / scale[:, None]
    adjusted = Adjusted(source_of(X), Adjustment(Z, coefficients, offset, scale))
    assert source_of(X).held == (kind == "held")
    np.testing.assert_array_equal(seen(source_of(X)), values)
    np.testing.assert_array_equal(seen(Subset(source_of(X), mask, who)), values[mask][:, who])
    np.testing.assert_array_equal(
        seen(Subset(Subset(source_of(X), mask), subjects=who)), values[mask][:, who]
    )
    np.testing.assert_array_equal(
        seen(Stacked([source_of(X), source_of(X)])), np.hstack([values, values])
    )
    np.testing.assert_allclose(seen(adjusted), expected, rtol=1e-12)
    np.testing.assert_allclose(
        seen(Subset(adjusted, mask, who)), expected[mask][:, who], rtol=1e-12
    )
    rows = np.array([400, 3, 77])
    np.testing.assert_allclose(
        Stream(Subset(adjusted, mask)).read(rows), expected[mask][rows], rtol=1e-12
    )


def test_what_is_set_to_zero_is_counted(cohort: ico.Cohort) -> None:
    values, below = cohort.X.T - 2.0, np.zeros(N_SITES, dtype=np.int64)
    source = Adjusted(
        source_of(cohort.X), Adjustment(offset=np.full(N_SITES, 2.0), floor=True), below
    )
    np.testing.assert_array_equal(seen(source), np.maximum(values, 0))
    np.testing.assert_array_equal(below, (values < 0).sum(axis=1))
    assert below.any()


def test_z_scores_are_an_adjusted_source(cohort: ico.Cohort) -> None:
    """The first pass gives the mean and the standard deviation of every site."""
    inspector = Inspector(N_SITES, N_SUBJECTS)
    Pyramid.from_data(Stream(source_of(cohort.X)), cohort.sites, 0, inspector=inspector)
    deviation = np.sqrt(inspector.site_variance / (N_SUBJECTS - 1))
    np.testing.assert_allclose(
        deviation, cohort.X.astype(np.float64).std(axis=0, ddof=1), rtol=1e-12
    )
    assert inspector.variance == pytest.approx(N_SITES * np.mean(inspector.site_variance))
    z = seen(Adjusted(source_of(cohort.X), Adjustment(offset=inspector.mean, scale=deviation)))
    np.testing.assert_allclose(z.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(axis=1, ddof=1), 1, rtol=1e-12)


def test_sources_side_by_side_in_another_order(
    cohort: ico.Cohort, stored: Any, mask: np.ndarray
) -> None:
    """Stacked by subjects, or chained by sites: a store reads its sites in an order of its own, an array in any."""
    held, kept, values = source_of(cohort.X), source_of(stored.X), cohort.X.T.astype(np.float64)
    rows = np.array([400, 3, 641, 77])
    for pair in ([held, kept], [kept, held], [kept, kept]):
        np.testing.assert_array_equal(seen(Stacked(pair)), np.hstack([values, values]))
        chained = Chained(pair)
        np.testing.assert_array_equal(seen(chained), np.vstack([values, values]))
        np.testing.assert_array_equal(
            seen(Subset(chained, np.tile(mask, 2))), np.vstack([values[mask]] * 2)
        )
        both = np.concatenate([rows + N_SITES, rows])
        np.testing.assert_array_equal(Stream(chained).read(both), values[both % N_SITES])
        assert chained.n_bytes == sum(chained.size(part) for part in chained.slices())
    with pytest.raises(ValueError, match="on the same sites; found 642 and 600"):
        Stacked([held, source_of(cohort.X[:, :600])])
    with pytest.raises(ValueError, match="of the same subjects"):
        Chained([held, source_of(cohort.X[:3])])


def test_progress_is_the_fraction_that_is_done(cohort: ico.Cohort) -> None:
    done: list[float] = []
    list(
        pass_over(
            Stream(transposed(cohort.X.T)), each_block(lambda x, shared: {}), report=done.append
        )
    )
    assert len(done) > 5
    np.testing.assert_allclose(done, np.arange(1, len(done) + 1) / len(done))


def test_some_sites_of_a_stream(cohort: ico.Cohort, mask: np.ndarray) -> None:
    X = Stream(Subset(ArraySource(Sliced(cohort.X)), mask))
    rows = np.array([400, 3, 77])
    np.testing.assert_array_equal(X.read(rows), cohort.X[:, mask].T[rows])
    np.testing.assert_array_equal(X.read(np.arange(10, 13)), cohort.X[:, mask].T[10:13])
    assert X.bytes_read == 6 * N_SUBJECTS * 4


def test_work_inside_a_worker_starts_no_further_threads() -> None:
    inner = lambda _: set(in_order(lambda _: threading.get_ident(), range(4), 4))
    assert all(len(found) == 1 for found in in_order(inner, range(3), 2))


def test_parts_in_memory_at_the_same_time_are_limited(
    cohort: ico.Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their bytes in memory, whatever the number of processors; each result has the same place."""
    stored = create_store(tmp_path / "s", [cohort], chunk_sites=50, chunk_subjects=10)
    source, threads, used = source_of(stored.X), runners.in_order, []
    part = max(where.stop - where.start for where in source.slices())
    monkeypatch.setattr(passes, "READ_BYTES", 2 * 8 * part * N_SUBJECTS)
    monkeypatch.setattr(runners, "n_threads", lambda: 64)
    monkeypatch.setattr(
        runners, "in_order", lambda *given: used.append(given[2]) or threads(*given)
    )
    rows = [found for found, _ in pass_over(Stream(source), lambda *_: {})]
    assert used == [2] and sorted(np.concatenate(rows)) == list(range(N_SITES))
    monkeypatch.setattr(passes, "READ_BYTES", 1)
    assert len(list(pass_over(Stream(source), lambda *_: {}))) == len(rows) and used[1:] == [1]
    three = Stream(source, runners.Threads(workers=3))
    monkeypatch.setattr(passes, "READ_BYTES", 2**40)
    assert len(list(pass_over(three, lambda *_: {}))) == len(rows) and used[2:] == [3]


@pytest.mark.parametrize(
    ("dtype", "bad"), list(product(["float16", "float32"], [np.nan, np.inf, -np.inf]))
)
def test_bad_values_in_stores_are_named(
    cohort: ico.Cohort, dtype: str, bad: float, tmp_path: Path
) -> None:
    X = np.array(cohort.X)
    X[7, 5] = bad
    masked = dataclasses.replace(cohort, X=X, mask=np.arange(N_SITES) != 5)
    stored = create_store(tmp_path / "a", [masked], dtype=dtype, chunk_sites=100)
    with pytest.raises(ArgumentError, match="NaN or infinite values in subject 7 "):
        CorticalFactorization(3, mesh="fsaverage3", hemi="left").fit(stored.X)
