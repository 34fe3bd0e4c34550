"""Derivatives in BIDS layout, as fMRIPrep and XCP-D write them.

E.g. sub-01/func/sub-01_hemi-L_space-fsaverage5_bold.func.gii.
"""

from __future__ import annotations

import re
from pathlib import Path

from icofactor.cohort.find import Found, Source, Wanted, folders_in, names_in
from icofactor.cohort.find.hcp import mesh_for
from icofactor.cohort.names import mesh_of
from icofactor.errors import CohortError, literal
from icofactor.io.maps import is_map, without_ending
from icofactor.sphere.names import LETTERS, SIDES

_ENTITY = re.compile(r"([a-z0-9]+)-([0-9A-Za-z+]+)")
_SIDES = {letter: side for side, letter in LETTERS.items()}
_FOLDERS = ("anat", "func", "surf", "")
_ATLAS = ("atlas", "seg")
_OUTPUT_SPACES = "run fMRIPrep with --output-spaces fsaverage5"


def bids_subjects(root: Path) -> list[Path] | None:
    """The sub-* folders that a folder holds, or is; None when there are none."""
    if root.absolute().name.startswith("sub-"):
        return [root]
    return [folder for folder in folders_in(root) if folder.name.startswith("sub-")] or None


def entities_of(name: str) -> dict[str, str]:
    """Entities of a BIDS name, and its suffix under "suffix"."""
    *pairs, suffix = without_ending(name).split("_")
    found = {match[1]: match[2] for pair in pairs if (match := _ENTITY.fullmatch(pair))}
    return {**found, "suffix": suffix}


def find_bids(root: str, subjects: list[Path], wanted: Wanted) -> Found:
    """Maps of the measure, space and entities asked for, one per subject and hemisphere."""
    tables = wanted.tables or not wanted.entities.keys().isdisjoint(_ATLAS)
    files = {
        folder: [(path, entities_of(path.name)) for path in _maps_of(folder, tables)]
        for folder in subjects
    }
    measure = wanted.measure or _only_measure(root, files)
    fitting = {
        folder: [(path, told) for path, told in there if _fits(told, measure, wanted)]
        for folder, there in files.items()
    }
    spaces = {told.get("space") for there in fitting.values() for _, told in there}
    if spaces == {"fsnative"}:
        raise CohortError(
            root, f"has {literal(measure)} on the subjects' own surfaces only; {_OUTPUT_SPACES}"
        )
    if spaces - {None, "fsnative"}:
        # maps on the subjects' own surfaces, which fMRIPrep puts beside the others, are no cohort
        own = lambda told: told.get("space") in (None, "fsnative")
        fitting = {
            folder: [file for file in there if not own(file[1])]
            for folder, there in fitting.items()
        }
    kinds = sorted({_kind(path, told) for there in fitting.values() for path, told in there})
    if not kinds:
        raise CohortError(
            root,
            _none_fits([told for there in files.values() for _, told in there], measure, wanted),
        )
    if len(kinds) > 1:
        raise CohortError(
            root,
            f"contains {literal(measure)} as {literal(', '.join(kinds))}; choose with {{target}} or {{entities}}",
        )
    sides = [
        side
        for side in SIDES
        if any(told.get("hemi") == side[0].upper() for f in fitting.values() for _, told in f)
    ]
    found = Found(measure=measure, mesh=None)
    for folder, there in fitting.items():
        subject = folder.absolute().name
        for path, told in there:
            found.sources.append(Source(path, subject, _SIDES.get(told.get("hemi", ""))))
        has = {_SIDES.get(told.get("hemi", "")) for _, told in there}
        for side in (*sides,) or (None,):
            if side not in has:
                hemi = f"hemi-{side[0].upper()} " if side else ""
                found.missing.setdefault(subject, []).append(
                    f"{folder}: no {hemi}{kinds[0]} {measure}"
                )
    first = found.sources[0].path
    found.mesh = mesh_for(mesh_of(first.name), first)
    found.notes.append(f"{root}: BIDS derivatives, {kinds[0]} {measure}")
    return found


def _maps_of(folder: Path, tables: bool = False) -> list[Path]:
    """Files of maps of one subject, in all its sessions; or its tables of regions, as XCP-D makes
    them.
    """
    sessions = [folder, *(f for f in folders_in(folder) if f.name.startswith("ses-"))]
    places = [session / name if name else session for session in sessions for name in _FOLDERS]
    every = [place / name for place in places for name in names_in(place)]
    return [path for path in every if (_is_table(path) if tables else is_map(path))]


