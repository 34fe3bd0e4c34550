"""The fourteen datasets, or what stands in for them: simulated cohorts, an HCP tree, any cohort stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from icofactor.streaming.checkpoint import digest

from icofactor.cohort.load import load_cohort
from icofactor.cohort.simulate import MODALITIES, simulate_cohort
from icofactor.errors import ArgumentError
from icofactor.factorization.statistics import Data
from icofactor.sphere.operators import vertex_to_face
from icofactor.sphere.sites import Sites
from icofactor_lab.common.outcome import Table
from icofactor_lab.reproduce.settings import Sizes

SIDES = ("left", "right")
_NAMES = {"myelin": "myelin", "thickness": "thickness", "reho": "ReHo", "alff": "ALFF"}


@dataclass(frozen=True, eq=False)
class Maps:
    """One dataset in memory.

    Attributes
    ----------
    X : n_sites × n_subjects float64, the sites in use.
    sites : where they are; faces, as in the paper, of meshes known by name.
    every : all sites of the mesh, to draw on.
    used : (every.n,) which of them are in use.
    vertices : n_vertices × n_subjects, the same before vertices became faces.
    """

    X: np.ndarray
    sites: Sites
    every: Sites
    used: np.ndarray
    vertices: np.ndarray

    @property
    def source(self) -> Data:
        return Data(self.X, self.sites)

    @property
    def variance(self) -> float:
        """Between-subject variance: squared distance from the mean map."""
        return float(((self.X - self.X.mean(axis=1, keepdims=True)) ** 2).sum())

    def on_mesh(self, values: np.ndarray) -> np.ndarray:
        """Values of the sites in use on all sites, NaN elsewhere."""
        full = np.full(self.every.n, np.nan)
        full[self.used] = values
        return full


@dataclass(frozen=True, eq=False)
class Dataset:
    """One of the datasets, not yet in memory.

    Attributes
    ----------
    number : from 1, as in the paper's table.
    name : e.g. "myelin, left".
    modality, side, units
    simulated : whether it was made by a computer.
    identity : what makes it this dataset, for the work folder.
    """

    number: int
    name: str
    modality: str
    side: str
    units: str
    simulated: bool
    identity: str
    _read: Callable[[], Maps]

    def load(self) -> Maps:
        return self._read()


def simulated_datasets(sizes: Sizes, seed: int) -> list[Dataset]:
    """Simulated stand-ins for the paper's fourteen; scans of ALFF are cohorts of their own."""
    listed: list[Dataset] = []
    kinds = [("myelin", ""), ("thickness", ""), ("reho", ""), *(("alff", f" scan {i + 1}") for i in range(sizes.scans))]
    for modality, scan in kinds:
        for side in SIDES:
            number = len(listed) + 1
            given = (sizes.subjects, sizes.n_components, modality, side, 1000 * seed + number, sizes.mesh)
            name, units = f"{_NAMES[modality]}{scan}, {side}", MODALITIES[modality].units
            identity = " ".join(map(str, ("simulated", *given)))
            read = partial(_simulated, *given)
            listed.append(Dataset(number, name, modality, side, units, True, identity, read))
    return listed


@lru_cache(maxsize=2)
def _simulated(n_subjects: int, n_components: int, modality: str, side: Any, seed: int, mesh: str) -> Maps:
    return _maps(simulate_cohort(n_subjects, n_components, modality, side, seed, mesh=mesh))


def stored_datasets(stores: Sequence[str | Path]) -> list[Dataset]:
    """The hemispheres of cohort stores, or of whatever `load_cohort` reads, one after the other."""
    cohorts = [load_cohort(path) for path in stores]
    names = [_NAMES.get(cohort.modality, cohort.modality) for cohort in cohorts]
    listed: list[Dataset] = []
    for path, cohort, name in zip(stores, cohorts, names, strict=True):
        label = f"{name} ({Path(path).stem})" if names.count(name) > 1 else name
        for side in SIDES if cohort.hemisphere == "both" else (cohort.hemisphere,):
            read = lru_cache(maxsize=1)(partial(_maps, cohort, side))
            identity = f"{len(cohort.subjects)} subjects of {name}, {side}: {digest(np.asarray(cohort.X))[:16]}"
            title, made = f"{label}, {side}", bool(cohort.provenance.get("simulated"))
            listed.append(Dataset(len(listed) + 1, title, cohort.modality, side, cohort.units, made, identity, read))
    return listed


