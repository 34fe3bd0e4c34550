"""Tables of regions as files of maps: which columns are regions, and where the regions lie.

FreeSurfer's aparcstats2table, ENIGMA, XCP-D and others write one column per region; pscalar files
also say where these lie. Columns are matched to the regions of an atlas by name.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.find import keep
from icofactor.cohort.names import measure_of
from icofactor.cohort.people import SESSION_COLUMNS, scan_name
from icofactor.cohort.problems import Journal, ReadProblems, some
from icofactor.cohort.request import Request
from icofactor.cohort.subjects import ID_COLUMNS, column_named
from icofactor.errors import ArgumentError, CohortError, FileError, escaped, plural, shown
from icofactor.io.guard import Unreadable, naming, open_file
from icofactor.io.hemispheres import side_of
from icofactor.io.maps import is_mesh_size, read_maps, reading
from icofactor.io.tables import is_missing, is_number, read_table
from icofactor.io.types import Maps
from icofactor.sphere.names import SIDES, hemispheres
from icofactor.sphere.parcels import (
    Parcels,
    did_you_mean,
    find_regions,
    is_region,
    parcel_sites,
    parcels_of,
    region_key,
    sites_of_regions,
    without_measure,
)
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    import pandas as pd

_TABLES = (".tsv", ".csv", ".txt")
# The first line of a table is not longer than this.
_MAX_HEADER = 2**22
# Tables of BIDS that are not maps of regions.
_NOT_DATA = re.compile(
    r"(.*_)?(participants|sessions|scans|phenotype|dseg|events|confounds)\..*|dataset_description.*"
)
_IDS = (*ID_COLUMNS, "subjid", "subj_id", "subj", "sub", "eid", "src_subject_id", "")
# Headers of the column of subjects as FreeSurfer and pandas write them.
_ID_HEADER = re.compile(r"([lr]h\.[\w.]+|measure:.*|unnamed: 0)", re.IGNORECASE)
# Columns that aparcstats2table and ENIGMA put beside the regions.
_TOTALS = re.compile(
    r"meanthickness|whitesurfarea|pialsurfarea|brainseg\w*|etiv|icv|estimatedtotalintracranialvol"
    r"|[lr]?thickness|[lr]?surfarea|cortexvol|numvert|maskvol\w*|supratentorial\w*|totalgray\w*"
    r"|subcortgray\w*|cerebralwhitematter\w*"
)
_ABOUT_PEOPLE = re.compile(
    r"age.*|sex|gender|site|scanner|group|diagnosis|dx|handedness|education|iq|weight|height|date"
    r"|exclude|include|visit"
)
# Measures by the last word of the names of columns.
_MEASURES = {
    "thickavg": "thickness",
    "thck": "thickness",
    "surfavg": "area",
    "surfarea": "area",
    "grayvol": "volume",
}
_PREFIX = {"left": "lh", "right": "rh"}


def is_region_file(path: Path) -> bool:
    """Whether a file is a pscalar, or a table whose header names regions, not vertices."""
    name = path.name.lower()
    if name.endswith(".pscalar.nii"):
        return True
    # Tables about people lie beside those of regions.
    if not name.endswith(_TABLES) or _NOT_DATA.fullmatch(path.name):
        return False
    try:
        if path.stat().st_size == 0:
            # Reading says so; an empty text file may be a map of CIVET.
            return not name.endswith(".txt")
        with open_file(path) as file:
            text = file.read(_MAX_HEADER).decode("utf-8-sig", "replace")
    except OSError:
        return False
    # Lines may end as on old Macs.
    line = next(iter(text.splitlines()), "")
    # Semicolons are common where commas are decimal.
    delimiter = next((character for character in "\t,;" if character in line), ",")
    columns = next(csv.reader([line], delimiter=delimiter), [])[1:]
    names = [cell for cell in columns if cell.strip() and not (is_number(cell) or is_missing(cell))]
    is_vertices = is_mesh_size(len(columns), len(columns) + 1)
    return len(names) > 1 and 2 * len(names) > len(columns) and not is_vertices


@dataclass(frozen=True, eq=False)
class Table:
    """Values of regions.

    Attributes
    ----------
    path : the file.
    values : (n_rows, n_columns).
    maps : the file as its reader returned it; `names` are its rows, `regions` its columns.
    left_out : columns that are not regions, and the reason.
    side : hemisphere in the name of the file, for columns whose names do not say it.
    """

    path: Path
    values: NDArray[np.float64]
    maps: Maps
    left_out: Mapping[str, str]
    side: str | None = None


def read_region_file(
    path: Path,
    measure: str | None = None,
) -> Table:
    """Return a pscalar, a table with one column per region, or an array of regions."""
    side = side_of(path.name)[0]
    if not path.name.lower().endswith(_TABLES):
        maps = read_maps(path, measure)
        values = np.hstack([np.asarray(half, dtype=np.float64) for half in maps.parts.values()])
        return Table(
            path,
            values,
            maps,
            {},
            side,
        )
    with reading(path, "table of regions"):
        columns, _ = read_table(path)
        return _from_columns(columns, path, side)


def _from_columns(
    columns: dict[str, list[str]],
    path: Path,
    side: str | None,
) -> Table:
    """Return a table from its columns of text."""
    ids = _pop_ids(columns)
    n_rows = len(next(iter(columns.values()), []))
    left_out = {name: _reason_to_leave_out(name, cells) for name, cells in columns.items()}
    values = {
        name: [np.nan if is_missing(cell) else float(cell) for cell in cells]
        for name, cells in columns.items()
        if not left_out[name]
    }
    problem = _problem_of_table(
        ids,
        n_rows,
        values,
        columns,
        side,
    )
    if problem:
        raise Unreadable(problem)
    array = np.array(list(values.values()), dtype=np.float64).T
    maps = Maps({None: array}, "table", tuple(ids or ()), regions=tuple(values))
    return Table(
        path,
        array,
        maps,
        left_out,
        side,
    )


def _problem_of_table(
    ids: Sequence[str] | None,
    n_rows: int,
    values: Mapping[str, Any],
    columns: Mapping[str, Sequence[str]],
    side: str | None,
) -> str:
    """Say why a table is not one of people by regions, "" if it is."""
    if not values:
        cells = [cell for column in columns.values() for cell in column[:3]]
        has_commas = any(re.fullmatch(r"-?\d+,\d+", cell) for cell in cells)
        hint = "; write decimal points, not commas" if has_commas else ""
        return f"has no numeric column that could be a region{hint}"
    if not n_rows:
        return "has a header but no rows"
    if ids is None and n_rows > 1:
        text = f"has {n_rows} rows but no column of names: call that column participant_id"
        return f"{text} (rows of a time series are not people)"
    names = ids or ()
    # A transposed table has regions in its rows, and is easily made by mistake.
    if side is None and 2 * _n_sided(names) > n_rows and not _n_sided(values):
        text = f"its rows are regions ({some(names, 2)}) and its columns people"
        return f"{text}: transpose it, one row per person, one column per region"
    repeated = [name for name, n in Counter(names).items() if n > 1]
    remedy = "keep one row per person, or add a column session_id"
    return f"lists {some(repeated)} twice; {remedy}" if repeated else ""


def _reason_to_leave_out(
    name: str,
    cells: Sequence[str],
) -> str:
    """Return why a column is no region, "" if it may be one; raise an error for text in it."""
    _, region = region_key(name)
    # Totals have other units than regions, and would dominate a fit.
    if _TOTALS.fullmatch(region) or not is_region(region):
        return "totals, or not cortex"
    text = [cell for cell in cells if not (is_number(cell) or is_missing(cell))]
    if _ABOUT_PEOPLE.fullmatch(region) or (text and not any(map(is_number, cells))):
        return "about the people; --participants (participants=) takes such columns"
    if text:
        raise Unreadable(f"column {escaped(name)} contains {shown(text[0][:40])}, not a number")
    return ""


def _n_sided(names: Iterable[str]) -> int:
    """Return how many names say a hemisphere, as those of regions do."""
    return sum(region_key(name)[0] is not None for name in names)


def _pop_ids(columns: dict[str, list[str]]) -> list[str] | None:
    """Take out the column of subjects, with that of sessions, and return the names of the rows."""
    first = next(iter(columns))
    key = column_named(columns, _IDS)
    # aparcstats2table calls the column lh.aparc.thickness; pandas leaves it unnamed.
    if key is None and (_ID_HEADER.fullmatch(first) or not any(map(is_number, columns[first]))):
        key = first
    if key is None:
        return None
    ids = [escaped(name) for name in columns.pop(key)]
    session_column = column_named(columns, SESSION_COLUMNS)
    if session_column is None:
        return ids
    sessions = columns.pop(session_column)
    return [scan_name(name, session) for name, session in zip(ids, sessions, strict=True)]


# ---------------------------------------------------------------------- several tables


class Regions(NamedTuple):
    """Tables on the regions that all of them share.

    Attributes
    ----------
    sites : the regions, left first.
    maps : file → its rows, by hemisphere.
    files : the table of files: one subject per pair of tables of the same people.
    measure : in the names of all columns, or None.
    """

    sites: Sites
    maps: Mapping[Path, Maps]
    files: pd.DataFrame
    measure: str | None


def read_regions(
    files: pd.DataFrame,
    parcels: Any,
    mesh: Any,
    request: Request,
    skips: bool,
    problems: ReadProblems,
    journal: Journal,
) -> Regions | None:
    """Return the tables among files, brought onto one set of regions; None if there are none.

    Parameters
    ----------
    parcels : the atlas: its files, or Sites; None if the files say where regions lie, or nobody.
    mesh : of the atlas's files.
    skips : whether people who are in the table of one hemisphere only are left out.
    """
    paths = list(files["path"][files["size"] >= 0])
    on_vertices = [path for path in paths if parcels is None and not is_region_file(path)]
    if len(on_vertices) == len(paths):
        return None
    tables = []
    for path in paths:
        # One kind of file decides for all: a mixture is a mistake in the folder.
        if path in on_vertices:
            text = "contains maps on vertices; the other files are tables of regions"
            problems.add(path, f"{text}. Read them separately")
            continue
        try:
            table = read_region_file(path, request.measure)
        except FileError as error:
            problems.add_error(error)
            continue
        if request.hemisphere in SIDES:
            table = replace(table, side=table.side or request.hemisphere)
        tables.append(table)
    problems.check()
    atlas = whole_atlas(parcels, mesh, tables)
    sites, maps = _on_shared_regions(
        tables,
        atlas,
        request.hemisphere,
        problems,
        journal,
    )
    files = _pair(
        files,
        maps,
        skips,
        problems,
        journal,
    )
    return Regions(sites, maps, files, _measure_of(tables))


def _on_shared_regions(
    tables: Sequence[Table],
    atlas: Parcels | Sites | None,
    hemisphere: str | None,
    problems: ReadProblems,
    journal: Journal,
) -> tuple[Sites, dict[Path, Maps]]:
    """Return the regions of all tables, and the values of each table by hemisphere."""
    parcels = atlas.regions if isinstance(atlas, Sites) else atlas
    # Each table's regions, by the name of the atlas or of the columns, → column.
    columns = [
        _columns_of(
            table,
            parcels,
            hemisphere,
            problems,
            journal,
        )
        for table in tables
    ]
    problems.check()
    sites = _shared_sites([name for names in columns for name in names], atlas, hemisphere)
    _note_columns(tables, sites, journal)
    maps = {}
    for table, numbers in zip(tables, columns, strict=True):
        maps[table.path] = _arrange(table, numbers, sites, problems)
    problems.check()
    return sites, maps


def whole_atlas(
    parcels: Any,
    mesh: Any,
    tables: Sequence[Table] = (),
) -> Parcels | Sites | None:
    """Return the atlas that the caller or a file gives; Sites are those of a fit, as they are."""
    if isinstance(parcels, Sites):
        if parcels.regions is None:
            text = "must be an atlas, or Sites.parcels(atlas)"
            raise ArgumentError("parcels", f"{text}; found {shown(parcels)}")
        return parcels
    if parcels is not None:
        return parcel_sites(parcels, None, mesh).regions
    for table in tables:
        if table.maps.atlas:
            return parcels_of(table.maps.atlas, [table.path], mesh)
    # A mesh without an atlas would be ignored without a word.
    if mesh is not None and not isinstance(mesh, Sites):
        text = "does not apply to tables of regions, which are on no mesh: give their atlas with"
        raise ArgumentError("mesh", f"{text} --parcels (parcels=), or leave the mesh out")
    return None


def _columns_of(
    table: Table,
    atlas: Parcels | None,
    hemisphere: str | None,
    problems: ReadProblems,
    journal: Journal,
) -> dict[str, int]:
    """Return the regions of a table, by the names of the atlas or its own, → column."""
    names = table.maps.regions
    n_columns = table.values.shape[1]
    if not names and atlas is not None and n_columns == len(atlas.names):
        text = f"its {n_columns} columns are the regions of the atlas, in that order"
        journal.note(f"{table.path.name}: {text}")
        names = atlas.names
    if not names:
        text = f"has {n_columns} columns without names, which are not the regions of an atlas"
        problems.add(table.path, f"{text}. Give a table with region names in its header")
        return {}
    if atlas is None:
        return {_with_side(name, table.side): i for i, name in enumerate(names)}
    numbers = _numbers_in_atlas(names, atlas, table.side)
    columns = {atlas.names[number]: i for i, number in enumerate(numbers) if number is not None}
    unknown = [name for name, number in zip(names, numbers, strict=True) if number is None]
    off_surface = _off_surface(unknown, atlas)
    if off_surface:
        text = f"left out {plural(len(off_surface), 'region')} not on the surface"
        journal.note(f"{table.path.name}: {text}: {some(off_surface)}")
    unknown = [
        name
        for name in unknown
        if name not in off_surface
        and (hemisphere not in SIDES or region_key(name, table.side)[0] in (None, hemisphere))
    ]
    if unknown:
        text = f"has {plural(len(unknown), 'column')} that the atlas does not have"
        remedy = "rename or remove them, or give the atlas of the table"
        if atlas.hemi in SIDES:
            option = f"--hemisphere {atlas.hemi} (hemisphere={atlas.hemi!r})"
            remedy += f". The atlas has only one hemisphere: give both, or {option}"
        problems.add(table.path, f"{text}: {did_you_mean(unknown, atlas)}; {remedy}")
    # Columns of two measures have the same region.
    counts = Counter(number for number in numbers if number is not None)
    repeated = [atlas.names[number] for number, n in counts.items() if n > 1]
    if repeated:
        text = f"has several columns for {some(repeated)}; give one measure per table"
        problems.add(table.path, text)
    return columns


def _numbers_in_atlas(
    names: Sequence[str],
    atlas: Parcels,
    side: str | None,
) -> Sequence[int | None]:
    """Return the number of each region in the atlas, or None."""
    numbers = find_regions(names, atlas, side)
    endings = {name.rpartition("_")[2] for name in names}
    if len(endings) > 1 or any(number is not None for number in numbers):
        return numbers
    # All names end with one word: a measure that is not listed.
    stems = [name.rpartition("_")[0] for name in names]
    numbers = find_regions(stems, atlas, side)
    if atlas.placed or any(number is not None for number in numbers):
        return numbers
    return find_regions(stems, replace(atlas, names=tuple(without_measure(atlas.names))), side)


def _off_surface(
    names: Sequence[str],
    atlas: Parcels,
) -> list[str]:
    """Return the names of regions that are not on the surface."""
    elsewhere = set(map(region_key, atlas.elsewhere))
    off_surface = []
    for name in names:
        side, region = region_key(name)
        if not is_region(region) or not elsewhere.isdisjoint({(side, region), (None, region)}):
            off_surface.append(name)
    return off_surface


def _with_side(
    name: str,
    side: str | None,
) -> str:
    """Return a region's name, with its hemisphere if only the file says it."""
    if side is None or region_key(name)[0] is not None:
        return name
    return f"{_PREFIX[side]}_{name}"


