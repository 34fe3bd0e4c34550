"""Read what was planned: files → the rows of X, each once, and a Cohort, or one report of
everything wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import Cohort
from icofactor.cohort.masks import Rows, check_values, read_mask
from icofactor.cohort.names import measure_of, modality_of, units_of
from icofactor.cohort.pieces import Files, Piece, Reader, Seen, copy_map, report_meshes, several
from icofactor.cohort.problems import Journal, Problems
from icofactor.cohort.subjects import Selection
from icofactor.errors import CohortError, Problem, literal
from icofactor.io.guard import hash_file
from icofactor.io.tables import plain
from icofactor.maps.workers import in_order
from icofactor.progress import Stages
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, eq=False)
class Details:
    """What goes from the plan to the cohort.

    Attributes
    ----------
    selection : which subjects are used.
    mask, mesh : as given.
    measure, modality, units : what is known of the maps.
    problems, journal : gather what goes wrong, and what is done.
    holes : whether single subjects may have NaN where others have values.
    n_threads : files read at the same time; decompression and reading let other threads run.
    surfaces : of some of the subjects, to draw on.
    mask_array : the mask, once the number of sites is known.
    unknown_sites : why it is not known where the columns lie.
    """

    selection: Selection
    mask: Any
    mesh: Any
    measure: str | None
    modality: str | None
    units: str | None
    problems: Problems
    journal: Journal
    holes: bool = False
    n_threads: int | None = None
    surfaces: tuple[Path, ...] = ()
    mask_array: NDArray[np.bool_] | None = None
    unknown_sites: CohortError | None = None

    def with_mask(self, widths: dict[str, int]) -> Details:
        """The mask read; what is wrong with it is reported with the files."""
        if self.mask is None:
            return self
        try:
            return replace(self, mask_array=read_mask(self.mask, widths))
        except CohortError as error:
            self.problems.add_error(error)
            return self


@dataclass(frozen=True)
class Stack:
    """Files with several maps each that belong together, a hemisphere each or both in one, and
    their subjects.
    """

    pieces: Sequence[Piece]
    names: Sequence[str]

    @property
    def path(self) -> Path:
        return self.pieces[0].seen.path

    @property
    def sizes(self) -> dict[str, int]:
        return {side: n for piece in self.pieces for side, n in piece.seen.sizes.items()}


@dataclass
class Assembly:
    """X while it is put together.

    Attributes
    ----------
    subjects : one name per row.
    X : (n_subjects, n_sites) float32.
    widths : hemisphere → number of its sites, in the order of the columns.
    where : per row, hemisphere → its file (and map).
    good : rows that were read whole.
    records : files, for the provenance.
    columns : what npz files say of the subjects.
    masks : hemisphere → the mask that came with the files.
    faint : row and hemisphere of maps whose values are too small for float32.
    """

    subjects: Sequence[str]
    X: NDArray[np.float32]
    widths: dict[str, int]
    where: list[dict[str, str]]
    good: Sequence[int] = ()
    records: list[dict[str, Any]] = field(default_factory=list)
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    faint: set[tuple[int, str]] = field(default_factory=set)

    @classmethod
    def empty(
        cls, subjects: Sequence[str], widths: dict[str, int], n_rows: int | None = None
    ) -> Assembly:
        """Room for these subjects."""
        n = len(subjects) if n_rows is None else n_rows
        return cls(
            subjects,
            np.empty((n, sum(widths.values())), dtype=np.float32),
            widths,
            [{} for _ in subjects],
        )

    @property
    def slices(self) -> dict[str, slice]:
        """Hemisphere → its columns."""
        ends = np.cumsum([0, *self.widths.values()])
        return {side: slice(ends[i], ends[i + 1]) for i, side in enumerate(self.widths)}

    def put(self, row: int, side: str, values: NDArray[Any]) -> None:
        """A map into its row."""
        if copy_map(values, self.X[row, self.slices[side]]):
            self.faint.add((row, side))

    def remember(self, seen: Seen, who: str | list[str], journal: Journal) -> None:
        """Keep what the provenance says of a file."""
        self.records.append({**seen.record, "subject": who})
        self.masks.update(seen.masks)
        for note in seen.notes:
            if note not in journal.steps:
                journal.note(note)


def read_singles(
    people: Sequence[tuple[str, Files]],
    sides: Sequence[str],
    widths: dict[str, int],
    sites: Sites | None,
    reader: Reader,
    details: Details,
) -> Cohort:
    """One map per file, one row per subject.

    Parameters
    ----------
    people : subject and its files.
    sides : the hemispheres to read; what the first readable file holds when empty.
    widths : hemisphere → number of sites; without one of `sides` when no file of it can be read.
    """
    problems = details.problems
    files = [
        (row, side, path) for row, (_, there) in enumerate(people) for side, path in there.items()
    ]
    whole = bool(widths) and all(side in widths for side in sides)
    made = Assembly.empty([name for name, _ in people], widths, None if whole else 0)

    def one(file: tuple[int, str | None, Path]) -> Seen | CohortError:
        row, named, path = file
        piece = reader.take(path, named)
        if isinstance(piece, CohortError):
            return piece
        if piece.n_maps > 1:
            return several(piece)
        for side, part in piece.parts.items():
            if whole and part.shape[1] == widths.get(side):
                made.put(row, side, part[0])
        return piece.seen

    done: list[tuple[int, Seen]] = []
    with Stages(details.journal.shown).stage("reading") as show:
        seen_in_order = in_order(one, files, details.n_threads or min(4, os.cpu_count() or 1))
        for number, (file, seen) in enumerate(zip(files, seen_in_order, strict=True)):
            show((number + 1) / len(files))
            if isinstance(seen, CohortError):
                problems.add_error(seen)
            else:
                done.append((file[0], seen))
                made.remember(seen, made.subjects[file[0]], details.journal)
                made.where[file[0]].update(dict.fromkeys(seen.sizes, str(file[2])))
    report_meshes([seen for _, seen in done], reader.mesh, problems)
    _report_copies([seen for _, seen in done], problems)
    _report_lacking(made, people, sides or list(widths), problems)
    wrong = {
        row for row, seen in done if any(n != widths.get(side) for side, n in seen.sizes.items())
    }
    made.good = [
        row
        for row, there in enumerate(made.where)
        if set(there) >= set(widths) and row not in wrong
    ]
    if not whole:
        problems.check()
        raise CohortError("paths", "no subject could be read")
    return _finished(made, sites, details)


def _report_copies(files: Sequence[Seen], problems: Problems) -> None:
    """Two files with the same bytes are one map under two names."""
    first: dict[str, Path] = {}
    for seen in files:
        twin = first.setdefault(seen.record["sha256"], seen.path)
        if twin is not seen.path:
            problems.add(seen.path, f"is identical to {literal(twin)}, byte for byte")


def _report_lacking(
    made: Assembly, people: Sequence[tuple[str, Files]], sides: Sequence[str], problems: Problems
) -> None:
    """Subjects of whom a hemisphere is missing, where nothing was said about them yet."""
    for (name, files), there in zip(people, made.where, strict=True):
        lacking = [side for side in sides if side not in there]
        if lacking and not problems.listed.keys() & {f"subject {name}", *map(str, files.values())}:
            lacks = f"lacks the {' and '.join(lacking)} hemisphere"
            what = Problem(f"subject {literal(name)} {lacks}", f"the subject {lacks}")
            problems.add(next(iter(files.values())), what)


def read_stacks(
    stacks: Sequence[Stack],
    chosen: Sequence[tuple[str, str]],
    widths: dict[str, int],
    sites: Sites | None,
    details: Details,
) -> Cohort:
    """Files with several maps each, one per subject; `chosen` are names in the cohort and in the
    files.
    """
    made = Assembly.empty([name for name, _ in chosen], widths)
    made.good = range(len(chosen))
    row_of = {there: row for row, (_, there) in enumerate(chosen)}
    for stack in stacks:
        used = [(number, row_of[name]) for number, name in enumerate(stack.names) if name in row_of]
        for piece in stack.pieces:
            for number, row in used:
                for side, part in piece.parts.items():
                    made.put(row, side, part[number])
                    made.where[row][side] = (
                        f"{piece.seen.path} (map {number}, subject {made.subjects[row]})"
                    )
            made.remember(piece.seen, [made.subjects[row] for _, row in used], details.journal)
    made.columns = stack_columns(stacks, [there for _, there in chosen])
    return _finished(made, sites, details)


def stack_columns(stacks: Sequence[Stack], chosen: Sequence[str]) -> dict[str, NDArray[Any]]:
    """What all files say of their subjects, in the order of the rows."""
    tables = [stack.pieces[0].maps.columns for stack in stacks]
    place = {name: i for i, name in enumerate(name for stack in stacks for name in stack.names)}
    order = [place[name] for name in chosen]
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables])[order] for name in shared}


def read_image_maps(
    maps: NDArray[Any],
    rows: Sequence[int],
    subjects: Sequence[str],
    widths: dict[str, int],
    sites: Sites,
    details: Details,
    kind: str = "SurfaceImage",
) -> Cohort:
    """Some maps of a nilearn SurfaceImage."""
    made = Assembly.empty(subjects, widths)
    made.good = range(len(rows))
    for row, number in enumerate(rows):
        for side, columns in made.slices.items():
            made.put(row, side, maps[number][columns])
        made.where[row] = dict.fromkeys(widths, f"{kind} (map {number}, subject {subjects[row]})")
    hemi = "both" if len(widths) == 2 else next(iter(widths))
    made.records.append(
        {
            "path": None,
            "reader": f"{'pandas' if kind == 'DataFrame' else 'nilearn'} {kind}",
            "hemisphere": hemi,
            "subject": list(subjects),
        }
    )
    return _finished(made, sites, details)


def _finished(made: Assembly, sites: Sites | None, details: Details) -> Cohort:
    """Check the numbers, and make the cohort."""
    problems, journal, table = details.problems, details.journal, details.selection.participants
    if details.unknown_sites is not None and not problems:
        problems.add_error(
            details.unknown_sites
        )  # else the files of another mesh are named one by one already
    given, source = None, []
    if made.masks and set(made.masks) >= set(made.widths):
        given, source = (
            np.concatenate([made.masks[side] for side in made.widths]),
            ["the files of maps"],
        )
    if details.mask_array is not None:
        given, source = details.mask_array, [_described(details.mask)]
    names = () if sites is None or sites.regions is None else sites.regions.names
    rows = Rows(made.X, made.good, made.slices, made.where, made.faint, names)
    used = check_values(rows, given, problems, journal, details.holes)
    problems.check()
    assert sites is not None  # else there was a problem
    if used is not None and (given is None or (given & ~used).any()):
        source.append("NaN or zero in every subject")
    columns = {"participant_id": np.array(made.subjects), **made.columns}
    columns.update(details.selection.columns(made.subjects))
    arrays = [measure_of(record["array"]) for record in made.records if "array" in record]
    modality = details.modality or modality_of(
        details.measure or next(filter(None, arrays), "unknown")
    )
    provenance = {
        "loaded_with": "icofactor.load_cohort",
        "mesh": repr(sites),
        "inputs": made.records,
        "participants": None if table is None else dict(table.source),
        "mask": {"source": source, "left_out": 0 if used is None else int((~used).sum())},
        "mesh_and_mask_files": [*_files(details.mesh), *_files(details.mask)],
        "steps": journal.steps,
        "left_out": journal.left_out,
        **({"surfaces": [str(path) for path in details.surfaces]} if details.surfaces else {}),
    }
    hemisphere: Any = "both" if len(made.widths) == 2 else next(iter(made.widths))
    units = units_of(modality) if details.units is None else details.units
    return Cohort(
        made.X,
        tuple(made.subjects),
        sites,
        used,
        hemisphere,
        modality,
        units,
        columns,
        provenance=plain(provenance),
        checked=True,
    )


def _files(given: Any) -> list[dict[str, str]]:
    """Paths and checksums of the files among what was given for the mesh or the mask."""
    listed = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(listed, list | tuple):
        return []
    paths = [Path(one).expanduser() for one in listed if isinstance(one, str | os.PathLike)]
    files = [path for path in paths if path.is_file()]
    return [{"path": str(path), "sha256": hash_file(path)} for path in files]


def _described(mask: Any) -> str:
    if isinstance(mask, str | os.PathLike):
        return str(mask)
    if isinstance(mask, Sequence) and all(isinstance(part, str | os.PathLike) for part in mask):
        return ", ".join(map(str, mask))
    return "array"