def _maps(cohort: Any, side: str | None = None) -> Maps:
    """A cohort, or one hemisphere of it, on faces."""
    X, sites, mask = np.asarray(cohort.X), cohort.sites, cohort.mask
    keep = np.ones(sites.n, dtype=bool) if mask is None else np.asarray(mask)
    if cohort.hemisphere == "both":
        here = sites.hemisphere == (1 if side == "right" else 0)
        X, keep = X[:, here], keep[here]
        sites = Sites.named(sites.name, on=sites.on) if sites.name else sites.subset(here)
    vertices = np.ascontiguousarray(X[:, keep].T, dtype=np.float64)
    if sites.on == "faces" or sites.name is None:
        return Maps(vertices, sites if keep.all() else sites.subset(keep), sites, keep, vertices)
    to_faces = vertex_to_face(sites.triangles, sites.n)
    faces = Sites.named(sites.name, on="faces")
    used = np.asarray(keep[np.asarray(sites.triangles)].all(axis=1))
    on_faces = np.ascontiguousarray((to_faces @ np.where(keep, X, 0).T.astype(np.float64))[used])
    return Maps(on_faces, faces if used.all() else faces.subset(used), faces, used, vertices)


def hcp_datasets(
    folder: str | Path, spheres: str | Path | None, stores: Path, n_procs: int, progress: bool
) -> tuple[list[Dataset], list[str]]:
    """The fourteen datasets of an HCP tree, prepared into stores beside the results; and notes on who is missing."""
    from icofactor.cohort.store.layout import is_store
    from icofactor.preprocessing._prepare_hcp import Target, failure_lines, prepare_hcp
    from icofactor.preprocessing.hcp import find_inputs
    from icofactor.preprocessing.hcp_subject import Steps
    from icofactor.preprocessing.outliers import LIMIT

    if spheres is None:
        raise ArgumentError(
            "spheres",
            None,
            "{hcp} needs {spheres}: the folder with the spheres of fs_LR and fsaverage, e.g. "
            "HCPpipelines/global/templates/standard_mesh_atlases",
        )
    stores.mkdir(parents=True, exist_ok=True)
    found, notes = [], []
    for kind in ("myelin", "thickness", "reho", "alff"):
        there = sorted(place for place in stores.glob(f"{kind}*.store") if is_store(place))
        if not there:
            inputs = find_inputs(folder, kind)
            steps = Steps(kind, limit=LIMIT if kind in ("myelin", "thickness") else None)
            made = prepare_hcp(
                inputs, stores / f"{kind}.store", steps, Target(spheres), n_procs=n_procs, progress=progress
            )
            there = list(made.stores.values())
            notes += failure_lines(made.failures)
        found += there
    return stored_datasets(found), notes


def with_role(datasets: Sequence[Dataset], modality: str) -> Dataset | None:
    """The left hemisphere of a modality, or its right one; None when there is no such data."""
    found = [d for d in datasets if d.modality == modality]
    return next((d for d in found if d.side == "left"), found[0] if found else None)


def illustrated(datasets: Sequence[Dataset]) -> Dataset:
    """The dataset of the paper's figures: left myelin, or the first there is."""
    return with_role(datasets, "myelin") or next((d for d in datasets if d.side == "left"), datasets[0])


def converging(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Left myelin and left thickness, those of them that there are, or the first dataset."""
    found = [d for d in (with_role(datasets, "myelin"), with_role(datasets, "thickness")) if d is not None]
    return found or [illustrated(datasets)]


def full_resolution(dataset: Dataset, sizes: Sizes) -> np.ndarray:
    """Vertices × subjects, on which one update at full resolution is timed."""
    maps = dataset.load().vertices
    if not dataset.simulated or sizes.timing_mesh == sizes.mesh:
        return maps
    return _simulated(sizes.subjects, sizes.n_components, dataset.modality, dataset.side, 0, sizes.timing_mesh).vertices


def as_table(datasets: Sequence[Dataset]) -> Table:
    """Number, name and origin of each."""
    origin = {True: "simulated", False: "measured"}
    rows = [{"number": d.number, "dataset": d.name, "data": origin[d.simulated]} for d in datasets]
    return Table("Data", rows, name="datasets")
