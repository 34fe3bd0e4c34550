"""A cohort that stays on disk: opened without loading, read block by block."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache, partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import CohortBase, Hemisphere, subject_rows
from icofactor.cohort.store.arrays import GROUP, MOST_METADATA, StoredArray, reading
from icofactor.cohort.store.encoding import Rounding, decode
from icofactor.cohort.store.layout import (
    COMMIT,
    Commit,
    Origin,
    present,
    read_commit,
    shared_provenance,
    store_place,
)
from icofactor.errors import CohortError, RemoteError
from icofactor.io.guard import Unreadable
from icofactor.io.json import read_text
from icofactor.io.records import rebuild
from icofactor.io.tables import decode_column
from icofactor.io.url import RemotePath
from icofactor.sphere.meshes import check_sites
from icofactor.sphere.parcels import Parcels
from icofactor.sphere.sites import Sites
from icofactor.streaming.blocks import Rows
from icofactor.streaming.checkpoint import digest
from icofactor.streaming.source import MapSource, Reader, even_slices

SITE_ARRAYS = ("coordinates", "hemisphere", "triangles", "position", "deepest", "frames", "weights")
REGIONS = "regions-"
"""Before the names of arrays of parcels."""
_OPTIONAL = ("triangles", "weights", "mask")
_REOPENED, _METADATA_AHEAD = 20, 256


class StoredMaps:
    """The maps of a stored cohort, subjects × sites, read when they are asked for.

    ``maps[rows, columns]`` takes numbers, slices, masks and lists, as an outer product, in the order of the cohort's
    sites. A few subjects, or all sites, are read well this way; a pass over blocks of sites is better made with
    `read_sites`, which follows the order on disk.
    """

    ndim = 2
    dtype = np.dtype(np.float32)
    """Of the values as they are read; `stored_dtype` is that on disk."""

    def __init__(self, folder: Path | RemotePath, commit: Commit, order: NDArray[np.int64]) -> None:
        self.shape, self.folder, self.commit = (len(commit.subjects), len(order)), folder, commit
        self.subjects: NDArray[np.int64] | None = None
        self._parts = [_Part(folder, name, commit) for name, _ in commit.parts]
        self.stored_dtype = np.dtype(self._parts[-1].dtype.name)
        self._first = np.cumsum([0, *(part.n_subjects for part in self._parts)])
        for part in self._parts:
            if part.n_sites != len(order):
                raise CohortError(part.folder, f"contains {part.n_sites} sites; the store has {len(order)}")
        if self._first[-1] != len(commit.subjects):
            raise CohortError(folder, f"contains maps of {self._first[-1]} subjects, but names {len(commit.subjects)}")
        self.order = order
        self._rank = np.empty_like(order)
        self._rank[order] = np.arange(len(order))

    @property
    def chunk_sites(self) -> int:
        return max(part.chunks[0] for part in self._parts)

    @property
    def bytes_read(self) -> int:
        return sum(part.bytes_read for part in self._parts)

    @property
    def scales(self) -> NDArray[np.float32] | None:
        """Step, offset and presence of NaN of every subject's map in a store of int16."""
        found = [part.scale for part in self._parts if part.scale is not None]
        return np.concatenate(found) if found else None

    @property
    def sizes(self) -> list[int]:
        """Bytes of every file of maps."""
        return [part.chunk_bytes for part in self._parts for _ in range(part.n_chunks)]

    def __len__(self) -> int:
        return self.shape[0]

    def select(self, subjects: Sequence[int] | NDArray[np.int64]) -> StoredMaps:
        """Some subjects, in any order; nothing is read, and of the others nothing will be."""
        chosen, found = np.asarray(subjects, dtype=np.int64), copy(self)
        found.subjects = chosen if self.subjects is None else self.subjects[chosen]
        found.shape = (len(chosen), self.shape[1])
        return found

    def origin(self) -> Origin | None:
        """Where the maps lie, by content; None in a store that was made before checksums."""
        parts = [self.commit.digest_of(name) for name, _ in self.commit.parts]
        subjects = np.arange(self.shape[0]) if self.subjects is None else self.subjects
        part = np.searchsorted(self._first, subjects, side="right") - 1
        return None if None in parts else Origin(tuple(map(str, parts)), part, subjects - self._first[part])

    def map_source(self) -> StoreSource:
        """The maps as they are passed over; other processes open the store for themselves."""
        return StoreSource(self)

    def read_places(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Maps at some places of the order on disk, sites × subjects."""
        return self._gather(np.arange(self.shape[0]) if self.subjects is None else self.subjects, places).T

    def read_sites(self, where: slice) -> NDArray[np.float32]:
        """Maps at consecutive sites of the order on disk, sites × subjects."""
        return self.read_stored(where).astype(np.float32, copy=False)

    def read_stored(self, where: slice) -> NDArray[Any]:
        """The same, of the type that needs the least work to be read: float16 or float32."""
        first, last, step = where.indices(self.shape[1])
        if step != 1:
            raise ValueError(f"sites must be consecutive; got a slice with step {step}")
        rows = slice(first, max(first, last))
        if self.subjects is None and len(self._parts) == 1:
            return self._parts[0].read((rows, slice(0, self.shape[0])))
        found = np.result_type(*(part.type_read for part in self._parts))
        block = np.empty((rows.stop - rows.start, self.shape[0]), dtype=found)
        for part, (start, stop) in zip(self._parts, pairwise(self._first), strict=True):
            if self.subjects is None:
                block[:, start:stop] = part.read((rows, slice(0, part.n_subjects)))
                continue
            mine = np.flatnonzero((self.subjects >= start) & (self.subjects < stop))
            for here in _by_chunk(self.subjects[mine] - start, part.chunks[1]):
                columns = self.subjects[mine[here]] - start
                left = int(columns.min())
                found_here = part.read((rows, slice(left, int(columns.max()) + 1)))
                block[:, _run(mine[here])] = found_here[:, _run(columns - left)]
        return block

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        subjects, sites = _numbers(rows, self.shape[0], "subjects"), _numbers(columns, self.shape[1], "sites")
        chosen = np.atleast_1d(subjects if self.subjects is None else self.subjects[subjects])
        found = self._gather(chosen, self._rank[np.atleast_1d(sites)])
        if not subjects.ndim:
            found = found[0]
        return found if sites.ndim else found[..., 0]

    def _gather(self, subjects: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Maps of some subjects at some places of the order on disk, subjects × places; every chunk is read once."""
        found = np.empty((len(subjects), len(places)), dtype=np.float32)
        for part, (start, stop) in zip(self._parts, pairwise(self._first), strict=True):
            mine = np.flatnonzero((subjects >= start) & (subjects < stop))
            for here in _by_chunk(subjects[mine] - start, part.chunks[1]):
                for there in _by_chunk(places, part.chunks[0]):
                    rows, columns = places[there], subjects[mine[here]] - start
                    low, left = int(rows.min()), int(columns.min())
                    block = part.read((slice(low, int(rows.max()) + 1), slice(left, int(columns.max()) + 1)))
                    found[np.ix_(mine[here], there)] = block[np.ix_(rows - low, columns - left)].T
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the maps are on disk, and reading them makes a copy")
        found = np.empty(self.shape, dtype=np.float32)
        for first in range(0, self.shape[1], self.chunk_sites):
            block = slice(first, first + self.chunk_sites)
            found[:, self.order[block]] = self.read_sites(block).T
        return found if dtype is None else found.astype(dtype, copy=False)


class _Part(StoredArray):
    """The maps that one append wrote, sites (order on disk) × subjects."""

    def __init__(self, store: Path | RemotePath, name: str, commit: Commit) -> None:
        super().__init__(store / name, commit.checksums.get(name))
        kind = commit.rounding.get(name, {}).get("dtype", "float32")
        if self.dtype.name != kind or len(self.shape) != 2:
            raise CohortError(self.folder, f"contains {self.dtype} {self.shape}, not maps in {kind}")
        self.n_sites, self.n_subjects = self.shape
        self.bytes_read, self._counting = 0, threading.Lock()
        self.type_read = np.dtype(np.float16 if self.dtype == np.float16 else np.float32)
        self.scale: NDArray[np.float32] | None = None
        if (scale := commit.scale_of(name)) is not None:
            self.scale = StoredArray(store / scale, commit.checksums[scale]).read()
            if self.scale.shape != (self.n_subjects, 3) or self.scale.dtype != np.float32:
                raise CohortError(store / scale, f"contains {self.scale.dtype} {self.scale.shape}, not scales of maps")

    def read(self, where: tuple[slice, ...] | None = None) -> NDArray[Any]:
        """Values, of `type_read`: float16 stays as it is, since blocks of sites are decoded with other steps."""
        found = super().read(where)
        if where is not None and found.size:
            with self._counting:
                self.bytes_read += len(self.touched(where)) * self.chunk_bytes
        return found if self.scale is None else decode(found, self.scale if where is None else self.scale[where[1]])


class StoreSource(MapSource):
    """The maps of a cohort store, or of some of its subjects."""

    held = False

    def __init__(self, maps: StoredMaps) -> None:
        self._maps: StoredMaps | None = maps
        self._path, self._identity, self._subjects = str(maps.folder), maps.commit.identity, maps.subjects
        self.shape, self.order, self._step = (maps.shape[1], maps.shape[0]), maps.order, maps.chunk_sites
        self._itemsize = maps.stored_dtype.itemsize
        self.n_bytes = self.size(slice(0, self.shape[0]))

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("_path", "_identity", "_subjects")}
        return {**kept, "_maps": None}

    def slices(self) -> list[slice]:
        return even_slices(*self.shape, 4, self._step)

    def size(self, where: Rows) -> int:
        return self._itemsize * self.shape[1] * (where.stop - where.start if isinstance(where, slice) else len(where))

    def reader(self, where: Rows, away: bool = False) -> Reader:
        return partial(self._read, where)

    def _read(self, where: Rows, block: None) -> np.ndarray:
        maps = self._maps
        if maps is None:
            whole = _opened_again(self._path, self._identity).X
            maps = whole if self._subjects is None else whole.select(self._subjects)
        return maps.read_stored(where) if isinstance(where, slice) else maps.read_places(where)

    def sent(self, where: Rows, client: Any) -> None:
        return None

    def identity(self) -> str:
        """That of the commit, which has the checksums of all maps."""
        found = f"store {self._identity}"
        return found if self._subjects is None else f"{found}, of these subjects {digest(self._subjects)}"


