"""What names of files say: the subject, the hemisphere, the mesh and the measure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import UNSAFE, ArgumentError, shown
from icofactor.io.tables import MAX_CELL
from icofactor.sphere.names import MESHES

# Longer names of subjects and measures fit no table or page.
_MAX_NAME = 200
_CONTROLS = "tabs, line breaks and control characters"
_BIDS_SUBJECT = re.compile(r"(?:^|(?<=[._]))sub-[0-9A-Za-z]+")
_HCP_SUBJECT = re.compile(r"^\d{6}(?=[._])")
_SESSION = re.compile(r"ses-[0-9A-Za-z]+")
# Words of file names that never name a subject.
_NO_SUBJECT = re.compile(
    r"fwhm\d+|fsaverage\d?|\d+k|fs|LR|BC|MSMAll|MSMSulc|sulc|mesh|resampled|smooth(ed)?"
    r"|map|native|\d+mm|rsl|rms|mid|surface|",
    re.IGNORECASE,
)
_FSAVERAGE = re.compile(r"(?:^|[._-])(fsaverage[3-7]?)(?=[._-]|$)")
_SMOOTHING = re.compile(r"(?:^|[._-])fwhm(\d+)(?=[._-]|mm)")
_DENSITY = re.compile(r"_den-(\d+k?)(?=_)")
_FS_LR = re.compile(r"(?:^|[._])(\d+k)_fs_LR|space-fsLR_(?:.*_)?den-(\d+k)")
_CAT12 = re.compile(r"\.resampled(_32k)?\.(?=.+\.gii$)")
# Surfaces of fs_LR by the number of grayordinates in BIDS names.
_GRAYORDINATES = {"91k": "32k", "170k": "59k"}
_DENSITIES = {mesh.density: mesh.name for mesh in MESHES.values() if mesh.space == "fsaverage"}
# Measures that names may contain, and their units.
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
# Other words for measures.
_MEASURES = {
    "myelinmap": "myelin",
    "curvature": "curv",
    "corrthickness": "corrThickness",
    "tlaplace": "thickness",
    "tlink": "thickness",
}


def check_words(
    subjects: Sequence[str],
    participants: Mapping[str, Any],
    **words: str,
) -> None:
    """Raise an error for names and cells that no table, page or terminal could show.

    Parameters
    ----------
    words : argument → its text, e.g. modality="thickness".
    """
    for name in subjects:
        if not 0 < len(name) <= _MAX_NAME or not name.isprintable() or not name.strip():
            text = f"names must have 1 to {_MAX_NAME} printable characters"
            raise ArgumentError("subjects", f"{text}; found {shown(name[:80])}")
    for argument, word in words.items():
        _check_text(argument, word, _MAX_NAME)
    for column, values in participants.items():
        is_numeric = isinstance(values, np.ndarray) and values.dtype.kind in "biuf"
        cells = [] if is_numeric else [value for value in values if isinstance(value, str)]
        for cell in (str(column), *cells):
            _check_text("participants", cell, MAX_CELL)
        for value in values[np.isinf(values)] if is_numeric else values:
            if isinstance(value, float | np.floating) and math.isinf(value):
                text = f"numbers must be finite or missing; column {shown(column)} contains {value}"
                raise ArgumentError("participants", text)


def _check_text(argument: str, text: str, limit: int) -> None:
    """Raise an error for text that is too long, or has characters that cannot be shown."""
    if UNSAFE.search(text) or len(text) > limit:
        problem = f"must have at most {limit} characters, without {_CONTROLS}"
        raise ArgumentError(argument, f"{problem}; found {shown(text[:80])}")


def subject_of(path: Path) -> str | None:
    """Return the subject by the conventions of FreeSurfer, the HCP and BIDS, or None."""
    folders = path.parts[:-1]
    named = _BIDS_SUBJECT.search(path.name)
    is_resampled = _CAT12.search(path.name) is not None
    if len(folders) >= 2 and folders[-1] == "surf" and named is None and not is_resampled:
        in_session = len(folders) >= 3 and _SESSION.fullmatch(folders[-2])
        if in_session and _BIDS_SUBJECT.fullmatch(folders[-3]):
            return folders[-3]
        return folders[-2]
    if "MNINonLinear" in folders[1:]:
        return folders[folders.index("MNINonLinear") - 1]
    match = named or _HCP_SUBJECT.search(path.name)
    if match:
        return match[0]
    return next((folder for folder in reversed(folders) if _BIDS_SUBJECT.fullmatch(folder)), None)


def subjects_of(
    paths: Sequence[Path],
    stems: Sequence[str],
    listed: Set[str] = frozenset(),
) -> list[str]:
    """Return the subjects of files that belong together.

    Where no convention tells, subjects are the part of the stems that differs: the stem without
    what all stems end with, and without what all begin with up to the last word for a measure,
    smoothing or mesh. If all stems are alike, it is the last folder that differs.

    Parameters
    ----------
    stems : names of the files without hemisphere and ending.
    listed : names of subjects, without "sub-". If they are the stems without all that is common,
        or the whole stems, that is taken.
    """
    stems = [_without_cat12(path, stem) for path, stem in zip(paths, stems, strict=True)]
    subjects = [subject_of(path) for path in paths]
    folders = {path.parent for path in paths}
    # mris_preproc and users put the maps of everyone into one folder.
    is_one_surf = len(folders) == 1 and next(iter(folders)).name == "surf"
    if len(paths) > 1 and len(set(subjects)) == 1 and is_one_surf:
        # A folder "surf" with everyone's maps is not a subject's folder, unless it holds several
        # kinds of maps of one subject.
        differing = _differing_parts(list(paths), stems, listed)
        if not any(map(_is_generic, differing)):
            return differing
    unnamed = [i for i, subject in enumerate(subjects) if subject is None]
    if unnamed:
        names = _differing_parts([paths[i] for i in unnamed], [stems[i] for i in unnamed], listed)
        for i, name in zip(unnamed, names, strict=True):
            subjects[i] = name
    return [str(subject) for subject in subjects]


def _without_cat12(
    path: Path,
    stem: str,
) -> str:
    """Return what follows CAT12's prefix in a file name, else the stem."""
    match = _CAT12.search(path.name)
    return stem if match is None else path.name[match.end() : -len(".gii")]


