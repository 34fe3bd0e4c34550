"""The maps of one file by hemisphere, read once: a file that planning looks at is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.meshes import Mesh, is_a_size
from icofactor.cohort.problems import ReadProblems
from icofactor.cohort.request import Request
from icofactor.errors import CohortError, Problem, shown
from icofactor.io.guard import Unreadable, hash_file
from icofactor.io.maps import read_maps, reading
from icofactor.io.types import Maps
from icofactor.sphere.names import SIDES

Parts = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class MapFile:
    """The maps of one file, or of an object in memory.

    Attributes
    ----------
    path : the file; the kind of object for maps in memory.
    parts : hemisphere → (n_maps, n_sites), left first.
    sizes : hemisphere → number of sites.
    record : path, size, checksum, reader and hemisphere, for the provenance.
    names : one name per map, or none.
    columns : name → one value per map.
    masks : hemisphere → the mask that came with the maps, or none.
    notes : what the reader left out.
    """

    path: Path
    parts: Parts
    sizes: Mapping[str, int]
    record: Mapping[str, Any]
    names: tuple[str, ...] = ()
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    masks: Parts = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def in_memory(cls, kind: str, library: str, parts: Parts) -> MapFile:
        """Return the maps of an object in memory, such as a SurfaceImage of nilearn."""
        hemisphere = "both" if len(parts) == 2 else next(iter(parts))
        record = {"path": None, "reader": f"{library} {kind}", "hemisphere": hemisphere}
        sizes = {side: maps.shape[1] for side, maps in parts.items()}
        return cls(Path(kind), parts, sizes, record)

    @property
    def n_maps(self) -> int:
        """Number of maps, the same in both hemispheres."""
        return len(next(iter(self.parts.values())))

    def without_values(self) -> MapFile:
        """Return what is needed to report on the file."""
        empty = {side: np.empty((self.n_maps, 0)) for side in self.parts}
        return replace(self, parts=empty)


class Reader:
    """Reads the files of a cohort, each once.

    Parameters
    ----------
    mesh : what is known of it.
    request : hemisphere, measure and name of the map to read.
    tables : tables of regions that were read already.
    """

    def __init__(self, mesh: Mesh, request: Request, tables: Mapping[Path, Maps]) -> None:
        self.mesh = mesh
        self.request = request
        self._tables = tables
        self._looked_at: dict[Path, MapFile | CohortError] = {}

    def hold(self, maps: MapFile) -> None:
        """Hold maps in memory as if they were read from a file."""
        self._looked_at[maps.path] = maps

    def look(self, path: Path, side: str | None) -> MapFile | CohortError:
        """Read a file and keep it; `side` is the hemisphere in its name, or None."""
        if path not in self._looked_at:
            try:
                self._looked_at[path] = self._read(path, side)
            except CohortError as error:
                self._looked_at[path] = error
        return self._looked_at[path]

    def take(self, path: Path, side: str | None) -> MapFile | CohortError:
        """Return a file with its checksum, and keep it no longer."""
        maps = self.look(path, side)
        self._looked_at.pop(path, None)
        if isinstance(maps, CohortError) or maps.record["path"] is None:
            return maps
        try:
            # Hashed here, not when planning looks at the file: a dry run hashes nothing.
            with reading(path):
                return replace(maps, record={**maps.record, "sha256": hash_file(path)})
        except CohortError as error:
            return error

    def first(
        self, files: Iterable[tuple[Path, str | None]], fitting: bool = False
    ) -> MapFile | None:
        """Return the first file that can be read and, with `fitting`, can be of the mesh."""
        for path, side in files:
            maps = self.look(path, side)
            if isinstance(maps, CohortError):
                continue
            if not fitting or all(
                size in (self.mesh.wanted(side) or [size]) for side, size in maps.sizes.items()
            ):
                return maps
            # There may be many files of another mesh: keep only what reports on them.
            self._looked_at[path] = maps.without_values()
        return None

    def _read(self, path: Path, side: str | None) -> MapFile:
        """Read a file, by hemisphere."""
        maps = self._tables.get(path)
        if maps is None:
            maps = read_maps(path, self.request.measure)
        with reading(path):
            parts = self._by_hemisphere(maps.parts, side)
            masks: Parts = {}
            if maps.mask is not None:
                ends = np.cumsum([half.shape[1] for half in maps.parts.values()])
                cuts = np.split(np.asarray(maps.mask)[None], ends[:-1], axis=1)
                masks = self._by_hemisphere(dict(zip(maps.parts, cuts, strict=True)), side)
            if self.request.map_name is not None:
                number = _map_number(maps, self.request.map_name)
                parts = {side: half[number : number + 1] for side, half in parts.items()}
            record = {
                "path": str(path),
                "bytes": path.stat().st_size,
                "reader": maps.reader,
                "hemisphere": "both" if len(parts) == 2 else next(iter(parts)),
            }
            if maps.array:
                record["array"] = maps.array
        return MapFile(
            path=path,
            parts=parts,
            sizes={side: half.shape[1] for side, half in parts.items()},
            record=record,
            names=maps.names,
            columns=maps.columns,
            masks={side: mask[0] for side, mask in masks.items()},
            notes=maps.notes,
        )

    def _by_hemisphere(self, parts: Mapping[str | None, NDArray[Any]], side: str | None) -> Parts:
        """Return the columns of each hemisphere that is read, left first."""
        by_side: dict[str | None, NDArray[Any]] = dict(parts)
        unsplit = by_side.pop(None, None)
        if unsplit is not None:
            by_side = self._split(unsplit, side)
        elif side is not None and side not in by_side:
            hemisphere = next(iter(by_side))
            raise Unreadable(f"is named {side}, but its metadata say {hemisphere}: which is right?")
        requested = self.request.hemisphere
        if requested in SIDES:
            if requested not in by_side:
                text = f"contains only the {next(iter(by_side))} hemisphere"
                raise Unreadable(
                    f"{text}; --hemisphere {requested} (hemisphere={requested!r}) was requested"
                )
            by_side = {requested: by_side[requested]}
        return {side: by_side[side] for side in SIDES if side in by_side}

    def _split(self, maps: NDArray[Any], side: str | None) -> dict[str | None, NDArray[Any]]:
        """Return maps by hemisphere, for a file that does not say the hemispheres."""
        n = maps.shape[1]
        n_left = self.mesh.split(n)
        if n_left is not None and side is None:
            return {"left": maps[:, :n_left], "right": maps[:, n_left:]}
        if n_left is not None:
            raise Unreadable(f"is named {side}, but has {n} sites, those of both hemispheres")
        if side is not None:
            return {side: maps}
        if self.request.hemisphere in SIDES:
            return {self.request.hemisphere: maps}
        sizes = self.mesh.wanted("left")
        if sizes and n not in sizes:
            text = f"has {n} sites; mesh {self.mesh} has {sizes[0]} in each hemisphere"
        elif not sizes and not is_a_size(n):
            text = (
                f"has {n} sites, which is not the size of a known mesh (fsaverage5: 10242 per "
                "hemisphere); give its sphere with --mesh (mesh=), or for regions their atlas "
                "with --parcels (parcels=)"
            )
        else:
            text = (
                f"has {n} sites and does not name its hemisphere; pass --hemisphere left or right "
                "(hemisphere=)"
            )
        raise Unreadable(text)


def _map_number(maps: Maps, requested: str | int) -> int:
    """Return the number of a map, requested by name or number."""
    if isinstance(requested, str) and requested in maps.names:
        return maps.names.index(requested)
    if isinstance(requested, int) and 0 <= requested < maps.n_maps:
        return requested
    names = f" called {', '.join(maps.names[:10])}" if maps.names else ""
    raise Unreadable(f"has no map {shown(requested)}; it has {maps.n_maps}{names}")


def several_maps(maps: MapFile) -> CohortError:
    """Return the error for a file with many maps where one was expected."""
    remedy = (
        "choose one with --map-name (map_name=), or compute a map from a time series first "
        "(icofactor prepare reho FOLDER, or alff)"
    )
    cause = f"one per subject was expected; {remedy}"
    problem = Problem(
        f"contains {maps.n_maps} maps, but {cause}", f"contain several maps, but {cause}"
    )
    return CohortError(maps.path, problem)


def report_meshes(files: Sequence[MapFile], mesh: Mesh, problems: ReadProblems) -> None:
    """Report files with another number of vertices than the mesh, or than most others."""
    counts = Counter((side, size) for maps in files for side, size in maps.sizes.items())
    for maps in files:
        for side, size in maps.sizes.items():
            sizes = mesh.wanted(side)
            usual = max((n for hemi, n in counts if hemi == side), key=lambda n: counts[side, n])
            if size in (sizes or [usual]):
                continue
            if sizes:
                text = f"has {size} vertices in the {side} hemisphere; mesh {mesh} has {sizes[0]}"
            elif counts[side, usual] == 1 and len(files) > 2:
                text = (
                    f"has {size} vertices, others {usual}: no two files are on one mesh; resample "
                    "them to one mesh first (recon-all -qcache)"
                )
            else:
                n_usual = counts[side, usual]
                text = f"has {size} vertices; {n_usual} of the files have {usual}: another mesh"
            problems.add(maps.path, text)
