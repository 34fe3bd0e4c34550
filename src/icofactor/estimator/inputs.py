"""What `fit` is given → an array, its sites and their weights, its hemisphere; and checks of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import SphericalVoronoi, cKDTree

from icofactor.checks import OneOf, check_parameters, check_value
from icofactor.cohort.measures import Measures, measures_of
from icofactor.cohort.meshes import check_array, read_image
from icofactor.errors import ArgumentError, FileError, Phrase, counted
from icofactor.factorization._refine import Refinement
from icofactor.factorization.design import KINDS
from icofactor.factorization.engines import check_engine
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.schemes.base import check_penalty, check_rules
from icofactor.factorization.starts import check_enough_subjects, seeds_of
from icofactor.io.guard import naming, open_file
from icofactor.preprocessing.combat import ComBat
from icofactor.preprocessing.templates import find_meshes
from icofactor.sphere.meshes import (
    same_sites,
    sites_for,
)
from icofactor.sphere.names import HEMISPHERES, SIDES, hemispheres, mesh_name_of
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import as_areas, as_surface, vertex_areas

_NUMBERS = ("n_components", "n_iter", "tol", "level", "polish", "sigma")
_GEOMETRY = b"\xff\xff\xfe"
"""How FreeSurfer's surfaces begin."""


@dataclass(frozen=True, eq=False)
class Input:
    """Maps as scikit-learn holds them.

    Attributes
    ----------
    X : subjects × sites array
    sites : Sites, one per column
    hemi : "left", "right", "both", or None when one hemisphere was given and not named
    mask : (n_sites,) bool that came with the data, or None
    measures : how several measures lie in X, or None
    """

    X: Any
    sites: Sites
    hemi: str | None
    mask: np.ndarray | None
    measures: Measures | None = None


def read_input(X: Any, mesh: Any = None, hemi: str | None = None) -> Input:
    """Maps from an array (subjects × sites), a Cohort, or a nilearn SurfaceImage."""
    if hemi is not None and hemi not in HEMISPHERES:
        raise ArgumentError("hemi", hemi, "'left', 'right', 'both' or None")
    if hasattr(X, "sites") and hasattr(X, "subjects"):
        if hemi is not None and hemi != X.hemisphere:
            what = f"{{hemi={hemi!r}}}, but the cohort contains the hemisphere {X.hemisphere!r}"
            raise ArgumentError("hemi", None, what)
        array = check_array(X.X)
        if mesh is not None:  # a cohort brings its own sites; those asked for must be the same
            own = (
                X.sites if isinstance(mesh, Sites) and mesh.n_measures > 1 else X.sites.of_measure()
            )
            asked, _ = sites_for(own.n, mesh, X.hemisphere)
            if not same_sites(asked, own):
                what = f"{{mesh}} is {asked!r}, but the cohort is on {X.sites!r}, or has its sites in another order"
                raise ArgumentError("mesh", None, what)
        return Input(array, X.sites, X.hemisphere, X.mask, measures_of(X))
    if hasattr(X, "mesh") and hasattr(getattr(X, "data", None), "parts"):
        return Input(*read_image(X, mesh, hemi), None)
    array = check_array(X)
    try:
        sites, side = sites_for(array.shape[1], mesh, hemi)
    except ArgumentError:
        if array.shape[0] > array.shape[1] and _has_sites(array.shape[0], mesh, hemi):
            what = "subjects × sites; this looks like sites × subjects, so pass X.T"
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
        left = (
            "is False everywhere; it leaves no site"
            if not found.any()
            else "leaves one site; there is no map"
        )
        raise ArgumentError("mask", None, f"{{mask}} {left} to factorize")
    return None if found.all() else found


# ---------------------------------------------------------------------- how much each site counts


