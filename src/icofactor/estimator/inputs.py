"""What `fit` gets: its maps and where they lie, and checks of both and of the parameters."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.checks import OneOf, check_parameters, check_value
from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.meshes import check_array, read_image
from icofactor.errors import ArgumentError, plural, shown
from icofactor.estimator.site_weights import check_weights
from icofactor.factorization._refine import Refinement
from icofactor.factorization.design import KINDS
from icofactor.factorization.engines import check_engine
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.schemes.base import check_penalty, check_rules
from icofactor.factorization.starts import check_enough_subjects, seeds_of
from icofactor.maps.maps import Maps, maps_of
from icofactor.preprocessing.combat import ComBat
from icofactor.sphere.meshes import same_sites, sites_for
from icofactor.sphere.names import HEMISPHERES
from icofactor.sphere.sites import Sites

# Parameters whose numbers are checked by the table of `checks`.
NUMBERS = ("n_components", "n_iter", "tol", "level", "polish", "sigma")


@dataclass(frozen=True, eq=False)
class Placement:
    """Where the columns of maps lie.

    Attributes
    ----------
    sites : Sites, one per column
    hemi : "left", "right", "both", or None if one hemisphere was given and not named
    mask : (n_sites,) bool that came with the data, or None
    """

    sites: Sites
    hemi: str | None
    mask: np.ndarray | None


def read_input(
    X: Any,
    mesh: Any = None,
    hemi: str | None = None,
) -> tuple[Maps, Placement]:
    """Return maps and where they lie.

    X is an array (subjects × sites), a Cohort or a nilearn SurfaceImage.
    """
    if hemi is not None and hemi not in HEMISPHERES:
        message = f"must be 'left', 'right', 'both' or None; found {shown(hemi)}"
        raise ArgumentError("hemi", message)
    if hasattr(X, "sites") and subject_names(X) is not None:
        maps = maps_of(check_array(X.X))
        check_place(X, mesh, hemi)
        return maps, Placement(X.sites, X.hemisphere, X.mask)
    if hasattr(X, "mesh") and hasattr(getattr(X, "data", None), "parts"):
        values, sites, side = read_image(X, mesh, hemi)
        return maps_of(values), Placement(sites, side, None)
    # A plain array says nothing of its mesh: the number of its columns does.
    array = check_array(X)
    n_rows, n_columns = array.shape
    try:
        sites, named_side = sites_for(n_columns, mesh, hemi)
    except ArgumentError:
        if n_rows > n_columns and has_sites(n_rows, mesh, hemi):
            message = "must be subjects × sites; this looks like sites × subjects, so pass X.T"
            raise ArgumentError("X", f"{message}; found shape {tuple(array.shape)}") from None
        raise
    return maps_of(array), Placement(sites, named_side, None)


def check_place(
    cohort: Any,
    mesh: Any,
    hemi: str | None,
) -> None:
    """Refuse a mesh or a hemisphere that is not that of the cohort, which brings its own."""
    if hemi is not None and hemi != cohort.hemisphere:
        message = f"is {hemi!r}, but the cohort contains the hemisphere {cohort.hemisphere!r}"
        raise ArgumentError("hemi", message)
    if mesh is None:
        return
    sites = cohort.sites
    if not (isinstance(mesh, Sites) and mesh.n_copies > 1):
        # The mesh is that of one copy of the sites, unless it names all of them.
        sites = sites.one_copy()
    expected, _ = sites_for(sites.n, mesh, cohort.hemisphere)
    if not same_sites(expected, sites):
        message = f"is {expected!r}, but the cohort is on {cohort.sites!r}"
        raise ArgumentError("mesh", f"{message}, or has its sites in another order")


def has_sites(
    n: int,
    mesh: Any,
    hemi: str | None,
) -> bool:
    """Whether n is the number of columns that the mesh has."""
    with suppress(ValueError):
        sites_for(n, mesh, hemi)
        return True
    return False


def check_names(X: Any, fitted: np.ndarray | None) -> None:
    """Refuse a data frame whose columns are not those of the fit, in their order."""
    if fitted is None or not hasattr(X, "columns"):
        return
    names, expected = list(X.columns), list(fitted)
    if names != expected:
        difference = "in another order" if set(names) == set(expected) else "others"
        # scikit-learn's common checks look for this sentence.
        message = "The feature names should match those that were passed during fit"
        raise ArgumentError("X", f"{message}; the columns of X are {difference}")


def check_mask(mask: Any, sites: Sites) -> np.ndarray | None:
    """Return a mask as booleans, True where the site is used; None if all are."""
    if mask is None:
        return None
    values = np.asarray(mask)
    if values.shape != (sites.n,):
        message = f"must be an array with one entry per site: {sites!r} has {sites.n}"
        raise ArgumentError("mask", f"{message}; found shape {values.shape}")
    if values.dtype != bool:
        if not np.isin(values, (0, 1)).all():
            message = "must be booleans (or 1 and 0), True for the sites to use"
            raise ArgumentError("mask", message)
        values = values.astype(bool)
    n_used = int(values.sum())
    if n_used < 2:
        raise ArgumentError(
            "mask", f"leaves {plural(n_used, 'site')}: there is no map to factorize"
        )
    return None if n_used == sites.n else values


def check_settings(model: Any) -> Method:
    """Check the parameters of an estimator, and return its method."""
    method = method_named(model.method)
    check_rules(model.rules, method.scheme)
    check_penalty(model.penalty, method.scheme)
    # The property refuses a centering that the method does not take.
    _ = model.centers_by
    check_parameters(**{name: getattr(model, name) for name in NUMBERS})
    if model.n_starts is not None:
        check_parameters(n_starts=model.n_starts)
    # Files of weights must exist before anything is read.
    check_engine(model.engine)
    check_weights(model.weights)
    seeds_of(model.random_state)
    check_value("columns", model.columns, OneOf(KINDS))
    if model.harmonize is not None and not isinstance(model.harmonize, ComBat):
        actual = type(model.harmonize).__name__
        raise ArgumentError("harmonize", f"must be a ComBat or None; found a {actual}")
    check_refinement(model.refinement)
    return method


def check_refinement(refinement: Any) -> None:
    """Check a schedule of refinements."""
    if refinement is None or refinement == "auto":
        return
    if not isinstance(refinement, Refinement):
        actual = type(refinement).__name__
        raise ArgumentError("refinement", f"must be a Refinement, 'auto' or None; found a {actual}")
    refinement.check()


def check_executor(executor: Any) -> None:
    """Refuse what cannot run tasks."""
    if executor is not None and not isinstance(executor, Executor):
        message = "must be a concurrent.futures.Executor, such as client.get_executor() of dask"
        raise ArgumentError("executor", f"{message}; found a {type(executor).__name__}")


def check_size(shape: tuple[int, ...], n_components: int) -> None:
    """Check that data of this shape (subjects, sites) can be fitted."""
    n_subjects, n_sites = shape
    # scikit-learn's common checks look for n_samples and n_features.
    if n_subjects < 2:
        message = f"has {plural(n_subjects, 'subject')}; fit needs at least 2 (transform takes one)"
        raise ArgumentError("X", f"{message}: n_samples={n_subjects}")
    if n_sites < 2:
        raise ArgumentError("X", "has one site: there is no map to factorize: n_features=1")
    check_enough_subjects(n_components, n_subjects)
