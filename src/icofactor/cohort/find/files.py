"""Whatever the user points at → the files of a cohort."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from icofactor.cohort.find import Found, Source, Wanted, is_listed, names_in
from icofactor.cohort.find.bids import bids_subjects, entities_of, find_bids
from icofactor.cohort.find.cat12 import cat12_folders, find_cat12
from icofactor.cohort.find.civet import civet_mesh, civet_subjects, find_civet, is_civet
from icofactor.cohort.find.freesurfer import find_freesurfer, freesurfer_subjects
from icofactor.cohort.find.hcp import find_hcp, hcp_subjects, mesh_for
from icofactor.cohort.names import measure_of, mesh_of, modality_of, subjects_of
from icofactor.cohort.people import choose_stream
from icofactor.cohort.problems import Problems
from icofactor.cohort.regions import is_region_file
from icofactor.cohort.store.layout import is_zarr
from icofactor.cohort.subjects import PLACE
from icofactor.errors import ArgumentError, CohortError, Phrase, Problem, literal
from icofactor.io.guard import denying, is_kernels
from icofactor.io.hemispheres import side_of
from icofactor.io.maps import is_map, without_ending
from icofactor.io.url import bare, is_url

_OF_A_FIT = ("model.zip", "desc-icofactor_loadings.tsv")
_BASIS = re.compile(r".*_desc-icofactor_components\.(shape\.gii|dscalar\.nii)|model\.zip")
_GIVE_MAPS = "give the maps of subjects: those to fit, or new ones with `icofactor transform FITTED NEW_MAPS -o TABLE`"
_TREES = (
    (hcp_subjects, find_hcp),
    (cat12_folders, find_cat12),
    (civet_subjects, find_civet),
    (freesurfer_subjects, find_freesurfer),
    (bids_subjects, find_bids),
)
_KINDS = {
    find_hcp: "an HCP tree",
    find_cat12: "CAT12's surfaces",
    find_civet: "CIVET's folders",
    find_freesurfer: "a SUBJECTS_DIR",
    find_bids: "BIDS derivatives",
}
_ALONE = "is a cohort store; load it alone, not in a list with others"
_AS_REGEX = {PLACE: "(?P<subject>[^/]+?)", "*": "[^/]*"}
# what chooses files, for which kinds of input, and these as text
_CHOICES = (
    (
        "smoothing",
        {"a SUBJECTS_DIR", "CAT12's surfaces", "CIVET's folders"},
        "a SUBJECTS_DIR, CAT12 or CIVET",
    ),
    ("target", set(_KINDS.values()), "a SUBJECTS_DIR, HCP tree or BIDS derivatives"),
    ("stream", {"a SUBJECTS_DIR", "files"}, "a SUBJECTS_DIR"),
    ("entities", {"BIDS derivatives", "CAT12's surfaces", "files"}, "BIDS derivatives"),
)


def find_sources(paths: Any, wanted: Wanted, problems: Problems) -> Found:
    """The files that `paths` stand for, with their subjects and hemispheres; nothing is read but
    names.

    Parameters
    ----------
    paths : a path, a glob, a folder, a tree, or a list of these.
    problems : takes up paths that lead nowhere and trees that leave a choice open.
    """
    found = Found()
    files: list[Path] = []
    trees: dict[Callable[..., Found], dict[Path, list[Path]]] = {find: {} for _, find in _TREES}
    for path in _listed(paths):
        try:
            for place in _expanded(path):
                if place.is_dir():
                    _add_folder(trees, files, place, wanted)
                elif _BASIS.fullmatch(place.name):
                    problems.add(place, f"belongs to a fit, not to a subject; {_GIVE_MAPS}")
                else:
                    files.append(place)
        except CohortError as error:
            problems.add_error(error)
        except PermissionError as error:
            problems.add(denying(error.filename or path), "cannot be read (permission denied)")
        except OSError as error:
            problems.add(error.filename or path, f"cannot be listed ({error.strerror})")
    for find, roots in trees.items():
        try:
            _add_trees(found, find, roots, wanted)
        except CohortError as error:
            problems.add_error(error)
    try:
        _add_files(found, list(dict.fromkeys(files)), wanted)
        _check_used(
            wanted,
            {_KINDS[find] for find, roots in trees.items() if roots}
            | ({"files"} if files else set()),
        )
    except CohortError as error:
        problems.add_error(error)
    return found


def is_tree(folder: Path) -> bool:
    """Whether a folder holds files of several measures: a SUBJECTS_DIR, HCP tree, BIDS derivatives,
    CAT12, CIVET.
    """
    return folder.is_dir() and any(subjects_in(folder) is not None for subjects_in, _ in _TREES)


def rename(sources: list[Source], pattern: str, problems: Problems) -> list[Source]:
    """The files with their subjects by a pattern of their names: {subject}, and * for anything
    within a name.
    """
    parts = re.split(r"(\{subject\}|\*)", pattern)
    if parts.count(PLACE) != 1:
        raise ArgumentError("subjects", pattern, f"a pattern with {literal(PLACE)} once")
    regex = re.compile("".join(_AS_REGEX.get(part, re.escape(part)) for part in parts) + "$")
    found = []
    for source in sources:
        match = regex.search(source.path.absolute().as_posix())
        if match is None:
            what = f"match the pattern {literal(repr(pattern))} of {{subjects}}"
            problems.add(source.path, Problem(f"does not {what}", f"do not {what}"))
        else:
            found.append(replace(source, subject=match["subject"]))
    return found


def _listed(paths: Any) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if not isinstance(paths, Iterable):
        raise ArgumentError(
            "paths", Phrase(type(paths).__name__), "a path, a glob, a folder or a list of these"
        )
    entries = list(paths)
    if not entries:
        raise ArgumentError("paths", None, "at least one file, glob or folder; the list is empty")
    wrong = [entry for entry in entries if not isinstance(entry, str | os.PathLike)]
    if wrong:
        raise ArgumentError("paths", Phrase(type(wrong[0]).__name__), "a list of paths")
    for entry in filter(is_url, entries):
        raise CohortError(bare(str(entry)), _ALONE)
    return [Path(entry).expanduser() for entry in entries]


def _expanded(path: Path) -> list[Path]:
    """What a name stands for: itself, or the files a glob finds; the folders where it finds no
    files.
    """
    if path.exists() or not glob.has_magic(str(path)):
        return [path]
    fixed = next(place for place in path.absolute().parents if not glob.has_magic(str(place)))
    if (fixed.exists() and is_kernels(fixed)) or (
        "**" in path.parts and fixed == Path(fixed.anchor)
    ):
        raise CohortError(path, "searches the whole file system; name a folder of maps")
    matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
    files = [match for match in matches if is_listed(match)]
    if not matches:
        raise CohortError(path, "no file matches this pattern")
    return files or matches


def _add_trees(
    found: Found, find: Callable[..., Found], roots: dict[Path, list[Path]], wanted: Wanted
) -> None:
    """Trees of one kind as one: what is chosen in them must be the same for all subjects."""
    if not roots:
        return
    subjects = list(dict.fromkeys(subject for there in roots.values() for subject in there))
    first = CohortError.place(next(iter(roots)))
    tree = find(
        first if len(roots) == 1 else f"{first} and {len(roots) - 1} more", subjects, wanted
    )
    found.sources += tree.sources
    found.missing.update(tree.missing)
    found.measure, found.mesh = found.measure or tree.measure, found.mesh or tree.mesh
    found.civet = found.civet or tree.civet
    found.surfaces |= tree.surfaces
    found.notes += tree.notes


def _add_folder(
    trees: dict[Callable[..., Found], dict[Path, list[Path]]],
    files: list[Path],
    folder: Path,
    wanted: Wanted,
) -> None:
    if is_zarr(folder):
        raise CohortError(folder, _ALONE)
    if all((folder / name).is_file() for name in _OF_A_FIT):
        raise CohortError(
            folder, f"contains the results of a fit ({', '.join(_OF_A_FIT)}); {_GIVE_MAPS}"
        )
    for subjects_in, find in _TREES:
        subjects = subjects_in(folder)
        if subjects is not None:
            trees[find][folder] = subjects
            return
    every = [folder / name for name in names_in(folder)]
    maps = [] if wanted.tables else [path for path in every if is_map(path)]
    maps = (
        maps
        or [path for path in every if is_region_file(path)]
        or [path for path in every if is_map(path)]
    )
    if not maps:
        raise CohortError(
            folder,
            "contains no map files, and is not a SUBJECTS_DIR (*/surf), HCP tree (*/MNINonLinear), BIDS "
            "derivatives (sub-*) or folder of CIVET (*/thickness)",
        )
    named = [
        path
        for path in maps
        if wanted.measure is not None and modality_of(wanted.measure) == measure_of(path.name)
    ]
    files += named or maps  # names that tell of another measure are refused with all other files


def _check_measure(files: list[Path], wanted: Wanted) -> None:
    """Files whose names all tell of another measure than the one asked for are not those that were
    meant.
    """
    told = {measure_of(path.name) for path in files if path.suffix not in (".npz", ".npy")}
    if (
        wanted.measure is not None
        and told
        and None not in told
        and modality_of(wanted.measure) not in told
    ):
        names = ", ".join(sorted(map(str, told)))
        text = f"there are no maps of {literal(wanted.measure)}: the file names say {names}; choose with {{measure}}"
        raise CohortError("paths", text)


def _check_used(wanted: Wanted, kinds: set[str]) -> None:
    """What chooses among the files of some trees must not be passed over silently where there are
    none.
    """
    for name, of, trees in _CHOICES:
        if getattr(wanted, name) not in (None, {}) and kinds and not kinds & of:
            found = " and ".join(sorted(kinds))
            raise CohortError(
                name, f"chooses among the files of {trees}; found {found}. Leave it out"
            )


def _add_files(found: Found, files: list[Path], wanted: Wanted) -> None:
    """Files named one by one, by a glob or by lying in a folder together."""
    asked = {key: str(value) for key, value in wanted.entities.items()}
    files = [path for path in files if asked.items() <= entities_of(path.name).items()]
    if not files:
        return
    _check_measure(files, wanted)
    sides, stems = zip(*(side_of(without_ending(path.name)) for path in files), strict=True)
    subjects = subjects_of([path.absolute() for path in files], stems, wanted.known)
    of_freesurfer = list(
        dict.fromkeys(
            name for path, name in zip(files, subjects, strict=True) if path.parent.name == "surf"
        )
    )
    kept = set(choose_stream(of_freesurfer, wanted.stream, "paths")) if of_freesurfer else set()
    for path, side, subject in zip(files, sides, subjects, strict=True):
        if (side is None or side in wanted.sides) and (
            subject in kept or subject not in of_freesurfer
        ):
            found.sources.append(Source(path, subject, side))
    measures = {measure_of(path.name) for path in files}
    if found.measure is None and len(measures) == 1:
        found.measure = measures.pop()
    meshes = {mesh_of(path.name) for path in files}
    if found.mesh is None and len(meshes) == 1:
        found.mesh = mesh_for(meshes.pop(), files[0]) or civet_mesh(files[0])
    found.civet = found.civet or all(map(is_civet, files))
