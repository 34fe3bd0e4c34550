"""Time to the same error as scikit-learn's NMF and opNMF: ten components of 100 people, 20,480 faces.

The error is ‖X − WC‖² at full resolution, computed from X, as a share of the between-subject variance. NMF and
projective NMF (opNMF, and the projective methods and parts of icofactor) are two problems with errors of their own.
Only the work of a solver is on its clock: not the mesh, the imports, or these errors.

The last rows ask whether scikit-learn's coordinate descent could take the place of that of CD-PNNMF: both solve the NMF
on the faces of level 2, which is that of L divided by the roots of the numbers of sites, and lift it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import non_negative_factorization

import icofactor as ico
from benchmarks.data import left_faces
from benchmarks.measure import Row, seconds, show
from benchmarks.opnmf import opnmf

N_COMPONENTS = 10
# Iterations of scikit-learn after which its error is looked at.
SKLEARN_ITERATIONS = (10, 20, 50, 100, 200, 500, 1000)
# Updates of opNMF, and how often its error is looked at.
OPNMF_UPDATES = 10_000
OPNMF_EVERY = 500
# Numbers of components of the NMF on faces, the level of these, and starts and iterations of scikit-learn.
DESCENT_COMPONENTS = (6, 10, 16)
DESCENT_LEVEL = 2
DESCENT_STARTS = 10
DESCENT_ITERATIONS = 500
# Sweeps over the components in a least squares problem of each site: as many as CD-PNNMF makes.
LEAST_SQUARES_SWEEPS = 5
# A solver is there when its error is at most this multiple of the smallest one of its problem.
NEAR = 1.01


def run(quick: bool) -> list[Row]:
    """Run all solvers, and say when each is near the best."""
    maps, faces = left_faces(12 if quick else 100, "fsaverage3" if quick else "fsaverage5")
    n_fits = 1 if quick else 5
    points = [
        *sklearn_points(maps, "cd", quick),
        *sklearn_points(maps, "mu", quick),
        *opnmf_points(maps, quick),
        *icofactor_points(maps, faces, n_fits),
    ]
    for n_components in DESCENT_COMPONENTS[: 1 if quick else None]:
        points += descent_points(maps, faces, n_components, n_fits)
    rows = []
    for problem in dict.fromkeys(point["problem"] for point in points):
        solver_points = [point for point in points if point["problem"] == problem]
        best = min(point["error"] for point in solver_points)
        for solver in dict.fromkeys(point["solver"] for point in solver_points):
            path = [point for point in solver_points if point["solver"] == solver]
            times = [point["seconds"] for point in path if point["error"] <= NEAR * best]
            first = min(times) if times else "never"
            rows.append(
                show(
                    {
                        **path[-1],
                        "error / best": path[-1]["error"] / best,
                        f"seconds to {NEAR} × best": first,
                    }
                )
            )
    return rows


def error_of(maps: np.ndarray, loadings: np.ndarray, components: np.ndarray) -> float:
    """Return the squared error as a share of the between-subject variance."""
    X = maps.astype(np.float64)
    variance = ((X - X.mean(axis=0)) ** 2).sum()
    return float(((X - loadings @ components) ** 2).sum() / variance)


def sklearn_points(maps: np.ndarray, solver: str, quick: bool) -> Iterator[Row]:
    """Run scikit-learn in stretches that continue each other, which equals one long run."""
    factors: dict[str, Any] = {"init": "nndsvda"}
    total = 0.0
    n_iterations = 0
    for mark in SKLEARN_ITERATIONS[: 2 if quick else None]:
        begin = time.perf_counter()
        with warnings.catch_warnings():
            # It warns at the end of every stretch that it has not converged.
            warnings.simplefilter("ignore")
            W, H, _ = non_negative_factorization(
                maps,
                n_components=N_COMPONENTS,
                solver=solver,
                tol=0,
                max_iter=mark - n_iterations,
                **factors,
            )
        total += time.perf_counter() - begin
        n_iterations = mark
        row = {
            "problem": "NMF",
            "solver": f"scikit-learn ({solver})",
            "iterations": mark,
            "seconds": total,
        }
        yield {**row, "error": error_of(maps, W, H)}
        # The next stretch writes into these.
        factors = {"init": "custom", "W": W.copy(), "H": H.copy()}


def opnmf_points(maps: np.ndarray, quick: bool) -> Iterator[Row]:
    """Run opNMF."""
    for state in opnmf(maps, N_COMPONENTS, 20 if quick else OPNMF_UPDATES, every=OPNMF_EVERY):
        row = {
            "problem": "projective",
            "solver": "opNMF",
            "iterations": state.n_updates,
            "seconds": state.seconds,
        }
        yield {**row, "error": error_of(maps, maps @ state.W, state.W.T)}


def icofactor_points(maps: np.ndarray, faces: ico.Sites, n_fits: int) -> Iterator[Row]:
    """Fit icofactor; the median time of several fits."""
    fits: list[tuple[str, str, dict[str, Any]]] = [
        ("NMF", "CD-PNNMF", {}),
        ("NMF", "CD-PNNMF", {"n_starts": 1, "refinement": None}),
        ("NMF", "LE-PNNMF", {}),
        ("projective", "parts", {}),
        ("projective", "LE-PPNMF", {}),
    ]
    for problem, method, options in fits:
        model = ico.CorticalFactorization(
            N_COMPONENTS, method=method, mesh=faces, random_state=0, **options
        )
        value = seconds(partial(model.fit, maps), n_fits)
        label = f"icofactor, {method}" + (", one start" if options else "")
        row = {"problem": problem, "solver": label, "iterations": model.n_iter_, "seconds": value}
        yield {**row, "error": model.error_ / model.total_variance_}


def descent_points(
    maps: np.ndarray, faces: ico.Sites, n_components: int, n_fits: int
) -> Iterator[Row]:
    """Solve the NMF on faces by the coordinate descent of icofactor and of scikit-learn; the median time of several."""
    problem = f"NMF on 320 faces, {n_components} components"
    model = ico.CorticalFactorization(n_components, method="CD-PNNMF", mesh=faces, random_state=0)
    value = seconds(partial(model.fit, maps), n_fits)
    error = model.error_ / model.total_variance_
    yield {
        "problem": problem,
        "solver": "icofactor, CD-PNNMF",
        "iterations": model.n_iter_,
        "seconds": value,
        "error": error,
    }
    for init, n_starts in (("random", DESCENT_STARTS), ("nndsvda", 1)):
        solve = partial(sklearn_on_faces, maps, faces, n_components, init, n_starts)
        value = seconds(solve, n_fits)
        loadings, components, n_iterations = solve()
        starts = f"{n_starts} {init} starts" if n_starts > 1 else f"{init} start"
        yield {
            "problem": problem,
            "solver": f"scikit-learn (cd), {starts}",
            "iterations": n_iterations,
            "seconds": value,
            "error": error_of(maps, loadings, components),
        }


def sklearn_on_faces(
    maps: np.ndarray, faces: ico.Sites, n_components: int, init: str, n_starts: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return loadings and components of the best of some starts, and its iterations."""
    stats = ico.Statistics.from_data(maps.T, ico.Design(faces, level=DESCENT_LEVEL))
    # On partition columns, ‖X − DBC‖² is a constant plus ‖L/√counts − (√counts B C)ᵀ‖².
    on_faces = np.asarray(stats.L) / np.sqrt(stats.K.diagonal())
    fits = []
    with warnings.catch_warnings():
        # It warns where it has not converged.
        warnings.simplefilter("ignore")
        for start in range(n_starts):
            fit = non_negative_factorization(
                on_faces,
                n_components=n_components,
                init=init,
                solver="cd",
                tol=0,
                max_iter=DESCENT_ITERATIONS,
                random_state=start,
            )
            fits.append(fit)
    errors = [np.linalg.norm(on_faces - W @ H) for W, H, _ in fits]
    loadings, _, n_iterations = fits[int(np.argmin(errors))]
    components = nonnegative_least_squares(loadings, maps)
    return nonnegative_least_squares(components.T, maps.T).T, components, n_iterations


def nonnegative_least_squares(A: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return Z ≥ 0 that nearly minimizes ‖Y − AZ‖², by coordinate descent on all columns of Y together."""
    gram = A.T @ A
    product = A.T @ Y
    Z = np.maximum(np.linalg.lstsq(gram, product, rcond=None)[0], 0)
    for _ in range(LEAST_SQUARES_SWEEPS):
        for row in range(len(Z)):
            step = (product[row] - gram[row] @ Z) / gram[row, row]
            Z[row] = np.maximum(Z[row] + step, 0)
    return Z
