"""What every reader gives, and the limits none of them passes."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

MAX_VERTICES = 5_000_000
"""Per hemisphere; thirty times fsaverage."""
MAX_EXPANSION, FREE_SIZE = 200, 2**30
"""A file may grow by this factor when decompressed; below the free size (bytes) any growth is allowed."""
_PIECE = 2**20
_GZIP = b"\x1f\x8b"


class Unreadable(ValueError):
    """A file is not what it seems; the message does not name it, who catches this does."""


@dataclass(frozen=True, eq=False)
class Maps:
    """The maps of one file.

    Attributes
    ----------
    parts : hemisphere → (n_maps, n_vertices); "left", "right", or None where the file does not say.
    reader : the format.
    names : one name per map, or none at all.
    columns : name → one value per map (npz).
    mask : (n_vertices of all parts,) bool that came with the maps, or None.
    array : name of the array that holds the maps (npz).
    step : seconds between the maps of a time series, or None.
    notes : what the reader left out.
    """

    parts: Mapping[str | None, NDArray[Any]]
    reader: str
    names: tuple[str, ...] = ()
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    mask: NDArray[np.bool_] | None = None
    array: str = ""
    step: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def n_maps(self) -> int:
        """Number of maps, the same in both hemispheres."""
        return len(next(iter(self.parts.values())))


def check_growth(size: int, stored: int) -> None:
    """Refuse data that would take far more room than the file they come from."""
    if size > FREE_SIZE and size > MAX_EXPANSION * stored:
        raise Unreadable(f"would take {size / 2**30:.1f} GiB, from a file of {stored} bytes: refused")


def check_vertices(n: int) -> None:
    """Refuse a number of vertices that no cortex has."""
    if not 0 < n <= MAX_VERTICES:
        raise Unreadable(f"claims {n} vertices; between 1 and {MAX_VERTICES} are read")


def is_gzip(path: Path) -> bool:
    """Whether a file is compressed, whatever its name says."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def open_plain(path: Path) -> IO[bytes]:
    """A file, decompressed on the way when it is compressed."""
    return gzip.open(path) if is_gzip(path) else path.open("rb")  # type: ignore[return-value]


def read_exactly(file: IO[bytes], size: int, stored: int) -> bytearray:
    """The next `size` bytes of a file that has `stored` bytes on disk; memory grows only as they come."""
    check_growth(size, stored)
    data = bytearray()
    while len(data) < size:
        piece = file.read(min(size - len(data), _PIECE))
        if not piece:
            raise Unreadable(f"is truncated: {size} bytes should follow the header, {len(data)} are there")
        data += piece
    return data


def read_whole(path: Path) -> bytes:
    """A whole file, decompressed when it is compressed."""
    stored = path.stat().st_size
    pieces, size = [], 0
    with open_plain(path) as file:
        while piece := file.read(_PIECE):
            size += len(piece)
            check_growth(size, stored)
            pieces.append(piece)
    return b"".join(pieces)


def inflate(data: bytes, size: int) -> bytes:
    """Undo zlib; the answer must have `size` bytes."""
    check_growth(size, len(data))
    stream = zlib.decompressobj()
    found = stream.decompress(data, size + 1)
    if len(found) != size or not stream.eof:
        raise Unreadable(f"is damaged: {size} bytes of data were expected, {len(found)} or more are there")
    return found


def volume(shape: tuple[int, ...]) -> int:
    """Number of entries, without the overflow of fixed-size integers."""
    return math.prod(int(n) for n in shape)
