"""Maps on disk: sites in the order of the store × subjects, sliced like an array."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.store.arrays import StoredArray
from icofactor.cohort.store.encoding import DTYPES
from icofactor.cohort.store.layout import Commit
from icofactor.errors import CohortError
from icofactor.io.url import RemotePath
from icofactor.maps.blocks import Rows


class StoredRows:
    """The maps of a store, sites in their order on disk × subjects; reading takes slices or numbers.

    Another process gets the address of the store, and opens it for itself.
    """

    ndim = 2
    # `Maps` may ask for numbers of sites and subjects: only their chunks are read.
    takes_numbers = True

    def __init__(self, folder: Path | RemotePath, commit: Commit, n_sites: int) -> None:
        self.folder = folder
        self.commit = commit
        self._parts = [_Part(folder, name, commit) for name, _ in commit.parts]
        self._first = np.cumsum([0, *(part.n_subjects for part in self._parts)])
        self.shape = (n_sites, int(self._first[-1]))
        # Every subject has the number of its chunk.
        begins_chunk = np.zeros(self.shape[1], dtype=np.int64)
        for part, (first, last) in zip(self._parts, pairwise(self._first), strict=True):
            begins_chunk[first : last : part.chunks[1]] = 1
        self._subject_chunk = begins_chunk.cumsum()
        self.dtype = np.result_type(*(part.dtype for part in self._parts))
        for part in self._parts:
            if part.n_sites != n_sites:
                raise CohortError(
                    part.folder, f"contains {part.n_sites} sites; the store has {n_sites}"
                )
        if self.shape[1] != len(commit.subjects):
            what = f"maps of {self.shape[1]} subjects, but names {len(commit.subjects)}"
            raise CohortError(folder, f"contains {what}")

    @property
    def stored_dtype(self) -> np.dtype:
        """Type of the values that were written last."""
        return np.dtype(self._parts[-1].dtype.name)

    @property
    def chunks(self) -> tuple[int, int]:
        """Sites × subjects of a file."""
        height = max(part.chunks[0] for part in self._parts)
        return height, max(part.chunks[1] for part in self._parts)

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, in whole chunks."""
        return sum(part.bytes_read for part in self._parts)

    @property
    def sizes(self) -> list[int]:
        """Bytes of every file of maps."""
        return [part.chunk_bytes for part in self._parts for _ in range(part.n_chunks)]

    def __getitem__(self, key: tuple[Rows, Rows]) -> NDArray[Any]:
        """Read some rows of some subjects, given by slices or by numbers."""
        rows, subjects = key
        if isinstance(subjects, slice):
            return self._read_rows(rows, subjects)
        # Subjects that lie apart are read from their chunks, never with all between them.
        values = np.empty((len(np.arange(self.shape[0])[rows]), len(subjects)), self.dtype)
        order = np.argsort(subjects, kind="stable")
        chunk = self._subject_chunk[subjects[order]]
        for members in np.split(order, np.flatnonzero(np.diff(chunk) > 1) + 1):
            lowest, highest = int(subjects[members[0]]), int(subjects[members[-1]])
            block = self._read_rows(rows, slice(lowest, highest + 1))
            values[:, members] = block[:, subjects[members] - lowest]
        return values

    def _read_rows(self, rows: Rows, subjects: slice) -> NDArray[Any]:
        if isinstance(rows, slice):
            first, last, step = rows.indices(self.shape[0])
            if step != 1:
                raise ValueError(f"sites must be consecutive; got a slice with step {step}")
            return self._read(first, max(first, last), subjects)
        # Rows that lie apart are read chunk by chunk, never all that lies between them.
        values = np.empty((len(rows), len(range(self.shape[1])[subjects])), self.dtype)
        order = np.argsort(rows, kind="stable")
        chunk = rows[order] // self.chunks[0]
        for members in np.split(order, np.flatnonzero(np.diff(chunk)) + 1):
            if len(members):
                lowest = int(rows[members[0]])
                block = self._read(lowest, int(rows[members[-1]]) + 1, subjects)
                values[members] = block[rows[members] - lowest]
        return values

    def _read(self, first_row: int, last_row: int, subjects: slice) -> NDArray[Any]:
        rows = slice(first_row, last_row)
        first, last, _ = subjects.indices(self.shape[1])
        block = np.empty((last_row - first_row, max(last - first, 0)), self.dtype)
        for part, (start, stop) in zip(self._parts, pairwise(self._first.tolist()), strict=True):
            low, high = max(first, start), min(last, stop)
            if low < high:
                values = part.read((rows, slice(low - start, high - start)))
                if high - low == block.shape[1]:
                    return values
                block[:, low - first : high - first] = values
        return block

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (str(self.folder), self.commit.identity)


def _reopened(path: str, identity: str) -> StoredRows:
    """Return the same maps in another process."""
    from icofactor.cohort.store.read import opened_again

    rows: StoredRows = opened_again(path, identity).X.values
    return rows


class _Part(StoredArray):
    """The maps that one append wrote, sites (order on disk) × subjects."""

    def __init__(self, store: Path | RemotePath, name: str, commit: Commit) -> None:
        super().__init__(store / name, commit.checksums[name])
        if self.dtype.name not in DTYPES or len(self.shape) != 2:
            raise CohortError(
                self.folder, f"contains {self.dtype} {self.shape}, not maps in float32 or float16"
            )
        self.n_sites, self.n_subjects = self.shape
        self.bytes_read, self._counting = 0, threading.Lock()

    def read(self, where: tuple[slice, ...] | None = None) -> NDArray[Any]:
        """Values as they are stored."""
        found = super().read(where)
        if where is not None and found.size:
            with self._counting:
                self.bytes_read += len(self.touched(where)) * self.chunk_bytes
        return found
