"""The same maps as all that a fit can read, in blocks of 50 sites."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor.cohort.store.create import create_store
from icofactor.maps.maps import Maps, maps_of

N_SUBJECTS, N_SITES, HEIGHT = 12, 642, 50
KINDS = ("array", "columns", "memmap", "sliced", "dask", "store")


def simulated(**changes: Any) -> ico.Cohort:
    return ico.simulate_cohort(N_SUBJECTS, 3, mesh="fsaverage3", random_state=0, **changes)


class Sliced:
    """Something sliced like an array, which remembers the most that was asked for at once."""

    def __init__(self, X: np.ndarray) -> None:
        self._X, self.shape, self.dtype, self.most = X, X.shape, X.dtype, 0

    def __getitem__(self, key: Any) -> np.ndarray:
        assert all(isinstance(part, slice) for part in key)
        values = self._X[key]
        self.most = max(self.most, values.size)
        return values


def source(kind: str, cohort: ico.Cohort, folder: Path) -> Any:
    """The cohort's maps as an array or something like it; a cohort that is stored for "store"."""
    X = cohort.X
    if kind == "columns":
        return np.asfortranarray(X)
    if kind == "memmap":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r")
    if kind == "sliced":
        return Sliced(X)
    if kind == "dask":
        dask = pytest.importorskip("dask.array")
        return dask.from_array(X, chunks=(len(X) // 2, HEIGHT))
    if kind == "store":
        return create_store(folder / "store", [cohort], chunk_sites=HEIGHT, chunk_subjects=5)
    return X


def all_maps(cohort: ico.Cohort, folder: Path) -> dict[str, Maps]:
    sources = {kind: source(kind, cohort, folder) for kind in KINDS}
    return {kind: maps_of(getattr(X, "X", X)) for kind, X in sources.items()}


def die(x: np.ndarray, shared: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A function of a pass that ends its process."""
    os._exit(1)
