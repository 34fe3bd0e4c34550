"""How much each site counts: by its area, by a weight of its own, or all alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import SphericalVoronoi, cKDTree

from icofactor.errors import ArgumentError, FileError
from icofactor.io.guard import naming, open_file
from icofactor.preprocessing.templates import find_meshes
from icofactor.sphere.names import HEMISPHERES, SIDES, hemispheres, mesh_name_of
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import as_areas, as_surface, vertex_areas

# How surfaces of FreeSurfer begin.
SURFACE_MAGIC = b"\xff\xff\xfe"
SURFACE_ENDINGS = (".surf.gii", ".surf.gii.gz")


def check_weights(weights: Any, sites: Sites | None = None) -> None:
    """Refuse what cannot be weights of sites, before anything is read."""
    files = files_of(weights)
    has_files = files is not None and files != [Path("none")]
    is_unplaced = sites is not None and sites.regions is not None and not sites.placed
    if has_files and is_unplaced:
        message = "areas of regions come from their atlas, which is not known"
        raise ArgumentError("weights", f"{message}: pass --parcels (parcels=), or no weights")
    if weights is None or is_word(weights, "area") or is_word(weights, "none"):
        return
    if files is None:
        if np.asarray(weights).dtype.kind not in "iuf":
            expected = "'area', 'none', surface or area files, a folder, an array or None"
            message = f"must be {expected}; found a {type(weights).__name__}"
            raise ArgumentError("weights", message)
        return
    for file in files:
        if not file.exists():
            message = "must be 'area', 'none', or files of a surface or of areas"
            raise ArgumentError("weights", f"{message}; there is no file {file}")


def is_word(weights: Any, word: str) -> bool:
    """Whether the weights are named by this word; arrays are not compared."""
    return isinstance(weights, str) and weights == word


def files_of(weights: Any) -> list[Path] | None:
    """Return the paths, if weights are given as such."""
    paths = [weights] if isinstance(weights, str | Path) else weights
    if not isinstance(paths, Sequence) or not paths:
        return None
    if not all(isinstance(path, str | Path) for path in paths):
        return None
    return [Path(path) for path in paths]


def weighted_sites(
    sites: Sites,
    mask: np.ndarray | None,
    weights: Any,
    hemi: str | None = None,
) -> tuple[Sites, str | None]:
    """Return the sites with weights of mean 1 over those in use, and where the weights come from.

    `weights` are as in `CorticalFactorization`. The text is None if all sites count alike.
    """
    check_weights(weights, sites)
    if is_word(weights, "none"):
        return sites.weighted(None), None
    if weights is None and sites.weights is None:
        return sites, None
    values, origin = weights_and_origin(sites, weights, hemi)
    return sites.weighted(values, mask), origin


def weights_and_origin(
    sites: Sites,
    weights: Any,
    hemi: str | None,
) -> tuple[Any, str]:
    """Return the weights of all sites in any unit, and where they come from."""
    files = files_of(weights)
    is_area = is_word(weights, "area")
    if weights is None:
        is_parcels = sites.regions is not None and sites.placed
        return sites.weights, "its number of vertices" if is_parcels else "its own weight"
    if not is_area and files is None:
        return weights, "a weight of its own"
    if sites.n_copies > 1:
        # Areas are the same in every copy of the mesh.
        values, origin = weights_and_origin(sites.one_copy(), weights, hemi)
        return np.tile(np.asarray(values), sites.n_copies), origin
    if sites.regions is not None and sites.placed:
        # The area of a region is that of its vertices.
        values, origin = weights_and_origin(sites.surface, weights, hemi)
        return sites.regions.summed(np.asarray(values)), origin
    if not is_area:
        names = dict.fromkeys(file.name for file in files or ())
        return areas_in_files(files or [], sites, hemi), f"its area ({', '.join(names)})"
    if sites.weights is not None and sites.on not in ("vertices", "faces"):
        return sites.weights, "its own weight"
    if sites.name is not None and sites.name.startswith("fsaverage"):
        areas = areas_on_fsaverage(sites, hemi)
        return areas, "its area on the average midthickness surface of fsaverage"
    return areas_on_sphere(sites), "its area on the sphere"


def areas_in_files(
    files: list[Path],
    sites: Sites,
    hemi: str | None,
) -> np.ndarray:
    """Return areas of the sites from files of each hemisphere, or from the files of a folder."""
    n_sides = len(sites.frames)
    sides = hemispheres(hemi) if hemi in HEMISPHERES else SIDES[:n_sides]
    if len(files) == 1 and files[0].is_dir():
        if hemi is None:
            raise ArgumentError("hemi", "is needed to find weights in a folder")
        mesh = (mesh_name_of(sites),)
        templates = [mesh_of for side in sides for mesh_of in find_meshes(files[0], side, mesh)]
        files = [template.areas for template in templates if template.areas is not None]
    if len(files) != n_sides or sites.on != "vertices" or sites.n != sites.n_mesh:
        message = f"must be one file per hemisphere, for all vertices of a mesh; found {len(files)}"
        raise ArgumentError("weights", f"{message}, and maps on {sites!r}")
    # Files come in the order of the hemispheres.
    counts = np.bincount(sites.hemisphere, minlength=n_sides)
    areas = [areas_in_file(file, int(n)) for file, n in zip(files, counts, strict=True)]
    return np.concatenate(areas)


def areas_in_file(file: Path, n_vertices: int) -> np.ndarray:
    """Return the areas of the vertices of a hemisphere, from its surface or from areas."""
    with naming(file, "file of areas"), open_file(file) as opened:
        is_surface = file.name.endswith(SURFACE_ENDINGS) or opened.read(3) == SURFACE_MAGIC
    if not is_surface:
        return as_areas(file, n_vertices, "weights")
    surface = as_surface(file, "weights")
    if surface.n != n_vertices:
        raise FileError(file, f"has {surface.n} vertices; the maps have {n_vertices}")
    return vertex_areas(surface.coordinates, surface.faces)


def areas_on_sphere(sites: Sites) -> np.ndarray:
    """Return a third of each triangle around a vertex.

    Of other sites it is the part of the sphere that is nearest to each.
    """
    if sites.n != sites.n_mesh:
        message = "areas need the whole mesh of the sites, which is not known"
        raise ArgumentError("weights", f"{message}; pass one number per site")
    areas = np.empty(sites.n)
    for side in range(len(sites.frames)):
        members = sites.hemisphere == side
        points = sites.coordinates[members]
        if sites.on == "vertices" and sites.triangles is not None:
            areas[members] = vertex_areas(points, sites.triangles)
        else:
            # SciPy wants points on the unit sphere.
            unit = points / np.linalg.norm(points, axis=1, keepdims=True)
            areas[members] = SphericalVoronoi(unit).calculate_areas()
    return areas


def areas_on_fsaverage(sites: Sites, hemi: str | None) -> np.ndarray:
    """Return areas on the average midthickness of fsaverage5, carried to other meshes of fsaverage.

    The surface comes with nilearn.
    """
    from nilearn.datasets import load_fsaverage

    meshes = load_fsaverage("fsaverage5")
    standard = Sites.named("fsaverage5")
    flat = areas_on_sphere(standard)
    areas = areas_on_sphere(sites)
    default_side = ("left", "both")[len(sites.frames) - 1]
    for number, side in enumerate(hemispheres(hemi or default_side)):
        pial, white = (meshes[name].parts[side] for name in ("pial", "white_matter"))
        middle = (np.asarray(pial.coordinates) + white.coordinates) / 2
        standard_areas = vertex_areas(middle, pial.faces)
        members = sites.hemisphere == number
        points = sites.coordinates[members]
        if len(points) < standard.n:
            # A site of a coarser mesh holds many vertices.
            nearest = cKDTree(points).query(standard.coordinates)[1]
            areas[members] = np.bincount(nearest, standard_areas, minlength=len(points))
        else:
            nearest = cKDTree(standard.coordinates).query(points)[1]
            # Finer sites share the distortion of the nearest vertex.
            areas[members] *= (standard_areas / flat)[nearest]
    return areas
