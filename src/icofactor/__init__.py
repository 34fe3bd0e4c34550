"""icofactor: factorize cortical maps by the icosahedral hierarchy of their meshes.

Names are loaded when first used, so that `import icofactor` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "METHODS": "icofactor.methods",
    "PAPER_METHODS": "icofactor.methods",
    "Sites": "icofactor.sphere",
    "Design": "icofactor.design",
    "Statistics": "icofactor.statistics",
    "Pyramid": "icofactor.statistics",
    "Data": "icofactor.statistics",
    "solve": "icofactor.solver",
    "Solution": "icofactor.solver",
    "multistart": "icofactor.manystarts",
    "Multistart": "icofactor.manystarts",
    "Refinement": "icofactor.refinement",
    "refine": "icofactor.refinement",
    "CorticalFactorization": "icofactor.estimator",
    "load_model": "icofactor.model_file",
    "match_components": "icofactor.matching",
    "choose_n_components": "icofactor.selection",
    "plot_components": "icofactor.report",
    "Cohort": "icofactor.cohort",
    "Covariates": "icofactor.covariates",
    "load_cohort": "icofactor.cohort",
    "simulate_cohort": "icofactor.cohort",
}

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
    "choose_n_components",
    "load_cohort",
    "load_model",
    "match_components",
    "multistart",
    "plot_components",
    "refine",
    "simulate_cohort",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        if name == "METHODS":
            found = tuple(found)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'icofactor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from icofactor.cohort import Cohort, load_cohort, simulate_cohort
    from icofactor.covariates import Covariates
    from icofactor.design import Design
    from icofactor.estimator import CorticalFactorization
    from icofactor.manystarts import Multistart, multistart
    from icofactor.matching import match_components
    from icofactor.methods import METHODS, PAPER_METHODS
    from icofactor.model_file import load_model
    from icofactor.refinement import Refinement, refine
    from icofactor.report import plot_components
    from icofactor.selection import choose_n_components
    from icofactor.solver import Solution, solve
    from icofactor.sphere import Sites
    from icofactor.statistics import Data, Pyramid, Statistics
