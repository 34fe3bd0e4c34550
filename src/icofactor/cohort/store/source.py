"""A cohort store as a source of maps that every process opens for itself."""

from __future__ import annotations

import hashlib
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.errors import CohortError
from icofactor.streaming.blocks import Rows
from icofactor.streaming.checkpoint import digest
from icofactor.streaming.source import MapSource, Reader, even_slices

if TYPE_CHECKING:
    from icofactor.cohort.store.read import StoredMaps


class StoreSource(MapSource):
    """The maps of a cohort store, or of some of its subjects."""

    held = False

    def __init__(self, maps: StoredMaps) -> None:
        self._maps: StoredMaps | None = maps
        self._path, self._generation, self._subjects = str(maps.folder), maps.generation, maps.subjects
        self.shape, self.order, self._step = (maps.shape[1], maps.shape[0]), maps.order, maps.chunk_sites
        self.n_bytes = self.size(slice(0, self.shape[0]))

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("_path", "_generation", "_subjects")}
        return {**kept, "_maps": None}

    def slices(self) -> list[slice]:
        return even_slices(*self.shape, 4, self._step)

    def size(self, where: Rows) -> int:
        return 4 * self.shape[1] * (where.stop - where.start if isinstance(where, slice) else len(where))

    def reader(self, where: Rows, away: bool = False) -> Reader:
        return partial(self._read, where)

    def _read(self, where: Rows, block: None) -> np.ndarray:
        maps = self._maps
        if maps is None:
            whole = _opened_store(self._path, self._generation).X
            maps = whole if self._subjects is None else whole.select(self._subjects)
        return maps.read_sites(where) if isinstance(where, slice) else maps.read_places(where)

    def sent(self, where: Rows, client: Any) -> None:
        return None

    def identity(self) -> str:
        """The record of the last commit names every file of the store by a name that is never used again."""
        found = "store " + hashlib.sha256((Path(self._path) / "commit.json").read_bytes()).hexdigest()
        return found if self._subjects is None else f"{found}, of these subjects {digest(self._subjects)}"


@lru_cache(maxsize=4)
def _opened_store(path: str, generation: int) -> Any:
    from icofactor.cohort.store.read import open_store

    cohort = open_store(path)
    if cohort.generation != generation:
        what = f"was written to while it was read (commit {cohort.generation} instead of {generation})"
        raise CohortError(path, what)
    return cohort
