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
from icofactor.cohort.meshes import hemisphere_of
from icofactor.cohort.names import modality_of, subject_of
from icofactor.cohort.people import PERSON, Scan, scan_of, scans_of
from icofactor.cohort.problems import Journal, ReadProblems
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
        if self.unknown_sites is not None and not self.problems:
            self.problems.add_error(self.unknown_sites)
        self.problems.check()

    def read(self) -> Cohort | StoredCohort:
        """Return the cohort; a CohortError names every bad file."""
        return self.open()


@dataclass(eq=False)
class Planner:
    """Plans a cohort from a table of files: chooses its subjects, and looks at one file or two.

    Attributes
    ----------
    measure : of the files, for the cohort.
    surfaces : of some of the subjects, to draw on.
    """

    reader: Reader
    selection: Selection
    measure: str | None
    problems: ReadProblems
    journal: Journal
    surfaces: Sequence[Path] = ()

    def plan(
        self,
        files: pd.DataFrame,
        names: Sequence[str] | None,
        scans: Mapping[str, Scan],
    ) -> Plan:
        """Return the plan for a table of files.

        Parameters
        ----------
        names : names of the subjects that the caller gives.
        scans : subject in the table → person and session.
        """
        request = self.reader.request
        files_of, missing, duplicates = group_files(files, request)
        if not files_of and not missing and not self.problems:
            side = "" if request.hemisphere is None else f" (hemisphere {request.hemisphere})"
            self.problems.add("paths", f"contain no map files{side}")
        stacked = request.map_name is None and self._are_stacks(files_of)
        if stacked or names is not None:
            # Files are not single subjects: none of them may occur twice.
            for path, text in (entry for entries in duplicates.values() for entry in entries):
                self.problems.add(path, text)
        if stacked:
            return self.plan_stacks(files_of, names)
        if names is not None:
            check_names(names, len(files_of), f"the files are of {len(files_of)} subjects")
            renamed = dict(zip(files_of, names, strict=True))
            files_of = {renamed[name]: paths for name, paths in files_of.items()}
            scans = {renamed[name]: scan for name, scan in scans.items() if name in renamed}
        # Subjects are called as the caller wants from here on, scans too.
        self.selection = replace(self.selection, scans=scans)
        selected = self.selection.select_files(
            list(files_of),
            missing,
            duplicates,
            self.problems,
            self.journal,
        )
        in_data = [name for _, name in selected]
        # Surfaces to draw on are those of the chosen subjects, without those left out.
        of_chosen = files[files["subject"].isin(in_data)]
        self.surfaces = surfaces_to_draw(of_chosen, request.sides)
        self._check_subjects(selected)
        rows = [
            FileRows(path, side, {0: row})
            for row, name in enumerate(in_data)
            for side, path in files_of[name].items()
        ]
        self._look_at_small_files(rows)
        return self._plan_reading(
            selected,
            {},
            rows,
            self._first_files(rows),
            has_one_map=True,
        )

    def _check_subjects(self, selected: Sequence[tuple[str, str]]) -> None:
        """Raise an error if no subjects remain."""
        if not selected and not self.problems:
            self.problems.add("paths", "no subjects remain to read")
        if not selected:
            self.problems.check()

    def _first_files(self, files: Sequence[FileRows]) -> list[MapFile]:
        """Return the first file of each hemisphere, of the mesh if there is one."""
        named = {file.side for file in files}
        sides: Sequence[str | None] = [side for side in SIDES if side in named]
        if self.reader.request.hemisphere is not None:
            sides = self.reader.request.sides
        firsts = []
        for side in sides or [None]:
            candidates = [
                (file.path, file.side)
                for file in files
                if side in (None, file.side) or not file.side
            ]
            first = self.reader.first(candidates, fitting=True) or self.reader.first(candidates)
            if first is not None:
                firsts.append(first)
                if first.n_maps > 1:
                    self.problems.add_error(several_maps(first))
        if not firsts:
            self._report_all(files)
        return firsts

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
        for (_, suffix), entries in by_kind.items():
            usual = median(size for size, _ in entries)
            least = usual if suffix in _FIXED_SIZE else usual / 2
            small += [file for size, file in entries if size < least]
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
            # One map per file is the usual cohort; only archives and tables may hold one subject.
            if maps.n_maps == 1 and not can_be_stack:
                return False
            if len(files_of) == 1:
                return True
            if not maps.names:
                return False
            names += maps.names
        return bool(names) and len(set(names)) == len(names)

    def plan_stacks(
        self,
        files_of: Mapping[str, Files],
        names: Sequence[str] | None,
    ) -> Plan:
        """Return the plan of files with several maps each, one per subject."""
        stacks = []
        subjects: list[str] = []
        rows: list[FileRows] = []
        for paths in files_of.values():
            stack = self._look_at_stack(paths)
            if not stack:
                continue
            stacks.append(stack)
            names_in_stack = self._names_in(stack, names, is_alone=len(files_of) == 1)
            numbers = {number: len(subjects) + number for number in range(len(names_in_stack))}
            side_of = {path: side for side, path in paths.items()}
            rows += [FileRows(maps.path, side_of[maps.path], numbers) for maps in stack]
            subjects += names_in_stack
        for name, count in Counter(subjects).items():
            if count > 1:
                text = f"occurs {count} times among the maps of these files"
                self.problems.add(f"subject {name}", text)
        if not stacks:
            self.problems.add("paths", "no subject could be read")
        self.problems.check()
        columns = _columns_of(stacks)
        # Names tell people and sessions only where the file does not.
        if PERSON not in columns:
            self.selection = replace(self.selection, scans=scans_of(subjects))
        selected = self.selection.select(subjects, self.problems, self.journal, columns)
        self._check_subjects(selected)
        index = {name: number for number, name in enumerate(subjects)}
        order = [index[in_data] for _, in_data in selected]
        row_of = {number: row for row, number in enumerate(order)}
        chosen = [
            file._replace(
                rows={
                    in_file: row_of[number]
                    for in_file, number in file.rows.items()
                    if number in row_of
                }
            )
            for file in rows
        ]
        columns = {name: values[order] for name, values in columns.items()}
        return self._plan_reading(
            selected,
            columns,
            chosen,
            stacks[0],
            has_one_map=False,
        )

    def _look_at_stack(self, paths: Files) -> list[MapFile]:
        """Return a file, or a pair of files of two hemispheres with the same number of maps."""
        stack: list[MapFile] = []
        for side, path in paths.items():
            maps = self.reader.look(path, side)
            if isinstance(maps, CohortError):
                self.problems.add_error(maps)
                continue
            stack.append(maps)
            if maps.n_maps != stack[0].n_maps:
                text = f"contains {maps.n_maps} maps; {stack[0].path} contains {stack[0].n_maps}"
                self.problems.add(path, text)
        return stack

    def _names_in(
        self,
        stack: Sequence[MapFile],
        names: Sequence[str] | None,
        is_alone: bool,
    ) -> list[str]:
        """Return subjects of maps: as given, as maps are named, as in the table, or numbers."""
        n = stack[0].n_maps
        path = stack[0].path
        if is_alone and names is not None:
            return check_names(names, n, f"{path} contains {n} maps")
        for maps in stack:
            subjects = [subject_of(Path(name)) or name for name in maps.names]
            are_scans = len(set(maps.names)) == n and all(map(scan_of, maps.names))
            # Several scans of a person: the whole names tell them apart.
            if len(set(subjects)) < n and are_scans:
                return list(maps.names)
            if len(set(subjects)) == n:
                return subjects
        # The order of the table says nothing of several files.
        table = self.selection.participants if is_alone else None
        return names_of_unnamed(n, CohortError.place(path), table, self.journal)

    def _plan_reading(
        self,
        selected: Sequence[tuple[str, str]],
        columns: Mapping[str, NDArray[Any]],
        files: Sequence[FileRows],
        firsts: Sequence[MapFile],
        has_one_map: bool,
    ) -> Plan:
        """Return the plan of files whose subjects are known."""
        request = self.reader.request
        subjects = [name for name, _ in selected]
        participants = {**columns, **self.selection.renamed(selected).columns(subjects)}
        sizes: dict[str, int] = {}
        # The first file of a hemisphere decides its size: written last, it stays.
        for maps in reversed(firsts):
            sizes |= maps.sizes
        widths = {side: sizes[side] for side in SIDES if side in sizes}
        sites = None
        mask = None
        unknown_sites: CohortError | None = None
        if widths:
            try:
                sites = self.reader.mesh.sites(widths)
            except CohortError as error:
                unknown_sites = error
        # Of maps on another mesh, problems with the mask would tell nothing new.
        if sites is not None and request.mask is not None:
            try:
                mask = read_mask(request.mask, widths)
            except CohortError as error:
                self.problems.add_error(error)
        table = self.selection.participants
        reading = Reading(
            subjects=subjects,
            participants=participants,
            files=files,
            widths=widths,
            has_one_map=has_one_map,
            sites=sites,
            unknown_sites=unknown_sites,
            mask=mask,
            measure=self.measure,
            table_source=None if table is None else dict(table.source),
            surfaces=self.surfaces,
            reader=self.reader,
            problems=self.problems,
            journal=self.journal,
        )
        values = _first_map(firsts, widths)
        in_use = np.isfinite(values) if mask is None else mask & np.isfinite(values)
        paths = [file.path for file in files if file.path.is_file()]
        return Plan(
            subjects=tuple(subjects),
            participants=participants,
            sites=sites,
            hemisphere=hemisphere_of(widths),
            mask=_describe_mask(mask, firsts, values),
            problems=self.problems,
            journal=self.journal,
            open=reading.read,
            n_files=len(paths),
            n_bytes=sum(map(size_of, paths)),
            lowest=float(np.min(values, where=in_use, initial=0.0)),
            unknown_sites=unknown_sites,
            modality=request.modality or modality_of(self.measure or ""),
        )


