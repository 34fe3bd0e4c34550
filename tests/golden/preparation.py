"""Golden cases: time series to maps, outliers, resampling, smoothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import icofactor as ico
from golden.figures import Figure, Values
from golden.inputs import coordinates, generator, left_maps, medial_wall
from icofactor import preprocessing

TR = 2.0


def series() -> np.ndarray:
    """Return smooth series of a hemisphere, vertices × volumes."""
    random = generator(20)
    points = coordinates("fsaverage3")
    waves = np.exp(4 * (points @ random.standard_normal((3, 10)) / 2 - 1)) @ random.standard_normal(
        (10, 120)
    )
    values = 100 + 5 * waves + random.standard_normal((len(points), 120))
    values[medial_wall("fsaverage3")] = 0
    return values


def triangles(mesh: str = "fsaverage3") -> np.ndarray:
    return np.asarray(ico.Sites.named(mesh).triangles)


def reho() -> dict[str, Figure]:
    """Filter, and compute regional homogeneity."""
    cortex = ~medial_wall("fsaverage3")
    filtered = preprocessing.bandpass(series(), TR, 0.01, 0.1, mask=cortex)
    ties = np.round(filtered)
    return {
        "band-passed series": Values(filtered, 1e-6),
        "ReHo": Values(preprocessing.reho(filtered, triangles(), mask=cortex), 1e-6),
        "ReHo of two rings with ties": Values(
            preprocessing.reho(ties, triangles(), rings=2, mask=cortex), 1e-6
        ),
        "ReHo without correction of ties": Values(
            preprocessing.reho(ties, triangles(), tie_correction=False, mask=cortex), 1e-6
        ),
    }


def alff() -> dict[str, Figure]:
    """Compute amplitudes of low frequencies."""
    return {
        "ALFF": Values(preprocessing.alff(series(), TR, 0.01, 0.08), 1e-6),
        "ALFF, detrended and normalized": Values(
            preprocessing.alff(series(), TR, 0.01, 0.08, detrend=True, normalize="mean"), 1e-6
        ),
    }


def resampling() -> dict[str, Figure]:
    """Move maps to a coarser mesh and to another kind of mesh."""
    meshes = {name: (coordinates(name), triangles(name)) for name in ("fsaverage3", "fsaverage4")}
    areas = {name: preprocessing.vertex_areas(*mesh) for name, mesh in meshes.items()}
    source, target = meshes["fsaverage4"], meshes["fsaverage3"]
    roi = ~medial_wall("fsaverage4")
    adaptive = preprocessing.Resampler(
        source,
        target,
        "adaptive",
        areas["fsaverage4"],
        areas["fsaverage3"],
        roi,
        check_registration=False,
    )
    # A rotated mesh shares no vertices with the source.
    angle = 0.1
    rotation = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    rotated = (target[0] @ rotation.T, target[1])
    barycentric = preprocessing.Resampler(source, rotated, "barycentric")
    maps = left_maps("fsaverage4")[:4]
    return {
        "adaptive": Values(adaptive(maps), 1e-6),
        "coverage": Values(adaptive.coverage, 1e-6),
        "barycentric": Values(barycentric(maps), 1e-6),
    }


def smoothing() -> dict[str, Figure]:
    """Smooth maps along a surface, and limit outliers."""
    surface = 100 * coordinates("fsaverage3")
    cortex = ~medial_wall("fsaverage3")
    maps = left_maps()[:4].copy()
    maps[:, 100] = 50
    limited = preprocessing.limit_outliers(maps, mask=cortex)
    return {
        "limited": Values(limited, 1e-6),
        "smoothed": Values(preprocessing.smooth_surface(maps, surface, triangles(), fwhm=20), 1e-6),
        "smoothed inside a region": Values(
            preprocessing.smooth_surface(maps, surface, triangles(), sigma=8, roi=cortex), 1e-6
        ),
    }


CASES: dict[str, Callable[..., dict[str, Figure]]] = {
    "ReHo": reho,
    "ALFF": alff,
    "resampling": resampling,
    "smoothing": smoothing,
}
