"""A cohort that stays on disk: opened without loading, read block by block."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import CohortBase, Hemisphere, subject_rows
from icofactor.cohort.store.arrays import GROUP, MOST_METADATA, StoredArray, reading
from icofactor.cohort.store.layout import (
    COMMIT,
    Commit,
    read_commit,
    shared_provenance,
    store_place,
)
from icofactor.cohort.store.maps import StoredRows
from icofactor.cohort.store.metadata import decode_column
from icofactor.errors import CohortError, RemoteError
from icofactor.io.guard import Unreadable
from icofactor.io.json import read_text
from icofactor.io.records import rebuild
from icofactor.io.url import RemotePath
from icofactor.maps.maps import Maps
from icofactor.sphere.meshes import check_sites
from icofactor.sphere.parcels import Parcels
from icofactor.sphere.sites import Sites

SITE_ARRAYS = ("coordinates", "hemisphere", "triangles", "position", "deepest", "frames", "weights")
REGIONS = "regions-"
"""Before the names of arrays of parcels."""
_OPTIONAL = ("triangles", "weights", "mask")
_REOPENED, _METADATA_AHEAD = 20, 256


@lru_cache(maxsize=4)
def opened_again(path: str, identity: str) -> StoredCohort:
    """The same cohort in another process."""
    stored = open_store(path)
    if stored.identity != identity:
        raise CohortError(path, "was changed in the meantime: open it again")
    return stored


@dataclass(frozen=True, eq=False, repr=False)
class StoredCohort(CohortBase):
    """A cohort on disk. It has the attributes of `Cohort`; `X` is read when it is sliced.

    It does not change: open the store again to see subjects that were appended later.

    Attributes
    ----------
    X : array-like of shape (n_subjects, n_sites)
        Maps on disk, read as float32.
    subjects, sites, mask, hemisphere, modality, units, participants, truth
        As in `Cohort`; `truth` is not stored.
    provenance : dict
        What all inputs have in common, and "steps": one record per commit.
    path : Path or URL
        Folder of the store.
    generation : int
        Number of commits.
    order : int array of shape (n_sites,)
        Sites in the order on disk, that of the quadtree: row r of `read_sites` is site order[r].

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
    >>> sum(len(store.read_sites(block)) for block in store.site_blocks())
    642
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
    path: Path | RemotePath
    generation: int
    order: NDArray[np.int64]
    truth: None = field(default=None)

    @property
    def chunk_sites(self) -> int:
        """Number of sites per chunk; blocks of this length, from a multiple of it on, are read most
        efficiently.
        """
        return int(self.X.values.chunks[0])

    @property
    def bytes_read(self) -> int:
        """Bytes of maps read so far, in whole chunks."""
        return int(self.X.values.bytes_read)

    @property
    def stored_dtype(self) -> np.dtype:
        """Type of the values on disk."""
        return np.dtype(self.X.values.stored_dtype)

    @property
    def identity(self) -> str:
        """What tells this commit of the store from all others."""
        return str(self.X.values.commit.identity)

    def read_sites(self, where: slice) -> NDArray[np.float32]:
        """Read the maps at consecutive sites of `order`, as sites × subjects. Threads may call it
        at the same time.
        """
        if where.step not in (None, 1):
            raise ValueError(f"sites must be consecutive; got a slice with step {where.step}")
        return self.X.read_source(self.order[where]).astype(np.float32, copy=False)

    def select(
        self, rows: Sequence[int], participants: Mapping[str, Any] | None = None
    ) -> StoredCohort:
        """Select subjects, in any order; they stay on disk. `participants` replaces their table."""
        own = {name: np.asarray(values)[list(rows)] for name, values in self.participants.items()}
        return replace(
            self,
            X=self.X.subset(subjects=np.asarray(rows, dtype=np.int64)),
            subjects=tuple(self.subjects[row] for row in rows),
            participants=own if participants is None else participants,
        )

    def __getitem__(self, which: Any) -> StoredCohort:
        """Some subjects, which stay on disk: by a mask, row numbers, a slice, or names."""
        return self.select(subject_rows(self.subjects, which))

    def site_blocks(self) -> list[slice]:
        """Blocks of `order` that can be read efficiently; together they cover all sites."""
        n = self.sites.n
        return [
            slice(first, min(first + self.chunk_sites, n))
            for first in range(0, n, self.chunk_sites)
        ]

    def __repr__(self) -> str:
        return (
            f"StoredCohort({len(self)} subjects × {self.sites.n} {self.sites.on}; {self.modality}"
            f"{f' in {self.units}' if self.units else ''}, {self.hemisphere} "
            f"hemisphere{'s' * (self.hemisphere == 'both')}; {self.path})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self.identity, self.X.subjects, self.participants)


def open_store(path: str | os.PathLike[str]) -> StoredCohort:
    """Open a cohort store without loading its maps.

    Parameters
    ----------
    path : path or URL
        A folder, or an address such as "s3://bucket/cohort.store", "gs://..." or "https://..."
        (needs
        `pip install 'icofactor[remote]'`). Credentials come from the environment; see
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
    folder = store_place(path)
    for last in (*[False] * _REOPENED, True):
        commit = read_commit(folder)
        try:
            return _opened(folder, commit)
        except RemoteError:
            raise
        except CohortError:
            # a writer may have replaced the cohort, and removed its files, between reading the
            # commit and them
            if last or read_commit(folder).generation == commit.generation:
                raise
    raise AssertionError


def _opened(folder: Path | RemotePath, commit: Commit) -> StoredCohort:
    if isinstance(folder, RemotePath):
        mesh = (f"{commit.mesh}/{name}" for name in (*SITE_ARRAYS, "order", "mask"))
        names = [commit.mesh, *(name for name in mesh if name in commit.checksums), *commit.arrays]
        folder.ahead([f"{name}/{GROUP}" for name in names[:_METADATA_AHEAD]], MOST_METADATA)
    arrays = read_mesh(folder, commit)
    with reading(folder / commit.mesh, "mesh of a cohort store"):
        order, mask = arrays.pop("order"), arrays.pop("mask")
        sites = check_sites(rebuild(Sites, commit.sites, arrays))
        _check_mesh(sites, order, mask)
    with reading(folder / COMMIT, "record of a cohort store"):
        participants = {
            name: decode_column(dict(column)) for name, column in commit.participants.items()
        }
    rows = StoredRows(folder, commit, len(order))
    # The row on disk of every site.
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    maps = Maps(rows, subjects_first=False, sites=position)
    provenance = shared_provenance(commit.steps)
    if rows.stored_dtype == np.float16:
        provenance["stored_dtype"] = "float16"
    return StoredCohort(
        X=maps,
        subjects=commit.subjects,
        sites=sites,
        mask=mask,
        hemisphere=cast(Hemisphere, commit.hemisphere),
        modality=commit.modality,
        units=commit.units,
        participants=participants,
        provenance=provenance,
        path=folder,
        generation=commit.generation,
        order=order,
    )


def _reopen(path: str, identity: str, rows: Any = None, participants: Any = None) -> StoredCohort:
    """The same cohort, or some of its subjects, in another process."""
    stored = opened_again.__wrapped__(path, identity)
    return (
        replace(stored, participants=participants)
        if rows is None
        else stored.select(rows, participants)
    )


def read_mesh(folder: Path | RemotePath, commit: Commit) -> dict[str, Any]:
    """The arrays of the sites, their order and the mask."""
    mark, checksums = folder / commit.mesh / GROUP, commit.checksums
    with reading(mark):
        if (
            sha256(read_text(mark, MOST_METADATA).encode()).hexdigest()
            != checksums[commit.mesh]["metadata"]
        ):
            raise Unreadable("is damaged: its checksum is wrong")
    arrays: dict[str, Any] = {}
    for name in (*SITE_ARRAYS, "order", "mask"):
        place = f"{commit.mesh}/{name}"
        if name in _OPTIONAL and place not in checksums:
            arrays[name] = None
            continue
        with reading(folder / COMMIT, "record of a cohort store"):
            array_checksums = checksums[place]
        arrays[name] = StoredArray(folder / place, array_checksums).read()
        arrays[name].setflags(write=False)
    if commit.sites.get("regions") is not None:
        for name in (
            one.name for one in fields(Parcels) if f"{commit.mesh}/{REGIONS}{one.name}" in checksums
        ):
            place = f"{commit.mesh}/{REGIONS}{name}"
            arrays[f"regions/{name}"] = StoredArray(folder / place, checksums[place]).read()
    return arrays


def _check_mesh(sites: Sites, order: NDArray[Any], mask: NDArray[Any] | None) -> None:
    n = sites.n
    if not np.array_equal(np.sort(order), np.arange(n)):
        raise Unreadable("is damaged: its order of sites is not an order")
    if mask is not None and (mask.shape != (n,) or mask.dtype != bool):
        raise Unreadable(f"is damaged: its mask has shape {mask.shape} and type {mask.dtype}")
