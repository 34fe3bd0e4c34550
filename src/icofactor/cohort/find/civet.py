"""CIVET's folders: ID/thickness/PREFIX_ID_native_rms_rsl_tlink_30mm_left.txt, and area and volume
in ID/surfaces.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from icofactor.cohort.find import Found, Source, Wanted, folders_in, names_in
from icofactor.errors import CohortError, counted, literal
from icofactor.sphere.names import SIDES

_THICKNESS = re.compile(
    r"(?:.+_)?native_rms_rsl_(?P<kind>t[a-z]+)_(?P<fwhm>\d+(?:\.\d+)?)mm_(?P<hemi>left|right)\.txt"
)
_OTHERS = re.compile(
    r"(?:.+_)?(?:mid_)?surface_rsl_(?P<hemi>left|right)_native_(?P<kind>area|volume)_(?P<fwhm>\d+(?:\.\d+)?)mm\.txt"
)
_PLACES = {"thickness": _THICKNESS, "surfaces": _OTHERS}
_MESH = "*mid_surface_rsl_{}_*.obj"
Kind = tuple[str, float]
"""How thickness was measured (tlink, tlaplace), or "area" or "volume"; smoothing in mm."""


def civet_subjects(root: Path) -> list[Path] | None:
    """The subjects of CIVET that a folder holds, or is; None for any other folder."""
    return [folder for folder in (root, *folders_in(root)) if _maps_of(folder)] or None


def find_civet(root: str, subjects: list[Path], wanted: Wanted) -> Found:
    """The maps of all subjects, resampled to CIVET's template."""
    files = {folder: _maps_of(folder) for folder in subjects}
    kind = _choose(
        root, Counter(kind for there in files.values() for kind in {k for k, _ in there}), wanted
    )
    found = Found(measure="thickness" if kind[0].startswith("t") else kind[0])
    have = {side for there in files.values() for of, side in there if of == kind}
    sides = [side for side in wanted.sides if wanted.hemisphere is not None or side in have]
    for folder, there in files.items():
        subject = folder.absolute().name
        for side in sides:
            if (kind, side) in there:
                found.sources.append(Source(there[kind, side], subject, side))
            else:
                found.missing.setdefault(subject, []).append(
                    f"{folder}: no {_named(kind)} of the {side} hemisphere"
                )
    surfaces = {source.path: pair for source in found.sources if (pair := civet_mesh(source.path))}
    found.mesh, found.civet = next(iter(surfaces.values()), None), True
    found.surfaces = {path: list(pair) for path, pair in surfaces.items()}
    found.notes.append(f"{root}: CIVET, {_named(kind)}")
    return found


def is_civet(path: Path) -> bool:
    """Whether a file's name is that of a map of CIVET's."""
    return any(pattern.fullmatch(path.name) for pattern in _PLACES.values())


def civet_mesh(path: Path) -> Any:
    """(Left, right) surfaces of CIVET's template mesh in the subject's folder of a map, or None."""
    pattern = _PLACES.get(path.parent.name)
    if pattern is None or pattern.fullmatch(path.name) is None:
        return None
    found = [sorted((path.parent.parent / "surfaces").glob(_MESH.format(side))) for side in SIDES]
    return (found[0][0], found[1][0]) if all(found) else None


def _maps_of(folder: Path) -> dict[tuple[Kind, str], Path]:
    """(Kind, hemisphere) → file, for one subject; none for a folder of several subjects' maps."""
    there: dict[tuple[Kind, str], Path] = {}
    for place, pattern in _PLACES.items():
        for name in names_in(folder / place):
            if match := pattern.fullmatch(name):
                key = (match["kind"], float(match["fwhm"])), match["hemi"]
                if key in there:
                    return {}
                there[key] = folder / place / name
    return there


def _choose(root: str, counts: Counter[Kind], wanted: Wanted) -> Kind:
    """The measure and smoothing asked for, or the only ones there are."""
    measure = (wanted.measure or "thickness").lower()
    of_measure = [
        kind
        for kind in counts
        if measure == kind[0] or (measure == "thickness" and kind[0][0] == "t")
    ]
    fitting = [kind for kind in of_measure if wanted.smoothing in (None, kind[1])]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(
        f"{_named(kind)} ({counted(counts[kind], 'subject')})" for kind in sorted(fitting or counts)
    )
    several = len({kind[0] for kind in fitting}) > 1
    ask = (
        f"choose with {{{'measure' if several else 'smoothing'}}}"
        if fitting
        else "nothing matches the options"
    )
    raise CohortError(root, f"{ask}; there are {literal(listed)}")


def _named(kind: Kind) -> str:
    return f"{kind[0]} {kind[1]:g} mm"
