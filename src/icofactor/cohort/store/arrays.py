"""The arrays of a store: zarr 3 in the one form that icofactor writes, which zarr reads too.

A chunk is a file of plain little-endian numbers in C order, followed by their CRC-32C; at the edges
it is filled up with zeros. Reading runs nothing but a copy and a checksum, and the size of each
file is known before it is opened.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.store.metadata import NUMBERS, array_record, is_shape
from icofactor.errors import CohortError
from icofactor.io.guard import Unreadable, naming, open_file
from icofactor.io.json import parse_json, read_text
from icofactor.io.url import MOST_FILE, RemotePath
from icofactor.maps.workers import n_threads

GROUP = "zarr.json"
AGAIN = "Copy the cohort store again, or write it again"
Checksums = Mapping[str, str]
"""Of one array: SHA-256 of its "metadata", and the CRC-32C of all its "chunks" in one hexadecimal
text.
"""
_SUM, _DIGITS = 4, 8
_AHEAD = 64
"""Chunks that the operating system is asked to read ahead, by all threads together."""
_MOST_CHUNKS = 10**7
_TYPES = {*NUMBERS, "float16"}
MOST_METADATA, _MOST_WHOLE = 2**16, 2**31
"""Bytes of the metadata of an array, and of an array behind a URL that is read whole, at most."""


class _Reading:
    """`reading`; there are two around every chunk, so nothing is made before something is wrong."""

    def __init__(self, file: Path | RemotePath | str, what: str) -> None:
        self._file, self._what = file, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if problem is None:
            return
        file = Path(self._file) if isinstance(self._file, str) else self._file
        with naming(file, self._what, CohortError, AGAIN):
            if isinstance(problem, FileNotFoundError | NotADirectoryError):
                raise Unreadable(
                    "is missing: the cohort store is damaged, or was replaced while it was read"
                ) from None
            raise problem


def reading(
    file: Path | RemotePath | str, what: str = "part of a cohort store"
) -> AbstractContextManager[None]:
    """Whatever goes wrong inside becomes one CohortError about this file of a store."""
    return _Reading(file, what)


class StoredArray:
    """An array on disk, refused unless all its files are there, whole and those that the commit
    names.

    Of an array behind a URL, the files are looked at when they are read.

    Parameters
    ----------
    folder : where it lies.
    known : its checksums by the commit; None of an array that no commit names yet.
    """

    def __init__(self, folder: Path | RemotePath, known: Checksums | None = None) -> None:
        self.folder = folder
        with reading(folder / GROUP):
            text = read_text(folder / GROUP, MOST_METADATA)
            self._metadata = sha256(text.encode()).hexdigest()
            if known is not None and known["metadata"] != self._metadata:
                raise Unreadable("is damaged: its checksum is wrong")
            record: Any = parse_json(text)
            shape, chunks = _shapes(record)
            known_form = record.get("data_type") in _TYPES and {
                "storage_transformers": [],
                **record,
            } == _record(shape, record["data_type"], chunks)
            if not known_form:
                raise Unreadable(
                    "is damaged: it is not an array of numbers in the form that icofactor writes"
                )
            self.shape = tuple(shape)
            self.chunks, self.dtype = tuple(chunks), np.dtype(record["data_type"]).newbyteorder("<")
            self._grid = tuple(-(-n // step) for n, step in zip(shape, chunks, strict=True))
            self.n_chunks = math.prod(self._grid)
            if self.n_chunks > _MOST_CHUNKS:
                raise Unreadable(f"is damaged: it claims {self.n_chunks} chunks")
            self.chunk_bytes = math.prod(chunks) * self.dtype.itemsize + _SUM
            self._sums = None if known is None else known["chunks"]
            if self._sums is not None and len(self._sums) != _DIGITS * self.n_chunks:
                raise Unreadable("is damaged: its number of chunks differs from the commit")
            if isinstance(folder, RemotePath) and self.chunk_bytes > MOST_FILE:
                raise Unreadable(
                    f"has chunks of {self.chunk_bytes} bytes, at most {MOST_FILE} are read from a URL"
                )
        for file in self._files() if isinstance(folder, Path) else ():
            with reading(file):
                self._check_size(os.stat(file).st_size)

    def _files(self) -> Iterator[str | RemotePath]:
        return (self._file(numbers) for numbers in product(*map(range, self._grid)))

    def _file(self, numbers: tuple[int, ...]) -> str | RemotePath:
        if isinstance(self.folder, RemotePath):
            return self.folder / _name(numbers)
        return os.path.join(self.folder, "c", *map(str, numbers))

    def _check_size(self, found: int) -> None:
        if found != self.chunk_bytes:
            raise Unreadable(
                f"has {found} bytes instead of {self.chunk_bytes}: the cohort store is damaged"
            )

    def touched(self, where: tuple[slice, ...]) -> list[tuple[int, ...]]:
        """The numbers of the chunks that hold these rows and columns."""
        return list(
            product(*(_cuts(one, step) for one, step in zip(where, self.chunks, strict=True)))
        )

    def read(self, where: tuple[slice, ...] | None = None) -> NDArray[Any]:
        """The values at slices with their ends; all of them by default. Checksums are compared."""
        if where is None:
            where = tuple(slice(0, n) for n in self.shape)
            if (
                isinstance(self.folder, RemotePath)
                and math.prod(self.shape) * self.dtype.itemsize > _MOST_WHOLE
            ):
                raise CohortError(
                    self.folder, f"is damaged: it claims an array of shape {self.shape}"
                )
        found = np.empty([one.stop - one.start for one in where], self.dtype)
        for there, inside, values in self.pieces(where) if found.size else ():
            found[there] = values[inside]
        return found

    def pieces(
        self, where: tuple[slice, ...]
    ) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...], NDArray[Any]]]:
        """Every chunk that holds some of these rows and columns: where they stand among them, where
        in it, its values.

        Checksums are compared.
        """
        touched = self.touched(where)
        files = list(map(self._file, touched))
        cuts = [_cuts(one, step) for one, step in zip(where, self.chunks, strict=True)]
        for numbers, file, data in zip(touched, files, self._chunks(touched, files), strict=True):
            places = [of_axis[i] for of_axis, i in zip(cuts, numbers, strict=True)]
            there, inside = zip(*places, strict=True)
            yield there, inside, self._checked(numbers, file, data)

    def _chunks(
        self, touched: list[tuple[int, ...]], files: list[str | RemotePath]
    ) -> Iterator[NDArray[np.uint8]]:
        """The bytes of chunks; behind a URL several at once, and those of the rows that are likely
        next.
        """
        if isinstance(self.folder, RemotePath) and touched:
            first, last = touched[0][0], touched[-1][0]
            rows = range(last + 1, min(2 * last - first + 2, self._grid[0]))
            after = [
                _name((row, *rest)) for row in rows for number, *rest in touched if number == last
            ]
            coming = self.folder.read_all(list(map(_name, touched)), after, self.chunk_bytes)
        ahead: deque[io.BufferedReader] = deque()
        n_ahead = max(1, _AHEAD // n_threads())
        try:
            for i, file in enumerate(files):
                for later in (
                    files[i + len(ahead) : i + n_ahead + 1] if isinstance(file, str) else ()
                ):
                    try:
                        with reading(later):
                            ahead.append(_opened(later))
                    except CohortError as problem:
                        if not ahead or getattr(problem.__cause__, "errno", 0) not in (
                            errno.EMFILE,
                            errno.ENFILE,
                        ):
                            raise
                        break  # no more files may be open: those that are do for now
                with reading(file):
                    if isinstance(file, RemotePath):
                        data = np.frombuffer(next(coming), np.uint8)
                    else:
                        data = np.empty(self.chunk_bytes, np.uint8)
                        with ahead.popleft() as opened:
                            self._check_size(os.fstat(opened.fileno()).st_size)
                            self._check_size(_fill(data, opened))
                yield data
        finally:
            for opened in ahead:
                opened.close()

    def _checked(
        self, numbers: tuple[int, ...], file: str | RemotePath, data: NDArray[np.uint8]
    ) -> NDArray[Any]:
        with reading(file):
            here, place = data[-_SUM:].tobytes(), 0
            for number, n in zip(numbers, self._grid, strict=True):
                place = place * n + number
            if here != crc32c(data[:-_SUM]):
                raise Unreadable("is damaged: its checksum is wrong")
            if (
                self._sums is not None
                and here.hex() != self._sums[_DIGITS * place : _DIGITS * (place + 1)]
            ):
                raise Unreadable(
                    "is damaged: it is not the chunk in the commit, or was replaced in the meantime"
                )
        return data[:-_SUM].view(self.dtype).reshape(self.chunks)

    def checksums(self) -> dict[str, str]:
        """What the commit says of this array; of each chunk only the end is read."""
        return {"metadata": self._metadata, "chunks": "".join(map(_kept_sum, self._files()))}


def _cuts(wanted: slice, step: int) -> dict[int, tuple[slice, slice]]:
    """For each chunk along an axis that holds some of these places: where they stand among them,
    and in the chunk.
    """
    found = {}
    for i in range(wanted.start // step, -(-wanted.stop // step)):
        start, stop = max(wanted.start, i * step), min(wanted.stop, (i + 1) * step)
        found[i] = (
            slice(start - wanted.start, stop - wanted.start),
            slice(start - i * step, stop - i * step),
        )
    return found


def _shapes(record: Any) -> tuple[list[int], list[int]]:
    """Shape of an array and of its chunks."""
    try:
        shape, chunks = record["shape"], record["chunk_grid"]["configuration"]["chunk_shape"]
    except (LookupError, TypeError):
        shape = chunks = None
    if not (
        is_shape(shape)
        and is_shape(chunks)
        and len(shape) == len(chunks)
        and min([*shape, *chunks], default=0)
    ):
        raise Unreadable("is damaged: it is not the record of an array in chunks")
    return shape, chunks


def _name(numbers: tuple[int, ...]) -> str:
    """The file of a chunk, in the folder of its array."""
    return "/".join(("c", *map(str, numbers)))


def _opened(file: Any) -> io.BufferedReader:
    """A file that the operating system reads ahead."""
    opened = open_file(file)
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
    return opened


def _fill(data: NDArray[np.uint8], opened: io.BufferedReader) -> int:
    """Read a file into memory, past its buffer, which would hold a part back; how many bytes there
    were.
    """
    n = opened.raw.readinto(data.data) or 0
    while 0 < n < len(data) and (more := opened.raw.readinto(data[n:].data)):
        n += more
    return n


def _kept_sum(file: str | RemotePath) -> str:
    with reading(file), open_file(file) as opened:
        opened.seek(-_SUM, os.SEEK_END)
        return opened.read(_SUM).hex()


def crc32c(data: NDArray[np.uint8]) -> bytes:
    """The CRC-32C of bytes, as zarr writes it behind a chunk. Other threads go on meanwhile."""
    from crc32c import crc32c as of_bytes

    return of_bytes(data.data).to_bytes(_SUM, "little")


def write_array(folder: Path, values: np.ndarray) -> None:
    """An array in one chunk."""
    write_chunk(folder, (0,) * values.ndim, values, values.shape)
    write_metadata(folder, values.shape, values.shape, values.dtype)


def write_chunk(
    folder: Path, numbers: tuple[int, ...], values: np.ndarray, chunks: tuple[int, ...]
) -> None:
    """One chunk, whose values may end before it does."""
    if values.shape != chunks:
        values = np.pad(values, [(0, n - m) for n, m in zip(chunks, values.shape, strict=True)])
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    file = folder.joinpath("c", *map(str, numbers))
    file.parent.mkdir(parents=True, exist_ok=True)
    data = values.reshape(-1).view(np.uint8)
    with open(file, "xb") as opened:
        opened.write(data.data)
        opened.write(crc32c(data))


def write_metadata(
    folder: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """What zarr wants to know of an array."""
    with open(folder / GROUP, "x", encoding="utf-8", newline="\n") as opened:
        opened.write(json.dumps(_record(shape, dtype.name, chunks), indent=1))


def _record(shape: Any, data_type: str, chunks: Any) -> dict[str, Any]:
    record = array_record(shape, data_type, chunks)
    return {**record, "codecs": [*record["codecs"], {"name": "crc32c"}], "storage_transformers": []}