def _differing_parts(
    paths: list[Path],
    stems: list[str],
    listed: Set[str] = frozenset(),
) -> list[str]:
    """Return the part of the stems, or else of the folders, in which files differ."""
    if len(set(stems)) > 1:
        words = [re.split(r"([._])", stem) for stem in stems]
        end = _n_shared([word[::-1] for word in words])
        start = _n_shared([word[: len(word) - end] for word in words])
        common = words[0][:start:2]
        generic = [i for i, word in enumerate(common, 1) if _is_generic(word)]
        after_generic = 2 * generic[-1] if generic else 0
        # From the shortest name to the whole stem; the table of participants decides.
        candidates = [
            ["".join(word[first : len(word) - last]) for word in words]
            for first, last in ((after_generic, end), (start, end), (0, end), (0, 0))
        ]
        fitting = (names for names in candidates if not listed.isdisjoint(names))
        return next(fitting, candidates[0])
    depth = min(len(path.parts) for path in paths)
    # The names are the same in all folders, so the folders name subjects.
    for level in range(2, depth + 1):
        folders = [path.parts[-level] for path in paths]
        if len(set(folders)) > 1:
            return folders
    return [
        _specific_part(stem) or path.parent.name or stem
        for path, stem in zip(paths, stems, strict=True)
    ]


def _n_shared(words: list[list[str]]) -> int:
    """Return how many words and separators all begin with, leaving something of each."""
    n = 0
    while all(len(word) > n + 1 for word in words) and len({word[n] for word in words}) == 1:
        n += 1
    return n - n % 2


def _is_generic(word: str) -> bool:
    """Whether a word is for a measure, smoothing or mesh, not for a subject."""
    return measure_of(word) is not None or _NO_SUBJECT.fullmatch(word) is not None


def _specific_part(stem: str) -> str:
    """Return a stem without words at its ends that name no subject."""
    words = re.split(r"([._-])", stem)
    while words and _is_generic(words[-1]):
        del words[-2:]
    while words and _is_generic(words[0]):
        del words[:2]
    return "".join(words)


def mesh_of(name: str) -> str | None:
    """Return the standard mesh in a file name: "fsaverage5", "fsLR32k", "fsLR", or None."""
    if "fs_LR" in name or "space-fsLR" in name:
        match = _FS_LR.search(name)
        density = "" if match is None else match[1] or match[2]
        return f"fsLR{_GRAYORDINATES.get(density, density)}"
    match = _FSAVERAGE.search(name)
    if match is None:
        cat12 = _CAT12.search(name)
        if cat12 is None:
            return None
        return "fsLR32k" if cat12[1] else "fsaverage7"
    # fsaverage without a number is the full resolution, unless the density says less.
    if match[1] != "fsaverage":
        return match[1]
    density = _DENSITY.search(name)
    return "fsaverage7" if density is None else _DENSITIES.get(density[1])


def measure_of(name: str) -> str | None:
    """Return the measure in a file name, e.g. "thickness", or None."""
    words = set(re.split(r"[._-]", name.lower()))
    # An older name of the HCP.
    if "smoothedmyelinmap" in words:
        return "myelin"
    word = next((word for word in (*_MEASURES, *_UNITS) if word in words), None)
    return None if word is None else _MEASURES.get(word, word)


def smoothing_of(name: str) -> int | None:
    """Return the smoothing (FWHM in mm) in a name as FreeSurfer writes it, or None."""
    match = _SMOOTHING.search(name)
    return None if match is None else int(match[1])


def modality_of(measure: str) -> str:
    """Return the name of a measure in a cohort: "myelin" for "MyelinMap_BC_MSMAll"."""
    return measure_of(measure) or measure


def units_of(modality: str) -> str:
    """Return the units of a measure, "" if unknown."""
    return _UNITS.get(modality.lower(), "")
