"""Maps as plain arrays of numbers: text and CSV, MATLAB's .mat, and NIfTI of mri_surf2surf."""

from __future__ import annotations

import math
import re
import struct
import zlib
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import escaped, shown
from icofactor.io.guard import (
    MAX_VERTICES,
    Unreadable,
    check_growth,
    check_size,
    check_vertices,
    open_file,
    read_content,
    volume,
)
from icofactor.io.tables import (
    is_missing,
    is_number,
    read_rows,
)
from icofactor.io.types import Maps

# ---------------------------------------------------------------------- text

# Words above the column of people's names.
_ID_COLUMNS = ("", "participant_id", "subject", "subject_id", "subjects", "id", "ids")
_NUMBERED = re.compile(r"(.*?)(\d+)")


def read_text_maps(path: Path) -> Maps:
    """Read one number per line, as CIVET writes a map, or people × vertices from a table.

    The table may have a header and a first column of people's names.
    """
    separator, rows = read_rows(path, max_columns=MAX_VERTICES, is_map=True)
    if separator in "\t;":
        # Commas that do not separate cells are decimal commas.
        rows = ([cell.replace(",", ".") for cell in row] for row in rows)
    first = next(rows, [])
    has_header = _is_header(first)
    has_names = has_header and len(first) > 1 and first[0].lower() in _ID_COLUMNS
    if has_header:
        _check_columns(first[1:] if has_names else first)
        first = next(rows, [])
    has_names = has_names or (len(first) > 1 and _number(first[0]) is None)
    names: list[str] = []
    numbers = array("d")
    n_rows = 0
    for row in chain([first], rows):
        n_rows += 1
        if has_names:
            names.append(escaped(row.pop(0)))
        numbers.extend(_numbers(row, n_rows))
        if n_rows > MAX_VERTICES:
            check_vertices(n_rows)
    if not numbers:
        raise Unreadable("contains no numbers")
    if len(set(names)) < len(names):
        raise Unreadable("lists a person twice; keep one row per person")
    values = np.frombuffer(numbers, dtype=np.float64).reshape(n_rows, -1)
    is_single = values.shape[1] == 1
    maps = values.T if is_single else values
    check_vertices(maps.shape[1])
    return Maps({None: maps}, "text", () if is_single else tuple(names))


def _is_header(row: list[str]) -> bool:
    """Return whether a first row names the columns: a row with numbers in it is a person's."""
    cells = row[1:] or row
    if not any(is_number(cell) for cell in cells):
        return not all(is_missing(cell) for cell in cells)
    # A data frame without names of columns numbers them.
    counts = [str(int(cells[0]) + i) for i in range(len(cells))] if cells[0].isdecimal() else []
    return row[0].lower() in _ID_COLUMNS and cells == counts


def _check_columns(names: list[str]) -> None:
    """Refuse columns that are double, or whose numbers do not count up, as in v0, v1, v10, v2."""
    last: dict[str, int] = {}
    previous = None
    for name in names:
        match = _NUMBERED.fullmatch(name)
        stem = match[1] if match else name
        number = int(match[2]) if match else 0
        if stem in last and (stem != previous or number <= last[stem]):
            raise Unreadable(f"has its column {shown(name[:40])} out of order, or twice")
        last[stem] = number
        previous = stem


def _numbers(
    row: list[str],
    n_rows: int,
) -> list[float]:
    """Return the numbers of a row; what is missing is NaN."""
    try:
        # Python reads 1_000 as a thousand.
        if "_" not in "".join(row):
            return list(map(float, row))
    except ValueError:
        pass
    numbers = [_number(cell) for cell in row]
    if None in numbers:
        cell = row[numbers.index(None)]
        raise Unreadable(f"contains {shown(cell[:40])} in row {n_rows}, which is not a number")
    return [number for number in numbers if number is not None]


def _number(cell: str) -> float | None:
    """Return the number in a cell, NaN if it is missing, or None."""
    if is_missing(cell):
        return math.nan
    return float(cell) if is_number(cell) else None


# ---------------------------------------------------------------------- MATLAB

# Types of data elements in a MAT-file of version 5, and the numeric classes of its arrays.
_TYPES = dict(
    zip(
        (*range(1, 8), 9, 12, 13),
        ["i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8"],
        strict=True,
    )
)
_CLASSES = dict(enumerate(["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"], 6))
_COMPRESSED = 15
_COMPLEX = 0x0800
# Bytes of an array before its numbers: flags, dimensions and name.
_ARRAY_HEADER = 4096


@dataclass(frozen=True)
class _Variable:
    """A numeric array of a MAT-file; its numbers have not been looked at."""

    name: str
    shape: tuple[int, ...]
    kind: str
    element_type: int
    content: memoryview


