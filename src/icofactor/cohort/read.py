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
from icofactor.cohort.meshes import hemisphere_of
from icofactor.cohort.names import measure_of, modality_of, units_of
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.reader import MapFile, Reader, report_meshes, several_maps
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


@dataclass(eq=False)
class Reading:
    """A cohort while its files are read.

    Attributes
    ----------
    subjects : names of the rows of X.
    participants : column of the participants → values.
    files : files to read, and their rows.
    widths : hemisphere → number of sites, left first.
    has_one_map : whether each file must have one map.
    sites : columns of X; None if unknown.
    unknown_sites : why the sites are unknown.
    mask : the mask that the caller gave.
    measure : in the names of files, or as requested.
    table_source : path and checksum of the table of participants.
    surfaces : of some of the subjects, to draw on.
    """

    subjects: Sequence[str]
    participants: Mapping[str, NDArray[Any]]
    files: Sequence[FileRows]
    widths: Mapping[str, int]
    has_one_map: bool
    sites: Sites | None
    unknown_sites: CohortError | None
    mask: NDArray[np.bool_] | None
    measure: str | None
    table_source: Mapping[str, Any] | None
    surfaces: Sequence[Path]
    reader: Reader
    problems: ReadProblems
    journal: Journal
    # What the files turn out to hold.
    _records: list[dict[str, Any]] = field(default_factory=list)
    _masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    _wrong_size: set[int] = field(default_factory=set)
    _maps: list[MapFile] = field(default_factory=list)

    def read(self) -> Cohort:
        """Return the cohort; a CohortError names every bad file."""
        request = self.reader.request
        sides = list(self.widths) if request.hemisphere is None else list(request.sides)
        # If no file of a hemisphere can be read, the others are read to report on them.
        self._is_complete = bool(self.widths) and set(sides) <= set(self.widths)
        ends = np.cumsum([0, *self.widths.values()])
        self._columns = {side: slice(ends[i], ends[i + 1]) for i, side in enumerate(self.widths)}
        n_rows = len(self.subjects) if self._is_complete else 0
        self._X = np.empty((n_rows, ends[-1]), dtype=np.float32)
        # Per row, hemisphere → its file, and the map in it.
        self._sources: list[dict[str, str]] = [{} for _ in self.subjects]
        self._read_files()
        self._report(sides)
        if not self._is_complete:
            self.problems.check()
            raise CohortError("paths", "no subject could be read")
        if self.unknown_sites is not None and not self.problems:
            # Otherwise the files of another mesh are already named one by one.
            self.problems.add_error(self.unknown_sites)
        return self._cohort()

    def _read_files(self) -> None:
        """Read all files, several at the same time."""
        n_threads = self.reader.request.n_threads or min(_MAX_THREADS, os.cpu_count() or 1)
        with Stages(self.journal.verbose).stage("reading") as show:
            results = in_order(self._read_file, self.files, n_threads)
            for number, (file, maps) in enumerate(zip(self.files, results, strict=True), 1):
                show(number / len(self.files))
                if isinstance(maps, CohortError):
                    self.problems.add_error(maps)
                else:
                    self._record(file, maps)

    def _read_file(self, file: FileRows) -> MapFile | CohortError:
        """Read a file into its rows of X; return what is needed to report on it."""
        maps = self.reader.take(file.path, file.side)
        if isinstance(maps, CohortError):
            return maps
        # A time series among single maps is found here at the latest.
        if self.has_one_map and maps.n_maps > 1:
            return several_maps(maps)
        for side, half in maps.parts.items():
            if not self._is_complete or half.shape[1] != self.widths.get(side):
                continue
            for number, row in file.rows.items():
                # Values that are too large become infinite, and are reported later.
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    self._X[row, self._columns[side]] = half[number]
        return maps.without_values()

    def _record(
        self,
        file: FileRows,
        maps: MapFile,
    ) -> None:
        """Keep what the provenance and reports say of a file."""
        names = [self.subjects[row] for row in file.rows.values()]
        self._records.append({**maps.record, "subject": names[0] if self.has_one_map else names})
        self._masks.update(maps.masks)
        self._maps.append(maps)
        # Files are read in threads, notes are taken in the order of the files.
        for note in maps.notes:
            self.journal.note(note)
        for number, row in file.rows.items():
            map_in_file = ""
            if not self.has_one_map:
                map_in_file = f" (map {number}, subject {self.subjects[row]})"
            for side, size in maps.sizes.items():
                self._sources[row][side] = f"{maps.path}{map_in_file}"
                if size != self.widths.get(side):
                    self._wrong_size.add(row)

    def _report(self, sides: Sequence[str]) -> None:
        """Report files of another mesh, copies of files, and missing hemispheres."""
        problems = self.problems
        report_meshes(self._maps, self.reader.mesh, problems)
        # Two files with the same bytes are one map under two names.
        originals: dict[str, Path] = {}
        for maps in self._maps:
            checksum = maps.record.get("sha256", str(maps.path))
            original = originals.setdefault(checksum, maps.path)
            if original is not maps.path:
                problems.add(maps.path, f"is identical to {original}, byte for byte")
        paths: list[list[str]] = [[] for _ in self.subjects]
        for file in self.files:
            for row in file.rows.values():
                paths[row].append(str(file.path))
        for row, name in enumerate(self.subjects):
            missing = [side for side in sides if side not in self._sources[row]]
            if missing and problems.listed.keys().isdisjoint({f"subject {name}", *paths[row]}):
                text = f"lacks the {' and '.join(missing)} hemisphere"
                problem = Problem(f"subject {name} {text}", f"the subject {text}")
                problems.add(paths[row][0], problem)

    def _mask_by_values(self) -> tuple[NDArray[np.bool_] | None, list[str]]:
        """Return the mask of the sites in use, and what it was made of."""
        request = self.reader.request
        mask = self.mask
        sources = [] if mask is None else [_description(request.mask)]
        if mask is None and set(self._masks) >= set(self.widths):
            mask = np.concatenate([self._masks[side] for side in self.widths])
            sources = ["the files of maps"]
        regions = self.sites.regions if self.sites is not None else None
        good = [
            row
            for row, sources_of_row in enumerate(self._sources)
            if set(sources_of_row) >= set(self._columns) and row not in self._wrong_size
        ]
        maps = MapRows(
            self._X,
            good,
            self._columns,
            self._sources,
            () if regions is None else regions.names,
        )
        used = mask_by_values(
            maps,
            mask,
            self.problems,
            self.journal,
            request.holes,
        )
        # The source is named only if it leaves out more than the given mask.
        if used is not None and (mask is None or (mask & ~used).any()):
            sources.append("NaN or zero in every subject")
        return used, sources

    def _cohort(self) -> Cohort:
        """Return the cohort, with its provenance."""
        request = self.reader.request
        mask, mask_sources = self._mask_by_values()
        self.problems.check()
        assert self.sites is not None
        # Names of arrays in archives say the measure if no file name does.
        arrays = [measure_of(record["array"]) for record in self._records if "array" in record]
        measure = self.measure or next(filter(None, arrays), "unknown")
        modality = request.modality or modality_of(measure)
        n_left_out = 0 if mask is None else int((~mask).sum())
        provenance = {
            "loaded_with": "icofactor.load_cohort",
            "mesh": repr(self.sites),
            "inputs": self._records,
            "participants": self.table_source,
            "mask": {"source": mask_sources, "left_out": n_left_out},
            "mesh_and_mask_files": [*_checksums(request.mesh), *_checksums(request.mask)],
            "steps": self.journal.steps,
            "left_out": self.journal.left_out,
        }
        if self.surfaces:
            provenance["surfaces"] = [str(path) for path in self.surfaces]
        hemisphere: Any = hemisphere_of(self.widths)
        return Cohort(
            self._X,
            tuple(self.subjects),
            self.sites,
            mask,
            hemisphere,
            modality,
            units_of(modality) if request.units is None else request.units,
            {"participant_id": np.array(self.subjects), **self.participants},
            provenance=plain(provenance),
            checked=True,
        )


def _listed(files: Any) -> list[Any]:
    return list(files) if isinstance(files, list | tuple) else [files]


def _checksums(files: Any) -> list[dict[str, str]]:
    """Return paths and checksums of the files among what the caller gave for mesh or mask."""
    paths = [Path(file).expanduser() for file in _listed(files) if is_path(file)]
    return [{"path": str(path), "sha256": hash_file(path)} for path in paths if path.is_file()]


def _description(mask: Any) -> str:
    """Describe where a mask came from, for the provenance."""
    masks = _listed(mask)
    return ", ".join(map(str, masks)) if all(map(is_path, masks)) else "array"