def _shared_sites(
    names: Sequence[str],
    atlas: Parcels | Sites | None,
    hemisphere: str | None,
) -> Sites:
    """Return the regions that tables have, left first; those of a fit as they are."""
    if isinstance(atlas, Sites):
        if len(atlas.frames) == 2 and (np.diff(atlas.hemisphere) < 0).any():
            raise ArgumentError("parcels", "must have left regions first, as in tables")
        return atlas
    names = list(dict.fromkeys(names))
    if atlas is not None:
        present = set(names)
        names = [name for name in atlas.names if name in present]
    sites = _sites_of(names, atlas)
    if len(sites.frames) == 2:
        sides = [SIDES.index(side) for side in hemispheres(hemisphere or "both", "hemisphere")]
        # Sites are left first, whatever the order of the columns.
        order = [i for side in sides for i in np.flatnonzero(sites.hemisphere == side)]
        sites = _sites_of([names[i] for i in order], atlas)
    side = None if sites.regions is None else sites.regions.hemi
    if hemisphere is not None and side not in (None, hemisphere):
        raise CohortError("hemisphere", f"the tables have regions of the {side} hemisphere only")
    return sites


def _sites_of(
    names: Sequence[str],
    atlas: Parcels | None,
) -> Sites:
    """Return regions of an atlas, or without positions."""
    return parcel_sites(None, names) if atlas is None else sites_of_regions(atlas, names)


