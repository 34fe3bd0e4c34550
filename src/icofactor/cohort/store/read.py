"""A cohort that stays on disk: opened without loading, read block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from icofactor.cohort.store.statistics import map_hash
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
    commit : dict
        What the store says of the cohort: "generation" is the number of commits so far.

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
    commit: Commit
    truth: None = None

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
        names = np.array(self.commit["subjects"])
        rows = np.asarray(self.X.sites)
        hashes = [map_hash(values) for values in stored_maps(self.X.values, rows)]
        changed = names[np.array(hashes) != self.commit["hashes"]]
        if len(changed):
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


def stored_maps(maps: zarr.Array, rows: np.ndarray, first: int = 0) -> Iterator[np.ndarray]:
    """Yield the maps of a store, one per subject from `first` on; `rows` has the row of every site."""
    for subjects in cut(maps.shape[1], maps.chunks[1]):
        if subjects.stop > first:
            start = max(first, subjects.start)
            # Copies, so that no subject keeps the others of its chunks in memory.
            yield from map(np.copy, maps[:, start : subjects.stop][rows].T)


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
        if read_commit(address)["generation"] == commit["generation"]:
            raise
    return open_store(path)


def _open(address: Path | str, commit: Commit) -> StoredCohort:
    # zarr takes a moment to import, and most commands need no store.
    from icofactor.cohort.store.files import StoreFiles, open_array, read_array

    files = StoreFiles(address)
    metadata = commit["arrays"]
    with reading(f"{address}/{MARK}"):
        prefix = f"{commit['content']}/{SITES}"
        arrays = {
            name.removeprefix(prefix): read_array(files, name, metadata[name])
            for name in metadata
            if name.startswith(prefix) and metadata[name]["node_type"] == "array"
        }
        mask = arrays.pop(MASK, None)
        order = arrays.pop(ORDER)
        sites = check_sites(rebuild(Sites, commit["sites"], arrays))
        name = f"{commit['content']}/{MAPS}"
        maps = open_array(files, name, metadata[name])
        fits = (
            (mask is None or (mask.shape == (sites.n,) and mask.dtype == bool))
            and np.array_equal(np.sort(order), np.arange(sites.n))
            and maps.shape == (sites.n, len(commit["subjects"]))
            and maps.dtype in (np.float32, np.float16)
        )
        if not fits:
            raise Unreadable("is damaged: its arrays do not fit its mesh and its subjects")
        provenance = shared_provenance(commit["steps"])
        # Reports say how maps were rounded.
        if maps.dtype == np.float16:
            provenance["stored_dtype"] = "float16"
        return StoredCohort(
            X=Maps(maps, subjects_first=False, sites=np.argsort(order)),
            subjects=tuple(commit["subjects"]),
            sites=sites,
            mask=mask,
            hemisphere=commit["hemisphere"],
            modality=commit["modality"],
            units=commit["units"],
            participants={
                name: decode_column(column) for name, column in commit["participants"].items()
            },
            provenance=provenance,
            path=address,
            commit=commit,
        )
