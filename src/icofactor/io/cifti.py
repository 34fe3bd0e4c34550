"""CIFTI-2: reading maps and labels of both hemispheres; writing both on fs_LR 32k."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, Phrase, counted, escaped, literal
from icofactor.io.atomic import atomic_path
from icofactor.io.gifti import check_labels
from icofactor.io.guard import (
    Unreadable,
    check_growth,
    check_vertices,
    map_file,
    numbers_in,
    open_file,
)
from icofactor.io.hemispheres import hemispheres
from icofactor.io.tables import numbered
from icofactor.io.types import Maps
from icofactor.io.xml import XmlReader

_HEADER = 540
_EXTENSION_CODE = 32
_MAX_XML, _PIECE = 2**27, 2**20
_TYPES = {
    2: "u1",
    4: "i2",
    8: "i4",
    16: "f4",
    64: "f8",
    256: "i1",
    512: "u2",
    768: "u4",
    1024: "i8",
}
N_FS_LR = 32492
"""Vertices per hemisphere of fs_LR 32k, which no other mesh has."""
_SIDES = {"CIFTI_STRUCTURE_CORTEX_LEFT": "left", "CIFTI_STRUCTURE_CORTEX_RIGHT": "right"}
_KINDS = {"CIFTI_INDEX_TYPE_SCALARS": "dscalar", "CIFTI_INDEX_TYPE_SERIES": "dtseries"}
_BRAIN, _LABELS = "CIFTI_INDEX_TYPE_BRAIN_MODELS", "CIFTI_INDEX_TYPE_LABELS"
_PARCELS = "CIFTI_INDEX_TYPE_PARCELS"
_MAX_KEY = 2**24  # whole numbers that float32 holds
_OLDER = "is CIFTI-1; convert it to CIFTI-2 with wb_command -file-convert -cifti-version-convert IN 2 OUT"


@dataclass
class _Model:
    """Columns of the matrix that are vertices of one structure (or voxels, which are left out)."""

    structure: str
    offset: int
    count: int
    n_vertices: int | None
    vertices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class _Builder(XmlReader):
    """Keeps what maps need."""

    def __init__(self) -> None:
        super().__init__()
        self.version = ""
        self.kinds: dict[str, str] = {}
        self.models: list[_Model] = []
        self.names: list[str] = []
        self.step: float | None = None
        self.labels: list[dict[int, str]] = []
        self.surfaces: dict[str, int] = {}
        self.parcels: list[tuple[str, list[tuple[str, NDArray[np.int64]]]]] = []
        self._key, self._structure = 0, ""

    def room(self, tag: str) -> int | None:
        return _MAX_XML if tag in ("VertexIndices", "VoxelIndicesIJK", "Vertices") else None

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "CIFTI":
            self.version = attributes.get("Version", "")
        elif tag == "MatrixIndicesMap":
            kind = attributes.get("IndicesMapToDataType", "")
            self.kinds.update(
                dict.fromkeys(attributes.get("AppliesToMatrixDimension", "").split(","), kind)
            )
            if kind == "CIFTI_INDEX_TYPE_SERIES" and attributes.get("SeriesUnit") == "SECOND":
                self.step = _step(attributes)
        elif tag == "BrainModel":
            vertices = "SurfaceNumberOfVertices"
            self.models.append(
                _Model(
                    attributes.get("BrainStructure", ""),
                    _whole(attributes, "IndexOffset"),
                    _whole(attributes, "IndexCount"),
                    _whole(attributes, vertices) if vertices in attributes else None,
                )
            )
        elif tag == "Surface":
            self.surfaces[attributes.get("BrainStructure", "")] = _whole(
                attributes, "SurfaceNumberOfVertices"
            )
        elif tag == "Parcel":
            self.parcels.append((escaped(attributes.get("Name", "").strip()), []))
        elif tag == "Vertices":
            self._structure = attributes.get("BrainStructure", "")
        elif tag == "LabelTable":
            self.labels.append({})
        elif tag == "Label":
            self._key = _whole(attributes, "Key")

    def finish(self, tag: str, text: str) -> None:
        if tag == "MapName":
            self.names.append(text.strip())
        elif tag == "VertexIndices" and self.models:
            self.models[-1].vertices = _vertices(text, self.models[-1].count)
        elif tag == "Vertices" and self.parcels:
            vertices = numbers_in(text, len(text.split()), np.dtype(np.int64))
            self.parcels[-1][1].append((self._structure, vertices))
        elif tag == "Label" and self.labels:
            self.labels[-1][self._key] = escaped(text.strip())


def _whole(attributes: dict[str, str], name: str) -> int:
    """An attribute that is a whole number."""
    text = attributes.get(name, "missing")
    try:
        return int(text)
    except ValueError:
        raise Unreadable(f"has damaged XML in its header: {name} is {text[:40]!r}") from None


def _step(attributes: dict[str, str]) -> float:
    """Seconds between two maps of a series."""
    try:
        step = float(attributes["SeriesStep"]) * 10.0 ** int(attributes.get("SeriesExponent", "0"))
    except (KeyError, ValueError, OverflowError):
        step = math.nan
    if not 0 < step < math.inf:
        raise Unreadable(
            "has damaged XML in its header: the seconds between its maps (SeriesStep) are not given"
        )
    return step


@lru_cache(maxsize=4)
def _vertices(text: str, n: int) -> NDArray[np.int64]:
    """The vertices of a list; all files of a cohort have the same ones as a rule."""
    vertices = numbers_in(text, max(n, 0), np.dtype(np.int64))
    vertices.setflags(write=False)
    return vertices


@dataclass(frozen=True)
class _Header:
    n_maps: int
    n_columns: int
    dtype: np.dtype[Any]
    offset: int
    slope: float
    intercept: float
    xml: bytes


def read_cifti(path: Path) -> Maps:
    """Maps of a CIFTI-2 dscalar or dtseries file, scattered onto all vertices of each hemisphere."""
    header = _read_header(path)
    content = _parse(header.xml)
    kind = _KINDS.get(content.kinds.get("0", ""))
    if kind is None or content.kinds.get("1") != _BRAIN:
        raise Unreadable(
            f"contains {_kinds(content)}; dscalar and dtseries (brain_models × scalars or series) are read"
        )
    parts = _parts(path, header, content)
    others = sorted(
        {
            m.structure.removeprefix("CIFTI_STRUCTURE_").lower()
            for m in content.models
            if m.structure not in _SIDES
        }
    )
    left_out = f"left out {counted(len(others), 'structure')}, not of the cortex"
    notes = (left_out,) if others else ()
    names = (
        tuple(content.names) if len(content.names) == header.n_maps and all(content.names) else ()
    )
    return Maps(parts, f"CIFTI-2 {kind}", names, step=content.step, notes=notes)


def read_pscalar(path: Path) -> Maps:
    """Values of the parcels of a CIFTI-2 pscalar file, and where its parcels lie."""
    header = _read_header(path)
    content = _parse(header.xml)
    if content.kinds.get("0") != "CIFTI_INDEX_TYPE_SCALARS" or content.kinds.get("1") != _PARCELS:
        raise Unreadable(f"contains {_kinds(content)}; pscalar (parcels × scalars) is read")
    if len(content.parcels) != header.n_columns:
        raise Unreadable(f"lists {len(content.parcels)} parcels for {header.n_columns} columns")
    names = tuple(name for name, _ in content.parcels)
    keys = {}
    for structure, n in content.surfaces.items():
        if structure in _SIDES:
            check_vertices(n)
            keys[structure] = np.full(n, -1, dtype=np.int64)
    for number, (name, parts) in enumerate(content.parcels):
        for structure, vertices in parts:
            if structure not in keys:
                continue
            if len(vertices) and not 0 <= vertices.min() <= vertices.max() < len(keys[structure]):
                raise Unreadable(
                    f"lists vertices of parcel {literal(name[:60])} that its surface does not have"
                )
            keys[structure][vertices] = number
    table = dict(enumerate(names))
    atlas = {_SIDES[structure]: (own, table) for structure, own in keys.items() if (own >= 0).any()}
    data = map_file(path, header.dtype, header.offset, (header.n_columns, header.n_maps))
    values = _scaled(np.asarray(data.T, dtype=np.float64), header)
    maps = (
        tuple(content.names) if len(content.names) == header.n_maps and all(content.names) else ()
    )
    return Maps({None: values}, "CIFTI-2 pscalar", maps, regions=names, atlas=atlas)


def read_dlabel(path: Path) -> dict[str, tuple[NDArray[np.int64], dict[int, str]]]:
    """Hemisphere → key of each vertex, −1 where the file has none, and the names of the keys; of
    the first map.
    """
    header = _read_header(path)
    content = _parse(header.xml)
    if content.kinds.get("0") != _LABELS or content.kinds.get("1") != _BRAIN:
        raise Unreadable(
            f"contains {_kinds(content)}; labels (.dlabel.nii) are brain_models × labels"
        )
    if not content.labels:
        raise Unreadable("has no table that names its labels")
    parts = _parts(path, header, content)
    keys = {str(side): np.nan_to_num(part[0], nan=-1.0) for side, part in parts.items()}
    if any((np.abs(key) >= _MAX_KEY).any() or (key % 1).any() for key in keys.values()):
        raise Unreadable(f"contains labels that are not whole numbers below {_MAX_KEY}")
    return {side: (key.astype(np.int64), content.labels[0]) for side, key in keys.items()}


def _kinds(content: _Builder) -> str:
    return " × ".join(
        content.kinds.get(key, "?").removeprefix("CIFTI_INDEX_TYPE_").lower()[:40]
        for key in ("1", "0")
    )


def _parts(path: Path, header: _Header, content: _Builder) -> dict[str | None, NDArray[Any]]:
    """The maps of each hemisphere."""
    if any(
        model.offset < 0 or model.offset + model.count > header.n_columns
        for model in content.models
    ):
        raise Unreadable(f"has brain models beyond its {header.n_columns} brain ordinates")
    data = map_file(path, header.dtype, header.offset, (header.n_columns, header.n_maps))
    parts: dict[str | None, NDArray[Any]] = {}
    for model in content.models:
        side = _SIDES.get(model.structure)
        if side is not None:
            if side in parts:
                raise Unreadable(f"has the {side} cortex twice")
            parts[side] = _scatter(model, data, header)
    if not parts:
        raise Unreadable("contains no cortex: none of its brain models is a surface")
    return parts


def _read_header(path: Path) -> _Header:
    stored = path.stat().st_size
    with open_file(path) as file:
        head = file.read(_HEADER + 4)
        if len(head) >= 4 and 348 in (
            *struct.unpack("<i", head[:4]),
            *struct.unpack(">i", head[:4]),
        ):
            raise Unreadable(
                "is a NIfTI-1 volume (or CIFTI-1); CIFTI-2 dscalar and dtseries are read"
            )
        if len(head) < _HEADER + 4:
            raise Unreadable(
                f"is truncated: a CIFTI header has {_HEADER} bytes, {len(head)} were found"
            )
        order = next(
            (order for order in "<>" if struct.unpack(f"{order}i", head[:4])[0] == _HEADER), None
        )
        if order is None or head[4:7] != b"n+2":
            raise Unreadable("is not a CIFTI-2 file")
        (code,) = struct.unpack_from(f"{order}h", head, 12)
        dims = struct.unpack_from(f"{order}8q", head, 16)
        offset, slope, intercept = struct.unpack_from(f"{order}q2d", head, 168)
        (intent,) = struct.unpack_from(f"{order}i", head, 504)
        if not 3000 <= intent < 3100:
            raise Unreadable(f"is a NIfTI-2 file, but not CIFTI (intent {intent})")
        if dims[0] != 6 or dims[1:5] != (1, 1, 1, 1) or min(dims[5:7]) < 1:
            raise Unreadable(f"has dimensions {dims[1:]}; maps × brain ordinates are read")
        if code not in _TYPES:
            raise Unreadable(f"has data of an unknown type {code}")
        dtype = np.dtype(order + _TYPES[code])
        n_maps, n_columns = dims[5], dims[6]
        size = n_maps * n_columns * dtype.itemsize
        if not _HEADER + 4 <= offset <= stored:
            raise Unreadable(f"says its data begin at byte {offset}; it has {stored} bytes")
        if offset > _MAX_XML:
            raise Unreadable(f"has a header of {offset} bytes; at most {_MAX_XML} are read")
        if offset + size > stored:
            raise Unreadable(
                f"is truncated: {size} bytes of data should begin at byte {offset}; it has {stored} bytes"
            )
        xml = _extension(file.read(offset - _HEADER - 4), order)
    return _Header(n_maps, n_columns, dtype, offset, slope, intercept, xml)


def _extension(data: bytes, order: str) -> bytes:
    """The CIFTI XML among the extensions of the header."""
    place = 0
    while place + 8 <= len(data):
        size, code = struct.unpack_from(f"{order}2i", data, place)
        if size < 8 or place + size > len(data):
            break
        if code == _EXTENSION_CODE:
            return data[place + 8 : place + size].rstrip(b"\0")
        place += size
    raise Unreadable("has no CIFTI XML in its header")


def _parse(xml: bytes) -> _Builder:
    builder = _Builder()
    try:
        builder.parse(xml[place : place + _PIECE] for place in range(0, len(xml), _PIECE))
    except expat.ExpatError as error:
        raise Unreadable(f"has damaged XML in its header ({error})") from None
    if builder.version.startswith("1"):
        raise Unreadable(_OLDER)
    if not builder.version.startswith("2"):
        raise Unreadable(f"is CIFTI of version {builder.version[:20]!r}; 2 is read")
    return builder


def _scatter(model: _Model, data: NDArray[Any], header: _Header) -> NDArray[np.float32]:
    """All vertices of a hemisphere; NaN where the file has none."""
    if model.n_vertices is None:
        raise Unreadable("does not say how many vertices the cortex has")
    check_vertices(model.n_vertices)
    vertices = model.vertices
    inside = vertices.size == 0 or (vertices.min() >= 0 and vertices.max() < model.n_vertices)
    if len(vertices) != model.count or not inside or len(np.unique(vertices)) != len(vertices):
        raise Unreadable(
            f"lists vertices of {model.structure[:60]} that are too few, too many, double or out of range"
        )
    check_growth(4 * header.n_maps * model.n_vertices, data.nbytes)
    full = np.full((header.n_maps, model.n_vertices), np.nan, dtype=np.float32)
    full[:, vertices] = _scaled(data[model.offset : model.offset + model.count].T, header)
    return full


def _scaled(values: NDArray[Any], header: _Header) -> NDArray[Any]:
    scaled = np.isfinite([header.slope, header.intercept]).all() and header.slope not in (0.0,)
    if scaled and (header.slope, header.intercept) != (1.0, 0.0):
        return values * header.slope + header.intercept
    return values


def write_pscalar(
    path: str | Path,
    values: ArrayLike,
    regions: Any,
    names: Sequence[str],
    *,
    overwrite: bool = False,
) -> Path:
    """Values (n_maps, n_parcels) of parcels on fs_LR 32k, as CIFTI-2 parcellated scalars in
    float32.

    Parameters
    ----------
    regions : names, labels and hemisphere of the parcels (`Parcels`).
    names : one per map.
    """
    from nibabel.cifti2 import Cifti2Image, ParcelsAxis, ScalarAxis

    sides = hemispheres(regions.hemi)
    halves = dict(zip(sides, np.split(regions.labels, len(sides)), strict=True))
    inside = [
        {
            _STRUCTURES[side]: found
            for side, own in halves.items()
            if len(found := np.flatnonzero(own == number))
        }
        for number in range(len(regions.names))
    ]
    voxels = [np.empty((0, 3), dtype=int)] * len(inside)
    surfaces = {_STRUCTURES[side]: len(own) for side, own in halves.items()}
    axis = ParcelsAxis(np.array(regions.names, dtype=object), voxels, inside, nvertices=surfaces)
    image = Cifti2Image(
        np.asarray(values, dtype=np.float32), header=(ScalarAxis(list(names)), axis)
    )
    return _saved(image, "ConnParcelScalr", path, overwrite)


def _saved(image: Any, intent: str, path: str | Path, overwrite: bool) -> Path:
    image.update_headers()
    image.nifti_header.set_intent(intent)
    # nibabel's save leaves its file open after an error
    with atomic_path(path, overwrite) as temporary, open(temporary, "wb") as stream:
        image.to_stream(stream)
    return Path(path)


_STRUCTURES = {"left": "CIFTI_STRUCTURE_CORTEX_LEFT", "right": "CIFTI_STRUCTURE_CORTEX_RIGHT"}


def write_dscalar(
    path: str | Path,
    maps: ArrayLike,
    hemi: str,
    names: Sequence[str] | None = None,
    mask: ArrayLike | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write maps on the vertices of fs_LR 32k as CIFTI-2 dense scalars in float32.

    Parameters
    ----------
    path : path
        Must end with ".dscalar.nii".
    maps : array of shape (n_maps, 32492) or (n_maps, 64984)
        Maps; for `hemi` "both", left columns come first.
    hemi : {"left", "right", "both"}
        Hemisphere.
    names : sequence of str, optional
        One per map. Default: "map01", ...
    mask : bool array, optional
        True for vertices in use; the others are not written, like the medial wall in HCP files.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> import numpy as np
    >>> write_dscalar(f"{folder}/map.dscalar.nii", np.ones(32492), "left").name
    'map.dscalar.nii'
    """
    values = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    used, axis = _brain_models(path, ".dscalar.nii", {"maps": np.shape(maps)}, hemi, mask)
    labels = numbered("map", len(values)) if names is None else [str(name) for name in names]
    if len(labels) != len(values):
        raise ArgumentError(
            "names", Phrase(f"{len(labels)} names"), f"one name for each of the {len(values)} maps"
        )
    from nibabel.cifti2 import Cifti2Image, ScalarAxis

    image = Cifti2Image(np.ascontiguousarray(values[:, used]), header=(ScalarAxis(labels), axis))
    return _saved(image, "ConnDenseScalar", path, overwrite)


