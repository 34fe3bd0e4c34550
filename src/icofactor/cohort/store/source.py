"""A cohort store as a source of maps that every process opens for itself."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.streaming.source import even_slices


class StoreSource:
    """A cohort store; every process opens it for itself."""

    portable = True

    def __init__(self, path: str, generation: int, cohort: Any) -> None:
        self.path, self.generation = path, generation
        self.shape = (int(cohort.X.shape[1]), int(cohort.X.shape[0]))
        self.order, self._step = cohort.order, cohort.chunk_sites
        self.n_bytes = 4 * self.shape[0] * self.shape[1]
        self._opened = cohort

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "generation": self.generation, "_opened": None}

    def slices(self) -> list[slice]:
        return even_slices(*self.shape, 4, self._step)

    def read(self, where: slice) -> np.ndarray:
        cohort = _opened_store(self.path, self.generation) if self._opened is None else self._opened
        return np.asarray(cohort.read_sites(where))

    def shipped(self, where: slice, runner: Any) -> Any:
        return self.read(where).T

    def identity(self) -> str:
        """The record of the last commit names every file of the store by a name that is never used again."""
        return "store " + hashlib.sha256((Path(self.path) / "commit.json").read_bytes()).hexdigest()


@lru_cache(maxsize=4)
def _opened_store(path: str, generation: int) -> Any:
    from icofactor.cohort.store.read import open_store

    cohort = open_store(path)
    if cohort.generation != generation:
        raise ValueError(
            f"{path} was written to while it was read (commit {cohort.generation} instead of {generation})"
        )
    return cohort