def missing_files(files: pd.DataFrame) -> dict[str, list[str]]:
    """Return subject → files that should be there and are not."""
    missing = files[files["size"] == MISSING]
    by_subject = missing.groupby("subject", sort=False)["path"]
    return {subject: list(map(str, paths)) for subject, paths in by_subject}


def group_files(
    files: pd.DataFrame,
    request: Request,
) -> tuple[dict[str, Files], dict[str, list[str]], dict[str, list[tuple[Path, str]]]]:
    """Return each subject's files by hemisphere, what is missing, and files beyond one of each."""
    files_of: dict[str, Files] = {}
    missing = missing_files(files)
    duplicates: dict[str, list[tuple[Path, str]]] = {}
    present = files[files["size"] != MISSING]
    # A subject has one file of each hemisphere, or one of both.
    for row in present.itertuples(index=False):
        paths = files_of.setdefault(row.subject, {})
        # A file of both hemispheres clashes with one of either.
        clashing = [
            path
            for side, path in paths.items()
            if side == row.hemisphere or None in (side, row.hemisphere)
        ]
        if clashing:
            problem = _describe_duplicate(row, clashing[0])
            duplicates.setdefault(row.subject, []).append((row.path, problem))
        else:
            paths[row.hemisphere] = row.path
    sides: Sequence[str] = sorted({*present["hemisphere"]} - {None})
    if request.hemisphere is not None:
        sides = request.sides
    for subject, paths in files_of.items():
        lacking = [] if None in paths else [side for side in sides if side not in paths]
        if lacking and subject not in missing:
            only = ", ".join(map(str, paths.values()))
            missing[subject] = [f"the {side} hemisphere (there is {only})" for side in lacking]
        # Left before right, whatever the order in which files were named.
        files_of[subject] = dict(sorted(paths.items(), key=str))
    return files_of, missing, duplicates


