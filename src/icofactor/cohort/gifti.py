"""Maps and parcellations on the vertices of one hemisphere, as GIFTI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icofactor.cohort.bids import SIDES, numbered
from icofactor.files import atomic_path

STRUCTURES = {"left": "CortexLeft", "right": "CortexRight"}


def write_maps(
    path: str | Path,
    maps: ArrayLike,
    hemi: str,
    names: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Maps on the vertices of one hemisphere, as GIFTI: one float32 array per map.

    Parameters
    ----------
    path : must end with ".gii"; ".shape.gii" or ".func.gii" is what other tools expect.
    maps : (n_maps, n_vertices), or (n_vertices,) for a single map.
    hemi : "left" or "right".
    names : one per map; "map01", ... when None.
    metadata : further entries for the file's own metadata.
    """
    _check_file(path, hemi)
    values = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"maps must have shape (n_maps, n_vertices); got {np.shape(maps)}")
    labels = numbered("map", len(values)) if names is None else list(names)
    if len(labels) != len(values):
        raise ValueError(f"maps holds {len(values)} maps; names has {len(labels)} entries")
    from nibabel.gifti import GiftiDataArray, GiftiImage, GiftiMetaData

    arrays = [
        GiftiDataArray(
            np.ascontiguousarray(row),
            intent="NIFTI_INTENT_SHAPE",
            datatype="NIFTI_TYPE_FLOAT32",
            meta=GiftiMetaData({"Name": str(label)}),
        )
        for row, label in zip(values, labels, strict=True)
    ]
    meta = GiftiMetaData({str(k): str(v) for k, v in {**_structure(hemi), **(metadata or {})}.items()})
    return _save(GiftiImage(darrays=arrays, meta=meta), path, overwrite)


def write_label_gii(
    path: str | Path,
    labels: ArrayLike,
    hemi: str,
    names: Sequence[str],
    colours: ArrayLike,
    *,
    overwrite: bool = False,
) -> Path:
    """A parcellation of one hemisphere, as GIFTI with a table of labels.

    Parameters
    ----------
    path : must end with ".label.gii".
    labels : (n_vertices,) whole numbers; 0 is no parcel, which Workbench calls "???" and draws transparent.
    hemi : "left" or "right".
    names : names of the parcels 1, 2, ...
    colours : (n_parcels, 3) red, green and blue, 0 to 255.
    """
    _check_file(path, hemi)
    from nibabel.gifti import GiftiDataArray, GiftiImage, GiftiLabel, GiftiLabelTable, GiftiMetaData

    values, rgb = check_labels(labels, names, colours)
    table = GiftiLabelTable()
    for key, (name, colour) in enumerate(zip(["???", *names], [None, *rgb], strict=True)):
        # GIFTI has colours between 0 and 1
        rgba = (0.0, 0.0, 0.0, 0.0) if colour is None else (*(float(c) / 255 for c in colour), 1.0)
        label = GiftiLabel(key, *rgba)
        label.label = str(name)
        table.labels.append(label)
    array = GiftiDataArray(
        values,
        intent="NIFTI_INTENT_LABEL",
        datatype="NIFTI_TYPE_INT32",
        meta=GiftiMetaData({"Name": "winner-takes-all"}),
    )
    image = GiftiImage(darrays=[array], labeltable=table, meta=GiftiMetaData(_structure(hemi)))
    return _save(image, path, overwrite)


def check_labels(labels: ArrayLike, names: Sequence[str], colours: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Labels as int32 and colours as uint8, refused unless each label has a name and a colour of its own."""
    values, rgb = np.asarray(labels), np.asarray(colours)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(f"labels must be whole numbers in one dimension; got {values.dtype} of shape {values.shape}")
    if rgb.shape != (len(names), 3):
        raise ValueError(f"colours must have shape ({len(names)}, 3), one row per name; got {rgb.shape}")
    if len(np.unique(rgb, axis=0)) < len(rgb):
        raise ValueError("colours must differ: FreeSurfer tells parcels by them")
    if values.size and (values.min() < 0 or values.max() > len(names)):
        raise ValueError(f"labels must lie between 0 and {len(names)}; got {values.min()} to {values.max()}")
    return values.astype(np.int32), rgb.astype(np.uint8)


def _check_file(path: str | Path, hemi: str) -> None:
    if not str(path).endswith(".gii"):
        raise ValueError(f'path must end with ".gii"; got {str(path)!r}')
    if hemi not in SIDES:
        raise ValueError(f'hemi must be "left" or "right", one file per hemisphere; got {hemi!r}')


def _structure(hemi: str) -> dict[str, str]:
    return {"AnatomicalStructurePrimary": STRUCTURES[hemi]}


def _save(image: Any, path: str | Path, overwrite: bool) -> Path:
    import nibabel as nib

    with atomic_path(path, overwrite) as temporary:
        nib.save(image, temporary)
    return Path(path)
