"""`import icofactor` is light, its names stay what they are, and the numerical core stands alone."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import icofactor

HEAVY = [
    "jax",
    "numba",
    "matplotlib",
    "nilearn",
    "zarr",
    "dask",
    "nibabel",
    "sklearn",
    "pandas",
    "tqdm",
]
CORE = [
    "sphere",
    "factorization.design",
    "factorization.statistics",
    "factorization.schemes",
    "factorization._solve",
    "factorization._multistart",
    "factorization._refine",
    "factorization._lift",
]
BLOCKED = ["nibabel", "nilearn", "zarr", "dask", "matplotlib", "tqdm"]


def run(program: str) -> str:
    """Standard output of a fresh Python."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy() -> None:
    program = f"import sys, icofactor; print([name for name in {HEAVY} if name in sys.modules])"
    assert run(program).strip() == "[]"


def test_looking_around_loads_nothing_heavy() -> None:
    program = f"import sys, icofactor as i; dir(i); i.METHODS, i.Sites, i.Design, i.solve; \
print([name for name in {HEAVY} if name in sys.modules])"
    assert run(program).strip() == "[]"


@pytest.mark.slow
def test_functions_stay_functions_whatever_was_imported_before() -> None:
    """The package is imported anew for each first module; what it needs of others stays loaded."""
    program = """
import importlib, sys
names = "solve", "multistart", "refine", "load_model"
for first in ("factorization._solve", "factorization._multistart", "estimator", "results.report", "estimator.saving"):
    for name in [name for name in sys.modules if name.split(".")[0] == "icofactor"]:
        del sys.modules[name]
    importlib.import_module("icofactor." + first)
    ico = importlib.import_module("icofactor")
    print(first, *(type(getattr(ico, name)).__name__ for name in names))
exec("from icofactor import *")
print(solve.__name__, Sites.__name__)
"""
    *found, names = (line.split() for line in run(program).splitlines())
    assert len(found) == 5 and all(kinds == ["function"] * 4 for _, *kinds in found), found
    assert names == ["solve", "Sites"]


@pytest.mark.slow
def test_public_functions_are_not_hidden_by_modules_of_their_name() -> None:
    """`from package import module` sets the module as an attribute; whatever came first, the function must stay."""
    program = """
import importlib, inspect, pkgutil
import icofactor, icofactor.preprocessing, icofactor.cohort, icofactor.estimator, icofactor.sphere
for package in (icofactor.preprocessing, icofactor.cohort, icofactor.estimator, icofactor.sphere, icofactor):
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(package.__name__ + "." + found.name)
    print(*(name for name in package.__all__ if inspect.ismodule(getattr(package, name))))
"""
    assert not run(program).strip()


def test_every_public_name_resolves() -> None:
    for name in icofactor.__all__:
        assert getattr(icofactor, name) is not None
    assert dir(icofactor) == sorted([*icofactor.__all__, *icofactor._MODULES])
    assert {"atlas", "bootstrap", "cohort", "diagnostics", "preprocessing", "report"} == set(
        icofactor._MODULES
    )
    for name in icofactor._MODULES:
        assert isinstance(getattr(icofactor, name), ModuleType)
    assert len(set(icofactor.__all__)) == len(icofactor.__all__)


def test_unknown_names_raise() -> None:
    with pytest.raises(AttributeError, match="module 'icofactor' has no attribute 'factorise'"):
        icofactor.factorise
    assert not hasattr(icofactor, "_nothing")


def test_methods_are_the_eleven() -> None:
    assert len(icofactor.PAPER_METHODS) == 11
    assert tuple(icofactor.METHODS)[:11] == icofactor.PAPER_METHODS
    assert isinstance(icofactor.METHODS, tuple)


def test_the_core_needs_no_neuroimaging_library() -> None:
    program = f"""
import sys
for name in {BLOCKED}:
    sys.modules[name] = None
import importlib
for name in {CORE}:
    importlib.import_module("icofactor." + name)
import numpy as np, icofactor as ico
sites = ico.Sites.named("fsaverage3")
X = np.random.default_rng(0).random((642, 8)) + 1
stats = ico.Statistics.from_data(X, ico.Design(sites))
print(ico.solve(stats, "LE-PNNMF", 2, n_iter=5, random_state=0).error < stats.sq_norm)
"""
    assert run(program).strip() == "True"