def _describe_duplicate(
    row: Any,
    path: Path,
) -> Problem:
    """Say that a subject has another file, by which BIDS entities they differ, and what to do."""
    entities = entities_of(row.path.name)
    differing = [
        key for key, value in entities_of(path.name).items() if entities.get(key, value) != value
    ]
    remedy = "give one file for each"
    if row.path.name.startswith("sub-"):
        names = ", ".join(differing) or "ses, task, run, ..."
        remedy += f", or choose with --entities (entities=) ({names})"
    # Sessions are the most frequent reason, and can be read together.
    if "ses" in differing:
        remedy += "; --sessions all (sessions='all') reads all sessions"
    text = f"subject {row.subject} is also in {path}; {remedy}"
    return Problem(text, f"the subject has other files; {remedy}")


def _columns_of(stacks: Sequence[Sequence[MapFile]]) -> dict[str, NDArray[Any]]:
    """Return the columns that all stacks have, one value per map."""
    tables = [stack[0].columns for stack in stacks]
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables]) for name in shared}


def _first_map(
    files: Sequence[MapFile],
    widths: Mapping[str, int],
) -> NDArray[Any]:
    """Return the first map of the first file of each hemisphere; zeros for other meshes."""
    row = np.zeros(sum(widths.values()))
    start = 0
    for side, width in widths.items():
        for maps in files:
            if maps.sizes.get(side) == width:
                row[start : start + width] = maps.parts[side][0]
        start += width
    return row


def _describe_mask(
    mask: NDArray[np.bool_] | None,
    firsts: Sequence[MapFile],
    values: NDArray[Any],
) -> str:
    """Say what is known of the mask before the maps are read."""
    in_files = [flags for maps in firsts for flags in maps.masks.values()]
    if mask is None and in_files:
        mask = np.concatenate(in_files)
    if mask is not None:
        left_out = f"{int((~mask).sum())} of {len(mask)} sites left out"
        return f"given, {left_out}; and those that are NaN or zero in everyone"
    n_empty = int((~np.isfinite(values) | (values == 0)).sum())
    return f"{_NO_MASK} ({n_empty} are, in the first subject)"
