"""Golden cases: every method on an array, and the paper's rules against the reference on the full X."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

import icofactor as ico
from golden.figures import AtMost, Exactly, Factors, Figure, Number, Objective, Values
from golden.inputs import N_COMPONENTS, N_SUBJECTS, left_maps

METHODS = (
    "parts",
    "CD-PNNMF",
    "CD-SPNNMF",
    "DL",
    "E-DL",
    "PNNMF",
    "E-PNNMF",
    "LE-PNNMF",
    "SPNNMF",
    "E-SPNNMF",
    "LE-SPNNMF",
    "PPNMF",
    "E-PPNMF",
    "LE-PPNMF",
)
# A fixed number of updates: where a run stops by itself, rounding could decide about one update more.
FIXED = {"n_starts": 3, "n_iter": 150, "tol": 0.0}


def settings(method: str) -> dict[str, float]:
    """Return the settings of a fit; more starts of parts, of which a few can end in another minimum by rounding."""
    return {**FIXED, "n_starts": 30} if method == "parts" else FIXED


def starts(method: str) -> ico.Multistart:
    """Fit the coarse problem from a few starts."""
    sites = ico.Sites.named("fsaverage3")
    X = left_maps().T
    if method == "parts":
        # Parts are of deviations from the mean map.
        X = X - X.mean(axis=1, keepdims=True)
    stats = ico.Statistics.from_data(X, ico.Design(sites, level=1))
    return ico.multistart(stats, method, N_COMPONENTS, random_state=0, **settings(method))


def method_on_array(method: str) -> dict[str, Figure]:
    """Fit an array: starts, refinement, lift and scaling."""
    model = ico.CorticalFactorization(
        N_COMPONENTS,
        method=method,
        mesh="fsaverage3",
        hemi="left",
        level=1,
        random_state=0,
        **settings(method),
    )
    model.fit(left_maps())
    assert np.allclose(
        model.transform(left_maps()), model.loadings_, atol=1e-6 * np.abs(model.loadings_).max()
    )
    if method.startswith("CD-"):
        # Coordinate descent may be replaced by another solver of the same problem, whose error may only be smaller; 0.2 %
        # more or less explained variance is the most by which the two may differ.
        return {"error": AtMost(model.error_), "explained": Number(model.explained_, 2e-3)}
    best = starts(method)
    return {
        "objective of the starts": Objective(best.objective[-1]),
        "objectives of the best starts": Values(np.sort(best.final_objectives)[:3], 1e-6),
        "squared error": Objective(model.error_),
        "explained": Number(model.explained_, 1e-6),
        "shares": Values(np.sort(model.explained_variance_ratio_)),
        "factors": Factors(model.components_, model.loadings_),
    }


def default_fit() -> dict[str, Figure]:
    """Fit with nothing chosen but the number of components."""
    model = ico.CorticalFactorization(N_COMPONENTS, mesh="fsaverage3", hemi="left")
    model.fit(left_maps())
    return {
        "method": Exactly(model.method),
        "explained": Number(model.explained_, 1e-5),
        "recurrence": Values(model.recurrence_),
        "factors": Factors(model.components_, model.loadings_),
    }


def refined_fit() -> dict[str, Figure]:
    """Divide the faces that fit worst, four times."""
    model = ico.CorticalFactorization(
        N_COMPONENTS,
        method="LE-PNNMF",
        mesh="fsaverage4",
        hemi="left",
        level=0,
        refinement=ico.Refinement(steps=4),
        **FIXED,
    )
    model.fit(left_maps("fsaverage4"))
    return {
        "columns": Exactly(model.design_.n_columns),
        "faces by depth": Exactly(np.bincount(model.depth_).tolist()),
        "squared error": Objective(model.error_),
        "factors": Factors(model.components_, model.loadings_),
    }


def paper_fit(method: str) -> dict[str, Figure]:
    """Fit with exactly the settings of the paper, fewer starts and updates."""
    model = ico.CorticalFactorization.paper(
        method,
        N_COMPONENTS,
        n_starts=3,
        n_iter=100,
        refinement=replace(ico.Refinement.paper(), steps=2),
        mesh="fsaverage3",
        hemi="left",
        random_state=0,
    )
    model.fit(left_maps())
    return {
        "objective": Objective(model.solution_.objective[-1]),
        "factors": Factors(model.components_, model.loadings_),
    }


def columns_fit(columns: str) -> dict[str, Figure]:
    """Fit on columns that overlap."""
    model = ico.CorticalFactorization(
        N_COMPONENTS,
        method="LE-SPNNMF",
        columns=columns,
        sigma=0.1,
        level=0,
        mesh="fsaverage3",
        hemi="left",
        **FIXED,
    )
    model.fit(left_maps())
    return {
        "objective": Objective(model.solution_.objective[-1]),
        "factors": Factors(model.components_, model.loadings_),
    }


def few_people_many_weights() -> dict[str, Figure]:
    """Fit with a weight per site, by area and as given."""
    weights = np.linspace(0.5, 2.0, left_maps().shape[1])
    models = {
        "area": ico.CorticalFactorization(
            N_COMPONENTS, mesh="fsaverage3", hemi="left", weights="area"
        ),
        "given": ico.CorticalFactorization(
            N_COMPONENTS,
            method="LE-PNNMF",
            mesh="fsaverage3",
            hemi="left",
            weights=weights,
            **FIXED,
        ),
    }
    figures: dict[str, Figure] = {}
    for name, model in models.items():
        model.fit(left_maps())
        figures[f"{name}: explained"] = Number(model.explained_, 1e-5)
        figures[f"{name}: factors"] = Factors(model.components_, model.loadings_)
        figures[f"{name}: weights"] = Values(model.weights_, 1e-6)
    assert len(models["area"].loadings_) == N_SUBJECTS
    return figures


CASES: dict[str, Callable[..., dict[str, Figure]]] = {
    **{f"method {method}": partial(method_on_array, method) for method in METHODS},
    **{f"paper {method}": partial(paper_fit, method) for method in ("DL", "LE-PNNMF", "E-PPNMF")},
    **{
        f"{columns} columns": partial(columns_fit, columns) for columns in ("smooth", "exponential")
    },
    "default fit": default_fit,
    "refinement": refined_fit,
    "site weights": few_people_many_weights,
}
