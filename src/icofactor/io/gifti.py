"""GIFTI files of maps, labels and surfaces, read and written with nibabel."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import (
    ArgumentError,
    escaped,
    shown,
)
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import (
    Unreadable,
    open_file,
    read_content,
)
from icofactor.io.hemispheres import hemispheres
from icofactor.io.tables import numbered
from icofactor.io.types import Maps

# The hemispheres, as the metadata of GIFTI name them.
STRUCTURES = {"left": "CortexLeft", "right": "CortexRight"}
_SIDES = {structure: side for side, structure in STRUCTURES.items()}
_STRUCTURE = "AnatomicalStructurePrimary"
# NIFTI_INTENT_LABEL, _POINTSET and _TRIANGLE.
LABELS, POINTS, TRIANGLES = (1002, 1008, 1009)


@dataclass
class Gifti:
    """The content of a GIFTI file.

    Attributes
    ----------
    arrays : nibabel's data arrays, with `data`, `intent` and `meta`.
    labels : key → name.
    side : the hemisphere in the metadata, or None.
    """

    arrays: list[Any]
    labels: dict[int, str]
    side: str | None


def parse_gifti(path: Path) -> Gifti:
    """Read everything in a GIFTI file."""
    from icofactor.io.xml import GiftiParser

    # The path, besides the stream: data may lie in another file beside it.
    parser = GiftiParser(path)
    content = read_content(path)
    with open_file(path) if content is None else io.BytesIO(content) as stream:
        parser.parse(fptr=stream)
    image = parser.img
    if not image or not image.darrays or any(array.data is None for array in image.darrays):
        raise Unreadable("is not a GIFTI file, or has an array without data")
    # Workbench names the hemisphere in the file's metadata, FreeSurfer in an array's.
    metadata = [image.meta, *(array.meta for array in image.darrays)]
    sides = [_SIDES[meta[_STRUCTURE]] for meta in metadata if meta.get(_STRUCTURE) in _SIDES]
    table = image.labeltable.get_labels_as_dict()
    labels = {key: escaped(name or "") for key, name in table.items()}
    return Gifti(image.darrays, labels, sides[0] if sides else None)


def read_gifti(path: Path) -> Maps:
    """Read the maps of a shape or func file; CAT12 writes the surface into the same file."""
    content = parse_gifti(path)
    arrays = [array for array in content.arrays if array.intent not in (POINTS, TRIANGLES)]
    if not arrays or any(array.intent == LABELS for array in arrays):
        raise Unreadable("is a surface or contains labels; it is not a map")
    sizes = {len(array.data) for array in arrays}
    if len(sizes) > 1:
        raise Unreadable(f"has maps of different lengths: {sorted(sizes)}")
    # An array of two dimensions has one map per column.
    rows = [array.data.reshape(len(array.data), -1).T for array in arrays]
    names = [array.meta.get("Name", "") for array in arrays]
    # One name cannot stand for several maps.
    has_names = all(names) and all(len(row) == 1 for row in rows)
    values = rows[0] if len(rows) == 1 else np.concatenate(rows)
    return Maps({content.side: values}, "GIFTI", tuple(names) if has_names else ())


def read_gifti_surface(path: Path) -> tuple[NDArray, NDArray, str | None]:
    """Read points (V, 3), triangles (F, 3) and the hemisphere, if the file names it."""
    content = parse_gifti(path)
    points = [array.data for array in content.arrays if array.intent == POINTS]
    triangles = [array.data for array in content.arrays if array.intent == TRIANGLES]
    if len(points) != 1 or len(triangles) != 1:
        raise Unreadable(
            f"has {len(points)} point sets and {len(triangles)} triangle lists; "
            "a surface (.surf.gii) has one of each"
        )
    return points[0], triangles[0], content.side


def write_maps(
    path: str | Path,
    maps: ArrayLike,
    hemi: str,
    names: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write maps on the vertices of one hemisphere as GIFTI, with one float32 array per map.

    Parameters
    ----------
    path : path
        Must end with ".gii"; other tools expect ".shape.gii" or ".func.gii".
    maps : array of shape (n_maps, n_vertices) or (n_vertices,)
        Maps.
    hemi : {"left", "right"}
        Hemisphere.
    names : sequence of str, optional
        One per map. Default: "map01", ...
    metadata : mapping, optional
        Further entries for the metadata of the file.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> maps = [[1.0, 2, 3], [4, 5, 6]]
    >>> write_maps(f"{folder}/maps.shape.gii", maps, "left", ["front", "back"]).name
    'maps.shape.gii'
    """
    from nibabel.gifti import GiftiDataArray

    values = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    if values.ndim != 2 or values.size == 0:
        raise ArgumentError("maps", f"must be maps × vertices; found shape {np.shape(maps)}")
    arrays = [
        GiftiDataArray(
            np.ascontiguousarray(row),
            intent="NIFTI_INTENT_SHAPE",
            meta={"Name": label},
        )
        for row, label in zip(values, map_names(names, len(values)), strict=True)
    ]
    return _save(path, hemi, arrays, metadata=metadata, overwrite=overwrite)


