"""Read the files of a planned cohort, each once, into X; or report everything that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import Cohort
from icofactor.cohort.masks import is_path
from icofactor.cohort.names import measure_of, modality_of, units_of
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.reader import MapFile, Reader, report_meshes, several_maps
from icofactor.cohort.request import Request
from icofactor.cohort.subjects import Selection
from icofactor.cohort.values import MapRows, mask_by_values
from icofactor.errors import CohortError, Problem
from icofactor.io.guard import hash_file
from icofactor.io.tables import plain
from icofactor.maps.workers import in_order
from icofactor.progress import Stages
from icofactor.sphere.sites import Sites

# Decompression and reading let other threads run; more threads than this wait for the disk.
_MAX_THREADS = 4


class FileRows(NamedTuple):
    """A file, the hemisphere in its name, and the rows of X that its maps become."""

    path: Path
    side: str | None
    # Number of the map in the file → row of X.
    rows: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Reading:
    """Everything that is known of a cohort before its maps are read.

    Attributes
    ----------
    subjects : names of the rows of X.
    columns : column of the participants → values, from the files.
    files : files to read, and their rows.
    widths : hemisphere → number of sites, left first.
    has_one_map : whether each file must have one map.
    sites : columns of X; None if unknown.
    unknown_sites : why the sites are unknown.
    mask : the mask that the caller gave.
    surfaces : of some of the subjects, to draw on.
    """

    subjects: Sequence[str]
    columns: Mapping[str, NDArray[Any]]
    files: Sequence[FileRows]
    widths: Mapping[str, int]
    has_one_map: bool
    sites: Sites | None
    unknown_sites: CohortError | None
    mask: NDArray[np.bool_] | None
    surfaces: Sequence[Path]
    reader: Reader
    request: Request
    selection: Selection
    problems: ReadProblems
    journal: Journal

    def read(self) -> Cohort:
        """Return the cohort; a CohortError names every bad file."""
        rows = _Rows(self)
        rows.read()
        rows.report()
        problems = self.problems
        if not rows.is_complete:
            problems.check()
            raise CohortError("paths", "no subject could be read")
        if self.unknown_sites is not None and not problems:
            # Otherwise the files of another mesh are already named one by one.
            problems.add_error(self.unknown_sites)
        given_mask = self.mask
        mask_sources = [] if given_mask is None else [_described(self.request.mask)]
        if given_mask is None and set(rows.masks) >= set(self.widths):
            given_mask = np.concatenate([rows.masks[side] for side in self.widths])
            mask_sources = ["the files of maps"]
        maps = rows.maps(self.sites)
        mask = mask_by_values(maps, given_mask, problems, self.journal, self.request.holes)
        problems.check()
        if mask is not None and (given_mask is None or (given_mask & ~mask).any()):
            mask_sources.append("NaN or zero in every subject")
        return self._cohort(rows, mask, mask_sources)

    def _cohort(
        self, rows: _Rows, mask: NDArray[np.bool_] | None, mask_sources: Sequence[str]
    ) -> Cohort:
        """Return the cohort, with its provenance."""
        assert self.sites is not None
        request = self.request
        table = self.selection.participants
        columns = {"participant_id": np.array(self.subjects), **self.columns}
        columns |= self.selection.columns(self.subjects)
        arrays = [measure_of(record["array"]) for record in rows.records if "array" in record]
        measure = request.measure or next(filter(None, arrays), "unknown")
        modality = request.modality or modality_of(measure)
        provenance = {
            "loaded_with": "icofactor.load_cohort",
            "mesh": repr(self.sites),
            "inputs": rows.records,
            "participants": None if table is None else dict(table.source),
            "mask": {
                "source": mask_sources,
                "left_out": 0 if mask is None else int((~mask).sum()),
            },
            "mesh_and_mask_files": [*_checksums(request.mesh), *_checksums(request.mask)],
            "steps": self.journal.steps,
            "left_out": self.journal.left_out,
        }
        if self.surfaces:
            provenance["surfaces"] = [str(path) for path in self.surfaces]
        hemisphere: Any = "both" if len(self.widths) == 2 else next(iter(self.widths))
        return Cohort(
            rows.X,
            tuple(self.subjects),
            self.sites,
            mask,
            hemisphere,
            modality,
            units_of(modality) if request.units is None else request.units,
            columns,
            provenance=plain(provenance),
            checked=True,
        )


@dataclass
class _Rows:
    """X while its files are read.

    Attributes
    ----------
    sources : per row, hemisphere → its file, and the map in it.
    wrong_size : rows with a file of another mesh.
    underflows : row and hemisphere of maps whose values are too small for float32.
    """

    reading: Reading
    records: list[dict[str, Any]] = field(default_factory=list)
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    wrong_size: set[int] = field(default_factory=set)
    underflows: set[tuple[int, str]] = field(default_factory=set)
    _files: list[MapFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        reading = self.reading
        widths = reading.widths
        request = reading.request
        self.sides = list(widths) if request.hemisphere is None else list(request.sides)
        self.is_complete = bool(widths) and set(self.sides) <= set(widths)
        n_rows = len(reading.subjects) if self.is_complete else 0
        self.X = np.empty((n_rows, sum(widths.values())), dtype=np.float32)
        ends = np.cumsum([0, *widths.values()])
        self.columns = {side: slice(ends[i], ends[i + 1]) for i, side in enumerate(widths)}
        self.sources: list[dict[str, str]] = [{} for _ in reading.subjects]

    def read(self) -> None:
        """Read all files, several at the same time."""
        reading = self.reading
        n_files = len(reading.files)
        n_threads = reading.request.n_threads or min(_MAX_THREADS, os.cpu_count() or 1)
        with Stages(reading.journal.verbose).stage("reading") as show:
            results = in_order(self._read_file, reading.files, n_threads)
            for number, (file, maps) in enumerate(zip(reading.files, results, strict=True), 1):
                show(number / n_files)
                if isinstance(maps, CohortError):
                    reading.problems.add_error(maps)
                else:
                    self._record(file, maps)

    def _read_file(self, file: FileRows) -> MapFile | CohortError:
        """Read a file into its rows of X; return what is needed to report on it."""
        maps = self.reading.reader.take(file.path, file.side)
        if isinstance(maps, CohortError):
            return maps
        if self.reading.has_one_map and maps.n_maps > 1:
            return several_maps(maps)
        for side, half in maps.parts.items():
            if not self.is_complete or half.shape[1] != self.reading.widths.get(side):
                continue
            for number, row in file.rows.items():
                if _copy(half[number], self.X[row, self.columns[side]]):
                    self.underflows.add((row, side))
        return maps.without_values()

    def _record(self, file: FileRows, maps: MapFile) -> None:
        """Keep what the provenance and reports say of a file."""
        subjects = self.reading.subjects
        names = [subjects[row] for row in file.rows.values()]
        is_single = self.reading.has_one_map
        self.records.append({**maps.record, "subject": names[0] if is_single else names})
        self.masks.update(maps.masks)
        self._files.append(maps)
        for note in maps.notes:
            self.reading.journal.note(note)
        for number, row in file.rows.items():
            map_in_file = "" if is_single else f" (map {number}, subject {subjects[row]})"
            for side, size in maps.sizes.items():
                self.sources[row][side] = f"{maps.path}{map_in_file}"
                if size != self.reading.widths.get(side):
                    self.wrong_size.add(row)

    def report(self) -> None:
        """Report files of another mesh, copies of files, and missing hemispheres."""
        reading = self.reading
        problems = reading.problems
        report_meshes(self._files, reading.reader.mesh, problems)
        # Two files with the same bytes are one map under two names.
        first: dict[str, Path] = {}
        for maps in self._files:
            if "sha256" not in maps.record:
                continue
            twin = first.setdefault(maps.record["sha256"], maps.path)
            if twin is not maps.path:
                problems.add(maps.path, f"is identical to {twin}, byte for byte")
        paths: list[list[str]] = [[] for _ in reading.subjects]
        for file in reading.files:
            for row in file.rows.values():
                paths[row].append(str(file.path))
        for row, name in enumerate(reading.subjects):
            missing = [side for side in self.sides if side not in self.sources[row]]
            if missing and problems.listed.keys().isdisjoint({f"subject {name}", *paths[row]}):
                text = f"lacks the {' and '.join(missing)} hemisphere"
                problems.add(
                    paths[row][0], Problem(f"subject {name} {text}", f"the subject {text}")
                )

    def maps(self, sites: Sites | None) -> MapRows:
        """Return the rows that were read well."""
        regions = () if sites is None or sites.regions is None else sites.regions.names
        good = [
            row
            for row, sources in enumerate(self.sources)
            if set(sources) >= set(self.columns) and row not in self.wrong_size
        ]
        return MapRows(self.X, good, self.columns, self.sources, self.underflows, regions)


def _copy(values: NDArray[Any], into: NDArray[np.float32]) -> bool:
    """Copy a map into a row of X, and return whether all its values underflow in float32.

    Values that are too large become infinite, and are reported later.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        into[...] = values
    if values.dtype.itemsize <= 4 or (np.abs(into) >= np.finfo(np.float32).tiny).any():
        return False
    return bool((np.abs(values) > 0).any())


def _checksums(files: Any) -> list[dict[str, str]]:
    """Return paths and checksums of the files among what the caller gave for mesh or mask."""
    listed = files if isinstance(files, list | tuple) else [files]
    paths = [Path(file).expanduser() for file in listed if is_path(file)]
    return [{"path": str(path), "sha256": hash_file(path)} for path in paths if path.is_file()]


def _described(mask: Any) -> str:
    """Return where a mask came from, for the provenance."""
    listed = mask if isinstance(mask, list | tuple) else [mask]
    return ", ".join(map(str, listed)) if all(map(is_path, listed)) else "array"
