"""One file of a cohort, read once: its maps by hemisphere, and its entry in the provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.meshes import Mesh, is_a_size
from icofactor.cohort.problems import Problems
from icofactor.errors import CohortError, Problem, literal
from icofactor.io.guard import Unreadable, hash_file
from icofactor.io.maps import read_maps, reading
from icofactor.io.types import Maps
from icofactor.sphere.names import SIDES

Files = dict[str | None, Path]
"""Hemisphere that the name says (None: both, or unknown) → file."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What is remembered of a file when its numbers are in X.

    Attributes
    ----------
    path : the file.
    sizes : hemisphere → number of sites, left first.
    record : path, size, checksum, reader and hemisphere, for the provenance.
    masks : hemisphere → the mask that came with it; empty when there was none.
    notes : what the reader left out.
    """

    path: Path
    sizes: Mapping[str, int]
    record: Mapping[str, Any]
    masks: Mapping[str, NDArray[np.bool_]]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Piece:
    """The maps of one file: hemisphere → (n_maps, n_sites), and the file as its reader gave it."""

    parts: Mapping[str, NDArray[Any]]
    maps: Maps
    seen: Seen

    @property
    def n_maps(self) -> int:
        """Number of maps, the same in both hemispheres."""
        return len(next(iter(self.parts.values())))

    def without_values(self) -> Piece:
        """What is needed to report on the file."""
        empty = {side: np.empty((self.n_maps, 0)) for side in self.parts}
        return replace(
            self, parts=empty, maps=replace(self.maps, parts=dict(empty.items()), mask=None)
        )


class Reader:
    """Reads the files of a cohort, each once: what was looked at while planning is kept until it is
    taken.

    Parameters
    ----------
    mesh : what is known of it.
    hemisphere : "left", "right", "both", or None for what is there.
    measure : name of the array in npz files that hold several.
    map_name : name or number of the map to take from files that hold several.
    tables : file → what was read of it already.
    """

    def __init__(
        self,
        mesh: Mesh,
        hemisphere: str | None = None,
        measure: str | None = None,
        map_name: str | int | None = None,
        tables: Mapping[Path, Maps] | None = None,
    ) -> None:
        self._tables = tables or {}
        self.mesh, self.hemisphere, self.measure, self.map_name = (
            mesh,
            hemisphere,
            measure,
            map_name,
        )
        self._kept: dict[Path, Piece | CohortError] = {}

    def look(self, path: Path, side: str | None) -> Piece | CohortError:
        """Read a file and keep it; `side` is the hemisphere its name says, or None."""
        if path not in self._kept:
            self._kept[path] = self._read(path, side)
        return self._kept[path]

    def take(self, path: Path, side: str | None) -> Piece | CohortError:
        """A file that was looked at, or read now; it is not kept any longer."""
        found = self._kept.pop(path, None)
        return self._read(path, side) if found is None else found

    def first(
        self, files: Iterable[tuple[Path, str | None]], fitting: bool = False
    ) -> Piece | None:
        """The first file that can be read, and (`fitting`) can be of the mesh: a wrong first file
        must not decide.
        """
        for path, side in files:
            piece = self.look(path, side)
            if isinstance(piece, CohortError):
                continue  # reported when all files are read
            if not fitting or all(
                n in (self.mesh.wanted(side) or [n]) for side, n in piece.seen.sizes.items()
            ):
                return piece
            self._kept[path] = piece.without_values()  # there may be many such files
        return None

    def _read(self, path: Path, side: str | None) -> Piece | CohortError:
        try:
            return self._piece(path, side)
        except CohortError as error:
            return error

    def _piece(self, path: Path, side: str | None) -> Piece:
        maps = self._tables[path] if path in self._tables else read_maps(path, self.measure)
        with reading(path):
            parts = _by_hemisphere(maps.parts, side, self)
            masks = {} if maps.mask is None else _masks(maps, side, self)
            if self.map_name is not None:
                number = _number(maps, self.map_name)
                parts = {side: part[number : number + 1] for side, part in parts.items()}
            record = {
                "path": str(path),
                "bytes": path.stat().st_size,
                "sha256": hash_file(path),
                "reader": maps.reader,
                "hemisphere": "both" if len(parts) == 2 else next(iter(parts)),
            }
            if maps.array:
                record["array"] = maps.array
        sizes = {side: part.shape[1] for side, part in parts.items()}
        return Piece(parts, maps, Seen(path, sizes, record, masks, maps.notes))


def _masks(maps: Maps, told: str | None, reader: Reader) -> dict[str, NDArray[np.bool_]]:
    """The mask of a file, cut as its maps are."""
    sizes = {side: part.shape[1] for side, part in maps.parts.items()}
    cuts = np.split(np.asarray(maps.mask), np.cumsum(list(sizes.values()))[:-1])
    rows = {side: cut[None] for side, cut in zip(sizes, cuts, strict=True)}
    return {side: row[0] for side, row in _by_hemisphere(rows, told, reader).items()}


def _by_hemisphere(
    found: Mapping[str | None, NDArray[Any]], told: str | None, reader: Reader
) -> dict[str, NDArray[Any]]:
    """Which columns are left and which are right, from the file, its name, or the user."""
    parts: dict[str, NDArray[Any]] = {
        side: part for side, part in found.items() if side is not None
    }
    whole = found.get(None)
    if whole is not None:
        n = whole.shape[1]
        n_left, known = reader.mesh.split(n), reader.mesh.wanted("left")
        if n_left is not None:
            if told is not None:
                raise Unreadable(
                    f"is named {told}, but has {n} sites, the number of both hemispheres together"
                )
            parts = {"left": whole[:, :n_left], "right": whole[:, n_left:]}
        elif told is not None:
            parts = {told: whole}
        elif reader.hemisphere in SIDES:
            parts = {reader.hemisphere: whole}
        elif known and n not in known:
            raise Unreadable(f"has {n} sites; mesh {reader.mesh} has {known[0]} in each hemisphere")
        elif not known and not is_a_size(n):
            text = f"has {n} sites, which is not the size of a known mesh (fsaverage5: 10242 per hemisphere)"
            raise Unreadable(
                f"{text}; give its sphere with {{mesh}}, or for regions their atlas with {{parcels}}"
            )
        else:
            raise Unreadable(
                f"has {n} sites and does not name its hemisphere; pass {{hemisphere='left' or 'right'}}"
            )
    elif told is not None and told not in parts:
        raise Unreadable(
            f"is named {told}, but its metadata say {next(iter(parts))}: which is right?"
        )
    if reader.hemisphere in SIDES:
        if reader.hemisphere not in parts:
            raise Unreadable(
                f"contains only the {next(iter(parts))} hemisphere; {{hemisphere={reader.hemisphere!r}}} was requested"
            )
        parts = {reader.hemisphere: parts[reader.hemisphere]}
    return {side: parts[side] for side in SIDES if side in parts}


def _number(maps: Maps, wanted: str | int) -> int:
    """The number of the map of that name; maps may also be asked for by number."""
    if isinstance(wanted, str) and wanted in maps.names:
        return maps.names.index(wanted)
    if isinstance(wanted, int) and 0 <= wanted < maps.n_maps:
        return wanted
    named = f" called {literal(', '.join(maps.names[:10]))}" if maps.names else ""
    raise Unreadable(f"has no map {literal(repr(wanted))}; it has {maps.n_maps}{named}")


def copy_map(values: NDArray[Any], into: NDArray[np.float32]) -> bool:
    """One map into a row of X; what is too large for float32 becomes infinite, and is reported
    later.

    Returns
    -------
    Whether all values are too small for float32, zeros aside.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        into[...] = values
    if values.dtype.itemsize <= 4 or (np.abs(into) >= np.finfo(np.float32).tiny).any():
        return False
    return bool((np.abs(values) > 0).any())


