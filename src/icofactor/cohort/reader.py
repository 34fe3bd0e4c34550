"""The maps of one file by hemisphere, read once: a file that planning looks at is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.meshes import Mesh, hemisphere_of, is_a_size
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
    record : path, size, checksum, reader and hemisphere, for the provenance.
    names : one name per map, or none.
    columns : name → one value per map.
    masks : hemisphere → the mask that came with the maps, or none.
    notes : what the reader left out.
    """

    path: Path
    parts: Parts
    record: Mapping[str, Any]
    names: tuple[str, ...] = ()
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    masks: Parts = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def n_maps(self) -> int:
        """Number of maps, the same in both hemispheres."""
        return len(next(iter(self.parts.values())))

    @property
    def sizes(self) -> dict[str, int]:
        """Return hemisphere → number of sites."""
        return {side: half.shape[1] for side, half in self.parts.items()}

    def without_values(self) -> MapFile:
        """Return the file with zeros, which take no memory, in place of its values."""
        # A broadcast zero has a shape, but no memory of its own.
        zeros = {side: np.broadcast_to(0.0, half.shape) for side, half in self.parts.items()}
        return replace(self, parts=zeros)


@dataclass(eq=False)
class Reader:
    """Reads the files of a cohort, each once.

    Attributes
    ----------
    mesh : what is known of it.
    request : hemisphere, measure and name of the map to read.
    tables : tables of regions that were read already.
    cache : files that were looked at, and errors in place of those that cannot be read.
    """

    mesh: Mesh
    request: Request
    tables: Mapping[Path, Maps] = field(default_factory=dict)
    cache: dict[Path, MapFile | CohortError] = field(default_factory=dict)

    def look(
        self,
        path: Path,
        side: str | None,
    ) -> MapFile | CohortError:
        """Read a file and keep it; `side` is the hemisphere in its name, or None."""
        if path not in self.cache:
            try:
                self.cache[path] = self._read(path, side)
            except CohortError as error:
                self.cache[path] = error
        return self.cache[path]

    def take(
        self,
        path: Path,
        side: str | None,
    ) -> MapFile | CohortError:
        """Return a file with its checksum, and keep it no longer."""
        maps = self.look(path, side)
        self.cache.pop(path, None)
        if isinstance(maps, CohortError) or maps.record["path"] is None:
            return maps
        try:
            # Hashed here, not when planning looks at the file: a dry run hashes nothing.
            with reading(path):
                return replace(maps, record={**maps.record, "sha256": hash_file(path)})
        except CohortError as error:
            return error

    def first(
        self,
        files: Iterable[tuple[Path, str | None]],
        fitting: bool = False,
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
            self.cache[path] = maps.without_values()
        return None

    def _read(
        self,
        path: Path,
        side: str | None,
    ) -> MapFile:
        """Read a file, by hemisphere."""
        # Tables of regions were read before, to find the regions that they share.
        maps = self.tables.get(path) or read_maps(path, self.request.measure)
        with reading(path):
            parts = self._by_hemisphere(maps.parts, side)
            masks: Parts = {}
            if maps.mask is not None:
                ends = np.cumsum([half.shape[1] for half in maps.parts.values()])
                rows = np.split(np.asarray(maps.mask)[None], ends[:-1], axis=1)
                masks = self._by_hemisphere(dict(zip(maps.parts, rows, strict=True)), side)
            if self.request.map_name is not None:
                number = _map_number(maps, self.request.map_name)
                parts = {side: half[number : number + 1] for side, half in parts.items()}
            record = {
                "path": str(path),
                "bytes": path.stat().st_size,
                "reader": maps.reader,
                "hemisphere": hemisphere_of(parts),
            }
        if maps.array:
            record["array"] = maps.array
        return MapFile(
            path,
            parts,
            record,
            names=maps.names,
            columns=maps.columns,
            masks={side: mask[0] for side, mask in masks.items()},
            notes=maps.notes,
        )

    def _by_hemisphere(
        self,
        parts: Mapping[str | None, NDArray[Any]],
        side: str | None,
    ) -> Parts:
        """Return the columns of each hemisphere that is read, left first."""
        by_side = dict(parts)
        unsplit = by_side.pop(None, None)
        if unsplit is not None:
            by_side = self._split(unsplit, side)
        # A file under the wrong name would be read as the other hemisphere.
        elif side is not None and side not in by_side:
            hemisphere = next(iter(by_side))
            raise Unreadable(f"is named {side}, but its metadata say {hemisphere}: which is right?")
        sides = [side for side in SIDES if side in by_side]
        requested = self.request.hemisphere
        if requested in SIDES:
            if requested not in by_side:
                text = f"--hemisphere {requested} (hemisphere={requested!r}) was requested"
                raise Unreadable(f"contains only the {sides[0]} hemisphere; {text}")
            sides = [requested]
        return {side: by_side[side] for side in sides}

    def _split(
        self,
        maps: NDArray[Any],
        side: str | None,
    ) -> dict[str | None, NDArray[Any]]:
        """Return maps by hemisphere, for a file that does not say the hemispheres."""
        n = maps.shape[1]
        n_left = self.mesh.split(n)
        if n_left is not None and side is None:
            return {"left": maps[:, :n_left], "right": maps[:, n_left:]}
        if side is None and self.request.hemisphere in SIDES:
            side = self.request.hemisphere
        # The name or the caller says the hemisphere, so the size need not be known.
        if n_left is None and side is not None:
            return {side: maps}
        sizes = self.mesh.wanted("left")
        if n_left is not None:
            text = f"is named {side}, but has {n} sites, those of both hemispheres"
        elif n in sizes or (not sizes and is_a_size(n)):
            remedy = "pass --hemisphere left or right (hemisphere=)"
            text = f"has {n} sites and does not name its hemisphere; {remedy}"
        elif sizes:
            text = f"has {n} sites; mesh {self.mesh} has {sizes[0]} in each hemisphere"
        else:
            remedy = (
                "give its sphere with --mesh (mesh=), or for regions their atlas with --parcels"
            )
            text = f"has {n} sites, not the size of a known mesh; {remedy} (parcels=)"
        raise Unreadable(text)


def _map_number(
    maps: Maps,
    requested: str | int,
) -> int:
    """Return the number of a map, requested by name or number."""
    if requested in maps.names:
        return maps.names.index(str(requested))
    if isinstance(requested, int) and 0 <= requested < maps.n_maps:
        return requested
    names = f" called {', '.join(maps.names[:10])}" if maps.names else ""
    raise Unreadable(f"has no map {shown(requested)}; it has {maps.n_maps}{names}")


def several_maps(maps: MapFile) -> CohortError:
    """Return the error for a file with many maps where one was expected."""
    cause = (
        "one per subject was expected; choose one with --map-name (map_name=), or compute a map "
        "from a time series first (icofactor prepare reho FOLDER, or alff)"
    )
    text = f"contains {maps.n_maps} maps, but {cause}"
    return CohortError(maps.path, Problem(text, f"contain several maps, but {cause}"))


def report_meshes(
    files: Sequence[MapFile],
    mesh: Mesh,
    problems: ReadProblems,
) -> None:
    """Report files with another number of vertices than the mesh, or than most others."""
    # Without a mesh, the size that most files have is the expected one.
    expected = {}
    for side in SIDES:
        sizes = mesh.wanted(side)
        counts = Counter(maps.sizes[side] for maps in files if side in maps.sizes)
        description = f"mesh {mesh} has" if sizes else "most files have"
        expected[side] = (sizes or [size for size, _ in counts.most_common(1)], description)
    for maps in files:
        for side, size in maps.sizes.items():
            sizes, description = expected[side]
            if size not in sizes:
                text = f"has {size} vertices in the {side} hemisphere; {description} {sizes[0]}"
                problems.add(maps.path, f"{text}. Resample the maps to one mesh first")