def check_weights(weights: Any, sites: Sites | None = None) -> None:
    """Refuse what cannot be weights of sites, before anything is read."""
    unplaced = sites is not None and sites.regions is not None and not sites.placed
    if unplaced and (files := _files(weights)) is not None and files != [Path("none")]:
        what = "Areas of regions come from their atlas, which is not known: give it ({parcels})"
        raise ArgumentError("weights", None, f"{what}, or leave {{weights}} out")
    if weights is None or (isinstance(weights, str) and weights in ("area", "none")):
        return
    if (files := _files(weights)) is None:
        if np.asarray(weights).dtype.kind not in "iuf":
            expected = "'area', 'none', a surface or area file (a pair for two hemispheres), a folder, an array or None"
            raise ArgumentError("weights", Phrase(type(weights).__name__), expected)
        return
    for file in files:
        if not file.exists():
            expected = "'area', 'none', or files of a surface or of areas"
            raise ArgumentError("weights", Phrase(f"{file}, which is not a file"), expected)


def weighted_sites(
    sites: Sites, mask: np.ndarray | None, weights: Any, hemi: str | None = None
) -> tuple[Sites, str | None]:
    """The sites with weights of mean 1 over those in use, and by what each counts, as text; None:
    all alike.

    Parameters
    ----------
    weights : as in `CorticalFactorization`; None: those that the sites have already, if any
    """
    check_weights(weights, sites)
    if isinstance(weights, str) and weights == "none":
        return sites.weighted(None), None
    if weights is None and sites.weights is None:
        return sites, None
    area = isinstance(weights, str) and weights == "area"
    if sites.n_measures > 1 and (area or _files(weights) is not None):  # the same for every measure
        one, by = weighted_sites(sites.of_measure(), None, weights, hemi)
        return sites.weighted(np.tile(np.asarray(one.weights), sites.n_measures), mask), by
    if (
        sites.regions is not None
        and sites.placed
        and (area or weights is None or _files(weights) is not None)
    ):
        if weights is None:
            return sites.weighted(sites.weights, mask), "its number of vertices"
        vertices, by = weighted_sites(sites.surface, None, weights, hemi)
        return sites.weighted(sites.regions.summed(np.asarray(vertices.weights)), mask), by
    if sites.weights is not None and (
        weights is None or (area and sites.on not in ("vertices", "faces"))
    ):
        return sites.weighted(sites.weights, mask), "its own weight"
    if area:
        average = sites.name is not None and sites.name.startswith("fsaverage")
        found = _areas_on_fsaverage(sites, hemi) if average else _areas_on_sphere(sites)
        on = "average midthickness surface of fsaverage" if average else "sphere"
        return sites.weighted(found, mask), f"its area on the {on}"
    if (files := _files(weights)) is not None:
        names = ", ".join(dict.fromkeys(file.name for file in files))
        return sites.weighted(_areas_in(files, sites, hemi), mask), f"its area ({names})"
    return sites.weighted(weights, mask), "a weight of its own"


def _files(weights: Any) -> list[Path] | None:
    """Paths, where weights are given as such."""
    given = [weights] if isinstance(weights, str | Path) else weights
    paths = (
        isinstance(given, Sequence)
        and len(given) > 0
        and all(isinstance(one, str | Path) for one in given)
    )
    return [Path(one) for one in given] if paths else None


def _areas_in(files: list[Path], sites: Sites, hemi: str | None) -> np.ndarray:
    """Areas of the sites from surfaces or areas per vertex, one file per hemisphere, or from a
    folder of templates.
    """
    sides = hemispheres(hemi) if hemi in HEMISPHERES else SIDES[: len(sites.frames)]
    if len(files) == 1 and files[0].is_dir():
        if hemi is None:
            raise ArgumentError("hemi", None, "{hemi} must be given to find {weights} in a folder")
        folder, mesh = files[0], mesh_name_of(sites)
        files = [
            file.areas
            for side in sides
            for file in find_meshes(folder, side, (mesh,))
            if file.areas is not None
        ]
    if len(files) != len(sites.frames) or sites.on != "vertices" or sites.n != sites.n_mesh:
        expected = f"one file per hemisphere of maps on the vertices of a whole mesh; the maps are on {sites!r}"
        raise ArgumentError("weights", Phrase(f"{len(files)} files"), expected)
    found = []
    for half, file in enumerate(files):
        n = int((sites.hemisphere == half).sum())
        with naming(file, "file of areas"), open_file(file) as opened:
            is_surface = (
                file.name.endswith((".surf.gii", ".surf.gii.gz")) or opened.read(3) == _GEOMETRY
            )
        if is_surface:
            surface = as_surface(file, "weights")
            if surface.n != n:
                raise FileError(file, f"has {surface.n} vertices; the maps have {n}")
            found.append(vertex_areas(surface.coordinates, surface.faces))
        else:
            found.append(as_areas(file, n, "weights"))
    return np.concatenate(found)


