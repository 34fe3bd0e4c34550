"""From what the user names to the table of the files of a cohort."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.cohort.find import COLUMNS, folders_in, is_listed, keep, names_in, size_of
from icofactor.cohort.find.bids import has_entities, session_of
from icofactor.cohort.find.layouts import CIVET, LAYOUTS, Layout
from icofactor.cohort.find.table import find_in_layout
from icofactor.cohort.names import measure_of, mesh_of, modality_of, subjects_of
from icofactor.cohort.people import choose_stream
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.regions import is_region_file
from icofactor.cohort.request import Request
from icofactor.cohort.store.layout import is_zarr
from icofactor.cohort.subjects import SUBJECT_FIELD
from icofactor.errors import ArgumentError, CohortError, Problem, shown
from icofactor.io.guard import denying, is_kernels
from icofactor.io.hemispheres import side_of
from icofactor.io.maps import is_map, without_ending
from icofactor.io.url import bare, is_url

if TYPE_CHECKING:
    import pandas as pd

# Files in a folder that holds the results of a fit.
_RESULTS = ("model.zip", "desc-icofactor_loadings.tsv")
_RESULT_MAPS = re.compile(r".*_desc-icofactor_components\.(shape\.gii|dscalar\.nii)|model\.zip")
_GIVE_MAPS = (
    "give the maps of subjects: those to fit, or new ones with `icofactor transform FITTED "
    "NEW_MAPS -o TABLE`"
)
_FIELDS = {SUBJECT_FIELD: "(?P<subject>[^/]+?)", "{session}": "(?P<session>[^/]+?)", "*": "[^/]*"}
_FOLDERS = "SUBJECTS_DIR (*/surf), HCP tree (*/MNINonLinear), BIDS derivatives (sub-*) or folder"


def find_files(
    paths: Any,
    request: Request,
    problems: ReadProblems,
    journal: Journal,
) -> pd.DataFrame:
    """Return the table of the files that paths stand for; only names and sizes are read.

    Parameters
    ----------
    paths : a path, a glob, a folder, or a list of these.
    problems : takes paths that lead nowhere, and folders that leave a choice open.
    """
    import pandas as pd

    # A kind of map is chosen for all folders of one layout together.
    roots: dict[str, dict[Path, list[Path]]] = {layout.name: {} for layout in LAYOUTS}
    plain: list[Path] = []
    for path in _listed(paths):
        try:
            for entry in _expand(path):
                _add_entry(entry, request, roots, plain)
        except CohortError as error:
            problems.add_error(error)
        except PermissionError as error:
            problems.add(denying(error.filename or path), "cannot be read (permission denied)")
        except OSError as error:
            problems.add(error.filename or path, f"cannot be listed ({error.strerror})")
    present = [layout for layout in LAYOUTS if roots[layout.name]]
    tables = []
    try:
        _check_options(request, present, bool(plain))
    except CohortError as error:
        # The option would also choose wrongly among files: one error is enough.
        problems.add_error(error)
        present = []
    searches = [
        partial(
            find_in_layout,
            layout,
            roots[layout.name],
            request,
            journal,
        )
        for layout in present
    ]
    for search in (*searches, partial(_list_plain, list(dict.fromkeys(plain)), request)):
        try:
            tables.append(search())
        except CohortError as error:
            problems.add_error(error)
    tables = [table for table in tables if len(table)]
    if not tables:
        return pd.DataFrame(columns=list(COLUMNS), dtype=object)
    return pd.concat(tables, ignore_index=True)


def is_tree(folder: Path) -> bool:
    """Whether a folder has a layout of subjects' folders, with files of several measures."""
    return folder.is_dir() and any(layout.subject_folders(folder) is not None for layout in LAYOUTS)


