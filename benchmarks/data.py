"""The maps of the benchmarks: real cortical thickness where ICOFACTOR_TEST_DATA names its folder, else simulated."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import icofactor as ico

REAL_FILE = "thickness_fsaverage5_n200.npz"


def smooth_maps(points: np.ndarray, n_subjects: int, seed: int = 0, batch: int = 0) -> np.ndarray:
    """Simulate positive maps, subjects × points: a mean, ten regions that differ between subjects, and white noise.

    Batches of one seed have other subjects and the same regions.
    """
    structure = np.random.default_rng(seed)
    centres = structure.normal(size=(10, 3))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    closeness = np.exp(12 * (points @ centres.T - 1))
    regions = (closeness / closeness.sum(axis=1, keepdims=True)).astype(np.float32)
    people = np.random.default_rng([seed, batch])
    # Deviations from the mean are skewed, as those of thickness are.
    deviations = (0.07 * (people.gamma(2.0, size=(n_subjects, 10)) - 2)).astype(np.float32)
    noise = people.standard_normal((n_subjects, len(points)), dtype=np.float32)
    return np.maximum(2.5 * (1 + deviations @ regions.T) + 0.15 * noise, 0.01)


def both_hemispheres(n_subjects: int, mesh: str = "fsaverage5") -> ico.Cohort:
    """Return maps of both hemispheres, on the vertices of the cortex."""
    sites = ico.Sites.named(mesh, hemi="both")
    path = Path(os.environ.get("ICOFACTOR_TEST_DATA", "")) / REAL_FILE
    if mesh == "fsaverage5" and path.is_file():
        with np.load(path) as archive:
            maps = archive["thickness"][:n_subjects]
            cortex = archive["cortex"]
    else:
        maps = smooth_maps(sites.coordinates, n_subjects)
        cortex = np.ones(sites.n, dtype=bool)
    subjects = tuple(f"sub-{number:03d}" for number in range(n_subjects))
    return ico.Cohort(maps, subjects, sites, mask=cortex, hemisphere="both")


def left_faces(n_subjects: int, mesh: str = "fsaverage5") -> tuple[np.ndarray, ico.Sites]:
    """Return maps of the left hemisphere on faces, subjects × faces, and the faces."""
    cohort = both_hemispheres(n_subjects, mesh)
    faces = ico.Sites.named(mesh, on="faces")
    left_vertices = np.asarray(cohort.X)[:, : cohort.sites.n // 2]
    return np.ascontiguousarray(left_vertices[:, faces.triangles].mean(axis=2)), faces