def write_dlabel(
    path: str | Path,
    labels: ArrayLike,
    hemi: str,
    names: Sequence[str],
    colours: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """A parcellation of the vertices of fs_LR 32k, as CIFTI-2 dense labels.

    Parameters
    ----------
    path : must end with ".dlabel.nii".
    labels : (32492,), or (64984,) with the left hemisphere first; 0 is no parcel, "???".
    hemi, mask : as for `write_dscalar`.
    names, colours : of the parcels 1, 2, ...; colours are (n_parcels, 3), 0 to 255.
    """
    values, rgb = check_labels(labels, names, colours)
    used, axis = _brain_models(path, ".dlabel.nii", {"labels": values.shape}, hemi, mask)
    from nibabel.cifti2 import Cifti2Image, LabelAxis

    table = {0: ("???", (0.0, 0.0, 0.0, 0.0))}
    table |= {
        k: (str(n), (*(c / 255).tolist(), 1.0))
        for k, (n, c) in enumerate(zip(names, rgb, strict=True), 1)
    }
    image = Cifti2Image(values[None, used], header=(LabelAxis(["winner-takes-all"], [table]), axis))
    return _saved(image, "ConnDenseLabel", path, overwrite)


def _brain_models(
    path: str | Path,
    ending: str,
    given: dict[str, tuple[int, ...]],
    hemi: str,
    mask: ArrayLike | None,
) -> tuple[NDArray[np.bool_], Any]:
    """The vertices that a file has, as booleans and as nibabel's axis; refuses other meshes."""
    if not str(path).endswith(ending):
        raise ArgumentError("path", str(path), f'{{path}} must end with "{ending}"')
    sides = hemispheres(hemi)
    n = N_FS_LR * len(sides)
    ((argument, shape),) = given.items()
    if len(shape) not in (1, 2) or shape[-1] != n:
        expected = f"an array of shape (n_maps, {n}) for {{hemi={hemi!r}}} of fs_LR 32k"
        raise ArgumentError(argument, Phrase(f"shape {shape}"), expected)
    used = np.ones(n, dtype=bool) if mask is None else np.asarray(mask)
    if used.shape != (n,) or used.dtype != bool:
        found = Phrase(f"{used.dtype} of shape {used.shape}")
        raise ArgumentError("mask", found, f"{n} booleans, one per vertex")
    if not used.any():
        raise ArgumentError("mask", None, "{mask} is True nowhere; there is nothing to write")
    from nibabel.cifti2 import BrainModelAxis

    halves = zip(sides, np.split(used, len(sides)), strict=True)
    # a hemisphere that is masked altogether has no model
    models = [
        BrainModelAxis.from_mask(half, _STRUCTURES[side]) for side, half in halves if half.any()
    ]
    return used, models[0] if len(models) == 1 else models[0] + models[1]
