"""What `fit` is given → an array, its sites and its hemisphere; and the checks that come with the first pass."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.cohort.meshes import check_array, read_image
from icofactor.errors import ArgumentError, Phrase
from icofactor.sphere.meshes import (
    same_sites,
    sites_for,
)
from icofactor.sphere.names import HEMISPHERES
from icofactor.sphere.sites import Sites


@dataclass(frozen=True, eq=False)
class Input:
    """Maps as scikit-learn holds them.

    Attributes
    ----------
    X : subjects × sites array
    sites : Sites, one per column
    hemi : "left", "right", "both", or None when one hemisphere was given and not named
    mask : (n_sites,) bool that came with the data, or None
    """

    X: Any
    sites: Sites
    hemi: str | None
    mask: np.ndarray | None


def read_input(X: Any, mesh: Any = None, hemi: str | None = None) -> Input:
    """Maps from an array (subjects × sites), a Cohort, or a nilearn SurfaceImage."""
    if hemi is not None and hemi not in HEMISPHERES:
        raise ArgumentError("hemi", hemi, "'left', 'right', 'both' or None")
    if hasattr(X, "sites") and hasattr(X, "subjects"):
        if hemi is not None and hemi != X.hemisphere:
            what = f"{{hemi={hemi!r}}}, but the cohort holds the hemisphere {X.hemisphere!r}"
            raise ArgumentError("hemi", None, what)
        array = check_array(X.X)
        if mesh is not None:  # a cohort brings its own sites; those asked for must be the same
            asked, _ = sites_for(array.shape[1], mesh, X.hemisphere)
            if not same_sites(asked, X.sites):
                what = f"{{mesh}} is {asked!r}, but the cohort lies on {X.sites!r}, or on its sites in another order"
                raise ArgumentError("mesh", None, what)
        return Input(array, X.sites, X.hemisphere, X.mask)
    if hasattr(X, "mesh") and hasattr(getattr(X, "data", None), "parts"):
        return Input(*read_image(X, mesh, hemi), None)
    array = check_array(X)
    try:
        sites, side = sites_for(array.shape[1], mesh, hemi)
    except ArgumentError:
        if array.shape[0] > array.shape[1] and _has_sites(array.shape[0], mesh, hemi):
            what = "subjects × sites; it looks like sites × subjects, so give X.T"
            raise ArgumentError("X", Phrase(f"shape {tuple(array.shape)}"), what) from None
        raise
    return Input(array, sites, side, None)


def _has_sites(n: int, mesh: Any, hemi: str | None) -> bool:
    """Whether n is the number of columns that the mesh has."""
    with suppress(ValueError):
        sites_for(n, mesh, hemi)
        return True
    return False


def check_names(X: Any, fitted: np.ndarray | None) -> None:
    """Refuse a data frame whose columns are not those of the fit, in their order."""
    if fitted is None or not hasattr(X, "columns"):
        return
    found = list(X.columns)
    if found != list(fitted):
        how = "in another order" if set(found) == set(fitted) else "others"
        what = "The feature names should match those that were passed during fit; the columns of X are "
        raise ArgumentError("X", None, what + how)


def check_mask(mask: Any, sites: Sites) -> np.ndarray | None:
    """A mask as booleans, one per site, True where the site is used; None when all are."""
    if mask is None:
        return None
    found = np.asarray(mask)
    if found.ndim != 1 or len(found) != sites.n:
        expected = f"an array with one entry per site: {sites!r} has {sites.n}"
        raise ArgumentError("mask", Phrase(f"shape {found.shape}"), expected)
    if found.dtype != bool:
        if not np.isin(found, (0, 1)).all():
            raise ArgumentError("mask", None, "booleans (or 1 and 0), True where the site is used")
        found = found.astype(bool)
    if found.sum() < 2:
        left = "is False everywhere; it leaves no site" if not found.any() else "leaves one site; there is no map"
        raise ArgumentError("mask", None, f"{{mask}} {left} to factorize")
    return None if found.all() else found