def _arrange(
    table: Table,
    columns: dict[str, int],
    sites: Sites,
    problems: ReadProblems,
) -> Maps:
    """Return the values of a table by hemisphere, in the order of the sites."""
    assert sites.regions is not None
    names = np.array(sites.regions.names)
    parts: dict[str | None, NDArray[Any]] = {}
    missing: list[str] = []
    for number, side in enumerate(hemispheres(sites.regions.hemi or "left")):
        names_of_side = names[sites.hemisphere == number].tolist()
        absent = [name for name in names_of_side if name not in columns]
        if not absent:
            parts[side] = table.values[:, [columns[name] for name in names_of_side]]
        elif len(absent) < len(names_of_side):
            missing += absent
    # A table may have one hemisphere, and another table the other one.
    if missing or not parts:
        missing = missing or names.tolist()
        text = f"lacks {plural(len(missing), 'region')} that others have: {some(missing)}"
        problems.add(table.path, text)
    return replace(
        table.maps,
        parts=parts,
        regions=(),
        atlas={},
        mask=None,
    )


def _pair(
    files: pd.DataFrame,
    maps: dict[Path, Maps],
    skips: bool,
    problems: ReadProblems,
    journal: Journal,
) -> pd.DataFrame:
    """Return files by the hemispheres in them, with pairs of tables of the same people as one.

    `maps` of such a pair get the same people, in the same order.
    """
    files = keep(files, (path in maps for path in files["path"])).copy()
    side_of_path = {
        path: next(iter(table.parts)) if len(table.parts) == 1 else None
        for path, table in maps.items()
    }
    of_people = [path for path, table in maps.items() if table.reader == "table" and table.names]
    _check_no_overlap({path: maps[path] for path in of_people}, problems)
    subjects = dict(zip(files["path"], files["subject"], strict=True))
    subjects |= {path: str(path) for path in of_people}
    # Each table of the right hemisphere belongs to one of the left at most.
    unpaired = [path for path in of_people if side_of_path[path] == "right"]
    for left in (path for path in of_people if side_of_path[path] == "left"):
        people = set(maps[left].names)
        # Left and right tables belong together if they list the same people.
        n_shared = {right: len(people.intersection(maps[right].names)) for right in unpaired}
        right = max(unpaired, key=n_shared.__getitem__, default=left)
        if n_shared.get(right):
            unpaired.remove(right)
            subjects[right] = subjects[left]
            _align_people(
                left,
                right,
                maps,
                skips,
                problems,
                journal,
            )
    files["hemisphere"] = [side_of_path[path] for path in files["path"]]
    files["subject"] = [subjects[path] for path in files["path"]]
    return files