def _areas_on_sphere(sites: Sites) -> np.ndarray:
    """A third of each triangle around a vertex; of other sites the part of the sphere that is
    nearest to each.
    """
    if sites.n != sites.n_mesh:
        expected = (
            "an array with one number per site, because the whole mesh of these sites is not known"
        )
        raise ArgumentError("weights", "area", expected)
    found = np.empty(sites.n)
    for half in range(len(sites.frames)):
        own = sites.hemisphere == half
        points = sites.coordinates[own]
        if sites.on == "vertices" and sites.triangles is not None:
            found[own] = vertex_areas(points, sites.triangles)
        else:
            found[own] = SphericalVoronoi(
                points / np.linalg.norm(points, axis=1, keepdims=True)
            ).calculate_areas()
    return found


def _areas_on_fsaverage(sites: Sites, hemi: str | None) -> np.ndarray:
    """Areas on the average midthickness of fsaverage5 that comes with nilearn, carried to other
    meshes of fsaverage.
    """
    from nilearn.datasets import load_fsaverage

    meshes, standard = load_fsaverage("fsaverage5"), Sites.named("fsaverage5")
    flat, found = _areas_on_sphere(standard), _areas_on_sphere(sites)
    for half, side in enumerate(hemispheres(hemi or ("left", "both")[len(sites.frames) - 1])):
        own = sites.hemisphere == half
        pial, white = (meshes[name].parts[side] for name in ("pial", "white_matter"))
        areas = vertex_areas((np.asarray(pial.coordinates) + white.coordinates) / 2, pial.faces)
        if own.sum() < standard.n:  # a site of a coarser mesh holds many vertices
            nearest = cKDTree(sites.coordinates[own]).query(standard.coordinates)[1]
            found[own] = np.bincount(nearest, areas, minlength=int(own.sum()))
        else:
            found[own] *= (areas / flat)[
                cKDTree(standard.coordinates).query(sites.coordinates[own])[1]
            ]
    return found


def check_settings(model: Any) -> Method:
    """Check the parameters of an estimator, and return its method."""
    method = method_named(model.method)
    check_rules(model.rules, method.scheme)
    check_penalty(model.penalty, method.scheme)
    _ = model.centers_by
    check_parameters(**{name: getattr(model, name) for name in _NUMBERS})
    if model.n_starts is not None:
        check_parameters(n_starts=model.n_starts)
    check_engine(model.engine)
    check_weights(model.weights)
    seeds_of(model.random_state)
    check_value("columns", model.columns, OneOf(KINDS))
    if model.harmonize is not None and not isinstance(model.harmonize, ComBat):
        raise ArgumentError("harmonize", Phrase(type(model.harmonize).__name__), "a ComBat or None")
    if model.refinement is not None and model.refinement != "auto":
        if not isinstance(model.refinement, Refinement):
            found = Phrase(type(model.refinement).__name__)
            raise ArgumentError("refinement", found, "a Refinement, 'auto' or None")
        model.refinement.check()
    return method


def check_size(shape: tuple[int, ...], n_components: int) -> None:
    """Check that data of this shape (subjects, sites) can be fitted."""
    n_subjects = shape[0]
    if n_subjects < 2:
        held = f"X has {counted(n_subjects, 'subject')}; fit needs at least 2 (transform takes one)"
        raise ArgumentError("X", None, f"{held}: n_samples={n_subjects}")
    if shape[1] < 2:
        raise ArgumentError("X", None, "X has one site; there is no map to factorize: n_features=1")
    check_enough_subjects(n_components, n_subjects)
