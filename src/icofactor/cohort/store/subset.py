"""Some subjects of a cohort on disk, in any order, which stay on disk too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import Hemisphere
from icofactor.cohort.store.read import StoredCohort, StoredMaps
from icofactor.sphere.sites import Sites


class SelectedMaps:
    """Some rows of stored maps; sliced as those are, and read as late."""

    ndim = 2
    dtype = np.dtype(np.float32)

    def __init__(self, maps: StoredMaps, rows: NDArray[np.int64]) -> None:
        self._maps, self._rows = maps, rows
        self.shape = (len(rows), maps.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return self._maps[self._rows[rows], columns]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the maps are on disk: reading them makes a copy")
        found = self[:]
        return found if dtype is None else found.astype(dtype, copy=False)


@dataclass(frozen=True, eq=False, repr=False)
class SelectedCohort:
    """Some subjects of a stored cohort; its attributes are those of `StoredCohort`."""

    X: SelectedMaps
    subjects: tuple[str, ...]
    sites: Sites
    mask: NDArray[np.bool_] | None
    hemisphere: Hemisphere
    modality: str
    units: str
    participants: Mapping[str, NDArray[Any]]
    provenance: Mapping[str, Any]
    path: Path
    order: NDArray[np.int64]
    chunk_sites: int
    simulated: bool
    truth: None = field(default=None)

    @classmethod
    def of(cls, stored: StoredCohort, rows: Sequence[int], participants: Mapping[str, Any]) -> SelectedCohort:
        """The subjects in `rows` of a stored cohort, with this table."""
        return cls(
            SelectedMaps(stored.X, np.asarray(rows, dtype=np.int64)),
            tuple(stored.subjects[row] for row in rows),
            stored.sites,
            stored.mask,
            stored.hemisphere,
            stored.modality,
            stored.units,
            participants,
            stored.provenance,
            stored.path,
            stored.order,
            stored.chunk_sites,
            stored.simulated,
        )

    def read_sites(self, where: slice) -> NDArray[np.float32]:
        """Maps at consecutive sites of `order`, sites × subjects."""
        return self.X[:, self.order[where]].T

    def blocks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """One pass over the maps: pairs (numbers of the sites, their maps as sites × subjects)."""
        for first in range(0, self.sites.n, self.chunk_sites):
            where = slice(first, first + self.chunk_sites)
            yield self.order[where], self.read_sites(where)

    def __len__(self) -> int:
        return len(self.subjects)

    def __repr__(self) -> str:
        return (
            f"SelectedCohort({len(self)} subjects × {self.sites.n} {self.sites.on}; {self.modality}, "
            f"{self.hemisphere}; of {self.path})"
        )
