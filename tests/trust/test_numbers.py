"""Awkward numbers: a right answer or a clear refusal; and the same bits for the same seed, whatever the threads."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor.errors import ArgumentError
from icofactor.factorization._refine import Refinement
from icofactor.sphere.sites import Sites

SITES = Sites.named("fsaverage3")
QUICK: dict[str, Any] = {
    "n_starts": 1,
    "n_iter": 150,
    "tol": 1e-5,
    "level": 1,
    "refinement": Refinement(steps=1, faces=5, n_iter=5),
    "random_state": 0,
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:stopped after n_iter:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.slow,
]
METHODS = ("CD-PNNMF", "LE-PNNMF", "PPNMF", "DL", "CD-SPNNMF")


@cache
def maps(n: int = 30, k: int = 3) -> np.ndarray:
    """Positive maps of k bumps, subjects × vertices, float64; read-only, as all tests share them."""
    rng = np.random.default_rng(5)
    bumps = np.exp(
        6 * (SITES.coordinates @ (c := rng.standard_normal((3, k))) / np.linalg.norm(c, axis=0) - 1)
    )
    X = rng.gamma(2, 1, (n, k)) @ bumps.T + 0.2 + 0.01 * rng.random((n, SITES.n))
    X.setflags(write=False)
    return X


def fit(X: Any, k: int = 3, **changes: Any) -> ico.CorticalFactorization:
    settings = {**QUICK, "method": "CD-PNNMF", "mesh": "fsaverage3", "hemi": "left", **changes}
    return ico.CorticalFactorization(k, **settings).fit(X)


# ---------------------------------------------------------------------- degenerate data


@pytest.mark.parametrize("method", METHODS)
def test_fewer_dimensions_than_components(method: str) -> None:
    """Rank 2 and four components: the fit is as good as with two, and nothing is NaN."""
    rng = np.random.default_rng(1)
    X = rng.gamma(2, 1, (20, 2)) @ np.abs(rng.standard_normal((2, SITES.n)))
    found = fit(X, 4, method=method)
    assert np.isfinite(found.components_).all() and np.isfinite(found.loadings_).all()
    assert np.isfinite(found.transform(X)).all()
    assert found.explained_ >= fit(X, 2, method=method).explained_ - 0.02


@pytest.mark.parametrize(
    "X",
    [
        np.tile(np.linspace(1, 2, SITES.n), (10, 1)),
        np.zeros((10, SITES.n)),
        np.vstack([np.zeros(SITES.n), maps()]),
    ],
    ids=["all alike", "all zero", "one zero"],
)
def test_what_has_no_answer_is_refused(X: np.ndarray) -> None:
    with pytest.raises(ArgumentError) as refusal:
        fit(X, 1)
    assert refusal.value.argument == "X"


def test_sites_that_are_constant_or_zero() -> None:
    X = maps().copy()
    X[:, ::5] = 0
    X[:, 1::5] = 2.5
    found = fit(X)
    assert np.isfinite(found.components_).all() and np.isfinite(found.loadings_).all()
    assert np.abs(found.components_[:, ::5]).max() == 0
    product = found.loadings_ @ found.components_
    np.testing.assert_allclose(product[:, 1::5].std(axis=0) / 2.5, 0, atol=0.35)


@pytest.mark.parametrize("center", ["mean", "zscore", "none"])
def test_degenerate_data_in_parts(center: str) -> None:
    """Copies of subjects, constant and zero sites, more components than faces, and one component."""
    X = np.vstack([maps(), maps()[:5] * (1 + 1e-12), maps()[:5]])
    X[:, ::5] = 0
    X[:, 1::5] = 2.5
    for k, changes in ((4, {}), (1, {}), (25, {"level": 0, "n_iter": 60})):
        found = fit(X, k, method="parts", center=center, **changes)
        assert np.isfinite(found.components_).all() and np.isfinite(found.loadings_).all()
        assert (found.components_ >= 0).all() and 0 < found.explained_ <= 1
        if k < 20:  # not fewer faces than components
            assert np.abs(found.components_[:, ::5]).max() == 0
        np.testing.assert_allclose(found.transform(X), found.loadings_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_used", [2, 20])
def test_tiny_masks(n_used: int) -> None:
    mask = np.zeros(SITES.n, dtype=bool)
    mask[np.linspace(0, SITES.n - 1, n_used).astype(int)] = True
    found = fit(maps(), 1, mask=mask)
    assert np.isfinite(found.components_).all()
    assert np.abs(found.components_[:, ~mask]).max(initial=0) == 0
    assert found.components_[0, mask].min() > 0


def test_a_mask_of_one_site_is_refused() -> None:
    with pytest.raises(ArgumentError) as refusal:
        fit(maps(), 1, mask=np.arange(SITES.n) == 7)
    assert refusal.value.argument == "mask"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, 1e308])
def test_single_bad_values_are_refused_or_harmless(value: float) -> None:
    X = maps().copy()
    X[7, 100] = value
    with pytest.raises(ValueError, match=r"NaN|nan|finite|inf|negative|large|≥ 0|X") as caught:
        fit(X)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------- sizes


def test_one_component() -> None:
    found = fit(maps(), 1)
    assert found.components_.shape == (1, SITES.n) and found.loadings_.shape == (30, 1)
    one = np.linalg.svd(maps(), full_matrices=False)
    best = one[0][:, :1] * one[1][0] @ one[2][:1]
    product = found.loadings_ @ found.components_
    assert np.square(maps() - product).sum() <= 1.02 * np.square(maps() - best).sum()


@pytest.mark.parametrize("k", [31, 0, -1])
def test_impossible_numbers_of_components_are_refused(k: int) -> None:
    with pytest.raises(ArgumentError) as refusal:
        fit(maps(), k)
    assert refusal.value.argument == "n_components"


def test_a_hundred_thousand_subjects_of_two_components() -> None:
    rng = np.random.default_rng(2)
    faces = Sites.named("fsaverage3", on="faces")
    mask = np.zeros(faces.n, dtype=bool)
    mask[::16] = True
    bumps = np.exp(4 * (faces.coordinates @ np.eye(3)[:, :2] - 1)).astype(np.float32)
    X = np.zeros((100_000, faces.n), dtype=np.float32)
    loadings = rng.gamma(2, 1, (100_000, 2)).astype(np.float32)
    X[:, mask] = loadings @ bumps[mask].T + 0.05
    found = fit(X, 2, mesh=faces, mask=mask, n_starts=1, level=0, refinement=None, n_iter=60)
    assert found.loadings_.shape == (100_000, 2)
    assert found.explained_ > 0.97
    for j in range(2):
        assert (
            max(abs(np.corrcoef(found.loadings_[:, j], loadings[:, i])[0, 1]) for i in range(2))
            > 0.95
        )


# ---------------------------------------------------------------------- how numbers lie in memory


@pytest.mark.parametrize("dtype", ["c16", "S8", "U8", "M8[s]"])
def test_what_is_no_number_is_refused(dtype: str) -> None:
    with pytest.raises(ValueError):
        fit(np.ones((10, SITES.n)).astype("i8").astype(dtype))


# ---------------------------------------------------------------------- same seed, same bits

PROGRAM = """
import hashlib, sys
import numpy as np
import icofactor as ico
from icofactor.sphere import Sites

