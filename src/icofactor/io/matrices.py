"""Maps as plain arrays of numbers: text and CSV, MATLAB's .mat, and NIfTI as mri_surf2surf writes
it.
"""

from __future__ import annotations

import array
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import escaped, literal
from icofactor.io.guard import (
    MAX_VERTICES,
    Unreadable,
    check_growth,
    check_vertices,
    open_file,
    open_plain,
    read_exactly,
    volume,
)
from icofactor.io.types import Maps

_LINE = 2**26  # bytes
_UNKNOWN = {"", "na", "n/a", "nan"}
_NUMERIC = (
    "double",
    "single",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "logical",
)
_NIFTI = {2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4"}


def read_text_maps(path: Path) -> Maps:
    """One number per line, as CIVET writes a map; or people × vertices, with or without header and
    column of ids.
    """
    flat, width = array.array("d"), 0
    names: list[str] = []
    with open_file(path) as file:
        first, split, has_ids, number = True, None, False, 0
        while line := file.readline(_LINE + 1):
            number += 1
            if len(line) > _LINE:
                raise Unreadable(f"line {number} has more than {_LINE} bytes; check its origin")
            try:
                text = line.decode("utf-8-sig" if first else "utf-8").strip("\r\n ")
            except UnicodeDecodeError:
                raise Unreadable(f"is not text: line {number} is not UTF-8") from None
            if not text.strip() or text.startswith(("#", "<")):
                if text.startswith("<"):
                    raise Unreadable("starts with a header; keep only the numbers, one per line")
                continue
            if first:
                split = next((one for one in "\t;," if one in text), None)
            cells = [cell.strip().strip('"') for cell in text.split(split)]
            if first:
                first = False
                if (
                    len(cells) > 1 and sum(_number(cell) is None for cell in cells[1:]) > 0
                ):  # a header
                    has_ids = cells[0].lower() in (
                        "",
                        "participant_id",
                        "subject",
                        "subject_id",
                        "id",
                        "subjects",
                    )
                    continue
                if len(cells) == 1 and _number(cells[0]) is None:
                    continue
            if has_ids or (len(cells) > 1 and _number(cells[0]) is None):
                has_ids = True
                names.append(escaped(cells.pop(0)))
            width = width or len(cells)
            if len(cells) != width:
                raise Unreadable(
                    f"line {number} has {len(cells)} numbers; the lines before have {width}"
                )
            for cell in cells:
                value = _number(cell)
                if value is None:
                    commas = _number(cell.replace(",", ".", 1)) is not None
                    hint = "; write decimal points, not commas" * commas
                    found = literal(repr(cell[:40]))
                    raise Unreadable(f"line {number} contains {found}, which is not a number{hint}")
                flat.append(value)
            if width == 1 and len(flat) > MAX_VERTICES:
                check_vertices(len(flat))
    if not flat:
        raise Unreadable("contains no numbers")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"lists {literal(twice[:60])} twice; keep one row per person")
    values = np.frombuffer(flat, dtype=np.float64)
    rows = values[None] if width == 1 else values.reshape(-1, width)
    check_vertices(rows.shape[1])
    return Maps({None: rows}, "text", tuple(names) if width > 1 else ())


def _number(cell: str) -> float | None:
    if cell.lower() in _UNKNOWN:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        return None


def read_mat(path: Path, measure: str | None = None) -> tuple[str, NDArray[Any]]:
    """An array of a MATLAB file by name, or the only one of two dimensions; objects and cells are
    not read.
    """
    from scipy.io import loadmat, whosmat

    with open_file(path) as file:
        if file.read(8).startswith(b"\x89HDF"):
            raise Unreadable("is a MATLAB file of version 7.3; save it with -v7")
        file.seek(0)
        try:
            there = whosmat(file)  # type: ignore[arg-type]
        except NotImplementedError:
            raise Unreadable("is a MATLAB file of version 7.3; save it with -v7") from None
        arrays = {
            name: shape
            for name, shape, kind in there
            if kind in _NUMERIC and len(shape) == 2 and max(shape) > 1
        }
        if measure is None and len(arrays) > 1:
            largest = max(map(volume, arrays.values()))
            arrays = {name: shape for name, shape in arrays.items() if volume(shape) == largest}
        name = measure if measure in arrays else next(iter(arrays), None)
        if name is None or (len(arrays) > 1 and measure not in arrays):
            listed = literal(escaped(", ".join(f"{n} {s} {kind}" for n, s, kind in there[:10])))
            if not arrays:
                raise Unreadable(
                    f"contains {listed or 'nothing'}; save people × vertices as an array of numbers"
                )
            ask = (
                f"none is called {literal(escaped(repr(measure)))}; " if measure is not None else ""
            )
            raise Unreadable(f"contains {listed}; {ask}name the one to read with {{measure}}")
        check_growth(volume(arrays[name]) * 8, path.stat().st_size)
        file.seek(0)
        values = np.asarray(loadmat(file, variable_names=[name])[name])  # type: ignore[arg-type]
    if values.dtype.kind not in "fiub":
        raise Unreadable(
            f"contains an array of {values.dtype} called {literal(escaped(name))}; numbers are read"
        )
    return name, values.astype(np.float64) if values.dtype.kind == "b" else values


def read_nifti(path: Path, sizes: set[int]) -> Maps:
    """Maps in a NIfTI-1 file of (n, 1, 1) voxels, or with n spread over three dimensions, as
    mri_surf2surf writes it.

    Parameters
    ----------
    sizes : numbers of vertices of meshes; a file with another number of voxels is a volume.
    """
    stored = path.stat().st_size
    with open_plain(path) as file:
        header = bytes(read_exactly(file, 352, stored))
        order = "<" if struct.unpack("<i", header[:4])[0] == 348 else ">"
        if struct.unpack(f"{order}i", header[:4])[0] != 348:
            raise Unreadable("is not a NIfTI-1 file")
        dims = struct.unpack(f"{order}8h", header[40:56])
        code = struct.unpack(f"{order}h", header[70:72])[0]
        offset, slope, shift = struct.unpack(f"{order}3f", header[108:120])
        columns = struct.unpack(f"{order}i", header[144:148])[
            0
        ]  # FreeSurfer's place for more than 32,767
        shape = [columns if dims[1] < 0 else dims[1], *dims[2 : max(dims[0], 1) + 1]]
        if not 1 <= dims[0] <= 7 or min(shape) < 1 or code not in _NIFTI:
            raise Unreadable("is damaged, or its voxels are not plain numbers")
        n, n_maps = volume(tuple(shape[:3])), volume(tuple(shape[3:]))
        if n not in sizes:
            text = f"is a NIfTI-1 volume of {' × '.join(map(str, shape[:3]))} voxels, not the size of a known mesh"
            raise Unreadable(f"{text}; project it to the surface first (mri_vol2surf)")
        dtype = np.dtype(order + _NIFTI[code])
        if not 352 <= offset < 2**24:
            raise Unreadable("is damaged: its data begin outside it")
        read_exactly(file, int(offset) - 352, stored)
        data = np.frombuffer(
            read_exactly(file, n * n_maps * dtype.itemsize, stored), dtype
        ).reshape(n_maps, n)
        file.read(1)  # at the end gzip compares its checksum
    scaled = (np.isfinite(slope) and slope not in (0, 1)) or (slope == 1 and shift != 0)
    return Maps({None: data * np.float64(slope) + np.float64(shift) if scaled else data}, "NIfTI")
