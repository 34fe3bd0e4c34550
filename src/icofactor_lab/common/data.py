"""The data that everything is measured on: maps simulated at any size, or real cortical thickness.

`icofactor.simulate_cohort` makes cohorts from group maps of fsaverage, with a truth to find again. `simulate_maps` is
for what it cannot do: any points on the sphere, hundreds of thousands of them, thousands of subjects, cheaply.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from icofactor.cohort.cohort import Cohort
from icofactor.cohort.simulate import simulate_cohort
from icofactor.sphere.operators import vertex_to_face
from icofactor.sphere.sites import Sites
from icofactor_lab.common.objective import between_subject_variance, subject_gram, svd_floor
from icofactor_lab.common.timing import timed

VARIABLE = "ICOFACTOR_TEST_DATA"
_THICKNESS = "thickness_fsaverage5_n200.npz"
_PARCELS = "nspn_discovery.npz"
_N_LEFT = 10242
_WAVES = 300
"""Smooth waves that the noise is made of; well above any number of components."""
_BLOCK = 16384


# ------------------------------------------------------------------ one X


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


# ------------------------------------------------------------------ real thickness


def data_folder() -> Path:
    """The folder of real data that ICOFACTOR_TEST_DATA names; programs that need it end here with one line."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise SystemExit(f"set {VARIABLE} to the folder of real data")
    return Path(folder)


def thickness_arrays() -> tuple[np.ndarray, np.ndarray]:
    """Thickness in mm of 200 subjects × 20,484 vertices of fsaverage5 (left, right), and which are cortex."""
    with np.load(data_folder() / _THICKNESS) as archive:
        return archive["thickness"], archive["cortex"]


def thickness_is_there() -> bool:
    """Whether ICOFACTOR_TEST_DATA names a folder that holds it."""
    folder = os.environ.get(VARIABLE)
    return bool(folder) and (Path(str(folder)) / _THICKNESS).is_file()


def parcel_arrays() -> dict[str, np.ndarray]:
    """NSPN's four measures, people × parcels, by name; empty where their file is not there."""
    folder = os.environ.get(VARIABLE)
    if not folder or not (Path(folder) / _PARCELS).is_file():
        return {}
    with np.load(Path(folder) / _PARCELS) as archive:
        return {f"NSPN {name}": archive[name] for name in ("thickness", "area", "mt30", "mt70")}


def thickness_cohort() -> Cohort:
    """The 200 subjects, both hemispheres."""
    X, cortex = thickness_arrays()
    names = tuple(f"sub-{i:03d}" for i in range(len(X)))
    return Cohort(X=X, subjects=names, sites=Sites.named("fsaverage5", hemi="both"), mask=cortex, hemisphere="both")


def real_thickness(n_subjects: int = 100, n_components: int = 10) -> Dataset | None:
    """Cortical thickness on the 20,480 left faces of fsaverage5; None unless ICOFACTOR_TEST_DATA names its folder."""
    if not thickness_is_there():
        return None
    maps = thickness_arrays()[0][:n_subjects, :_N_LEFT]
    return _on_left_faces(f"real thickness, {len(maps)} subjects", maps, n_components)


def thickness_on_faces() -> Dataset:
    """Real thickness of 100 subjects on the left faces of fsaverage5, or a simulated cohort where it is not there."""
    found = real_thickness()
    if found is None:
        found = _on_left_faces("SIMULATED thickness, 100 subjects", simulate_cohort(100, 10, random_state=0).X, 10)
    return found


def _on_left_faces(name: str, maps: np.ndarray, n_components: int) -> Dataset:
    sites, seconds = timed(lambda: Sites.named("fsaverage5", on="faces"))
    faces = (vertex_to_face(sites.triangles, _N_LEFT) @ maps.T).T
    return Dataset(name, np.ascontiguousarray(faces, dtype=np.float32), sites, n_components, seconds)


# ------------------------------------------------------------------ simulated


def simulated(level: int, n_subjects: int, n_components: int = 10, random_state: int = 0) -> Dataset:
    """Simulated maps on the 20·4^level faces of one hemisphere; see `simulate_maps`."""
    sites, seconds = timed(lambda: Sites.icosphere(level, on="faces"))
    Xs = simulate_maps(sites.coordinates, n_subjects, n_components, random_state)
    return Dataset(f"simulated, {n_subjects} subjects", Xs, sites, n_components, seconds)


def simulate_maps(
    points: np.ndarray,
    n_subjects: int,
    n_components: int,
    random_state: int = 0,
    *,
    smooth: float = 0.15,
    white: float = 0.02,
    part: int | None = None,
) -> np.ndarray:
    """Positive maps at any points of the sphere, subjects × points, float32; temporary arrays stay small.

    Model: X = m ⊙ (1 + R Z) + noise. m is a smooth mean map of about 2.5; R holds `n_components` soft regions (a
    softmax of the closeness to random centres); Z subjects' gamma-distributed deviations; noise is a random mixture of
    smooth waves cos(ω·x + φ), about a third of the between-subject variance, and a little of it is white. Other points
    with the same random_state sample the same functions at other places.

    Parameters
    ----------
    smooth, white : standard deviations of the two kinds of noise; 0 leaves the waves out.
    part : number of this group of subjects, where a cohort is made in groups: other subjects, the same structure.
    """
    rng = np.random.default_rng(random_state)
    centres = _unit(rng.normal(size=(n_components, 3)))
    waves, phases = rng.normal(scale=10.0, size=(_WAVES, 3)), rng.uniform(0, 2 * np.pi, _WAVES)
    tilt = rng.normal(scale=0.3, size=(8, 3)), rng.uniform(0, 2 * np.pi, 8)
    if part is not None:
        rng = np.random.default_rng([random_state, part])
    Z = rng.gamma(2.0, size=(n_subjects, n_components)).astype(np.float32)
    Z = 0.07 * (Z - 2.0)
    E = (smooth * np.sqrt(2 / _WAVES) * rng.normal(size=(n_subjects, _WAVES))).astype(np.float32)
    Xs = np.empty((n_subjects, len(points)), dtype=np.float32)
    for first in range(0, len(points), _BLOCK):
        x = points[first : first + _BLOCK]
        closeness = np.exp(12.0 * (x @ centres.T - 1.0))
        regions = (closeness / closeness.sum(axis=1, keepdims=True)).astype(np.float32)
        mean = (2.5 + 0.2 * np.cos(4 * x @ tilt[0].T + tilt[1]).sum(axis=1) / np.sqrt(8)).astype(np.float32)
        noise = np.float32(white) * rng.standard_normal((n_subjects, len(x)), dtype=np.float32)
        if smooth:
            noise += E @ np.cos(x @ waves.T + phases).astype(np.float32).T
        Xs[:, first : first + _BLOCK] = np.maximum(mean * (1 + Z @ regions.T) + noise, 0.01)
    return Xs


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)
