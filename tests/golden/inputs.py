"""Inputs of the golden tests: seeded NumPy code, and files written from it with nibabel."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import icofactor as ico

N_SUBJECTS = 24
N_COMPONENTS = 4
SUBJECTS = tuple(f"sub-{number:02d}" for number in range(1, N_SUBJECTS + 1))


def generator(seed: int) -> np.random.RandomState:
    """Return random numbers that no version of NumPy changes."""
    return np.random.RandomState(seed)


@cache
def coordinates(mesh: str) -> np.ndarray:
    """Return unit vectors of the left hemisphere of a mesh."""
    return np.asarray(ico.Sites.named(mesh).coordinates)


def people(n_subjects: int = N_SUBJECTS) -> dict[str, np.ndarray]:
    """Return a table of participants: ages, sexes, two scanners, two groups."""
    random = generator(1)
    numbers = np.arange(n_subjects)
    return {
        "age": np.round(random.uniform(20, 80, n_subjects), 1),
        "sex": np.where(random.rand(n_subjects) < 0.5, "F", "M"),
        "site": np.where(numbers % 2 == 0, "A", "B"),
        "group": np.where(numbers % 3 == 0, "patient", "control"),
    }


def regional_maps(
    points: np.ndarray, loadings: np.ndarray, seed: int, noise: float = 0.08
) -> np.ndarray:
    """Return positive maps, subjects × sites: a mean of about 2.5, regions with these loadings, and white noise."""
    random = generator(seed)
    centres = random.standard_normal((loadings.shape[1], 3))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    regions = np.exp(6 * (points @ centres.T - 1))
    mean = 2.5 + 0.3 * np.cos(3 * points[:, 0]) + 0.2 * points[:, 2]
    errors = noise * random.standard_normal((len(loadings), len(points)))
    return np.maximum(mean + loadings @ regions.T + errors, 0.01)


def true_loadings(
    n_subjects: int = N_SUBJECTS, n_regions: int = N_COMPONENTS, seed: int = 2
) -> np.ndarray:
    """Return loadings of the regions; the first falls with age, and their spreads differ."""
    random = generator(seed)
    loadings = 0.4 * (random.gamma(2.0, size=(n_subjects, n_regions)) - 1)
    loadings *= np.linspace(1.3, 0.7, n_regions)
    loadings[:, 0] -= 0.02 * (people(n_subjects)["age"] - 50)
    return loadings


@cache
def left_maps(mesh: str = "fsaverage3", n_subjects: int = N_SUBJECTS, seed: int = 3) -> np.ndarray:
    """Return maps of the left hemisphere, float64."""
    return regional_maps(coordinates(mesh), true_loadings(n_subjects), seed)


@cache
def both_maps(mesh: str = "fsaverage3", n_subjects: int = N_SUBJECTS, seed: int = 4) -> np.ndarray:
    """Return maps of both hemispheres, float64: two regions of each, with a medial wall of zeros."""
    loadings = true_loadings(n_subjects)
    points = coordinates(mesh)
    sides = [
        regional_maps(points, loadings[:, :2], seed),
        regional_maps(points, loadings[:, 2:], seed + 1),
    ]
    for side in sides:
        side[:, medial_wall(mesh)] = 0
    return np.concatenate(sides, axis=1)


def medial_wall(mesh: str) -> np.ndarray:
    """Return which vertices of a hemisphere are no cortex."""
    return coordinates(mesh)[:, 0] > 0.9


def cohort(
    hemi: str = "both", mesh: str = "fsaverage3", X: Any = None, **details: Any
) -> ico.Cohort:
    """Return a cohort in memory with its participants."""
    if X is None:
        X = both_maps(mesh) if hemi == "both" else left_maps(mesh)
    mask = None
    if hemi == "both":
        mask = np.tile(~medial_wall(mesh), 2)
    table = people(len(X))
    names = SUBJECTS[: len(X)]
    return ico.Cohort.from_array(
        X, mesh, hemi, subjects=names, participants=table, mask=mask, **details
    )
