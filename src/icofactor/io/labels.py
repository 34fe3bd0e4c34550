"""Labels of vertices: FreeSurfer annotations, GIFTI and CIFTI label files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icofactor.io.cifti import read_dlabel
from icofactor.io.gifti import LABELS, parse_gifti
from icofactor.io.guard import Unreadable, check_regular, check_vertices

Labels = tuple[NDArray[np.int64], dict[int, str]]
"""Key of each vertex, and the names of the keys; a key without a name is not a region."""
_MAX_NAME, _MAX_ENTRIES = 2**12, 100_000
_NEW_TABLE = -2


def read_labels(path: Path) -> dict[str | None, Labels]:
    """Hemisphere, or None where the file does not say → labels of its vertices.

    Where: .annot, .label.gii or .dlabel.nii tells the format.
    """
    check_regular(path)
    if path.stat().st_size == 0:
        raise Unreadable("is empty")
    name = path.name.lower()
    if name.endswith(".annot"):
        return {None: read_annot(path)}
    if name.endswith((".gii", ".gii.gz")):
        file = parse_gifti(path)
        first = file.arrays[0]
        if first.data.ndim != 1 or (first.intent != LABELS and not file.labels):
            raise Unreadable("holds no labels; a .label.gii file has one key per vertex and a table of names")
        if first.data.dtype.kind == "f":
            raise Unreadable("holds labels that are not whole numbers")
        return {file.side: (first.data.astype(np.int64), file.labels)}
    if name.endswith(".dlabel.nii"):
        return dict(read_dlabel(path).items())
    raise Unreadable("is not a file of labels; .annot, .label.gii and .dlabel.nii are read")


def read_annot(path: Path) -> Labels:
    """Labels of a FreeSurfer annotation, old or new; keys are places in its table, −1 where a vertex has no label."""
    check_regular(path)
    data = path.read_bytes()
    n = _Words(data).whole()
    check_vertices(n)
    if len(data) < 4 + 8 * n:
        raise Unreadable(f"is truncated: {n} vertices need {4 + 8 * n} bytes, {len(data)} are there")
    pairs = np.frombuffer(data, ">i4", 2 * n, 4).reshape(n, 2)
    if len(np.unique(pairs[:, 0])) != n or pairs[:, 0].min() != 0 or pairs[:, 0].max() != n - 1:
        raise Unreadable(f"is damaged: it does not label each of its {n} vertices once")
    words = _Words(data, 4 + 8 * n)
    if not words.there or words.whole() != 1:
        raise Unreadable("has no table of colours and names, so that its labels have no meaning")
    table = _colour_table(words)
    place = {colour: number for number, colour in enumerate(table) if colour}  # colour 0 is FreeSurfer's "no label"
    colours, of_vertex = np.unique(pairs[:, 1], return_inverse=True)
    keys = np.empty(n, dtype=np.int64)
    keys[pairs[:, 0]] = np.array([place.get(int(colour), -1) for colour in colours])[of_vertex]
    return keys, dict(enumerate(table.values()))


def _colour_table(words: _Words) -> dict[int, str]:
    """Colour, packed into one number as in the list of vertices → name, in the order of the table."""
    n_entries = words.whole()
    new = n_entries < 0
    if new:
        if n_entries != _NEW_TABLE:
            raise Unreadable(f"has a table of colours of version {-n_entries}; 1 and 2 are read")
        words.whole()  # the largest number of an entry
        words.text()  # where the table came from
        n_entries = words.whole()
    else:
        words.text()
    if not 0 < n_entries <= _MAX_ENTRIES:
        raise Unreadable(f"claims a table of {n_entries} colours")
    table: dict[int, str] = {}
    for _ in range(n_entries):
        if new:
            words.whole()
        name = words.text()
        red, green, blue, _transparency = (words.whole() for _ in range(4))
        table.setdefault(red + (green << 8) + (blue << 16), name)
    return table


class _Words:
    """Big-endian numbers and texts, one after the other."""

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data, self._place = data, place

    @property
    def there(self) -> bool:
        return self._place < len(self._data)

    def whole(self) -> int:
        if self._place + 4 > len(self._data):
            raise Unreadable("is truncated: it ends in its table of colours")
        (found,) = struct.unpack_from(">i", self._data, self._place)
        self._place += 4
        return int(found)

    def text(self) -> str:
        size = self.whole()
        if not 0 <= size <= _MAX_NAME or self._place + size > len(self._data):
            raise Unreadable(f"is damaged: a name in its table of colours claims {size} bytes")
        raw = self._data[self._place : self._place + size]
        self._place += size
        return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
