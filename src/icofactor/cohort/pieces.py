"""One file read for a cohort: its maps by hemisphere, and its entry in the provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.meshes import Mesh
from icofactor.errors import CohortError
from icofactor.io.guard import Unreadable
from icofactor.io.maps import read_maps, reading
from icofactor.io.types import Maps


@dataclass(frozen=True)
class How:
    """How files are to be read.

    Attributes
    ----------
    mesh : what is known of it.
    hemisphere : "left", "right", "both", or None for what is there.
    measure : name of the array in npz files that hold several.
    map_name : name or number of the map to take from files that hold several.
    """

    mesh: Mesh
    hemisphere: str | None = None
    measure: str | None = None
    map_name: str | int | None = None


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


def read_piece(path: Path, side: str | None, how: How) -> Piece:
    """Read one file.

    Parameters
    ----------
    side : the hemisphere its name tells of, or None.

    Raises
    ------
    CohortError, with the file's name.
    """
    maps = read_maps(path, how.measure)
    with reading(path):
        parts = _by_hemisphere(maps.parts, side, how)
        masks = {} if maps.mask is None else _masks(maps, side, how)
        if how.map_name is not None:
            number = _number(maps, how.map_name)
            parts = {side: part[number : number + 1] for side, part in parts.items()}
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        record = {
            "path": str(path),
            "bytes": path.stat().st_size,
            "sha256": digest,
            "reader": maps.reader,
            "hemisphere": "both" if len(parts) == 2 else next(iter(parts)),
        }
        if maps.array:
            record["array"] = maps.array
    sizes = {side: part.shape[1] for side, part in parts.items()}
    return Piece(parts, maps, Seen(path, sizes, record, masks, maps.notes))


def _masks(maps: Maps, told: str | None, how: How) -> dict[str, NDArray[np.bool_]]:
    """The mask of a file, cut as its maps are."""
    sizes = {side: part.shape[1] for side, part in maps.parts.items()}
    cuts = np.split(np.asarray(maps.mask), np.cumsum(list(sizes.values()))[:-1])
    rows = {side: cut[None] for side, cut in zip(sizes, cuts, strict=True)}
    return {side: row[0] for side, row in _by_hemisphere(rows, told, how).items()}


def _by_hemisphere(found: Mapping[str | None, NDArray[Any]], told: str | None, how: How) -> dict[str, NDArray[Any]]:
    """Which columns are left and which are right, from the file, its name, or the user."""
    parts: dict[str, NDArray[Any]] = {side: part for side, part in found.items() if side is not None}
    whole = found.get(None)
    if whole is not None:
        n = whole.shape[1]
        n_left, known = how.mesh.split(n), how.mesh.wanted("left")
        if n_left is not None:
            if told is not None:
                raise Unreadable(f"is named {told}, but has {n} sites, as both hemispheres together have")
            parts = {"left": whole[:, :n_left], "right": whole[:, n_left:]}
        elif told is not None:
            parts = {told: whole}
        elif how.hemisphere in ("left", "right"):
            parts = {how.hemisphere: whole}
        elif known and n not in known:
            raise Unreadable(f"has {n} sites; mesh {how.mesh} has {known[0]} in each hemisphere")
        else:
            raise Unreadable(f"has {n} sites and does not say of which hemisphere; pass hemisphere='left' or 'right'")
    elif told is not None and told not in parts:
        raise Unreadable(f"is named {told}, but its own metadata say {next(iter(parts))}: which hemisphere is it?")
    if how.hemisphere in ("left", "right"):
        if how.hemisphere not in parts:
            raise Unreadable(
                f"holds the {next(iter(parts))} hemisphere only; hemisphere={how.hemisphere!r} was asked for"
            )
        parts = {how.hemisphere: parts[how.hemisphere]}
    return {side: parts[side] for side in ("left", "right") if side in parts}


def _number(maps: Maps, wanted: str | int) -> int:
    """The number of the map of that name; maps may also be asked for by number."""
    if isinstance(wanted, str) and wanted in maps.names:
        return maps.names.index(wanted)
    if isinstance(wanted, int) and 0 <= wanted < maps.n_maps:
        return wanted
    named = f" called {', '.join(maps.names[:10])}" if maps.names else ""
    raise Unreadable(f"has no map {wanted!r}; it has {maps.n_maps}{named}")


def copy_map(values: NDArray[Any], into: NDArray[np.float32]) -> None:
    """One map into a row of X; what is too large for float32 becomes infinite, and is reported later."""
    with np.errstate(over="ignore", invalid="ignore"):
        into[...] = values


def first_readable(
    files: list[tuple[Path, str | None]], how: How, fits: Callable[[Seen], bool] = lambda seen: True
) -> Piece | None:
    """The first file that can be read, and fits; it tells what the others should be."""
    for path, side in files:
        try:
            piece = read_piece(path, side, how)
        except CohortError:
            continue  # reported when all files are read
        if fits(piece.seen):
            return piece
    return None