def _is_table(path: Path) -> bool:
    """One row of regions; not series, matrices of correlations, or how much of a region was seen."""
    told = entities_of(path.name)
    other = told["suffix"] in ("timeseries", "relmat") or told.get("stat") == "coverage"
    return (
        path.name.endswith((".tsv", ".pscalar.nii"))
        and not other
        and not told.keys().isdisjoint(_ATLAS)
    )


def _measure(told: dict[str, str]) -> str:
    """reho of stat-reho_bold.tsv, thickness of stat-mean_desc-thickness_morph.tsv."""
    return (
        told["desc"]
        if told["suffix"] == "morph" and "desc" in told
        else told.get("stat", told["suffix"])
    )


def _only_measure(root: str, files: dict[Path, list[tuple[Path, dict[str, str]]]]) -> str:
    measures = sorted({_measure(told) for there in files.values() for _, told in there})
    if len(measures) != 1:
        listed = literal(", ".join(measures)) or "no surface maps"
        raise CohortError(root, f"choose what to read with {{measure}}; there are {listed}")
    return measures[0]


def _none_fits(every: list[dict[str, str]], measure: str, wanted: Wanted) -> str:
    """Which of the conditions no map meets, and what there is instead."""
    name = literal(repr(measure))
    asked = [Wanted(entities={key: value}) for key, value in wanted.entities.items()]
    mine = [told for told in every if _fits(told, measure, Wanted())]
    if not mine:
        listed = sorted({_measure(told) for told in every})
        hint = f". For series on the surface {_OUTPUT_SPACES}" if measure == "bold" else ""
        if measure.lower() in ("reho", "alff") and "bold" in listed:
            hint = f". Compute them from the time series: icofactor prepare {measure.lower()}; then fit the store"
        return f"there are no maps of {name}; there are {literal(', '.join(listed)) or 'no surface maps'}{hint}"
    for one in asked:
        ((key, value),) = one.entities.items()
        if not any(_fits(told, measure, one) for told in mine):
            there = sorted({told[key] for told in mine if key in told})
            others = f"; {key} is {literal(', '.join(there))}" if there else ""
            return f"no map of {name} has {literal(f'{key}={value}')}{others}"
    if wanted.target is not None and not any(_on_target(told, wanted.target) for told in mine):
        spaces = sorted({told.get("space", "native") for told in mine})
        own = (
            ", those of the subjects' own surfaces: resample them to one mesh first"
            if spaces == ["native"]
            else ""
        )
        return f"no map of {name} is on {{target={wanted.target!r}}}; there are {literal(', '.join(spaces))}{own}"
    together = ", ".join(f"{key}={value}" for key, value in wanted.entities.items())
    return f"no map of {name} matches all options{f' ({literal(together)})' if together else ''}"


def _fits(told: dict[str, str], measure: str, wanted: Wanted) -> bool:
    if measure.lower() not in (
        told.get("stat", "").lower(),
        told["suffix"].lower(),
        _measure(told).lower(),
    ):
        return False
    side = _SIDES.get(told.get("hemi", ""))
    if side is not None and side not in wanted.sides:
        return False
    if wanted.target is not None and not _on_target(told, wanted.target):
        return False
    return all(told.get(key) == str(value) for key, value in wanted.entities.items())


def _on_target(told: dict[str, str], target: str) -> bool:
    space, density = told.get("space", ""), told.get("den", "")
    mesh = mesh_of(f"space-{space}_den-{density}_x") if density else mesh_of(f"space-{space}_x")
    names = {space, f"{space}_den-{density}", mesh or space, density}
    if mesh is not None and mesh.startswith("fsLR"):
        names.add(mesh.removeprefix("fsLR"))  # den-91k has the 32k surfaces
    return target in names


def _kind(path: Path, told: dict[str, str]) -> str:
    """What must be the same in all subjects: space, density and format."""
    named = [f"{key}-{told[key]}" for key in ("space", *_ATLAS, "den", "desc") if key in told]
    kind = (
        "CIFTI"
        if path.name.endswith(".nii")
        else "table"
        if path.name.endswith(".tsv")
        else "surface"
    )
    return "_".join([*named, kind])