def _align_people(
    left: Path,
    right: Path,
    maps: dict[Path, Maps],
    skips: bool,
    problems: ReadProblems,
    journal: Journal,
) -> None:
    """Give tables of two hemispheres the same people; report who is in one of them only."""
    shared = set(maps[left].names).intersection(maps[right].names)
    in_both = [name for name in maps[left].names if name in shared]
    for path, twin in ((left, right), (right, left)):
        names = maps[path].names
        missing = [name for name in names if name not in shared]
        if missing and not skips:
            text = f"lists {some(missing)}, who are not in {twin.name}"
            problems.add(path, f"{text}; --missing skip (missing='skip') leaves them out")
        elif skips:
            journal.leave_out(missing, f"who are in {path.name} and not in {twin.name}")
        row_of = {name: row for row, name in enumerate(names)}
        rows = [row_of[name] for name in in_both]
        parts = {side: part[rows] for side, part in maps[path].parts.items()}
        maps[path] = replace(maps[path], parts=parts, names=tuple(in_both))


def _check_no_overlap(
    maps: Mapping[Path, Maps],
    problems: ReadProblems,
) -> None:
    """Raise an error for tables of the same people and hemisphere."""
    first: dict[tuple[str, str | None], Path] = {}
    for path, table in maps.items():
        keys = [(name, side) for name in table.names for side in table.parts]
        other = next((first[key] for key in keys if key in first), None)
        if other is not None:
            text = f"has the same people and hemisphere as {other.name}"
            remedy = "give one table of each hemisphere, or choose one of several measures with"
            problems.add(path, f"{text}: {remedy} --measure (measure=)")
        first |= dict.fromkeys(keys, path)
    problems.check()