@lru_cache(maxsize=4)
def _opened_again(path: str, identity: str) -> StoredCohort:
    """The same cohort in another process."""
    stored = open_store(path)
    if stored.X.commit.identity != identity:
        raise CohortError(path, "was changed in the meantime: open it again")
    return stored


def _numbers(key: Any, n: int, what: str) -> NDArray[np.int64]:
    """Which of n things a number, slice, mask or list names; a number stays without dimension."""
    if isinstance(key, slice):
        return np.arange(n)[key]
    chosen = np.asarray(key)
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise IndexError(f"a mask of the {what} must have shape ({n},); got {chosen.shape}")
        return np.flatnonzero(chosen)
    if chosen.size == 0:
        return np.empty(0, dtype=np.int64)
    if chosen.dtype.kind not in "iu" or chosen.ndim > 1:
        raise IndexError(f"{what} are named by a number, slice, mask or list of numbers; got {key!r}")
    if chosen.min() < -n or chosen.max() >= n:
        raise IndexError(f"there are {n} {what}; got number {chosen.min() if chosen.min() < -n else chosen.max()}")
    return np.where(chosen < 0, chosen + n, chosen).astype(np.int64)


def _run(numbers: NDArray[np.int64]) -> Rows:
    """Consecutive numbers as a slice, which copies faster."""
    first, n = int(numbers[0]), len(numbers)
    return slice(first, first + n) if (np.diff(numbers) == 1).all() else numbers


