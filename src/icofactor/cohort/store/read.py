"""A cohort that stays on disk: opened without loading, read block by block."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import CohortBase, Hemisphere, subject_rows
from icofactor.cohort.problems import some
from icofactor.cohort.store.columns import decode_column
from icofactor.cohort.store.layout import (
    MARK,
    Commit,
    read_commit,
    reading,
    shared_provenance,
    store_address,
)
from icofactor.cohort.store.statistics import map_hashes
from icofactor.errors import CohortError, RemoteError
from icofactor.io.guard import Unreadable
from icofactor.io.records import rebuild
from icofactor.maps.blocks import cut
from icofactor.maps.maps import Maps
from icofactor.sphere.meshes import check_sites
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    import zarr

# Names of arrays.
MAPS = "maps"
STATISTICS = "statistics"
SITES = "sites/"
MASK = "mask"
ORDER = "order"


class StoredMaps:
    """The maps of a store, sites × subjects, sliced like an array.

    Another process gets the address of the store, and opens it for itself.
    """

    ndim = 2

    def __init__(
        self, address: Path | str, commit: Commit, array: zarr.Array, order: np.ndarray
    ) -> None:
        self.address = address
        self.commit = commit
        # Row of every site of the mesh.
        self.rows = np.argsort(order)
        self.shape = array.shape
        self.dtype = array.dtype
        self.chunks = array.chunks
        self._array = array

    @property
    def sizes(self) -> list[int]:
        """Bytes of every file of maps, as far as they are values."""
        return [math.prod(self.chunks) * self.dtype.itemsize] * self._array.nchunks

    def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
        with reading(f"{self.address}/{self.commit.content}/{MAPS}"):
            return np.asarray(self._array[key])

    def __reduce__(self) -> tuple[Callable[..., StoredMaps], tuple[str, str]]:
        return _reopen_maps, (str(self.address), self.commit.identity)


def _reopen_maps(path: str, identity: str) -> StoredMaps:
    """Return the same maps in another process."""
    return _open_again(path, identity, os.getpid())


# A forked process must not use the connections of its parent, so the process is part of the key.
@lru_cache(maxsize=4)
def _open_again(path: str, identity: str, process: int) -> StoredMaps:
    """Open the maps of a store that must not have changed."""
    stored = open_store(path)
    if stored.identity != identity:
        raise CohortError(path, "was changed in the meantime: open it again")
    maps: StoredMaps = stored.X.values
    return maps


@dataclass(frozen=True, eq=False, repr=False)
class StoredCohort(CohortBase):
    """A cohort on disk. It has the attributes of `Cohort`; `X` is read when it is sliced.

    It does not change: open the store again to see subjects that were appended later.

    Attributes
    ----------
    X : array-like of shape (n_subjects, n_sites)
        Maps on disk, read as float32. `X.blocks()` lists sites that are read efficiently together,
        and `X.read(block)` reads them as sites × subjects.
    subjects, sites, mask, hemisphere, modality, units, participants, truth
        As in `Cohort`; `truth` is not stored.
    provenance : dict
        What all inputs have in common, and "steps": one record per commit.
    path : Path or str
        Folder of the store, or its URL.
    generation : int
        Number of commits.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> store = ico.cohort.save_store(cohort, path)
    >>> store.modality, store.X[3, :].shape
    ('thickness', (642,))
    >>> store.select([7, 0]).subjects == (cohort.subjects[7], cohort.subjects[0])
    True
    """

    X: Maps
    subjects: tuple[str, ...]
    sites: Sites
    mask: NDArray[np.bool_] | None
    hemisphere: Hemisphere
    modality: str
    units: str
    participants: Mapping[str, NDArray[Any]]
    provenance: Mapping[str, Any]
    path: Path | str
    generation: int
    truth: None = field(default=None)

    @property
    def stored_dtype(self) -> np.dtype:
        """Type of the values on disk."""
        return np.dtype(self.X.values.dtype)

    @property
    def identity(self) -> str:
        """What tells this commit of the store from all others."""
        return str(self.X.values.commit.identity)

    def select(
        self, rows: Sequence[int], participants: Mapping[str, Any] | None = None
    ) -> StoredCohort:
        """Select subjects, in any order; they stay on disk. `participants` replaces their table."""
        if participants is None:
            participants = {
                name: np.asarray(values)[list(rows)] for name, values in self.participants.items()
            }
        return replace(
            self,
            X=self.X.subset(subjects=np.asarray(rows, dtype=np.int64)),
            subjects=tuple(self.subjects[row] for row in rows),
            participants=participants,
        )

    def verify(self) -> None:
        """Read all maps of the store and compare them with the hashes of when they were written.

        The checksums of the files, which every read compares, do not tell files that were
        exchanged. CohortError names the subjects whose maps differ.
        """
        maps = self.X.values
        names = maps.commit.subjects
        changed: list[str] = []
        for columns in cut(len(names), maps.chunks[1]):
            hashes = map_hashes(maps[:, columns][maps.rows].T)
            written = maps.commit.hashes[columns]
            changed += [
                name
                for name, old, new in zip(names[columns], written, hashes, strict=True)
                if old != new
            ]
        if changed:
            raise CohortError(
                self.path, f"is damaged: these subjects have other maps: {some(changed)}"
            )

    def __getitem__(self, which: Any) -> StoredCohort:
        """Some subjects, which stay on disk: by a mask, row numbers, a slice, or names."""
        return self.select(subject_rows(self.subjects, which))

    def __repr__(self) -> str:
        units = f" in {self.units}" if self.units else ""
        plural = "s" if self.hemisphere == "both" else ""
        return (
            f"StoredCohort({len(self)} subjects × {self.sites.n} {self.sites.on}; "
            f"{self.modality}{units}, {self.hemisphere} hemisphere{plural}; {self.path})"
        )


def open_store(path: str | os.PathLike[str]) -> StoredCohort:
    """Open a cohort store without loading its maps.

    Parameters
    ----------
    path : path or URL
        A folder, or an address such as "s3://bucket/cohort.store", "gs://..." or "https://..."
        (needs `pip install 'icofactor[remote]'`). Credentials come from the environment; see
        docs/scale.md.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> store = ico.cohort.save_store(cohort, path)
    >>> ico.cohort.open_store(path).X[:2].shape
    (2, 642)
    """
    address = store_address(path)
    commit = read_commit(address)
    try:
        return _open(address, commit)
    except RemoteError:
        raise
    except CohortError:
        # A writer may have replaced the cohort, and removed its files, after its commit was read.
        if read_commit(address).generation == commit.generation:
            raise
    return open_store(path)


def _open(address: Path | str, commit: Commit) -> StoredCohort:
    # zarr takes a moment to import, and most commands need no store.
    from icofactor.cohort.store.files import StoreFiles, open_array, read_array

    files = StoreFiles(address)
    arrays = {
        name.removeprefix(SITES): read_array(files, f"{commit.content}/{name}", metadata)
        for name, metadata in commit.arrays.items()
        if name.startswith(SITES) and metadata["node_type"] == "array"
    }
    mask = arrays.pop(MASK, None)
    with reading(f"{address}/{MARK}"):
        order = arrays.pop(ORDER)
        sites = check_sites(rebuild(Sites, commit.sites, arrays))
        if mask is not None and (mask.shape != (sites.n,) or mask.dtype != bool):
            raise Unreadable(f"is damaged: its mask has shape {mask.shape} and type {mask.dtype}")
        if not np.array_equal(np.sort(order), np.arange(sites.n)):
            raise Unreadable("is damaged: its order of sites does not have every site once")
        participants = {name: decode_column(column) for name, column in commit.participants.items()}
        array = open_array(files, f"{commit.content}/{MAPS}", commit.arrays[MAPS])
        shape = (sites.n, len(commit.subjects))
        if array.shape != shape or array.dtype not in (np.float32, np.float16):
            raise Unreadable(
                f"is damaged: its maps are {array.dtype} of shape {array.shape}, not {shape}"
            )
    provenance = shared_provenance(commit.steps)
    # Reports say how maps were rounded.
    if array.dtype == np.float16:
        provenance["stored_dtype"] = "float16"
    maps = StoredMaps(address, commit, array, order)
    return StoredCohort(
        X=Maps(maps, subjects_first=False, sites=maps.rows),
        subjects=commit.subjects,
        sites=sites,
        mask=mask,
        hemisphere=cast(Hemisphere, commit.hemisphere),
        modality=commit.modality,
        units=commit.units,
        participants=participants,
        provenance=provenance,
        path=address,
        generation=commit.generation,
    )