def match_pattern(
    files: pd.DataFrame,
    pattern: str,
    problems: ReadProblems,
) -> pd.DataFrame:
    """Return the files with the subjects, and sessions, that a pattern finds in their names."""
    words = re.split(r"(\{subject\}|\{session\}|\*)", pattern)
    if words.count(SUBJECT_FIELD) != 1:
        raise ArgumentError(
            "subjects",
            f"a pattern must contain {SUBJECT_FIELD} once; found {shown(pattern)}",
        )
    regex = re.compile("".join(_FIELDS.get(word, re.escape(word)) for word in words) + "$")
    matches = [regex.search(Path(path).absolute().as_posix()) for path in files["path"]]
    text = f"match the pattern {shown(pattern)} of --subjects (subjects=)"
    for path in files["path"][[match is None for match in matches]]:
        problems.add(path, Problem(f"does not {text}", f"do not {text}"))
    files = keep(files, (match is not None for match in matches))
    groups = [match.groupdict() for match in matches if match is not None]
    names = ["subject", "session"] if "{session}" in words else ["subject"]
    return files.assign(**{name: [fields[name] for fields in groups] for name in names})


def _listed(paths: Any) -> list[Path]:
    """Return paths as a list."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    # A generator of paths is read once.
    entries = list(paths) if isinstance(paths, Iterable) else [paths]
    if not entries or not all(isinstance(entry, str | os.PathLike) for entry in entries):
        text = "must be a path, a glob, a folder or a list of these"
        raise ArgumentError("paths", f"{text}; found {shown(paths)}")
    for entry in filter(is_url, entries):
        raise CohortError(bare(str(entry)), _STORE_ALONE)
    return [Path(entry).expanduser() for entry in entries]


_STORE_ALONE = "is a cohort store; load it alone, not in a list with others"


def _expand(path: Path) -> list[Path]:
    """Return a path, or the files that a glob matches; its folders if there are no files."""
    # A name may contain brackets.
    if path.exists() or not has_magic(str(path)):
        return [path]
    magic = [number for number, name in enumerate(path.parts) if has_magic(name)]
    root = Path(*path.parts[: magic[0]])
    absolute = root.absolute()
    is_everything = "**" in path.parts and absolute == Path(absolute.anchor)
    matches: list[Path] = []
    problem = "searches the whole file system; name a folder of maps"
    # The kernel's folders (/proc, /sys) never end.
    if not (is_everything or (absolute.exists() and is_kernels(absolute))):
        matches = list(dict.fromkeys(_glob(root, path.parts[magic[0] :])))
        problem = "no file matches this pattern"
    if not matches:
        raise CohortError(path, problem)
    return [match for match in matches if is_listed(match)] or matches


def _glob(
    folder: Path,
    patterns: Sequence[str],
) -> Iterator[Path]:
    """Yield what matches patterns of names, one for each level of folders."""
    if not patterns:
        yield folder
        return
    pattern, *others = patterns
    if pattern == "**":
        for below in _folders_below(folder):
            yield from _glob(below, others or ["*"])
        return
    names = [name for name in names_in(folder) if fnmatchcase(name, pattern)]
    for name in names if has_magic(pattern) else [pattern]:
        entry = folder / name
        # As in a shell, a star does not match hidden files.
        if name.startswith(".") and not pattern.startswith("."):
            continue
        if entry.exists() or entry.is_symlink():
            yield from _glob(entry, others)


def _folders_below(
    folder: Path,
    ancestors: frozenset[Path] = frozenset(),
) -> Iterator[Path]:
    """Yield a folder and all folders below; links are followed, but never in a circle."""
    real = folder.resolve()
    if real in ancestors or not folder.is_dir():
        return
    yield folder
    for below in folders_in(folder):
        yield from _folders_below(below, ancestors | {real})


def _add_entry(
    entry: Path,
    request: Request,
    roots: dict[str, dict[Path, list[Path]]],
    plain: list[Path],
) -> None:
    """Add a file to the plain files, or a folder to those of its layout."""
    is_folder = entry.is_dir()
    problem = ""
    if is_folder and is_zarr(entry):
        problem = _STORE_ALONE
    elif is_folder and all((entry / name).is_file() for name in _RESULTS):
        problem = f"contains the results of a fit ({', '.join(_RESULTS)}); {_GIVE_MAPS}"
    elif not is_folder and _RESULT_MAPS.fullmatch(entry.name):
        problem = f"belongs to a fit, not to a subject; {_GIVE_MAPS}"
    if problem:
        raise CohortError(entry, problem)
    if not is_folder:
        plain.append(entry)
        return
    for layout in LAYOUTS:
        folders = layout.subject_folders(entry)
        if folders is not None:
            roots[layout.name][entry] = folders
            return
    plain += _maps_in(entry, request)


def _maps_in(
    folder: Path,
    request: Request,
) -> list[Path]:
    """Return the maps in a folder, or its tables of regions."""
    entries = [folder / name for name in names_in(folder)]
    maps = [path for path in entries if is_map(path) and is_listed(path)]
    # Tables are taken for maps only if there are no maps, or the caller wants tables.
    if request.tables or not maps:
        maps = [path for path in entries if path.is_file() and is_region_file(path)] or maps
    if not maps:
        text = f"contains no map files, and is not a {_FOLDERS} of CIVET (*/thickness)"
        raise CohortError(folder, text)
    if request.measure is None:
        return maps
    measure = modality_of(request.measure)
    # If no name says the measure, all files are taken: arrays in them may be named after it.
    return [path for path in maps if measure_of(path.name) == measure] or maps


def _list_plain(
    paths: list[Path],
    request: Request,
) -> pd.DataFrame:
    """Return the table of files that are named one by one, by a glob, or by their folder."""
    import pandas as pd

    paths = [path for path in paths if has_entities(path.name, dict(request.entities))]
    if not paths:
        return pd.DataFrame(columns=list(COLUMNS), dtype=object)
    measures = [measure_of(path.name) for path in paths]
    if request.measure is not None:
        _check_measure(paths, measures, request.measure)
    names = [side_of(without_ending(path.name)) for path in paths]
    stems = [stem for _, stem in names]
    rows = [
        {
            "session": session_of(path),
            "hemisphere": side,
            "measure": measure,
            "mesh": "CIVET" if CIVET.describe(path.name) is not None else mesh_of(path.name),
            "path": path,
            "size": size_of(path),
        }
        for path, measure, (side, _) in zip(paths, measures, names, strict=True)
    ]
    files = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    files["subject"] = subjects_of([path.absolute() for path in paths], stems, request.listed)
    files = keep(files, (side in (None, *request.sides) for side in files["hemisphere"]))
    # Files in "surf" may be of several streams of one person.
    in_surf = np.array([path.parent.name == "surf" for path in files["path"]], dtype=bool)
    if not in_surf.any():
        return files
    of_stream = choose_stream(list(files["subject"][in_surf].unique()), request.stream, "paths")
    return files[~in_surf | files["subject"].isin(of_stream)]


def _check_measure(
    paths: Sequence[Path],
    measures: Sequence[str | None],
    measure: str,
) -> None:
    """Raise an error if the names of all files say other measures than the requested one."""
    # Names of archives say nothing of the arrays in them.
    named = {
        name
        for path, name in zip(paths, measures, strict=True)
        if path.suffix not in (".npz", ".npy")
    }
    if named and None not in named and modality_of(measure) not in named:
        names = ", ".join(sorted(map(str, named)))
        text = f"there are no maps of {measure}: the file names say {names}"
        raise CohortError("paths", f"{text}; choose with --measure (measure=)")


def _check_options(
    request: Request,
    layouts: Sequence[Layout],
    has_plain: bool,
) -> None:
    """Raise an error for an option that chooses nothing among the files."""
    options = {option for layout in layouts for option in layout.options}
    names = [layout.name for layout in layouts]
    if has_plain:
        options |= {"stream", "entities"}
        names.append("files")
    if not names:
        return
    for option in ("smoothing", "target", "stream", "entities"):
        if getattr(request, option) not in (None, {}) and option not in options:
            able = [layout.name for layout in LAYOUTS if option in layout.options]
            text = f"chooses among the files of {', '.join(able)}; found {' and '.join(names)}"
            raise CohortError(option, f"{text}. Leave it out")