def _measure_of(tables: Iterable[Table]) -> str | None:
    """Return the measure that the names of all columns end with."""
    endings = {name.lower().rpartition("_")[2] for table in tables for name in table.maps.regions}
    # Columns of several measures, or names without a measure.
    if len(endings) != 1:
        return None
    word = endings.pop()
    return _MEASURES.get(word) or measure_of(word)


def _note_columns(
    tables: Sequence[Table],
    sites: Sites,
    journal: Journal,
) -> None:
    """Note the columns that are no regions, and the regions."""
    reasons = {name: reason for table in tables for name, reason in table.left_out.items()}
    for reason in filter(None, dict.fromkeys(reasons.values())):
        names = [name for name in reasons if reasons[name] == reason]
        journal.note(f"left out columns that are not regions: {some(names, 8)} ({reason})")
    assert sites.regions is not None
    count = plural(sites.n, "region")
    if sites.regions.placed:
        journal.note(f"{count} of {sites.regions}")
    else:
        remedy = "their atlas would place them: --parcels (parcels=)"
        text = f"{count}, positions unknown: fitted without hierarchy, drawn as bars"
        journal.note(f"{text}; {remedy}")


# ---------------------------------------------------------------------- DataFrames


def frame_of_people(
    frame: pd.DataFrame,
    names: tuple[str, ...] | None,
) -> tuple[pd.DataFrame, tuple[str, ...] | None]:
    """Return a DataFrame without its column of ids, and the names of its rows."""
    key = column_named(frame.columns, (*ID_COLUMNS, "subjid"))
    frame = frame if key is None else frame.set_index(key)
    n_rows, n_columns = frame.shape
    has_names = not _are_numbers(frame.index)
    is_transposed = is_mesh_size(n_rows) and not has_names
    if not is_mesh_size(n_columns) and (is_transposed or _are_numbers(frame.columns)):
        text = "must have one row per person, and columns for the vertices of a known mesh or"
        shape = f"{n_rows} rows and {n_columns} columns"
        raise CohortError("paths", f"a DataFrame {text} named after regions; found {shape}")
    if names is None and has_names:
        names = tuple(map(str, frame.index))
    return frame, names


def _are_numbers(labels: Any) -> bool:
    """Whether labels are 0, 1, 2, ..., which pandas gives if there are no names."""
    return bool(np.array_equal(np.asarray(labels), np.arange(len(labels))))


def frame_on_regions(
    frame: pd.DataFrame,
    parcels: Any,
    mesh: Any,
    journal: Journal,
) -> tuple[Maps, Sites]:
    """Return the maps and sites of a DataFrame with one column per region."""
    # As text, a DataFrame is checked as a file is.
    text = frame.astype(str).where(frame.notna(), "n/a")
    columns = {"": list(map(str, frame.index))}
    columns |= {str(name): list(text[name]) for name in text}
    with naming("paths", "table of regions", CohortError):
        table = _from_columns(columns, Path("DataFrame"), None)
    atlas = whole_atlas(parcels, mesh)
    sites, maps = _on_shared_regions(
        [table],
        atlas,
        None,
        ReadProblems(),
        journal,
    )
    return maps[table.path], sites
