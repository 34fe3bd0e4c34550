"""A cohort before it is read: who is in it, and which files are theirs.

A `Plan` is all that `icofactor ... --dry-run` shows, and the first half of `load_cohort`;
`Plan.read` is the second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.find import MISSING, size_of
from icofactor.cohort.find.bids import entities_of
from icofactor.cohort.find.surfaces import surfaces_to_draw
from icofactor.cohort.masks import read_mask
from icofactor.cohort.names import modality_of, subject_of
from icofactor.cohort.people import PERSON, Scan, scan_of, scans_of
from icofactor.cohort.problems import Journal, ReadProblems, some
from icofactor.cohort.read import FileRows, Reading
from icofactor.cohort.reader import MapFile, Reader, several_maps
from icofactor.cohort.request import Request
from icofactor.cohort.subjects import Selection, check_names, names_of_unnamed
from icofactor.errors import CohortError, Problem
from icofactor.sphere.names import SIDES, mesh_name_of
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    import pandas as pd

    from icofactor.cohort.cohort import Cohort
    from icofactor.cohort.measures import Measures
    from icofactor.cohort.store.read import StoredCohort

# Hemisphere in the name of a file (None: both, or unknown) → file.
Files = dict[str | None, Path]
_NO_MASK = "none given; sites that are NaN or zero in everyone are left out"
# Maps on one mesh have the same size in these formats, and about the same in the others.
_FIXED_SIZE = (".mgh", ".npy")
# Look into at most so many suspiciously small files before reading.
_MAX_SMALL = 20


@dataclass(frozen=True, eq=False)
class Plan:
    """A cohort before it is read.

    Attributes
    ----------
    subjects : rows of X, in order.
    participants : column of the participants' table → one value per subject.
    sites : columns of X; None if unknown, which `check` reports.
    hemisphere : of the sites.
    mask : what is known of the mask, as text.
    problems : what is wrong so far; reading reports it with what it finds itself.
    journal : what was selected and left out.
    open : returns the cohort.
    n_files, n_bytes : files that would be read, and their size.
    lowest : smallest value in use of the first file; 0 for a store.
    stored : whether it is a cohort store, which is opened and not loaded.
    modality : of the maps, as far as names say; "" if they do not.
    unknown_sites : why the sites are unknown.
    measures : how several measures are joined; None for one.
    """

    subjects: tuple[str, ...]
    participants: Mapping[str, NDArray[Any]]
    sites: Sites | None
    hemisphere: str
    mask: str
    problems: ReadProblems
    journal: Journal
    open: Callable[[], Cohort | StoredCohort] = field(repr=False)
    n_files: int = 0
    n_bytes: int = 0
    lowest: float = 0.0
    stored: bool = False
    modality: str = ""
    unknown_sites: CohortError | None = None
    measures: Measures | None = None

    @property
    def n_sites(self) -> int:
        """Number of columns of X."""
        self.check()
        assert self.sites is not None
        return self.sites.n

    @property
    def mesh(self) -> str:
        """Name of the mesh."""
        self.check()
        return mesh_name_of(self.sites)

    def check(self) -> None:
        """Raise a CohortError for everything that is wrong so far."""
        self.problems.check()
        if self.unknown_sites is not None:
            raise self.unknown_sites

    def read(self) -> Cohort | StoredCohort:
        """Return the cohort; a CohortError names every bad file."""
        return self.open()


class Planner:
    """Plans a cohort from a table of files: chooses its subjects, and looks at one file or two."""

    def __init__(
        self,
        request: Request,
        selection: Selection,
        reader: Reader,
        problems: ReadProblems,
        journal: Journal,
    ) -> None:
        self.request = request
        self.selection = selection
        self.reader = reader
        self.problems = problems
        self.journal = journal
        self.surfaces: list[Path] = []

    def plan(
        self, files: pd.DataFrame, names: Sequence[str] | None, scans: Mapping[str, Scan]
    ) -> Plan:
        """Return the plan for a table of files.

        Parameters
        ----------
        names : names of the subjects that the caller gives.
        scans : subject in the table → person and session.
        """
        files_of, missing, duplicates = group_files(files, self.request)
        problems = self.problems
        if not files_of and not missing and not problems:
            sides = f" of the {self.request.hemisphere} hemisphere"
            is_one_side = self.request.hemisphere in SIDES
            problems.add("paths", f"contain no map files{sides if is_one_side else ''}")
        stacked = self.request.map_name is None and self._are_stacks(files_of)
        if stacked or names is not None:
            # Files are not single subjects: none of them may occur twice.
            for path, text in (entry for listed in duplicates.values() for entry in listed):
                problems.add(path, text)
        if stacked:
            return self.plan_stacks(files_of, names)
        if names is not None:
            listed = f"the files are of {len(files_of)} subjects ({some(files_of)})"
            renamed = dict(zip(files_of, check_names(names, len(files_of), listed), strict=True))
            files_of = {renamed[name]: paths for name, paths in files_of.items()}
            scans = {renamed[name]: scan for name, scan in scans.items() if name in renamed}
        # Subjects are called as the caller wants from here on, scans too.
        self.selection = replace(self.selection, scans=scans)
        selected = self.selection.select_files(
            list(files_of), missing, duplicates, problems, self.journal
        )
        in_data = {name for _, name in selected}
        of_chosen = files[files["subject"].isin(in_data)]
        self.surfaces = surfaces_to_draw(of_chosen, self.request.sides)
        return self._plan_singles(
            [(name, files_of[in_data]) for name, in_data in selected], selected
        )

    def _plan_singles(
        self, people: Sequence[tuple[str, Files]], selected: Sequence[tuple[str, str]]
    ) -> Plan:
        """Return the plan of files with one map each, one or two per subject."""
        if not people and not self.problems:
            self.problems.add("paths", "no subjects remain to read")
        if not people:
            self.problems.check()
        files = [
            FileRows(path, side, {0: row})
            for row, (_, paths) in enumerate(people)
            for side, path in paths.items()
        ]
        self._look_at_small_files(files)
        named = {file.side for file in files}
        sides: Sequence[str | None] = [side for side in SIDES if side in named]
        if self.request.hemisphere is not None:
            sides = self.request.sides
        firsts: list[MapFile] = []
        widths: dict[str, int] = {}
        for side in sides or [None]:
            candidates = [
                (file.path, file.side)
                for file in files
                if side in (None, file.side) or not file.side
            ]
            first = self.reader.first(candidates, fitting=True) or self.reader.first(candidates)
            if first is not None:
                firsts.append(first)
                widths = {**first.sizes, **widths}
        for first in firsts:
            if first.n_maps > 1:
                self.problems.add_error(several_maps(first))
        if not firsts:
            self._report_all(files)
        return self._plan_reading(selected, {}, files, widths, firsts, has_one_map=True)

    def _report_all(self, files: Iterable[FileRows]) -> None:
        """Report the errors of all files."""
        for file in files:
            maps = self.reader.look(file.path, file.side)
            if isinstance(maps, CohortError):
                self.problems.add_error(maps)

    def _look_at_small_files(self, files: Sequence[FileRows]) -> None:
        """Report truncated files, by looking into those that are smaller than the others."""
        by_kind: dict[tuple[str | None, str], list[tuple[int, FileRows]]] = {}
        for file in files:
            by_kind.setdefault((file.side, file.path.suffix), []).append((size_of(file.path), file))
        # A truncated file is smaller than the others; whether it is damaged, only reading it tells.
        small = []
        for (_, suffix), listed in by_kind.items():
            usual = median(size for size, _ in listed)
            least = usual if suffix in _FIXED_SIZE else usual / 2
            small += [file for size, file in listed if size < least]
        self._report_all(small[:_MAX_SMALL])

    def _are_stacks(self, files_of: Mapping[str, Files]) -> bool:
        """Whether files hold several subjects each.

        A single file, or pair, with many maps does. Of several files, only those do that name their
        maps, each differently: time series are not taken for subjects.
        """
        names: list[str] = []
        for paths in files_of.values():
            maps = self.reader.first((path, side) for side, path in paths.items())
            if maps is None:
                continue
            can_be_stack = maps.record["reader"] in ("npz", "table") and maps.names
            if maps.n_maps == 1 and not can_be_stack:
                return False
            if len(files_of) == 1:
                return True
            if not maps.names:
                return False
            names += maps.names
        return bool(names) and len(set(names)) == len(names)

    def plan_stacks(self, files_of: Mapping[str, Files], names: Sequence[str] | None) -> Plan:
        """Return the plan of files with several maps each, one per subject."""
        names_in = self._look_at_stacks(files_of, names)
        subjects = [name for listed in names_in.values() for name in listed]
        for name, count in Counter(subjects).items():
            if count > 1:
                paths = [str(stack[0].path) for stack, listed in names_in.items() if name in listed]
                text = f"occurs {count} times in {', '.join(paths)}"
                self.problems.add(f"subject {name}", text)
        if not names_in:
            self.problems.add("paths", "no subject could be read")
        self.problems.check()
        columns = _columns_of(list(names_in))
        if PERSON not in columns:
            self.selection = replace(self.selection, scans=scans_of(subjects))
        selected = self.selection.select(subjects, self.problems, self.journal, columns)
        if not selected and not self.problems:
            self.problems.add("paths", "no subjects remain to read")
        if not selected:
            self.problems.check()
        row_of = {in_data: row for row, (_, in_data) in enumerate(selected)}
        side_of = {path: side for paths in files_of.values() for side, path in paths.items()}
        files = []
        widths: dict[str, int] = {}
        for stack, listed in names_in.items():
            rows = {number: row_of[name] for number, name in enumerate(listed) if name in row_of}
            for maps in stack:
                files.append(FileRows(maps.path, side_of[maps.path], rows))
                widths |= maps.sizes
        index = {name: number for number, name in enumerate(subjects)}
        order = [index[in_data] for _, in_data in selected]
        columns = {name: values[order] for name, values in columns.items()}
        first_stack = next(iter(names_in))
        return self._plan_reading(selected, columns, files, widths, first_stack, has_one_map=False)

    def _look_at_stacks(
        self, files_of: Mapping[str, Files], names: Sequence[str] | None
    ) -> dict[tuple[MapFile, ...], list[str]]:
        """Return a file, or a pair of files of two hemispheres → subjects of its maps."""
        names_in: dict[tuple[MapFile, ...], list[str]] = {}
        is_alone = len(files_of) == 1
        for paths in files_of.values():
            looked_at = [self.reader.look(path, side) for side, path in paths.items()]
            stack = tuple(maps for maps in looked_at if isinstance(maps, MapFile))
            for maps in looked_at:
                if isinstance(maps, CohortError):
                    self.problems.add_error(maps)
                elif maps.n_maps != stack[0].n_maps:
                    text = f"contains {maps.n_maps} maps; {stack[0].path} contains"
                    self.problems.add(maps.path, f"{text} {stack[0].n_maps}")
            if stack:
                names_in[stack] = self._names_in(stack, names if is_alone else None, is_alone)
        return names_in

    def _names_in(
        self, stack: Sequence[MapFile], names: Sequence[str] | None, is_alone: bool
    ) -> list[str]:
        """Return subjects of maps: as given, as maps are named, as in the table, or numbers."""
        n = stack[0].n_maps
        path = stack[0].path
        if names is not None:
            return check_names(names, n, f"{path} contains {n} maps")
        for maps in stack:
            subjects = [subject_of(Path(name)) or name for name in maps.names]
            are_scans = len(set(maps.names)) == n and all(map(scan_of, maps.names))
            if len(set(subjects)) < n and are_scans:
                return list(maps.names)
            if len(set(subjects)) == n:
                return subjects
        table = self.selection.participants if is_alone else None
        return names_of_unnamed(n, CohortError.place(path), table, self.journal)

    def _plan_reading(
        self,
        selected: Sequence[tuple[str, str]],
        columns: Mapping[str, NDArray[Any]],
        files: Sequence[FileRows],
        widths: Mapping[str, int],
        firsts: Sequence[MapFile],
        has_one_map: bool,
    ) -> Plan:
        """Return the plan of files whose subjects are known."""
        selection = self.selection.renamed(selected)
        subjects = [name for name, _ in selected]
        widths = {side: widths[side] for side in SIDES if side in widths}
        sites, mask = None, None
        unknown_sites: CohortError | None = None
        if widths:
            try:
                sites = self.reader.mesh.sites(widths)
            except CohortError as error:
                unknown_sites = error
        # Of maps on another mesh, problems with the mask would tell nothing new.
        if sites is not None and self.request.mask is not None:
            try:
                mask = read_mask(self.request.mask, widths)
            except CohortError as error:
                self.problems.add_error(error)
        reading = Reading(
            subjects=subjects,
            columns=columns,
            files=files,
            widths=widths,
            has_one_map=has_one_map,
            sites=sites,
            unknown_sites=unknown_sites,
            mask=mask,
            surfaces=self.surfaces,
            reader=self.reader,
            request=self.request,
            selection=selection,
            problems=self.problems,
            journal=self.journal,
        )
        paths = [file.path for file in files if file.path.is_file()]
        measure = self.request.measure
        return Plan(
            subjects=tuple(subjects),
            participants={**columns, **selection.columns(subjects)},
            sites=sites,
            hemisphere="both" if len(widths) == 2 else next(iter(widths), ""),
            mask=_describe_mask(mask, firsts),
            problems=self.problems,
            journal=self.journal,
            open=reading.read,
            n_files=len(paths),
            n_bytes=sum(map(size_of, paths)),
            lowest=min((_lowest(maps, mask, widths) for maps in firsts), default=0.0),
            unknown_sites=unknown_sites,
            modality=self.request.modality or (modality_of(measure) if measure else ""),
        )


def missing_files(files: pd.DataFrame) -> dict[str, list[str]]:
    """Return subject → files that should be there and are not."""
    missing = files[files["size"] == MISSING]
    paths: dict[str, list[str]] = {}
    for subject, path in zip(missing["subject"], missing["path"], strict=True):
        paths.setdefault(subject, []).append(str(path))
    return paths


def group_files(
    files: pd.DataFrame, request: Request
) -> tuple[dict[str, Files], dict[str, list[str]], dict[str, list[tuple[Path, str]]]]:
    """Return each subject's files by hemisphere, what is missing, and files beyond one of each."""
    files_of: dict[str, Files] = {}
    missing = missing_files(files)
    clashes: list[tuple[Any, Path]] = []
    for row in files[files["size"] != MISSING].itertuples(index=False):
        paths = files_of.setdefault(row.subject, {})
        # A file of both hemispheres clashes with one of either.
        clashing = [
            path
            for side, path in paths.items()
            if side == row.hemisphere or None in (side, row.hemisphere)
        ]
        if clashing:
            clashes.append((row, clashing[0]))
        else:
            paths[row.hemisphere] = row.path
    duplicates: dict[str, list[tuple[Path, str]]] = {}
    entities = _differing_entities(clashes)
    for row, path in clashes:
        duplicates.setdefault(row.subject, []).append((row.path, _also_in(row, path, entities)))
    present = {side for paths in files_of.values() for side in paths if side is not None}
    sides = sorted(present) if request.hemisphere is None else request.sides
    for subject, paths in files_of.items():
        if None in paths or subject in missing:
            continue
        only = next(iter(paths.values()))
        lacking = [
            f"the {side} hemisphere (there is only {only})" for side in sides if side not in paths
        ]
        if lacking:
            missing[subject] = lacking
    # Left before right, whatever the order in which files were named.
    ordered = {
        subject: dict(sorted(paths.items(), key=lambda item: str(item[0])))
        for subject, paths in files_of.items()
    }
    return ordered, missing, duplicates