def map_names(
    names: Sequence[str] | None,
    n_maps: int,
) -> list[str]:
    """Return one name per map: the given ones, or map01, map02, ..."""
    if names is None:
        return numbered("map", n_maps)
    if len(names) != n_maps:
        raise ArgumentError("names", f"must be one for each of {n_maps} maps; found {len(names)}")
    return [str(name) for name in names]


def write_surface(
    path: str | Path,
    coordinates: ArrayLike,
    faces: ArrayLike,
    hemi: str,
) -> Path:
    """Write a surface as GIFTI.

    Examples
    --------
    >>> import tempfile
    >>> points = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    >>> write_surface(f"{tempfile.mkdtemp()}/a.surf.gii", points, [[0, 1, 2]], "left").name
    'a.surf.gii'
    """
    from nibabel.gifti import GiftiDataArray

    points = np.asarray(coordinates, dtype=np.float32)
    triangles = np.asarray(faces, dtype=np.int32)
    arrays = [
        GiftiDataArray(points, "NIFTI_INTENT_POINTSET"),
        GiftiDataArray(triangles, "NIFTI_INTENT_TRIANGLE"),
    ]
    return _save(path, hemi, arrays)


def write_label_gii(
    path: str | Path,
    labels: ArrayLike,
    hemi: str,
    names: Sequence[str],
    colours: ArrayLike,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a parcellation of one hemisphere as GIFTI with a table of labels.

    Parameters
    ----------
    path : path
        Must end with ".label.gii".
    labels : int array of shape (n_vertices,)
        Number of the parcel; 0 means no parcel, which Workbench calls "???" and draws transparent.
    hemi : {"left", "right"}
        Hemisphere.
    names : sequence of str
        Names of the parcels 1, 2, ...
    colours : array of shape (n_parcels, 3)
        Red, green and blue, from 0 to 255.

    Examples
    --------
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/parts.label.gii"
    >>> colours = [[200, 0, 0], [0, 0, 200]]
    >>> write_label_gii(path, [0, 1, 1, 2], "left", ["front", "back"], colours).name
    'parts.label.gii'
    """
    from nibabel.gifti import GiftiDataArray, GiftiLabel, GiftiLabelTable

    values, rgb = check_labels(labels, names, colours)
    table = GiftiLabelTable()
    for key, (name, rgba) in label_table(names, rgb).items():
        label = GiftiLabel(key, *rgba)
        label.label = name
        table.labels.append(label)
    array = GiftiDataArray(
        values,
        intent="NIFTI_INTENT_LABEL",
        meta={"Name": "winner-takes-all"},
    )
    return _save(path, hemi, [array], labeltable=table, overwrite=overwrite)


def label_table(
    names: Sequence[str], rgb: NDArray
) -> dict[int, tuple[str, tuple[float, float, float, float]]]:
    """Return key → name and colour from 0 to 1, with the transparent 0 that means no parcel."""
    # Workbench's own name of what is in no parcel.
    table = {0: ("???", (0.0, 0.0, 0.0, 0.0))}
    for key, (name, colour) in enumerate(zip(names, rgb / 255, strict=True), 1):
        table[key] = (str(name), (*colour.tolist(), 1.0))
    return table


def check_ending(path: str | Path, ending: str) -> None:
    """Refuse a path whose ending tells other programs that it holds something else."""
    if not str(path).endswith(ending):
        raise ArgumentError("path", f"must end with {ending}; found {shown(str(path))}")


def check_labels(
    labels: ArrayLike, names: Sequence[str], colours: ArrayLike
) -> tuple[NDArray, NDArray]:
    """Return labels as int32 and colours as uint8; each label needs a name and its own colour."""
    values = np.asarray(labels)
    rgb = np.asarray(colours)
    if rgb.shape != (len(names), 3):
        raise ArgumentError("colours", f"must be one row per name ({len(names)}); {rgb.shape}")
    # An annotation holds colours, not numbers of parcels.
    if len(np.unique(rgb, axis=0)) < len(rgb):
        raise ArgumentError(
            "colours", "must be unique: FreeSurfer identifies parcels by their colours"
        )
    is_whole = values.ndim == 1 and values.dtype.kind in "iu"
    if not is_whole or not np.isin(values, range(len(names) + 1)).all():
        raise ArgumentError(
            "labels", f"must be whole numbers from 0 to {len(names)} in one dimension"
        )
    return values.astype(np.int32), rgb.astype(np.uint8)


def _save(
    path: str | Path,
    hemi: str,
    arrays: list[Any],
    *,
    metadata: Mapping[str, str] | None = None,
    labeltable: Any = None,
    overwrite: bool = False,
) -> Path:
    """Write arrays of one hemisphere."""
    import nibabel as nib

    check_ending(path, ".gii")
    # Other tools take a GIFTI file to be of one surface.
    if len(hemispheres(hemi)) > 1:
        raise ArgumentError("hemi", f"must be 'left' or 'right', one per file; found {hemi!r}")
    meta = {_STRUCTURE: STRUCTURES[hemi], **(metadata or {})}
    meta = {str(key): str(value) for key, value in meta.items()}
    image = nib.GiftiImage(
        darrays=arrays, labeltable=labeltable, meta=nib.gifti.GiftiMetaData(meta)
    )
    with atomic_path(path, overwrite) as temporary:
        nib.save(image, temporary)
    return Path(path)
