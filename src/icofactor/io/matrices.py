"""Maps as plain arrays of numbers: text and CSV, MATLAB's .mat, and NIfTI of mri_surf2surf."""

from __future__ import annotations

import io
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
    check_vertices,
    open_file,
    read_content,
    read_numbers,
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
        name = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"lists {name[:60]} twice; keep one row per person")
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

# Types of data elements in a MAT-file of version 5, and of its arrays (classes).
_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}
_OTHER_CLASSES = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse"}
_MATRIX = 14
_COMPRESSED = 15
_COMPLEX = 0x0800
# Bytes of an array before its numbers: flags, dimensions and name.
_ARRAY_HEADER = 4096


@dataclass(frozen=True)
class _Variable:
    """A variable of a MAT-file; its data have not been looked at."""

    name: str
    shape: tuple[int, ...]
    kind: str
    content: memoryview
    is_compressed: bool


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
    if header.startswith(b"\x89HDF") or header[124:126] in (b"\x00\x02", b"\x02\x00"):
        raise Unreadable("is a MATLAB file of version 7.3; save it with -v7")
    if header[126:128] not in (b"IM", b"MI"):
        raise Unreadable("is not a MATLAB file of version 5 to 7; save it with -v7")
    order = "<" if header[126:128] == b"IM" else ">"
    variables = list(_variables(content, order))
    variable = _choose(variables, measure)
    size = volume(variable.shape) * np.dtype(variable.kind).itemsize
    check_growth(size, len(content))
    array_content = variable.content
    if variable.is_compressed:
        # A number takes at most eight bytes, whatever type holds it.
        array_content = _inflate(array_content, 8 * volume(variable.shape) + _ARRAY_HEADER)
    element = next(islice(_elements(array_content, order), 3, None), None)
    if element is None or element[0] not in _TYPES:
        raise Unreadable(
            f"is damaged: the data of {shown(variable.name)} are missing or no numbers"
        )
    values = np.frombuffer(element[1], order + _TYPES[element[0]])
    return variable.name, values.reshape(variable.shape, order="F").astype(variable.kind)


def _variables(
    content: bytes,
    order: str,
) -> Iterator[_Variable]:
    """Return the variables of a file, from what precedes their data."""
    for element_type, element in _elements(content, order):
        is_compressed = element_type == _COMPRESSED
        head = _inflate(element, _ARRAY_HEADER) if is_compressed else element
        if not is_compressed and element_type != _MATRIX:
            raise Unreadable(f"is damaged: it contains an element of type {element_type}")
        flags, dims, name = (data for _, data in islice(_elements(head, order), 3))
        (flag_bits,) = struct.unpack_from(f"{order}I", flags)
        array_class = flag_bits & 0xFF
        kind = _CLASSES.get(array_class, _OTHER_CLASSES.get(array_class, "unknown"))
        shape = tuple(np.frombuffer(dims, f"{order}i4").tolist())
        is_real = not flag_bits & _COMPLEX
        # MATLAB's names have at most 63 characters.
        text = escaped(bytes(name[:63]).decode("ascii", "replace"))
        yield _Variable(text, shape, kind if is_real else "complex", element, is_compressed)


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
        end = start + size
        if element_type >> 16:
            # A small element: size and type share four bytes, and the other four are its content.
            start = position + 4
            end = start + min(4, element_type >> 16)
            element_type &= 0xFFFF
        if end > len(view):
            raise Unreadable("is truncated or damaged: an element is longer than the file")
        yield element_type, view[start:end]
        # Only compressed elements may end anywhere.
        position = end if element_type == _COMPRESSED else end + -end % 8


def _inflate(
    content: memoryview,
    size: int,
) -> memoryview:
    """Return at most so many bytes of a compressed array, without its type and size."""
    return memoryview(zlib.decompressobj().decompress(content, size))[8:]


def _choose(
    variables: list[_Variable],
    measure: str | None,
) -> _Variable:
    """Return the variable called `measure`, or the largest one of two dimensions."""
    numeric = {
        variable.name: variable
        for variable in variables
        if variable.kind in _CLASSES.values()
        and len(variable.shape) == 2
        and min(variable.shape) > 0
        and max(variable.shape) > 1
    }
    if measure in numeric:
        return numeric[measure]
    largest = max((volume(variable.shape) for variable in numeric.values()), default=0)
    candidates = list(numeric.values())
    if measure is None:
        candidates = [x for x in candidates if volume(x.shape) == largest]
    if len(candidates) == 1:
        return candidates[0]
    listed = ", ".join(f"{x.name} {x.shape} {x.kind}" for x in variables[:10]) or "nothing"
    if not numeric:
        raise Unreadable(f"contains {listed}; save people × vertices as an array of numbers")
    wrong = "" if measure is None else f"none is called {shown(measure)}; "
    raise Unreadable(f"contains {listed}; {wrong}name the one to read with --measure (measure=)")


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
    from nibabel.nifti1 import Nifti1Header

    content = read_content(path)
    with open_file(path) if content is None else io.BytesIO(content) as stream:
        head = stream.read(348)
    header = Nifti1Header(head, check=False)
    shape = header.get_data_shape()
    n_vertices = volume(shape[:3])
    if n_vertices not in sizes:
        raise Unreadable(
            f"is a NIfTI-1 volume of {' × '.join(map(str, shape[:3]))} voxels, not the size of a "
            "known mesh; project it to the surface first (mri_vol2surf)"
        )
    matrix = (n_vertices, volume(shape[3:]))
    dtype = header.get_data_dtype()
    values = read_numbers(path, content, dtype, header.get_data_offset(), matrix).T
    slope, intercept = header.get_slope_inter()
    if slope is not None and (slope, intercept) != (1.0, 0.0):
        values = values * np.float64(slope) + np.float64(intercept)
    return Maps({None: values}, "NIfTI")
