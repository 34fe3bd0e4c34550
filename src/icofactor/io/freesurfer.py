"""FreeSurfer's own formats: MGH and MGZ, morph files such as lh.thickness, geometry such as
lh.sphere, annotations.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, escaped
from icofactor.io.atomic import atomic_path
from icofactor.io.gifti import check_labels
from icofactor.io.guard import (
    Unreadable,
    check_vertices,
    is_gzip,
    map_file,
    open_file,
    open_plain,
    read_bytes,
    read_exactly,
)
from icofactor.io.types import Maps

Labels = tuple[NDArray[np.int64], dict[int, str]]
"""Key of each vertex, and the names of the keys; a key without a name is not a region."""
_MAX_NAME, _MAX_ENTRIES = 2**12, 100_000
_NEW_TABLE = -2
_MGH_HEADER = 284
_MGH_TYPES = {0: ">u1", 1: ">i4", 3: ">f4", 4: ">i2"}
_MORPH_HEADER = 15
MORPH_MAGIC, SURFACE_MAGICS = b"\xff\xff\xff", (b"\xff\xff\xfe", b"\xff\xff\xfd")
# Tags that may follow the data are short; more is not FreeSurfer's.
_MAX_TAGS = 2**24


def read_mgh(path: Path) -> Maps:
    """Maps of an MGH or MGZ file, (V, 1, 1, n) big-endian; an uncompressed one is mapped, not
    loaded.
    """
    stored = path.stat().st_size
    with open_plain(path) as file:
        head = file.read(_MGH_HEADER)
        if len(head) < _MGH_HEADER:
            raise Unreadable(
                f"is truncated: an MGH header has {_MGH_HEADER} bytes, {len(head)} were found"
            )
        version, *shape, kind = struct.unpack_from(">6i", head)
        if version != 1 or kind not in _MGH_TYPES:
            raise Unreadable(
                f"is not an MGH file, or has an unknown type (version {version}, type {kind})"
            )
        if min(shape) < 1 or sorted(shape[:3])[1] != 1:
            raise Unreadable(
                f"is a volume of shape {tuple(shape)}, not maps of a surface (V, 1, 1, n)"
            )
        n_vertices, n_maps = max(shape[:3]), shape[3]
        check_vertices(n_vertices)
        dtype = np.dtype(_MGH_TYPES[kind])
        size = n_vertices * n_maps * dtype.itemsize
        if not is_gzip(path):
            if stored < _MGH_HEADER + size:
                raise Unreadable(
                    f"is truncated: {size} bytes should follow the header, {stored - _MGH_HEADER} do"
                )
            return Maps({None: map_file(path, dtype, _MGH_HEADER, (n_maps, n_vertices))}, "MGH")
        data = read_exactly(file, size, stored)
        # to the end, where gzip keeps its checksum
        rest = 0
        while piece := file.read(2**16):
            rest += len(piece)
            if rest > _MAX_TAGS:
                raise Unreadable("has far more bytes than its header says")
    return Maps({None: np.frombuffer(data, dtype).reshape(n_maps, n_vertices)}, "MGZ")


def read_morph(path: Path) -> Maps:
    """The map of a FreeSurfer morph ("curv") file such as lh.thickness, of the format used since
    1999.
    """
    stored = path.stat().st_size
    with open_file(path) as file:
        head = file.read(_MORPH_HEADER)
        if len(head) < _MORPH_HEADER or head[:3] != MORPH_MAGIC:
            raise Unreadable("is not a FreeSurfer morph file")
        n_vertices, _, per_vertex = struct.unpack_from(">3i", head, 3)
        check_vertices(n_vertices)
        if per_vertex != 1:
            raise Unreadable(f"has {per_vertex} values per vertex; 1 is read")
        if stored != _MORPH_HEADER + 4 * n_vertices:
            raise Unreadable(
                f"should have {_MORPH_HEADER + 4 * n_vertices} bytes for {n_vertices} vertices; has {stored}"
            )
        data = read_exactly(file, 4 * n_vertices, stored)
    return Maps({None: np.frombuffer(data, ">f4")[None]}, "FreeSurfer morph")


_TRIANGLES, _QUADRANGLES = b"\xff\xff\xfe", (b"\xff\xff\xff", b"\xff\xff\xfd")
# FreeSurfer writes "created by ... on ..." and an empty line
_MAX_STAMP = 2**12


def read_geometry(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Points (V, 3) and triangles (F, 3) of a FreeSurfer file such as lh.sphere."""
    stored = path.stat().st_size
    with open_file(path) as file:
        magic = file.read(3)
        if magic in _QUADRANGLES:
            raise Unreadable(
                "is an old FreeSurfer surface of quadrangles, or a map; convert it to triangles with mris_convert"
            )
        if magic != _TRIANGLES:
            raise Unreadable("is neither GIFTI (.surf.gii) nor FreeSurfer geometry")
        for _ in range(2):
            if not file.readline(_MAX_STAMP).endswith(b"\n"):
                raise Unreadable("is truncated or damaged: its first lines do not end")
        head = file.read(8)
        if len(head) < 8:
            raise Unreadable("is truncated: it ends in its header")
        n_points, n_triangles = struct.unpack(">2i", head)
        check_vertices(n_points)
        check_vertices(
            (n_triangles + 1) // 2
        )  # a closed mesh has twice as many triangles as vertices
        size = 12 * (n_points + n_triangles)
        if file.tell() + size > stored:
            raise Unreadable(
                f"is truncated: {n_points} vertices and {n_triangles} triangles need {size} bytes, "
                f"{stored - file.tell()} are there"
            )
        points = np.frombuffer(file.read(12 * n_points), ">f4").reshape(n_points, 3)
        triangles = np.frombuffer(file.read(12 * n_triangles), ">i4").reshape(n_triangles, 3)
    return points, triangles


