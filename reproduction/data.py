"""The fourteen datasets of the paper, simulated, or the cohorts of the user; each is one hemisphere on faces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import icofactor as ico
from reproduction.settings import Sizes

MODALITY_NAMES = {"myelin": "myelin", "thickness": "thickness", "reho": "ReHo", "alff": "ALFF"}


@dataclass(frozen=True, eq=False)
class Maps:
    """One dataset in memory.

    Attributes
    ----------
    vertices : vertices of the cortex × subjects, float64
    on_faces : all faces × subjects, float64; the paper factorizes values on faces
    mesh : the faces
    cortex : (faces,) which faces are used: those whose corners all have data
    """

    vertices: np.ndarray
    on_faces: np.ndarray
    mesh: ico.Sites
    cortex: np.ndarray

    @property
    def X(self) -> np.ndarray:
        """Faces of the cortex × subjects."""
        return self.on_faces[self.cortex]

    @property
    def sites(self) -> ico.Sites:
        """Positions of the rows of X."""
        return self.mesh.subset(self.cortex)


@dataclass(frozen=True, eq=False)
class Dataset:
    """One dataset, which `load` reads.

    Attributes
    ----------
    number : from 1, as in the paper
    name : for people, e.g. "myelin, left"
    modality, side : what was measured, in which hemisphere
    simulated : whether the data are simulated
    load : reads the maps
    """

    number: int
    name: str
    modality: str
    side: str
    simulated: bool
    load: Callable[[], Maps]


def simulated_datasets(sizes: Sizes, seed: int) -> list[Dataset]:
    """Return simulated datasets in place of those of the paper; every scan of ALFF is a cohort of its own."""
    scans = [("alff", f" scan {scan + 1}") for scan in range(sizes.scans)]
    datasets: list[Dataset] = []
    for modality, scan in [("myelin", ""), ("thickness", ""), ("reho", ""), *scans]:
        for side in ("left", "right"):
            number = len(datasets) + 1
            name = f"{MODALITY_NAMES[modality]}{scan}, {side}"
            load = partial(simulated_maps, sizes, modality, side, 1000 * seed + number)
            datasets.append(Dataset(number, name, modality, side, True, load))
    return datasets


# Experiments load the same dataset many times in a row.
@lru_cache(maxsize=2)
def simulated_maps(sizes: Sizes, modality: str, side: Any, seed: int) -> Maps:
    """Simulate one dataset."""
    cohort = ico.simulate_cohort(
        sizes.subjects, sizes.n_components, modality, side, seed, mesh=sizes.mesh
    )
    return hemisphere_maps(cohort, side)


def stored_datasets(paths: Sequence[Path]) -> list[Dataset]:
    """Return the hemispheres of cohorts, one after the other."""
    datasets: list[Dataset] = []
    for path in paths:
        cohort = ico.load_cohort(path)
        sides = ("left", "right") if cohort.hemisphere == "both" else (cohort.hemisphere,)
        for side in sides:
            name = f"{MODALITY_NAMES.get(cohort.modality, cohort.modality)} ({path.stem}), {side}"
            load = lru_cache(maxsize=1)(partial(hemisphere_maps, cohort, side))
            simulated = bool(cohort.provenance.get("simulated"))
            datasets.append(
                Dataset(len(datasets) + 1, name, cohort.modality, side, simulated, load)
            )
    return datasets


def hemisphere_maps(cohort: Any, side: str) -> Maps:
    """Return one hemisphere of a cohort on the vertices and on the faces of its mesh."""
    if cohort.sites.name is None or cohort.sites.on != "vertices":
        raise SystemExit(
            f"The reproduction needs maps on the vertices of a mesh known by name, not {cohort.sites!r}"
        )
    in_side = np.ones(cohort.sites.n, dtype=bool)
    if cohort.hemisphere == "both":
        in_side = cohort.sites.hemisphere == (1 if side == "right" else 0)
    values = np.asarray(cohort.X)[:, in_side].T.astype(np.float64)
    has_data = np.ones(len(values), dtype=bool)
    if cohort.mask is not None:
        has_data = np.asarray(cohort.mask)[in_side]
    mesh = ico.Sites.named(cohort.sites.name, on="faces")
    assert mesh.triangles is not None
    # A face has the mean of its three corners.
    on_faces = np.where(has_data[:, None], values, 0.0)[mesh.triangles].mean(axis=1)
    cortex = np.asarray(has_data[mesh.triangles].all(axis=1))
    return Maps(values[has_data], on_faces, mesh, cortex)
