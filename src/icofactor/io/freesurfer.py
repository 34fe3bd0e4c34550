"""FreeSurfer's formats: MGH and MGZ, morph files such as lh.thickness, geometry, annotations."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import (
    escaped,
)
from icofactor.io.atomic import atomic_path
from icofactor.io.gifti import check_ending, check_labels
from icofactor.io.guard import (
    Unreadable,
    check_vertices,
    open_file,
    read_content,
    read_numbers,
)
from icofactor.io.types import Maps

# Key of each vertex, and the names of the keys; a key without a name is not a region.
Labels = tuple[NDArray[np.int64], dict[int, str]]
# FreeSurfer's own colour of what is unknown.
UNKNOWN = (25, 5, 25)
# The first three bytes of morph files, and of surfaces of triangles.
MORPH_MAGIC = b"\xff\xff\xff"
_TRIANGLES = b"\xff\xff\xfe"
_MGH_HEADER = 284
_MORPH_HEADER = 15
# FreeSurfer begins a surface with "created by ... on ..." and an empty line of at most this length.
_LONGEST_LINE = 4096
_LONGEST_NAME = 4096
_LARGEST_TABLE = 100_000


def read_mgh(path: Path) -> Maps:
    """Read the maps of an MGH or MGZ file (V, 1, 1, n); an uncompressed one is mapped."""
    from nibabel.freesurfer.mghformat import MGHHeader

    content = read_content(path)
    with open_file(path) if content is None else io.BytesIO(content) as stream:
        header = MGHHeader(stream.read(_MGH_HEADER), check=False)
    if header["version"] != 1:
        raise Unreadable("is not an MGH file")
    dims = header["dims"].tolist()
    if min(dims) < 1 or sorted(dims[:3])[1] != 1:
        raise Unreadable(f"is a volume of shape {tuple(dims)}, not maps of a surface (V, 1, 1, n)")
    shape = (max(dims[:3]), dims[3])
    check_vertices(shape[0])
    values = read_numbers(path, content, header.get_data_dtype(), _MGH_HEADER, shape)
    return Maps({None: values.T}, "MGH" if content is None else "MGZ")


def read_morph(path: Path) -> Maps:
    """Read a FreeSurfer morph ("curv") file such as lh.thickness, of the format since 1999."""
    with open_file(path) as file:
        header = file.read(_MORPH_HEADER)
    n_vertices, _, per_vertex = np.frombuffer(header, ">i4", 3, 3).tolist()
    check_vertices(n_vertices)
    size = _MORPH_HEADER + 4 * n_vertices
    if per_vertex != 1 or path.stat().st_size != size:
        raise Unreadable(f"should have {size} bytes: one value for each of {n_vertices} vertices")
    shape = (n_vertices, 1)
    values = read_numbers(path, None, np.dtype(">f4"), _MORPH_HEADER, shape)
    return Maps({None: values.T}, "FreeSurfer morph")


def read_geometry(path: Path) -> tuple[NDArray, NDArray]:
    """Read points (V, 3) and triangles (F, 3) of a FreeSurfer file such as lh.sphere."""
    with open_file(path) as file:
        if file.read(len(_TRIANGLES)) != _TRIANGLES:
            raise Unreadable(
                "is neither GIFTI (.surf.gii) nor FreeSurfer geometry of triangles; convert it "
                "with mris_convert"
            )
        file.readline(_LONGEST_LINE)
        file.readline(_LONGEST_LINE)
        n_points, n_triangles = _whole_numbers(file, 2).tolist()
        check_vertices(n_points)
        # A closed mesh has twice as many triangles as vertices.
        check_vertices((n_triangles + 1) // 2)
        start = file.tell()
    points = read_numbers(path, None, np.dtype(">f4"), start, (3, n_points)).T
    after_points = start + points.nbytes
    triangles = read_numbers(path, None, np.dtype(">i4"), after_points, (3, n_triangles)).T
    return points, triangles


def _whole_numbers(
    file: io.BufferedIOBase,
    n: int,
) -> NDArray:
    """Read the next `n` big-endian whole numbers."""
    content = file.read(4 * n)
    if len(content) < 4 * n:
        raise Unreadable("is truncated")
    return np.frombuffer(content, ">i4")


def read_annot(path: Path) -> Labels:
    """Read an annotation, old or new; keys count its table, −1 is a vertex without a label.

    nibabel's reader takes the vertices to be in order, and the table to have no gaps.
    """
    with open_file(path) as file:
        n = int(_whole_numbers(file, 1)[0])
        check_vertices(n)
        vertices, colours = _whole_numbers(file, 2 * n).reshape(n, 2).T
        if not np.array_equal(np.sort(vertices), np.arange(n)):
            raise Unreadable(f"is damaged: it does not label each of its {n} vertices once")
        if _whole_numbers(file, 1)[0] != 1:
            raise Unreadable("has no table of colours and names, so its labels have no meaning")
        table = _colour_table(file)
    # Colour 0 is FreeSurfer's "no label".
    keys_of = {colour: key for key, colour in enumerate(table) if colour}
    used_colours, colour_of_vertex = np.unique(colours, return_inverse=True)
    keys = np.empty(n, dtype=np.int64)
    used_keys = np.array([keys_of.get(colour, -1) for colour in used_colours.tolist()])
    keys[vertices] = used_keys[colour_of_vertex]
    return keys, dict(enumerate(table.values()))


def _colour_table(file: io.BufferedIOBase) -> dict[int, str]:
    """Read colour, packed into one number as in the list of vertices → name."""
    n_entries = int(_whole_numbers(file, 1)[0])
    # Version 2 says so, and numbers its entries; version 1 begins with their number.
    has_numbers = n_entries == -2
    if has_numbers:
        _whole_numbers(file, 1)
    # The file that the table came from.
    _text(file)
    if has_numbers:
        n_entries = int(_whole_numbers(file, 1)[0])
    if not 0 < n_entries <= _LARGEST_TABLE:
        raise Unreadable(f"claims a table of {n_entries} colours")
    table: dict[int, str] = {}
    for _ in range(n_entries):
        if has_numbers:
            _whole_numbers(file, 1)
        name = _text(file)
        red, green, blue, _transparency = _whole_numbers(file, 4).tolist()
        table.setdefault(red + (green << 8) + (blue << 16), name)
    return table


def _text(file: io.BufferedIOBase) -> str:
    """Read a text that follows its length."""
    size = int(_whole_numbers(file, 1)[0])
    if not 0 <= size <= _LONGEST_NAME:
        raise Unreadable(f"is damaged: a name in its table of colours claims {size} bytes")
    content = file.read(size).split(b"\0", 1)[0]
    return escaped(content.decode("utf-8", "replace"))


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
    >>> path = f"{tempfile.mkdtemp()}/lh.parts.annot"
    >>> colours = [[200, 0, 0], [0, 0, 200]]
    >>> write_annot(path, [0, 1, 1, 2], ["front", "back"], colours).name
    'lh.parts.annot'
    """
    from nibabel.freesurfer import write_annot as write

    check_ending(path, ".annot")
    values, rgb = check_labels(labels, names, colours)
    table = np.zeros((len(names) + 1, 5), dtype=np.int32)
    table[:, :3] = [UNKNOWN, *rgb]
    with atomic_path(path, overwrite) as temporary:
        write(str(temporary), values, table, ["unknown", *map(str, names)], fill_ctab=True)
    return Path(path)
