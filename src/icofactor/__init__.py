"""icofactor: factorize cortical maps into a few basis maps and per-subject loadings.

Data
    load_cohort         read a cohort from folders or files; Cohort.from_array makes one from an
    array
    simulate_cohort     simulate a cohort with known components
    join_measures       combine several measures of the same people
Fit
    CorticalFactorization   the scikit-learn estimator: fit, transform, inverse_transform, score,
    save
    load_model          read a saved model, or the folder of a fit
    fit_cohort          fit a cohort and write everything that `icofactor fit` writes
    Covariates          regress age, sex or site out of the maps; preprocessing.ComBat harmonizes
    scanners
Results
    choose_n_components     how many components, and whether there is structure at all
    plot_components     draw the components on the cortex
    associate, pls, normative_scores    relate loadings to age, group or behaviour
    match_components, compare           compare the components of two fits
Building blocks
    Sites, Design, Statistics, solve, multistart, refine    the method without the estimator
    METHODS, PAPER_METHODS      names of the methods
Modules
    cohort, preprocessing, atlas, bootstrap, diagnostics, report

Every name has an example: `help(icofactor.CorticalFactorization)`. On the command line, start with
`icofactor --help`.

Examples
--------
>>> import icofactor as ico
>>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")  # or ico.load_cohort("/data/freesurfer", ...)
>>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
>>> model.components_.shape, model.loadings_.shape
((3, 642), (20, 3))
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "METHODS": "icofactor.factorization.methods",
    "PAPER_METHODS": "icofactor.factorization.methods",
    "Sites": "icofactor.sphere",
    "Design": "icofactor.factorization.design",
    "Statistics": "icofactor.factorization.statistics",
    "Pyramid": "icofactor.factorization.sources",
    "Data": "icofactor.factorization.sources",
    "solve": "icofactor.factorization._solve",
    "Solution": "icofactor.factorization._solve",
    "multistart": "icofactor.factorization._multistart",
    "Multistart": "icofactor.factorization._multistart",
    "Refinement": "icofactor.factorization._refine",
    "refine": "icofactor.factorization._refine",
    "CorticalFactorization": "icofactor.estimator.estimator",
    "load_model": "icofactor.estimator.saving",
    "match_components": "icofactor.estimator.saving",
    "choose_n_components": "icofactor.assessment.selection",
    "compare": "icofactor.assessment._compare",
    "associate": "icofactor.assessment.associations",
    "pls": "icofactor.assessment.associations",
    "normative_scores": "icofactor.assessment.associations",
    "plot_components": "icofactor.results.report",
    "Cohort": "icofactor.cohort",
    "Covariates": "icofactor.preprocessing.covariates",
    "join_measures": "icofactor.cohort",
    "load_cohort": "icofactor.cohort",
    "simulate_cohort": "icofactor.cohort",
    "fit_cohort": "icofactor.results.fit_cohort",
}
_MODULES = {
    "cohort": "icofactor.cohort",
    "preprocessing": "icofactor.preprocessing",
    "atlas": "icofactor.assessment.atlas",
    "bootstrap": "icofactor.assessment.bootstrap",
    "diagnostics": "icofactor.results.diagnostics",
    "report": "icofactor.results.report",
}
"""Modules that are reached as attributes: `ico.bootstrap.bootstrap(...)`."""

__all__ = [
    "METHODS",
    "PAPER_METHODS",
    "Cohort",
    "CorticalFactorization",
    "Covariates",
    "Data",
    "Design",
    "Multistart",
    "Pyramid",
    "Refinement",
    "Sites",
    "Solution",
    "Statistics",
    "__version__",
    "associate",
    "choose_n_components",
    "compare",
    "fit_cohort",
    "join_measures",
    "load_cohort",
    "load_model",
    "match_components",
    "multistart",
    "normative_scores",
    "plot_components",
    "pls",
    "refine",
    "simulate_cohort",
    "solve",
]


def _lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are loaded from their homes when first used."""

    def loaded(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return loaded


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name == "METHODS":
        return tuple(
            import_module(_HOMES[name]).METHODS
        )  # anew each time: schemes can be registered
    return _lazy(__name__, _HOMES)(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])


if TYPE_CHECKING:
    from icofactor.assessment._compare import compare
    from icofactor.assessment.associations import associate, normative_scores, pls
    from icofactor.assessment.selection.choose import choose_n_components
    from icofactor.cohort.cohort import Cohort
    from icofactor.cohort.load import load_cohort
    from icofactor.cohort.measures import join_measures
    from icofactor.cohort.simulate import simulate_cohort
    from icofactor.estimator.estimator import CorticalFactorization
    from icofactor.estimator.saving import load_model, match_components
    from icofactor.factorization._multistart import Multistart, multistart
    from icofactor.factorization._refine import Refinement, refine
    from icofactor.factorization._solve import Solution, solve
    from icofactor.factorization.design import Design
    from icofactor.factorization.methods import METHODS, PAPER_METHODS
    from icofactor.factorization.sources import Data, Pyramid
    from icofactor.factorization.statistics import Statistics
    from icofactor.preprocessing.covariates import Covariates
    from icofactor.results.fit_cohort import fit_cohort
    from icofactor.results.report.figures import plot_components
    from icofactor.sphere.sites import Sites
