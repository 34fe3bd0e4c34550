"""CAT12's resampled maps: surf/s12.mesh.thickness.resampled_32k.NAME.gii, of everyone in one folder
or in one each.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

from icofactor.cohort.find import Found, Source, Wanted, folders_in, names_in
from icofactor.cohort.find.bids import entities_of
from icofactor.cohort.names import subjects_of
from icofactor.errors import CohortError, counted, literal

_MAP = re.compile(
    r"(?:s(?P<fwhm>\d+(?:\.\d+)?)\.)?(?P<hemi>mesh|lh|rh)\.(?P<measure>[^.]+)\.resampled(?P<mesh>_32k)?\.(?P<name>.+)\.gii"
)
_NATIVE = re.compile(r"[lr]h\.central\..+\.gii")
_SIDES = {"lh": "left", "rh": "right", "mesh": None}
_DEFAULT_MEASURE = "thickness"
Kind = tuple[str, float, str, bool]
"""Measure, smoothing in mm, mesh, and whether both hemispheres are in one file."""


def cat12_folders(root: Path) -> list[Path] | None:
    """The folders of CAT12's surfaces that a folder holds, or is; None for any other folder."""
    people = folders_in(root)
    sessions = [
        folder
        for person in people
        if person.name.startswith("sub-")
        for folder in folders_in(person)
    ]
    places = [root, root / "surf", *(person / "surf" for person in people)]
    places += [
        place for session in sessions for place in (session, session / "anat", session / "surf")
    ]
    there = [place for place in places if place.is_dir()]
    return [place for place in there if any(map(_is_cat12, os.listdir(place)))] or None


def _is_cat12(name: str) -> bool:
    return _MAP.fullmatch(name) is not None or _NATIVE.fullmatch(name) is not None


def find_cat12(root: str, folders: list[Path], wanted: Wanted) -> Found:
    """The resampled maps of all subjects."""
    every = [
        (folder / name, match)
        for folder in folders
        for name in names_in(folder)
        if (match := _MAP.fullmatch(name))
    ]
    if not every:
        text = "has surfaces of CAT12 but no resampled maps (mesh.thickness.resampled_32k.NAME.gii)"
        raise CohortError(
            root, f"{text}: run CAT12's Surface Tools, Resample and Smooth Surface Data, first"
        )
    asked = {key: str(value) for key, value in wanted.entities.items()}
    every = [one for one in every if asked.items() <= entities_of(one[1]["name"] + "_x").items()]
    kind = _choose(root, [match for _, match in every], wanted)
    mine = [
        (path, match) for path, match in every if _kind(match) == kind and _on_side(match, wanted)
    ]
    found = Found(measure=kind[0], mesh=kind[2])
    subjects = subjects_of(
        [path.absolute() for path, _ in mine], [match["name"] for _, match in mine], wanted.known
    )
    found.sources += [
        Source(path, subject, _SIDES[match["hemi"]])
        for (path, match), subject in zip(mine, subjects, strict=True)
    ]
    found.notes.append(f"{root}: CAT12, {_named(kind)}")
    return found


def _kind(match: re.Match[str]) -> Kind:
    mesh = "fsLR32k" if match["mesh"] else "fsaverage7"
    return match["measure"], float(match["fwhm"] or 0), mesh, match["hemi"] == "mesh"


def _on_side(match: re.Match[str], wanted: Wanted) -> bool:
    return match["hemi"] == "mesh" or _SIDES[match["hemi"]] in wanted.sides


def _choose(root: str, matches: list[re.Match[str]], wanted: Wanted) -> Kind:
    """The measure, smoothing and mesh asked for, or the only ones there are."""
    counts = Counter(map(_kind, matches))
    measure = (wanted.measure or _DEFAULT_MEASURE).lower()
    of_measure = [kind for kind in counts if kind[0].lower() == measure]
    if not of_measure:
        there = (
            literal(", ".join(sorted({kind[0] for kind in counts}))) or "none of these {entities}"
        )
        raise CohortError(
            root, f"no subject has {literal(measure)}; there are {there}: choose with {{measure}}"
        )
    fitting = [
        kind
        for kind in of_measure
        if wanted.smoothing in (None, kind[1])
        and wanted.target in (None, kind[2], kind[2].removeprefix("fsLR"))
    ]
    joined = [kind for kind in fitting if kind[3]]
    if joined and len({kind[:3] for kind in fitting}) == 1:
        fitting = joined
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(
        f"{_named(kind)} ({counted(counts[kind], 'file')})"
        for kind in sorted(fitting or of_measure)
    )
    what = (
        "choose with {smoothing} or {target}"
        if fitting
        else "nothing matches {smoothing} and {target}"
    )
    raise CohortError(root, f"{what}; there are {literal(listed)}")


def _named(kind: Kind) -> str:
    measure, smoothing, mesh, _ = kind
    return f"{measure}, smoothing {smoothing:g}, {mesh}"