def _differing_entities(clashes: Sequence[tuple[Any, Path]]) -> str:
    """Say which BIDS entities differ between files of one subject: "ses is 1, 2"."""
    values: dict[str, set[str]] = {}
    for row, path in clashes:
        entities = entities_of(row.path.name)
        for key, value in entities_of(path.name).items():
            if entities.get(key, value) != value:
                values.setdefault(key, set()).update((entities[key], value))
    return "; ".join(
        f"{key} is {', '.join(sorted(different))}" for key, different in values.items()
    )


def _also_in(row: Any, path: Path, entities: str) -> str:
    """Say that a subject has another file, and what to do."""
    remedy = "give one file for each"
    if row.path.name.startswith("sub-"):
        remedy += f", or choose with --entities (entities=) ({entities or 'ses, task, run, ...'})"
    if "ses is " in entities:
        remedy += "; --sessions all (sessions='all') reads all sessions"
    side = f", {row.hemisphere} hemisphere" if row.hemisphere else ""
    return Problem(
        f"subject {row.subject}{side} is also in {path}; {remedy}",
        f"the subject has other files; {remedy}",
    )


def _columns_of(stacks: Sequence[Sequence[MapFile]]) -> dict[str, NDArray[Any]]:
    """Return the columns that all stacks have, one value per map."""
    tables = [stack[0].columns for stack in stacks]
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables]) for name in shared}