# FreeSurfer's own colour of what is unknown.
UNKNOWN = (25, 5, 25)


def write_annot(
    path: str | Path,
    labels: ArrayLike,
    names: Sequence[str],
    colours: ArrayLike,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a parcellation of one hemisphere as a FreeSurfer annotation; label 0 is "unknown".

    Parameters
    ----------
    path : path
        Must end with ".annot".
    labels : int array of shape (n_vertices,)
        0, or the number of the parcel.
    names, colours : sequence of str, array of shape (n_parcels, 3)
        Of the parcels 1, 2, ...; colours are from 0 to 255.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_annot(f"{folder}/lh.parts.annot", [0, 1, 1, 2], ["front", "back"], [[200, 0, 0], [0, 0, 200]]).name
    'lh.parts.annot'
    """
    if not str(path).endswith(".annot"):
        raise ArgumentError("path", str(path), '{path} must end with ".annot"')
    from nibabel.freesurfer import write_annot as write

    values, rgb = check_labels(labels, names, colours)
    table = np.zeros((len(names) + 1, 5), dtype=np.int32)
    table[:, :3] = np.concatenate([[UNKNOWN], rgb])
    with atomic_path(path, overwrite) as temporary:
        write(str(temporary), values, table, ["unknown", *map(str, names)], fill_ctab=True)
    return Path(path)


def read_annot(path: Path) -> Labels:
    """Labels of a FreeSurfer annotation, old or new; keys are places in its table, −1 where a
    vertex has no label.
    """
    data = read_bytes(path)
    n = _Words(data).whole()
    check_vertices(n)
    if len(data) < 4 + 8 * n:
        raise Unreadable(
            f"is truncated: {n} vertices need {4 + 8 * n} bytes, {len(data)} were found"
        )
    pairs = np.frombuffer(data, ">i4", 2 * n, 4).reshape(n, 2)
    if len(np.unique(pairs[:, 0])) != n or pairs[:, 0].min() != 0 or pairs[:, 0].max() != n - 1:
        raise Unreadable(f"is damaged: it does not label each of its {n} vertices once")
    words = _Words(data, 4 + 8 * n)
    if not words.there or words.whole() != 1:
        raise Unreadable("has no table of colours and names, so its labels have no meaning")
    table = _colour_table(words)
    place = {
        colour: number for number, colour in enumerate(table) if colour
    }  # colour 0 is FreeSurfer's "no label"
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
        return escaped(raw.split(b"\0", 1)[0].decode("utf-8", "replace"))