sites = Sites.named("fsaverage4")
rng = np.random.default_rng(0)
# without BLAS, whose products depend on its threads: the data must be the same
bumps = np.exp(3 * np.einsum("vi,ik->vk", sites.coordinates, rng.standard_normal((3, 4))) - 3)
X = np.einsum("sk,vk->sv", rng.gamma(2, 1, (60, 4)), bumps) + 0.2 + 0.01 * rng.random((60, sites.n))
found = []
runs = (("cpu", "CD-PNNMF"), ("numpy", "CD-PNNMF"), ("cpu", "LE-PNNMF"), ("numpy", "PPNMF"))
for engine, method in runs[:: int(sys.argv[1])]:
    total = hashlib.sha256()
    model = ico.CorticalFactorization(
        4, method=method, mesh="fsaverage4", hemi="left", n_starts=3, n_iter=30, engine=engine, random_state=3
    ).fit(X)
    for part in (model.components_, model.loadings_, model.transform(X[:7]), model.starts_.objectives):
        total.update(np.ascontiguousarray(part).tobytes())
    found.append(total.hexdigest())
print(*sorted(found))
"""


def test_same_seed_same_bits_whatever_the_threads_and_the_order_of_engines() -> None:
    """Several engines and methods, in one order with one thread, in the other with two."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    runs = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, order],
            env={**os.environ, **dict.fromkeys(names, str(n))},
            stdout=subprocess.PIPE,
            text=True,
        )
        for n, order in ((1, "1"), (2, "-1"))
    ]
    digests = [run.communicate(timeout=300)[0].strip() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert len(set(digests[0].split())) == 4
    assert digests[0] == digests[1]