def _lowest(maps: MapFile, mask: NDArray[np.bool_] | None, widths: Mapping[str, int]) -> float:
    """Return the smallest value in use of the first map in a file, or 0."""
    lowest = 0.0
    start = 0
    for side, width in widths.items():
        half = maps.parts.get(side)
        if half is not None and half.shape[1] == width:
            used = slice(None) if mask is None else mask[start : start + width]
            values = half[0][used]
            lowest = min(lowest, float(np.min(values, where=np.isfinite(values), initial=0.0)))
        start += width
    return lowest


def _describe_mask(mask: NDArray[np.bool_] | None, firsts: Sequence[MapFile]) -> str:
    """Say what is known of the mask before the maps are read."""
    in_files = [flags for maps in firsts for flags in maps.masks.values()]
    if mask is None and in_files:
        mask = np.concatenate(in_files)
    if mask is not None:
        left_out = f"{int((~mask).sum())} of {len(mask)} sites left out"
        return f"given, {left_out}; and those that are NaN or zero in everyone"
    if not firsts:
        return _NO_MASK
    n_empty = 0
    for values in (half[0] for maps in firsts for half in maps.parts.values()):
        n_empty += int((~np.isfinite(values) | (values == 0)).sum())
    return f"{_NO_MASK} ({n_empty} are, in the first subject)"
