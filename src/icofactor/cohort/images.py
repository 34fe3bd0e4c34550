"""Maps that are held in memory already: arrays and nilearn's surface images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.sphere.meshes import sites_for
from icofactor.sphere.names import SIDES, hemispheres
from icofactor.sphere.sites import Sites


def check_array(X: Any) -> Any:
    """X as an array of numbers of two dimensions; memmaps and their like stay what they are."""
    if hasattr(X, "tocsr"):
        raise ArgumentError("X", Phrase("a sparse matrix, use X.toarray()"), "a dense array of subjects × sites")
    if isinstance(X, np.ma.MaskedArray):
        text = "X is a masked array, whose mask would be lost; use X.filled(np.nan) and pass {mask}"
        raise ArgumentError("X", None, text)
    if not (hasattr(X, "shape") and isinstance(getattr(X, "dtype", None), np.dtype)) or hasattr(X, "iloc"):
        try:
            X = np.asarray(X)
        except ValueError as problem:
            text = f"an array of subjects × sites; it cannot be read as one: {literal(problem)}"
            raise ArgumentError("X", None, text) from None
    if np.dtype(X.dtype).kind not in "fiu":
        complex_too = "Complex data not supported: " if np.dtype(X.dtype).kind == "c" else ""
        raise ArgumentError("X", None, f"{complex_too}X must hold real numbers; found dtype {X.dtype}")
    if len(X.shape) != 2:
        hint = ". One map is X.reshape(1, -1). Reshape your data" if len(X.shape) == 1 else ""
        raise ArgumentError("X", Phrase(f"shape {tuple(X.shape)}{hint}"), "subjects × sites, two dimensions")
    return X


def read_image(image: Any, mesh: Any, hemi: str | None) -> tuple[np.ndarray, Sites, str]:
    """A nilearn SurfaceImage: (vertices, maps) per hemisphere; its triangles say which mesh it is."""
    parts = image.data.parts
    sides = [side for side in SIDES if side in parts]
    side = hemi or ("both" if len(sides) == 2 else sides[0])
    wanted = hemispheres(side)
    missing = [s for s in wanted if s not in parts]
    if missing:
        text = f"{{hemi={side!r}}}, but the SurfaceImage holds only {', '.join(sides)}"
        raise ArgumentError("hemi", None, text)
    blocks = [np.asarray(parts[s]) for s in wanted]
    X = np.concatenate([b.reshape(len(b), -1) for b in blocks]).T
    if mesh is not None:
        sites, _ = sites_for(X.shape[1], mesh, side)
        _check_same_triangles(image, wanted, sites)
        return check_array(X), sites, side
    found = [_sites_of_polymesh(image.mesh.parts[s], s) for s in wanted]
    sites = Sites.both(*found) if side == "both" else found[0]
    return check_array(X), sites, side


def _check_same_triangles(image: Any, sides: Sequence[str], sites: Sites) -> None:
    """Refuse an image whose vertices are ordered otherwise than the sites, where both tell."""
    if sites.triangles is None or sites.on != "vertices":
        return
    listed = lambda triangles: np.unique(np.sort(triangles, axis=1), axis=0)
    ours = listed(sites.triangles)
    for side in sides:
        if not np.array_equal(listed(np.asarray(image.mesh.parts[side].faces)), ours):
            raise ArgumentError(
                "mesh",
                None,
                f"The {side} mesh of the SurfaceImage lists other triangles than {sites!r}: its vertices are in "
                "another order, or it is another mesh; resample it first",
            )


def _sites_of_polymesh(part: Any, side: str) -> Sites:
    coordinates, faces = np.asarray(part.coordinates, dtype=np.float64), np.asarray(part.faces)
    radii = np.linalg.norm(coordinates, axis=1)
    if radii.min() > 0 and np.ptp(radii) <= 0.01 * radii.max():
        return Sites.from_sphere(coordinates, faces)
    try:
        return Sites.from_topology(faces)
    except ValueError:
        raise ArgumentError(
            "mesh",
            None,
            f"The {side} mesh of the SurfaceImage ({len(coordinates)} vertices) is neither a sphere nor icosahedral; "
            "pass {mesh}, Sites.from_file(the sphere registered with it)",
        ) from None
