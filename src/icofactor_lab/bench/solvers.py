"""The solvers that are compared: ours in several settings, and the peers, each a path of factorizations over time.

A path yields a `Point` now and then. Only the solver's own work is on its clock: not the copies a library wants its
data in, nor the error, which is computed from X for all alike. Solvers whose iterations depend on the factors alone are
run in stretches, each warm-started from the last (scikit-learn's cd and mu, PLANC: equal to one long run to rounding);
the others start again for every point, and a point's time is that run's own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from icofactor.factorization.methods import METHODS
from icofactor_lab.common.data import Dataset
from icofactor_lab.common.opnmf import opnmf_path

OPNMF_MOST_SITES = 20480
"""opnmf forms XXᵀ, sites × sites: 1.7 GB in float32 at this many."""
_LEAST_TORCH = 10
"""nmf-torch looks at its loss every ten iterations and fails to return one before that."""


@dataclass(frozen=True, eq=False)
class Point:
    """A factorization on the way: W (sites × components), C (components × subjects), seconds and iterations so far."""

    seconds: float
    iterations: int
    W: np.ndarray
    C: np.ndarray


Path = Callable[[Dataset, int, int, Sequence[int]], Iterator[Point]]
"""path(data, seed, threads, marks): points after about the iterations named by `marks`."""


@dataclass(frozen=True)
class Solver:
    """A way to factorize X.

    Attributes
    ----------
    name : for tables and plots
    path : how it runs
    needs : module it needs, None where it is written here
    projective : whether C is bound to be WᵀX, which makes it another problem with errors of its own
    most_sites : largest data it is tried on
    family : lines of a plot belong together by it; ours are one
    """

    name: str
    path: Path = field(repr=False)
    needs: str | None = None
    projective: bool = False
    most_sites: int | None = None
    family: str = "peer"

    def why_not(self, data: Dataset) -> str | None:
        """Why it is not run on these data; None when it is."""
        if self.needs is not None and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        if self.most_sites is not None and data.Xs.shape[1] > self.most_sites:
            return f"it forms XXᵀ; tried up to {self.most_sites} sites only"
        return None


def solvers(fit_updates: int | None = None) -> list[Solver]:
    """All of them, ours first; `fit_updates` limits the updates of our starts."""
    return [*_ours({} if fit_updates is None else {"n_iter": fit_updates}), *_peers()]


# ------------------------------------------------------------------ ours


def _ours(common: dict[str, Any]) -> list[Solver]:
    settings: dict[str, dict[str, Any]] = {
        "CD-PNNMF": {},
        "CD-PNNMF, one start": {"n_starts": 1},
        "CD-PNNMF, one start, no refinement": {"n_starts": 1, "refinement": None},
        "CD-PNNMF, level 3": {"level": 3},
        "CD-PNNMF, polish 5": {"polish": 5},
        "CD-PNNMF, polish 20": {"polish": 20},
        "CD-PNNMF, one start, polish 5": {"n_starts": 1, "polish": 5},
        "CD-PNNMF, one start, polish 20": {"n_starts": 1, "polish": 20},
        "LE-PNNMF": {},
        "LE-PNNMF, one start": {"n_starts": 1},
        "LE-PNNMF, one start, polish 5": {"n_starts": 1, "polish": 5},
        "LE-PNNMF, polish 20": {"polish": 20},
        "LE-PPNMF": {},
        "LE-PPNMF, one start": {"n_starts": 1},
        "parts": {},
    }
    found = []
    for name, changes in settings.items():
        method = name.split(",")[0]
        path = _fit({"method": method, **common, **changes})
        found.append(Solver(f"icofactor, {name}", path, projective=METHODS[method].scheme.projective, family="ours"))
    return found


def _fit(changes: dict[str, Any]) -> Path:
    """One fit of the estimator: one point. Where the mean map was taken out it is the first column of W."""

    def path(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
        from icofactor.estimator.estimator import CorticalFactorization

        model = CorticalFactorization(data.n_components, mesh=data.sites, random_state=seed, **changes)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that tol was not met is seen in the error
            model.fit(data.Xs)
        seconds, W, C = time.perf_counter() - begin, model.components_.T, model.loadings_.T
        if model.center_ == "mean":
            W, C = np.column_stack([model.mean_, W]), np.vstack([np.ones(len(data.Xs)), C])
        yield Point(seconds, model.n_iter_, W, C)

    return path


# ------------------------------------------------------------------ peers


def _peers() -> list[Solver]:
    return [
        Solver("scikit-learn NMF (cd)", _sklearn("cd"), "sklearn"),
        Solver("scikit-learn NMF (mu)", _sklearn("mu"), "sklearn"),
        Solver("scikit-learn MiniBatchNMF", _minibatch, "sklearn"),
        Solver("nmf-torch (hals)", torch_path("hals", use_gpu=False), "nmf"),
        Solver("nmf-torch (bpp)", torch_path("bpp", use_gpu=False), "nmf"),
        Solver("PLANC (anlsbpp)", _planc, "pyplanc"),
        Solver("opNMF as published", _opnmf_published, projective=True),
        Solver("opnmf", _opnmf, "opnmf", projective=True, most_sites=OPNMF_MOST_SITES),
    ]


REFERENCE = "scikit-learn NMF (cd)"
"""The peer that the targets name."""


def _sklearn(solver: str) -> Path:
    def path(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
        import sklearn
        from sklearn.decomposition import non_negative_factorization

        settings = {"n_components": data.n_components, "solver": solver, "tol": 0, "random_state": seed}
        W = H = None
        seconds, done = 0.0, 0
        for mark in marks:
            # X is checked once, as in one long run; the reconstruction error that NMF.fit adds is spared as well
            with sklearn.config_context(assume_finite=done > 0):
                begin = time.perf_counter()
                init = "nndsvda" if W is None else "custom"
                W, H, _ = non_negative_factorization(data.Xs, W, H, init=init, max_iter=mark - done, **settings)
                seconds += time.perf_counter() - begin
            done = mark
            yield Point(seconds, done, H.T.copy(), W.T.copy())  # the next stretch writes into W and H

    return path


def _minibatch(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
    """Sites are the samples, or there would be nothing to batch."""
    from sklearn.decomposition import MiniBatchNMF

    X = np.ascontiguousarray(data.Xs.T)
    settings = {"batch_size": 1024, "tol": 0, "max_no_improvement": None, "random_state": seed}
    for mark in _sparse(marks):
        model = MiniBatchNMF(data.n_components, max_iter=mark, **settings)
        begin = time.perf_counter()
        W = model.fit_transform(X)
        yield Point(time.perf_counter() - begin, mark, W, model.components_)


def torch_path(algo: str, use_gpu: bool) -> Path:
    """nmf-torch by its public function; it ends by itself when its float32 loss rises, whatever `tol`."""

    def path(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
        from nmf import run_nmf

        for mark in _sparse([m for m in marks if m >= _LEAST_TORCH]):
            with _quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                begin = time.perf_counter()
                H, W, _ = run_nmf(
                    data.Xs, data.n_components, init="nndsvdar", algo=algo, mode="batch", tol=0, batch_max_iter=mark,
                    random_state=seed, n_jobs=threads, use_gpu=use_gpu,
                )  # fmt: skip
                seconds = time.perf_counter() - begin
            yield Point(seconds, mark, np.asarray(W).T, np.asarray(H).T)

    return path


def _planc(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
    """PLANC takes float64 in Fortran order; its own start is uniform, here drawn from the seed."""
    import pyplanc

    rng = np.random.default_rng(seed)
    X = data.Xs.T.astype(np.float64, order="F")
    W, H = (np.asfortranarray(rng.random((n, data.n_components))) for n in X.shape)
    seconds, done = 0.0, 0
    for mark in _sparse(marks):
        with _quiet():
            begin = time.perf_counter()
            found = pyplanc.nmf(X, data.n_components, mark - done, "anlsbpp", threads, Winit=W, Hinit=H)
            seconds += time.perf_counter() - begin
        W, H, done = np.asfortranarray(found.W), np.asfortranarray(found.H), mark
        yield Point(seconds, done, W, H.T)


def _opnmf_published(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
    """The published updates without XXᵀ, in float64; they end by their own rule."""
    looks = set(marks)
    for found in opnmf_path(data.Xs, data.n_components, marks[-1]):
        if found.n_iter in looks or found.converged:
            yield Point(found.seconds, found.n_iter, found.W, found.W.T @ data.Xs.T)


def _opnmf(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
    """Its start, nndsvd, takes no seed. Sites without data are left out for it: 0/0 there ends it with NaN."""
    from opnmf.opnmf import opnmf

    logging.getLogger("opnmf").setLevel(logging.ERROR)  # that tol = 0 was not met is expected
    used = data.Xs.any(axis=0)
    X = np.ascontiguousarray(data.Xs[:, used].T)
    for mark in _sparse([m for m in marks if m >= 10]):
        with _quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begin = time.perf_counter()
            found, H, _ = opnmf(X, data.n_components, max_iter=mark, tol=0)
            seconds = time.perf_counter() - begin
        W = np.zeros((data.Xs.shape[1], data.n_components), dtype=found.dtype)
        W[used] = found
        yield Point(seconds, mark, W, H)


def _sparse(marks: Sequence[int]) -> list[int]:
    """About half of the marks, the last among them: for solvers that start again each time."""
    return list(marks[::-2])[::-1]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No output, of compiled code neither."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no standard output at all
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
