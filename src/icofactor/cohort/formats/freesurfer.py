"""FreeSurfer's own formats: MGH and MGZ, and morph files such as lh.thickness."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from icofactor.cohort.formats.common import Maps
from icofactor.reading.limits import Unreadable, check_vertices, is_gzip, open_plain, read_exactly

_MGH_HEADER = 284
_MGH_TYPES = {0: ">u1", 1: ">i4", 3: ">f4", 4: ">i2"}
_MORPH_HEADER = 15
MORPH_MAGIC, SURFACE_MAGICS = b"\xff\xff\xff", (b"\xff\xff\xfe", b"\xff\xff\xfd")
# Tags that may follow the data are short; more is not FreeSurfer's.
_MAX_TAGS = 2**24


def read_mgh(path: Path) -> Maps:
    """Maps of an MGH or MGZ file, (V, 1, 1, n) big-endian; an uncompressed one is mapped, not loaded."""
    stored = path.stat().st_size
    with open_plain(path) as file:
        head = file.read(_MGH_HEADER)
        if len(head) < _MGH_HEADER:
            raise Unreadable(f"is truncated: an MGH header has {_MGH_HEADER} bytes, {len(head)} are there")
        version, *shape, kind = struct.unpack_from(">6i", head)
        if version != 1 or kind not in _MGH_TYPES:
            raise Unreadable(f"is no MGH file, or one of an unknown kind (version {version}, type {kind})")
        if min(shape) < 1 or sorted(shape[:3])[1] != 1:
            raise Unreadable(f"is a volume of shape {tuple(shape)}, not maps of a surface (V, 1, 1, n)")
        n_vertices, n_maps = max(shape[:3]), shape[3]
        check_vertices(n_vertices)
        dtype = np.dtype(_MGH_TYPES[kind])
        size = n_vertices * n_maps * dtype.itemsize
        if not is_gzip(path):
            if stored < _MGH_HEADER + size:
                raise Unreadable(f"is truncated: {size} bytes should follow the header, {stored - _MGH_HEADER} do")
            return Maps({None: np.memmap(path, dtype, "r", _MGH_HEADER, (n_maps, n_vertices))}, "MGH")
        data = read_exactly(file, size, stored)
        # to the end, where gzip keeps its checksum
        rest = 0
        while piece := file.read(2**16):
            rest += len(piece)
            if rest > _MAX_TAGS:
                raise Unreadable("has far more bytes than its header says")
    return Maps({None: np.frombuffer(data, dtype).reshape(n_maps, n_vertices)}, "MGZ")


def read_morph(path: Path) -> Maps:
    """The map of a FreeSurfer morph ("curv") file such as lh.thickness, of the format used since 1999."""
    stored = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_MORPH_HEADER)
        if len(head) < _MORPH_HEADER or head[:3] != MORPH_MAGIC:
            raise Unreadable("is no FreeSurfer morph file")
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
