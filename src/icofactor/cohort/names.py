"""What names of files say: the subject, the hemisphere, the mesh and the measure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
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
_NO_SUBJECT = re.compile(
    r"fwhm\d+|fsaverage\d?|\d+k|fs|LR|BC|MSMAll|MSMSulc|sulc|mesh|resampled|smooth(ed)?|map|native|\d+mm|rsl|rms|mid|surface|",
    re.IGNORECASE,
)
_FSAVERAGE = re.compile(r"(?:^|[._-])(fsaverage[3-7]?)(?=[._-]|$)")
_SMOOTHING = re.compile(r"(?:^|[._-])fwhm(\d+)(?=[._-]|mm)")
_DENSITY = re.compile(r"_den-(\d+k?)(?=_)")
_FS_LR = re.compile(r"(?:^|[._])(\d+k)_fs_LR|space-fsLR_(?:.*_)?den-(\d+k)")
_CAT12 = re.compile(r"\.resampled(_32k)?\.(?=.+\.gii$)")
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
_MEASURES = {
    "myelinmap": "myelin",
    "curvature": "curv",
    "corrthickness": "corrThickness",
    "tlaplace": "thickness",
    "tlink": "thickness",
}


def check_words(subjects: Sequence[str], participants: Mapping[str, Any], **words: str) -> None:
    """Refuse names and cells that no table, page or terminal could show, before hours of work end
    in one.

    Parameters
    ----------
    words : argument → its text, e.g. modality="thickness".
    """
    for name in subjects:
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or not name.strip():
            raise ArgumentError(
                "subjects", name[:80], f"named by 1 to {_MAX_NAME} printable characters"
            )
    for argument, word in words.items():
        if UNSAFE.search(word) or len(word) > _MAX_NAME:
            raise ArgumentError(
                argument, word[:80], f"at most {_MAX_NAME} characters without {_CONTROLS}"
            )
    for column, values in participants.items():
        numbers = isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
        for cell in (
            str(column),
            *([] if numbers else (value for value in values if isinstance(value, str))),
        ):
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
    named = _BIDS_SUBJECT.search(path.name)
    if (
        len(folders) >= 2
        and folders[-1] == "surf"
        and named is None
        and _CAT12.search(path.name) is None
    ):
        if (
            len(folders) >= 3
            and _SESSION.fullmatch(folders[-2])
            and _BIDS_SUBJECT.fullmatch(folders[-3])
        ):
            return folders[-3]
        return folders[-2]
    if "MNINonLinear" in folders[1:]:
        return folders[folders.index("MNINonLinear") - 1]
    found = named or _HCP_SUBJECT.search(path.name)
    if found:
        return found[0]
    return next((folder for folder in reversed(folders) if _BIDS_SUBJECT.fullmatch(folder)), None)


def subjects_of(
    paths: Sequence[Path], stems: Sequence[str], known: Set[str] = frozenset()
) -> list[str]:
    """Subjects of files that belong together.

    Where no convention tells, the part of the names that differs does: the stem (the name without
    hemisphere and ending) less what all stems end with, and less what all begin with up to the last
    word for a measure, smoothing or mesh; or, when all stems are alike, the last folder that
    differs. Of one subject alone the stem less such words, else the folder.

    Parameters
    ----------
    known : names of subjects, without "sub-"; where they are the names less all that is common, or
        less nothing, that is taken.
    """
    stems = [
        path.name[found.end() : -4] if (found := _CAT12.search(path.name)) else stem
        for path, stem in zip(paths, stems, strict=True)
    ]
    told = [subject_of(path) for path in paths]
    if len(paths) > 1 and len(set(told)) == 1 and {path.parent.name for path in paths} == {"surf"}:
        # one folder of everyone's maps, not a subject's: unless it holds one subject's maps of
        # several kinds
        apart = _told_apart(list(paths), stems, known)
        if len({path.parent for path in paths}) == 1 and not any(map(_says_nothing, apart)):
            return apart
    rest = [i for i, name in enumerate(told) if name is None]
    if rest:
        names = _told_apart([paths[i] for i in rest], [stems[i] for i in rest], known)
        for i, name in zip(rest, names, strict=True):
            told[i] = name
    return [str(name) for name in told]


def _told_apart(paths: list[Path], stems: list[str], known: Set[str] = frozenset()) -> list[str]:
    if len(set(stems)) > 1:
        pieces = [re.split(r"([._])", stem) for stem in stems]
        end = _shared([p[::-1] for p in pieces])
        start = _shared([p[: len(p) - end] for p in pieces])
        words = pieces[0][:start:2]
        kept = next((2 * i for i in range(len(words), 0, -1) if _says_nothing(words[i - 1])), 0)
        cuts = [(kept, end), (start, end), (0, end), (0, 0)]
        named = [["".join(p[first : len(p) - last]) for p in pieces] for first, last in cuts]
        return (
            next((names for names in named if not known.isdisjoint(names)), named[0])
            if known
            else named[0]
        )
    depth = min(len(path.parts) for path in paths)
    for up in range(2, depth + 1):
        folders = [path.parts[-up] for path in paths]
        if len(set(folders)) > 1:
            return folders
    return [
        _named(stem) or path.parent.name or stem for path, stem in zip(paths, stems, strict=True)
    ]


def _shared(pieces: list[list[str]]) -> int:
    """How many pieces all begin with, each word with the separator after it; something is left of
    each.
    """
    n = 0
    while all(len(p) > n + 1 for p in pieces) and len({p[n] for p in pieces}) == 1:
        n += 1
    return n - n % 2


def _says_nothing(word: str) -> bool:
    """Whether a word is for a measure, smoothing or mesh, not for a subject."""
    return measure_of(word) is not None or _NO_SUBJECT.fullmatch(word) is not None


def _named(stem: str) -> str:
    """A stem without the words at its end that name no subject, so that one file is called as among
    others.
    """
    pieces = re.split(r"([._-])", stem)
    while pieces and _says_nothing(pieces[-1]):
        del pieces[-2:]
    while pieces and _says_nothing(pieces[0]):
        del pieces[:2]
    return "".join(pieces)


def mesh_of(name: str) -> str | None:
    """The standard mesh a name tells of: "fsaverage5", ..., "fsLR32k", ("fsLR" without a density),
    or None.
    """
    if "fs_LR" in name or "space-fsLR" in name:
        told = _FS_LR.search(name)
        density = "" if told is None else told[1] or told[2]
        return f"fsLR{_GRAYORDINATES.get(density, density)}"
    found = _FSAVERAGE.search(name)
    cat12 = _CAT12.search(name)
    if found is None and cat12 is not None:
        return "fsLR32k" if cat12[1] else "fsaverage7"
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
    """The full width at half maximum in mm that a name tells of, as recon-all -qcache and
    mris_preproc write it.
    """
    found = _SMOOTHING.search(name)
    return None if found is None else int(found[1])


def modality_of(measure: str) -> str:
    """A measure by the name a cohort gives it: "MyelinMap_BC_MSMAll" is "myelin"."""
    return measure_of(measure) or measure


def units_of(modality: str) -> str:
    """The units such maps come in, "" when unknown."""
    return _UNITS.get(modality.lower(), "")