def several(piece: Piece) -> CohortError:
    """A file with many maps where one was expected."""
    remedy = "choose one with {map_name}, or compute a map from a time series first (icofactor prepare reho FOLDER, or alff)"
    text = f"contains {piece.n_maps} maps, but one per subject was expected; {remedy}"
    return CohortError(
        piece.seen.path,
        Problem(text, f"contain several maps, but one per subject was expected; {remedy}"),
    )


def report_meshes(files: Sequence[Seen], mesh: Mesh, problems: Problems) -> None:
    """Files with another number of vertices than the mesh, or than most others."""
    counts = Counter(item for seen in files for item in seen.sizes.items())
    for seen in files:
        for side, n in seen.sizes.items():
            wanted = mesh.wanted(side)
            if wanted and n not in wanted:
                problems.add(
                    seen.path,
                    f"has {n} vertices in the {side} hemisphere; mesh {mesh} has {wanted[0]}",
                )
            usual = max((m for s, m in counts if s == side), key=lambda m: counts[side, m])
            if not wanted and n != usual and counts[side, usual] == 1 and len(files) > 2:
                text = f"has {n} vertices, others {usual}: no two files are on one mesh, as on the subjects' own"
                problems.add(
                    seen.path,
                    f"{text} surfaces; resample them to one mesh first (recon-all -qcache)",
                )
            elif not wanted and n != usual:
                most = (
                    f"most of the files ({counts[side, usual]})"
                    if counts[side, usual] > 1
                    else "another file"
                )
                text = f"has {n} vertices; {most} ha{'ve' if counts[side, usual] > 1 else 's'} {usual}: another mesh"
                problems.add(seen.path, text)