def read_mat(
    path: Path,
    measure: str | None = None,
) -> tuple[str, NDArray]:
    """Read an array of a MATLAB file by name, or the largest one; objects and cells are not read.

    SciPy's reader takes the type of an element from the file without a check, and crashes.
    """
    with open_file(path) as file:
        header = file.read(128)
        content = file.read()
    if header[126:128] not in (b"IM", b"MI") or b"\x02" in header[124:126]:
        raise Unreadable("is not a MATLAB file of version 5 to 7; save it with -v7")
    order = "<" if header[126:128] == b"IM" else ">"
    variable = _choose(list(_variables(content, order)), measure)
    size = volume(variable.shape)
    check_growth(size * np.dtype(variable.kind).itemsize, len(content))
    # A number takes at most eight bytes, whatever type holds it.
    array_content = _inflated(variable.element_type, variable.content, 8 * size + _ARRAY_HEADER)
    # Flags, dimensions and name come before the numbers.
    element_type, numbers = list(islice(_elements(array_content, order), 4))[3]
    if element_type not in _TYPES:
        raise Unreadable(f"is damaged: the data of {shown(variable.name)} are no numbers")
    values = np.frombuffer(numbers, order + _TYPES[element_type])
    return variable.name, values.reshape(variable.shape, order="F").astype(variable.kind)


def _variables(
    content: bytes,
    order: str,
) -> Iterator[_Variable]:
    """Return the numeric arrays of two dimensions in a file, from what precedes their numbers."""
    for element_type, element in _elements(content, order):
        head = _inflated(element_type, element, _ARRAY_HEADER)
        flags, dims, name = (data for _, data in islice(_elements(head, order), 3))
        (flag_bits,) = struct.unpack_from(f"{order}I", flags)
        kind = _CLASSES.get(flag_bits & 0xFF)
        shape = tuple(np.frombuffer(dims, f"{order}i4").tolist())
        is_matrix = len(shape) == 2 and min(shape) > 0 and max(shape) > 1
        if kind is not None and is_matrix and not flag_bits & _COMPLEX:
            # MATLAB's names have at most 63 characters.
            text = escaped(bytes(name[:63]).decode("ascii", "replace"))
            yield _Variable(text, shape, kind, element_type, element)


def _elements(
    content: bytes | memoryview,
    order: str,
) -> Iterator[tuple[int, memoryview]]:
    """Return type and content of each data element."""
    view = memoryview(content)
    position = 0
    while position + 8 <= len(view):
        element_type, size = struct.unpack_from(f"{order}2I", view, position)
        start = position + 8
        if element_type >> 16:
            # A small element: size and type share four bytes, and the other four are its content.
            start = position + 4
            size = min(4, element_type >> 16)
            element_type &= 0xFFFF
        end = start + size
        if end > len(view):
            raise Unreadable("is truncated or damaged: an element is longer than the file")
        yield element_type, view[start:end]
        # Only compressed elements may end anywhere.
        position = end if element_type == _COMPRESSED else end + -end % 8


def _inflated(
    element_type: int,
    content: memoryview,
    size: int,
) -> memoryview:
    """Return an array; of a compressed one at most so many bytes, without its type and size."""
    if element_type != _COMPRESSED:
        return content
    return memoryview(zlib.decompressobj().decompress(content, size))[8:]


def _choose(
    variables: list[_Variable],
    measure: str | None,
) -> _Variable:
    """Return the variable called `measure`, or the largest one."""
    largest = max((volume(variable.shape) for variable in variables), default=0)
    candidates = [
        variable
        for variable in variables
        if variable.name == measure or (measure is None and volume(variable.shape) == largest)
    ]
    if len(candidates) == 1:
        return candidates[0]
    listed = ", ".join(f"{x.name} {x.shape}" for x in variables[:10]) or "no matrix of numbers"
    raise Unreadable(f"contains {listed}; name the one to read with --measure (measure=)")


# ---------------------------------------------------------------------- NIfTI


def read_nifti(
    path: Path,
    sizes: Collection[int],
) -> Maps:
    """Read a NIfTI-1 file of (n, 1, 1) voxels, or with n spread over three dimensions.

    mri_surf2surf writes it.

    Parameters
    ----------
    sizes : numbers of vertices of meshes; a file with another number of voxels is a volume.
    """
    from nibabel.nifti1 import Nifti1Image

    content = read_content(path)
    content = path.read_bytes() if content is None else content
    image = Nifti1Image.from_bytes(content)
    shape = image.shape
    n_vertices = volume(shape[:3])
    if n_vertices not in sizes:
        raise Unreadable(
            f"is a NIfTI-1 volume of {' × '.join(map(str, shape[:3]))} voxels, not the size of a "
            "known mesh; project it to the surface first (mri_vol2surf)"
        )
    check_size(len(content), image.dataobj.offset, shape, image.dataobj.dtype)
    values = np.asarray(image.dataobj).reshape(n_vertices, -1, order="F")
    return Maps({None: values.T}, "NIfTI")