def _by_chunk(numbers: NDArray[np.int64], step: int) -> list[NDArray[np.int64]]:
    """Places in `numbers`, gathered by the chunk they fall into."""
    chunk = numbers // step
    by_chunk = np.argsort(chunk, kind="stable")
    return [group for group in np.split(by_chunk, np.flatnonzero(np.diff(chunk[by_chunk])) + 1) if len(group)]


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

    X: StoredMaps
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
        """Number of sites per chunk; blocks of this length, from a multiple of it on, are read most efficiently."""
        return self.X.chunk_sites

    @property
    def bytes_read(self) -> int:
        """Bytes of maps read so far, in whole chunks."""
        return self.X.bytes_read

    def read_sites(self, where: slice) -> NDArray[np.float32]:
        """Read the maps at consecutive sites of `order`, as sites × subjects. Threads may call it at the same time."""
        return self.X.read_sites(where)

    def select(self, rows: Sequence[int], participants: Mapping[str, Any] | None = None) -> StoredCohort:
        """Select subjects, in any order; they stay on disk. `participants` replaces their table."""
        own = {name: np.asarray(values)[list(rows)] for name, values in self.participants.items()}
        return replace(
            self,
            X=self.X.select(rows),
            subjects=tuple(self.subjects[row] for row in rows),
            participants=own if participants is None else participants,
        )

    def __getitem__(self, which: Any) -> StoredCohort:
        """Some subjects, which stay on disk: by a mask, row numbers, a slice, or names."""
        return self.select(subject_rows(self.subjects, which))

    def site_blocks(self) -> list[slice]:
        """Blocks of `order` that can be read efficiently; together they cover all sites."""
        n = self.sites.n
        return [slice(first, min(first + self.chunk_sites, n)) for first in range(0, n, self.chunk_sites)]

    @property
    def rounding(self) -> Rounding | None:
        """What storing the maps in two bytes per value changed; None for float32."""
        return Rounding.pooled(self.X.commit.rounding.values())

    @property
    def checked(self) -> bool:
        """Whether checksums cover every file; the first stores had them only for the chunks of maps."""
        return bool(self.X.commit.checksums)

    def __repr__(self) -> str:
        return (
            f"StoredCohort({len(self)} subjects × {self.sites.n} {self.sites.on}; {self.modality}"
            f"{f' in {self.units}' if self.units else ''}, {self.hemisphere} "
            f"hemisphere{'s' * (self.hemisphere == 'both')}; {self.path})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self.X.commit.identity, self.X.subjects, self.participants)


def open_store(path: str | os.PathLike[str]) -> StoredCohort:
    """Open a cohort store without loading its maps.

    Parameters
    ----------
    path : path or URL
        A folder, or an address such as "s3://bucket/cohort.store", "gs://..." or "https://..." (needs
        `pip install 'icofactor[remote]'`). Credentials come from the environment; see docs/scale.md.

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
            # a writer may have replaced the cohort, and removed its files, between reading the commit and them
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
        participants = {name: decode_column(dict(column)) for name, column in commit.participants.items()}
    return StoredCohort(
        X=StoredMaps(folder, commit, order),
        subjects=commit.subjects,
        sites=sites,
        mask=mask,
        hemisphere=cast(Hemisphere, commit.hemisphere),
        modality=commit.modality,
        units=commit.units,
        participants=participants,
        provenance=shared_provenance(commit.steps) | _rounded(commit),
        path=folder,
        generation=commit.generation,
        order=order,
    )


def _rounded(commit: Commit) -> dict[str, Any]:
    found = Rounding.pooled(commit.rounding.values())
    return {} if found is None else {"rounding": asdict(found)}


def _reopen(path: str, identity: str, rows: Any = None, participants: Any = None) -> StoredCohort:
    """The same cohort, or some of its subjects, in another process."""
    stored = _opened_again.__wrapped__(path, identity)
    return replace(stored, participants=participants) if rows is None else stored.select(rows, participants)


def read_mesh(folder: Path | RemotePath, commit: Commit) -> dict[str, Any]:
    """The arrays of the sites, their order and the mask."""
    mark, known = folder / commit.mesh / GROUP, commit.checksums
    if known:
        with reading(mark):
            if sha256(read_text(mark, MOST_METADATA).encode()).hexdigest() != known[commit.mesh]["metadata"]:
                raise Unreadable("is damaged: its checksum is wrong")
    arrays: dict[str, Any] = {}
    for name in (*SITE_ARRAYS, "order", "mask"):
        place = f"{commit.mesh}/{name}"
        if name in _OPTIONAL and not (place in known if known else present(folder / place)):
            arrays[name] = None
            continue
        with reading(folder / COMMIT, "record of a cohort store"):
            sums = known[place] if known else None
        arrays[name] = StoredArray(folder / place, sums).read()
        arrays[name].setflags(write=False)
    if commit.sites.get("regions") is not None:
        for name in (one.name for one in fields(Parcels) if f"{commit.mesh}/{REGIONS}{one.name}" in known):
            place = f"{commit.mesh}/{REGIONS}{name}"
            arrays[f"regions/{name}"] = StoredArray(folder / place, known[place]).read()
    return arrays


def _check_mesh(sites: Sites, order: NDArray[Any], mask: NDArray[Any] | None) -> None:
    n = sites.n
    if not np.array_equal(np.sort(order), np.arange(n)):
        raise Unreadable("is damaged: its order of sites is not an order")
    if mask is not None and (mask.shape != (n,) or mask.dtype != bool):
        raise Unreadable(f"is damaged: its mask has shape {mask.shape} and type {mask.dtype}")
