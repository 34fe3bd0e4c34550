"""The data the solvers are compared on: subjects × sites, float32, C order, on the faces of icosahedral meshes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from icofactor.sphere.operators import vertex_to_face
from icofactor.sphere.sites import Sites
from icofactor_lab.bench.objective import between_subject_variance, subject_gram, svd_floor

VARIABLE = "ICOFACTOR_TEST_DATA"
_WAVES = 300
"""Smooth waves that the noise is made of; well above any number of components."""
_BLOCK = 16384


@dataclass(frozen=True, eq=False)
class Dataset:
    """One X with where its sites lie.

    Attributes
    ----------
    name : what it is, for the tables
    Xs : subjects × sites, float32, C order
    sites : where the sites lie; made before any solver is timed
    n_components : how many components every solver looks for
    sites_seconds : what making `sites` took
    """

    name: str
    Xs: np.ndarray
    sites: Sites
    n_components: int
    sites_seconds: float = 0.0

    @property
    def size(self) -> str:
        """As "20480 × 100"."""
        return f"{self.Xs.shape[1]} × {self.Xs.shape[0]}"

    @cached_property
    def gram(self) -> np.ndarray:
        """XᵀX in float64."""
        return subject_gram(self.Xs)

    @property
    def sq_norm(self) -> float:
        return float(np.trace(self.gram))

    @property
    def variance(self) -> float:
        """Between-subject variance."""
        return between_subject_variance(self.gram)

    @property
    def floor(self) -> float:
        """Error of the truncated SVD, which nothing undercuts."""
        return svd_floor(self.gram, self.n_components)


def face_sites(level: int) -> tuple[Sites, float]:
    """The 20·4^level faces of one hemisphere, and the seconds it took to make them."""
    begin = time.perf_counter()
    sites = Sites.icosphere(level, on="faces")
    return sites, time.perf_counter() - begin


def real_thickness(n_subjects: int = 100, n_components: int = 10) -> Dataset | None:
    """Cortical thickness on the 20,480 left faces of fsaverage5; None unless ICOFACTOR_TEST_DATA names its folder."""
    folder = os.environ.get(VARIABLE)
    path = Path(folder or "") / "thickness_fsaverage5_n200.npz"
    if not folder or not path.is_file():
        return None
    begin = time.perf_counter()
    sites = Sites.named("fsaverage5", on="faces")
    seconds = time.perf_counter() - begin
    assert sites.triangles is not None
    with np.load(path) as archive:
        maps = archive["thickness"][:n_subjects, :10242]
    faces = (vertex_to_face(sites.triangles, 10242) @ maps.T).T
    Xs = np.ascontiguousarray(faces, dtype=np.float32)
    return Dataset(f"real thickness, {len(Xs)} subjects", Xs, sites, n_components, seconds)


def simulated(level: int, n_subjects: int, n_components: int = 10, random_state: int = 0) -> Dataset:
    """Simulated maps on the 20·4^level faces of one hemisphere, at any size, cheaply.

    Model: X = m ⊙ (1 + R Z) + noise. m is a smooth mean map of about 2.5; R holds `n_components` soft regions (a
    softmax of the closeness to random centres); Z subjects' gamma-distributed deviations; noise is a random mixture of
    smooth waves cos(ω·x + φ), about a third of the between-subject variance, and a little of it is white. Another level
    with the same random_state samples the same functions on another mesh.
    """
    sites, seconds = face_sites(level)
    Xs = simulate_maps(sites.coordinates, n_subjects, n_components, random_state)
    return Dataset(f"simulated, {n_subjects} subjects", Xs, sites, n_components, seconds)


def simulate_maps(points: np.ndarray, n_subjects: int, n_components: int, random_state: int = 0) -> np.ndarray:
    """Subjects × points of the model of `simulated`, float32, positive; temporary arrays stay small."""
    rng = np.random.default_rng(random_state)
    centres = _unit(rng.normal(size=(n_components, 3)))
    waves, phases = rng.normal(scale=10.0, size=(_WAVES, 3)), rng.uniform(0, 2 * np.pi, _WAVES)
    tilt = rng.normal(scale=0.3, size=(8, 3)), rng.uniform(0, 2 * np.pi, 8)
    Z = rng.gamma(2.0, size=(n_subjects, n_components)).astype(np.float32)
    Z = 0.07 * (Z - 2.0)
    E = (0.15 * np.sqrt(2 / _WAVES) * rng.normal(size=(n_subjects, _WAVES))).astype(np.float32)
    Xs = np.empty((n_subjects, len(points)), dtype=np.float32)
    for first in range(0, len(points), _BLOCK):
        x = points[first : first + _BLOCK]
        closeness = np.exp(12.0 * (x @ centres.T - 1.0))
        regions = (closeness / closeness.sum(axis=1, keepdims=True)).astype(np.float32)
        mean = (2.5 + 0.2 * np.cos(4 * x @ tilt[0].T + tilt[1]).sum(axis=1) / np.sqrt(8)).astype(np.float32)
        noise = E @ np.cos(x @ waves.T + phases).astype(np.float32).T
        noise += 0.02 * rng.standard_normal(noise.shape, dtype=np.float32)
        Xs[:, first : first + _BLOCK] = np.maximum(mean * (1 + Z @ regions.T) + noise, 0.01)
    return Xs


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)
