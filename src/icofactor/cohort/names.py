"""What names of files say: the subject, the hemisphere, the mesh and the measure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import UNSAFE, ArgumentError, Phrase
from icofactor.io.tables import MAX_CELL
from icofactor.sphere.names import MESHES

_MAX_NAME = 200
_CONTROLS = "tabs, line breaks and control characters"
_FINITE = "finite or missing in every column"
_BIDS_SUBJECT = re.compile(r"(?:^|(?<=[._]))sub-[0-9A-Za-z]+")
_HCP_SUBJECT = re.compile(r"^\d{6}(?=[._])")
_SESSION = re.compile(r"ses-[0-9A-Za-z]+")
_NO_SUBJECT = re.compile(r"fwhm\d+|fsaverage\d?|\d+k|fs|LR|BC|MSMAll|MSMSulc|sulc|", re.IGNORECASE)
_FSAVERAGE = re.compile(r"(?:^|[._-])(fsaverage[3-7]?)(?=[._-]|$)")
_SMOOTHING = re.compile(r"(?:^|[._-])fwhm(\d+)(?=[._-]|mm)")
_DENSITY = re.compile(r"_den-(\d+k?)(?=_)")
_FS_LR = re.compile(r"(?:^|[._])(\d+k)_fs_LR|space-fsLR_(?:.*_)?den-(\d+k)")
_GRAYORDINATES = {"91k": "32k", "170k": "59k"}
_DENSITIES = {mesh.density: mesh.name for mesh in MESHES.values() if mesh.space == "fsaverage"}
_UNITS = {
    "thickness": "mm",
    "corrthickness": "mm",
    "area": "mm^2",
    "volume": "mm^3",
    "curv": "1/mm",
    "myelin": "T1w/T2w",
    "reho": "Kendall's W",
    "alff": "a.u.",
}
_MEASURES = {"myelinmap": "myelin", "curvature": "curv", "corrthickness": "corrThickness"}


def check_words(subjects: Sequence[str], participants: Mapping[str, Any], **words: str) -> None:
    """Refuse names and cells that no table, page or terminal could show, before hours of work end in one.

    Parameters
    ----------
    words : argument → its text, e.g. modality="thickness".
    """
    for name in subjects:
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or not name.strip():
            raise ArgumentError("subjects", name[:80], f"named by 1 to {_MAX_NAME} printable characters")
    for argument, word in words.items():
        if UNSAFE.search(word) or len(word) > _MAX_NAME:
            raise ArgumentError(argument, word[:80], f"at most {_MAX_NAME} characters without {_CONTROLS}")
    for column, values in participants.items():
        numbers = isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
        for cell in (str(column), *([] if numbers else (value for value in values if isinstance(value, str)))):
            if UNSAFE.search(cell) or len(cell) > MAX_CELL:
                expected = f"free of {_CONTROLS}, and each cell of at most {MAX_CELL} characters"
                raise ArgumentError("participants", cell[:80], expected)
        known = values[np.isinf(values)] if numbers else values
        for value in known:
            if isinstance(value, float | np.floating) and math.isinf(value):
                raise ArgumentError("participants", Phrase(f"{value} in {column!r}"), _FINITE)


def subject_of(path: Path) -> str | None:
    """The subject by the conventions of FreeSurfer, the HCP and BIDS, or None."""
    folders = path.parts[:-1]
    if len(folders) >= 2 and folders[-1] == "surf":
        if len(folders) >= 3 and _SESSION.fullmatch(folders[-2]) and _BIDS_SUBJECT.fullmatch(folders[-3]):
            return folders[-3]
        return folders[-2]
    if "MNINonLinear" in folders[1:]:
        return folders[folders.index("MNINonLinear") - 1]
    for pattern in (_BIDS_SUBJECT, _HCP_SUBJECT):
        found = pattern.search(path.name)
        if found:
            return found[0]
    return next((folder for folder in reversed(folders) if _BIDS_SUBJECT.fullmatch(folder)), None)


def subjects_of(paths: Sequence[Path], stems: Sequence[str]) -> list[str]:
    """Subjects of files that belong together.

    Where no convention tells, the part of the names that differs does: the stem (the name without hemisphere and
    ending) less what all stems end with; or, when all stems are alike, the last folder that differs. Of one subject
    alone the stem less the words that name measure, smoothing and mesh, else the folder.
    """
    told = [subject_of(path) for path in paths]
    rest = [i for i, name in enumerate(told) if name is None]
    if rest:
        names = _told_apart([paths[i] for i in rest], [stems[i] for i in rest])
        for i, name in zip(rest, names, strict=True):
            told[i] = name
    return [str(name) for name in told]


def _told_apart(paths: list[Path], stems: list[str]) -> list[str]:
    if len(set(stems)) > 1:
        pieces = [re.split(r"([._])", stem) for stem in stems]
        shared = 0
        while all(len(p) > shared + 1 for p in pieces) and len({p[-1 - shared] for p in pieces}) == 1:
            shared += 1
        shared -= shared % 2  # a separator goes with what follows it
        return ["".join(p[: len(p) - shared]) for p in pieces]
    depth = min(len(path.parts) for path in paths)
    for up in range(2, depth + 1):
        folders = [path.parts[-up] for path in paths]
        if len(set(folders)) > 1:
            return folders
    return [_named(stem) or path.parent.name or stem for path, stem in zip(paths, stems, strict=True)]


def _named(stem: str) -> str:
    """A stem without the words at its end that name no subject, so that one file is called as among others."""
    pieces = re.split(r"([._-])", stem)
    while pieces and (measure_of(pieces[-1]) is not None or _NO_SUBJECT.fullmatch(pieces[-1])):
        del pieces[-2:]
    return "".join(pieces)


def mesh_of(name: str) -> str | None:
    """The standard mesh a name tells of: "fsaverage5", ..., "fsLR32k", ("fsLR" without a density), or None."""
    if "fs_LR" in name or "space-fsLR" in name:
        told = _FS_LR.search(name)
        density = "" if told is None else told[1] or told[2]
        return f"fsLR{_GRAYORDINATES.get(density, density)}"
    found = _FSAVERAGE.search(name)
    if found is None:
        return None
    density = _DENSITY.search(name)
    if found[1] == "fsaverage":
        return "fsaverage7" if density is None else _DENSITIES.get(density[1])
    return found[1]


def measure_of(name: str) -> str | None:
    """The measure a name tells of, e.g. "thickness", or None."""
    tokens = set(re.split(r"[._-]", name.lower()))
    for word in (*_MEASURES, *_UNITS):
        if word in tokens or (word == "myelinmap" and "smoothedmyelinmap" in tokens):
            return _MEASURES.get(word, word)
    return None


def smoothing_of(name: str) -> int | None:
    """The full width at half maximum in mm that a name tells of, as recon-all -qcache and mris_preproc write it."""
    found = _SMOOTHING.search(name)
    return None if found is None else int(found[1])


def modality_of(measure: str) -> str:
    """A measure by the name a cohort gives it: "MyelinMap_BC_MSMAll" is "myelin"."""
    return measure_of(measure) or measure


def units_of(modality: str) -> str:
    """The units such maps come in, "" when unknown."""
    return _UNITS.get(modality.lower(), "")
