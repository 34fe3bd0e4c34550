"""`Maps` of any source show what NumPy shows of the whole X."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import icofactor as ico
from helpers.sources import HEIGHT, KINDS, N_SUBJECTS, Sliced, all_maps
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.blocks import block_edges
from icofactor.maps.maps import Maps, maps_of
from icofactor.maps.passes import map_strips

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture(scope="module")
def sources(cohort: ico.Cohort, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Maps]:
    return all_maps(cohort, tmp_path_factory.mktemp("sources"))


def some_subjects(rng: np.random.Generator, n: int) -> Any:
    """All, a slice, or any, also repeated and in any order."""
    return (None, slice(1, n), rng.integers(n, size=5))[rng.integers(3)]


def some_sites(rng: np.random.Generator, n: int) -> Any:
    """All, a slice, a mask, or some in any order."""
    choices = (
        None,
        slice(3, n - 2),
        rng.random(n) < 0.7,
        rng.permutation(n)[: n // 2],
        rng.integers(n, size=n // 2),
    )
    return choices[rng.integers(5)]


def some_change(rng: np.random.Generator, n_subjects: int, n_sites: int) -> Adjustment:
    """Any of the parts of an adjustment, with one code or three."""
    codes = rng.integers(3, size=n_subjects) if rng.random() < 0.5 else None
    rows = (1 if codes is None else 3, n_sites)
    parts = {
        "removed": rng.normal(size=(2, n_sites)),
        "restored": rng.normal(size=(2, n_sites)),
        "offset": rng.normal(size=rows),
        "scale": rng.uniform(0.5, 2, rows),
        "shift": rng.normal(size=rows),
    }
    chosen = {name: values for name, values in parts.items() if rng.random() < 0.5}
    return Adjustment(Z=rng.normal(size=(n_subjects, 2)), codes=codes, **chosen)


def changed(x: np.ndarray, change: Adjustment) -> np.ndarray:
    """The equation of `Adjustment`, on subjects × sites."""
    none, codes = np.zeros((3, x.shape[1])), np.zeros(len(x), int)
    if change.codes is not None:
        codes = change.codes
    of_code = lambda rows, default: default if rows is None else rows[codes]
    of_regressors = lambda rows: 0 if rows is None else change.Z @ rows
    x = x - of_regressors(change.removed) - of_code(change.offset, none[codes])
    x = x / of_code(change.scale, 1.0)
    return x + of_regressors(change.restored) + of_code(change.shift, none[codes])


def passed_over(maps: Maps) -> np.ndarray:
    """All that a pass shows, subjects × sites; every site once."""
    x, n_seen = np.full(maps.shape, np.nan), np.zeros(maps.n_sites, int)
    for sites, strips in map_strips(lambda x, shared: {"site.x": x}, maps):
        x[:, sites] = strips["site.x"].T
        n_seen[sites] += 1
    assert (n_seen == 1).all()
    return x


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    other=st.sampled_from(KINDS),
    joined=st.sampled_from(["", "subjects", "sites"]),
    floor=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_maps_are_what_numpy_makes_of_the_whole(
    sources: dict[str, Maps], kind: str, other: str, joined: str, floor: bool, seed: int
) -> None:
    """Whatever they are of, side by side, chosen from and changed twice."""
    rng = np.random.default_rng(seed)
    maps, x = sources[kind], np.asarray(sources["array"].values, np.float64)
    if joined:
        maps = Maps((maps_of(maps), maps_of(sources[other])), joined=joined)
        x = np.concatenate([x, x], axis=0 if joined == "subjects" else 1)
    for _ in range(2):
        subjects, sites = some_subjects(rng, len(x)), some_sites(rng, x.shape[1])
        change = some_change(rng, *x.shape)
        maps = maps.adjusted(change).subset(subjects, sites)
        x = changed(x, change)
        x = x if subjects is None else x[subjects]
        x = x if sites is None else x[:, sites]
    if floor:
        maps, x = maps.adjusted(floor=True), np.maximum(x, 0)
    assert (maps.shape, len(maps)) == (x.shape, len(x))
    close = {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(passed_over(maps), x, **close)
    np.testing.assert_allclose(maps, x, **close)
    sites = rng.permutation(x.shape[1])[:5]
    np.testing.assert_allclose(maps.read(sites), x[:, sites].T, **close)
    np.testing.assert_allclose(maps[1:3, sites], x[1:3][:, sites], **close)
    np.testing.assert_allclose(maps[2], x[2], **close)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_values_keep_their_bits(kind: str, sources: dict[str, Maps]) -> None:
    maps, X = sources[kind], sources["array"].values
    np.testing.assert_array_equal(maps, X)
    assert maps.dtype == np.float32
    np.testing.assert_array_equal(passed_over(maps.subset([5, 0, 0])), X[[5, 0, 0]])
    assert maps.in_memory == (kind in ("array", "columns"))
    assert maps.n_bytes == (0 if maps.in_memory else X.nbytes)


def test_no_more_than_a_block_is_asked_for(cohort: ico.Cohort) -> None:
    X = Sliced(cohort.X)
    ico.CorticalFactorization(2, n_starts=1, level=1).fit(X).transform(X)
    assert 0 < X.most <= N_SUBJECTS * HEIGHT


@settings(deadline=None)
@given(n_sites=st.integers(1, 20_000), n_subjects=st.integers(1, 10**5), chunk=st.integers(1, 5000))
def test_blocks_are_whole_chunks(n_sites: int, n_subjects: int, chunk: int) -> None:
    chunk_edges = [*range(0, n_sites, chunk), n_sites]
    for chunks in (chunk, tuple(np.diff(chunk_edges))):
        edges = block_edges(n_sites, n_subjects, chunks)
        assert (edges[0], edges[-1]) == (0, n_sites) and (np.diff(edges) > 0).all()
        assert set(edges) <= set(chunk_edges)
