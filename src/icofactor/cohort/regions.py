"""Tables of regions as files of maps: which columns are regions, whose the rows are, and where the
regions lie.

FreeSurfer's aparcstats2table, ENIGMA, XCP-D and others write one column per region; pscalar files
also say where these lie. Columns are matched to the regions of an atlas by name. Whatever is not
matched is named.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.find import Found
from icofactor.cohort.names import measure_of
from icofactor.cohort.people import SESSION_COLUMNS, scan_name
from icofactor.cohort.problems import Journal, Problems, some
from icofactor.cohort.subjects import ID_COLUMNS
from icofactor.errors import ArgumentError, CohortError, FileError, counted, escaped, literal
from icofactor.io.guard import Unreadable, open_file
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

_TABLES = (".tsv", ".csv", ".txt")
_NOT_DATA = re.compile(
    r"(.*_)?(participants|sessions|scans|phenotype|dseg|events|confounds)\..*|dataset_description.*"
)
_IDS = (*ID_COLUMNS, "subjid", "subj_id", "subj", "sub", "eid", "src_subject_id", "")
_IDS_BY_NAME = re.compile(r"([lr]h\.[\w.]+|measure:.*|unnamed: 0)", re.IGNORECASE)
# what aparcstats2table and ENIGMA put beside the regions
_TOTALS = re.compile(
    r"meanthickness|whitesurfarea|pialsurfarea|brainseg\w*|etiv|icv|estimatedtotalintracranialvol|[lr]?thickness|[lr]?surfarea"
    r"|cortexvol|numvert|maskvol\w*|supratentorial\w*|totalgray\w*|subcortgray\w*|cerebralwhitematter\w*"
)
_ABOUT = re.compile(
    r"age.*|sex|gender|site|scanner|group|diagnosis|dx|handedness|education|iq|weight|height|date|exclude|include|visit"
)
_MEASURES = {
    "thickavg": "thickness",
    "thck": "thickness",
    "surfavg": "area",
    "surfarea": "area",
    "grayvol": "volume",
}


def is_region_file(path: Path) -> bool:
    """Whether a file is a pscalar, or a table whose header names columns that are not the vertices
    of a mesh.
    """
    if path.name.endswith(".pscalar.nii"):
        return True
    if not path.name.lower().endswith(_TABLES) or _NOT_DATA.fullmatch(path.name):
        return False
    try:
        if path.stat().st_size == 0:  # reading says so; .txt may be maps of CIVET
            return not path.name.lower().endswith(".txt")
        with open_file(path) as file:
            line = file.readline(2**22).decode("utf-8-sig", "replace").strip("\r\n")
    except OSError:
        return False
    cells = next(
        csv.reader([line], delimiter=next((one for one in "\t,;" if one in line), ",")), []
    )
    names = [
        cell for cell in cells[1:] if cell.strip() and not is_number(cell) and not is_missing(cell)
    ]
    return (
        len(names) > 1
        and 2 * len(names) > len(cells) - 1
        and not is_mesh_size(len(cells), len(cells) - 1)
    )


@dataclass(frozen=True, eq=False)
class Table:
    """Values of regions.

    Attributes
    ----------
    path : the file.
    maps : its rows; `regions` names the columns.
    beside : columns that are not regions, and why.
    side : hemisphere of names that do not say it, by the name of the file.
    """

    path: Path
    maps: Maps
    beside: Mapping[str, str]
    side: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.maps.regions


def read_region_file(path: Path, measure: str | None = None) -> Table:
    """A pscalar, a table with one column per region, or an array with names of its columns, or
    none.
    """
    side = side_of(path.name)[0]
    if not path.name.lower().endswith(_TABLES):
        maps = read_maps(path, measure)
        parts = [np.asarray(part, dtype=np.float64) for part in maps.parts.values()]
        return Table(path, replace(maps, parts={None: np.hstack(parts)}), {}, side)
    with reading(path, "table of regions"):
        columns, _ = read_table(path)
        return _from_columns(columns, path, side)


def _from_columns(columns: dict[str, list[str]], path: Path, side: str | None) -> Table:
    ids = _ids(columns)
    n_rows = len(next(iter(columns.values()), []))
    beside: dict[str, str] = {}
    values = {}
    for name, cells in columns.items():
        _, plain = region_key(name)
        wrong = next((cell for cell in cells if not (is_number(cell) or is_missing(cell))), None)
        if _TOTALS.fullmatch(plain) or not is_region(plain):
            beside[name] = "totals, or not cortex"
        elif _ABOUT.fullmatch(plain) or (wrong is not None and not any(map(is_number, cells))):
            beside[name] = "about the people; --participants, participants= takes such columns"
        elif wrong is not None:
            raise Unreadable(
                f"column {literal(escaped(name))} contains {literal(escaped(repr(wrong[:40])))}, not a number"
            )
        else:
            values[name] = [np.nan if is_missing(cell) else float(cell) for cell in cells]
    if not values:
        cells = [cell for cells in columns.values() for cell in cells[:3]]
        commas = (
            "; write decimal points, not commas"
            if any(map(re.compile(r"-?\d+,\d+").fullmatch, cells))
            else ""
        )
        raise Unreadable(f"has no numeric column that could be a region{commas}")
    if not n_rows:
        raise Unreadable("has a header but no rows")
    if ids is None and n_rows > 1:
        raise Unreadable(
            f"has {n_rows} rows but no column of names: name that column participant_id (rows "
            "of a time series are not people)"
        )
    if side is None and 2 * _n_sided(ids or ()) > n_rows and not _n_sided(values):
        raise Unreadable(
            f"its rows are regions ({some(ids or (), 2)}) and its columns people ({some(values, 2)}); transpose it: "
            "one row per person, one column per region"
        )
    twice = [name for name, n in Counter(ids or ()).items() if n > 1]
    if twice:
        raise Unreadable(
            f"lists {some(twice)} twice; keep one row per person, or add a column session_id"
        )
    table = np.array(list(values.values()), dtype=np.float64).T
    maps = Maps({None: table}, "table", tuple(ids or ()), regions=tuple(values))
    return Table(path, maps, beside, side)


def _n_sided(names: Iterable[str]) -> int:
    """Names that say a hemisphere, as those of regions do."""
    return sum(region_key(name)[0] is not None for name in names)


def _ids(columns: dict[str, list[str]]) -> list[str] | None:
    """The column of subjects, which is taken out, with their sessions where there is a column of
    these.
    """
    lower = {name.lower(): name for name in reversed(columns)}
    first = next(iter(columns))
    key = next((lower[name] for name in _IDS if name in lower), None)
    if key is None and (_IDS_BY_NAME.fullmatch(first) or not any(map(is_number, columns[first]))):
        key = first
    if key is None:
        return None
    ids = [escaped(name) for name in columns.pop(key)]
    session = next(
        (lower[name] for name in SESSION_COLUMNS if name in lower and lower[name] in columns), None
    )
    if session is None:
        return ids
    return [scan_name(name, told) for name, told in zip(ids, columns.pop(session), strict=True)]


# ---------------------------------------------------------------------- several tables as one
# cohort


@dataclass(frozen=True, eq=False)
class Regions:
    """Tables on the regions that all of them share.

    Attributes
    ----------
    sites : the regions, left first.
    maps : file → its rows, by hemisphere.
    """

    sites: Sites
    maps: Mapping[Path, Maps]


def read_regions(
    found: Found,
    parcels: Any,
    mesh: Any,
    hemisphere: str | None,
    measure: str | None,
    skip: bool,
    problems: Problems,
    journal: Journal,
) -> Regions | None:
    """The tables among the files found, brought onto one set of regions; None where there are none.

    `found` gets their hemispheres, and tables of the two hemispheres of the same people become one
    group.

    Parameters
    ----------
    parcels : the atlas: its files, or Sites; None where the files say where the regions lie, or
        nobody does.
    mesh : of the atlas's files.
    skip : whether people who are in the table of one hemisphere only are left out.
    """
    paths = [source.path for source in found.sources]
    wanted = paths if parcels is not None else [path for path in paths if is_region_file(path)]
    if not wanted:
        return None
    others = [path for path in paths if path not in set(wanted)]
    for path in others:
        problems.add(
            path,
            "contains maps on vertices; the other files are tables of regions. Read them separately",
        )
    tables = []
    for path in wanted:
        try:
            tables.append(read_region_file(path, measure))
        except FileError as error:
            problems.add_error(error)
    if not tables or problems:
        problems.check()
        return None
    if hemisphere in SIDES:  # of names that do not say it
        tables = [replace(table, side=table.side or hemisphere) for table in tables]
    whole = whole_atlas(parcels, mesh, tables)
    matched = _match(tables, whole, hemisphere, problems, journal)
    problems.check()
    sites = _on_regions(matched, whole, hemisphere)
    _note(tables, sites, parcels, journal)
    arranged = _arranged(matched, sites, problems)
    problems.check()
    _group(found, arranged, skip, problems, journal)
    if found.measure is None:
        found.measure = _measure_of(tables)
    return Regions(sites, arranged)


def whole_atlas(parcels: Any, mesh: Any, tables: Sequence[Table] = ()) -> Parcels | Sites | None:
    """All regions of the atlas that is given, or that a file brings; Sites are those of a fit,
    taken as they are.
    """
    if isinstance(parcels, Sites):
        if parcels.regions is None:
            raise ArgumentError("parcels", parcels, "an atlas, or Sites.parcels(atlas)")
        return parcels
    if parcels is not None:
        return parcel_sites(parcels, None, mesh).regions
    brings = next((table for table in tables if table.maps.atlas), None)
    if brings is None and mesh is not None and not isinstance(mesh, Sites):
        what = "Tables of regions are on no mesh: give their atlas ({parcels}), or leave {mesh} out"
        raise ArgumentError("mesh", None, what)
    return None if brings is None else parcels_of(brings.maps.atlas, [brings.path], mesh)


def _match(
    tables: Sequence[Table],
    whole: Parcels | Sites | None,
    hemisphere: str | None,
    problems: Problems,
    journal: Journal,
) -> list[tuple[Table, dict[str, int]]]:
    """The regions' names of each table, in the atlas or without one by their own names, and their
    columns.
    """
    atlas = whole.regions if isinstance(whole, Sites) else whole
    found = []
    for table in tables:
        names = table.names
        if not names and atlas is not None and table.maps.parts[None].shape[1] == len(atlas.names):
            journal.note(
                f"{table.path.name}: its {len(atlas.names)} columns are the regions of the atlas, in that order"
            )
            names = atlas.names
        elif not names:
            n = table.maps.parts[None].shape[1]
            what = f"has {n} columns without names" + (
                f"; the atlas has {len(atlas.names)} regions" if atlas else ""
            )
            problems.add(table.path, f"{what}. Give a table with region names in its header")
            continue
        if atlas is None:
            found.append((table, {_said(name, table.side): i for i, name in enumerate(names)}))
            continue
        numbers = find_regions(names, atlas, table.side)
        ends = {name.rpartition("_")[2] for name in names}
        if len(ends) == 1 and not any(
            number is not None for number in numbers
        ):  # a measure that is not listed
            bare = [name.rpartition("_")[0] for name in names]
            numbers = find_regions(bare, atlas, table.side)
            if not atlas.placed and not any(number is not None for number in numbers):
                numbers = find_regions(
                    bare, replace(atlas, names=tuple(without_measure(atlas.names))), table.side
                )
        off = set(map(region_key, atlas.elsewhere))
        is_off = lambda key, off=off: key in off or (None, key[1]) in off or not is_region(key[1])
        lost = [i for i, number in enumerate(numbers) if number is None]
        away = [names[i] for i in lost if is_off(region_key(names[i]))]
        if away:
            journal.note(
                f"{table.path.name}: left out {counted(len(away), 'region')} not on the surface: {some(away)}"
            )
        side = lambda name, table=table: region_key(name, table.side)[0]
        asked = lambda name, side=side: hemisphere not in SIDES or side(name) in (None, hemisphere)
        wrong = [names[i] for i in lost if names[i] not in away and asked(names[i])]
        own = {atlas.names[number]: i for i, number in enumerate(numbers) if number is not None}
        if wrong and not own:
            text = f"none of its columns ({some(wrong, 3)}) is a region of the atlas ({some(atlas.names, 3)})"
            problems.add(table.path, f"{text}. Give the atlas that was used for the table")
        elif wrong:
            if atlas.hemi in SIDES and not {atlas.hemi, None} & set(map(side, wrong)):
                other = f"has {counted(len(wrong), 'column')} of the {side(wrong[0])} hemisphere; the atlas has only the "
                what = f"Give the atlas of both, or {{hemisphere={atlas.hemi!r}}}"
                if hemisphere in SIDES:
                    what = f"Give the atlas of the {hemisphere} hemisphere"
                problems.add(table.path, f"{other}{atlas.hemi}. {what}")
                continue
            text = f"has {counted(len(wrong), 'column')} that the atlas does not have: {did_you_mean(wrong, atlas)}"
            problems.add(table.path, f"{text}; rename or remove them")
        twice = [
            atlas.names[k] for k, n in Counter(k for k in numbers if k is not None).items() if n > 1
        ]
        if twice:
            problems.add(
                table.path, f"has several columns for {some(twice)}; give one measure per table"
            )
        found.append((table, own))
    return found


def _said(name: str, side: str | None) -> str:
    """A region's name, with its hemisphere where only the file says it."""
    return (
        name
        if side is None or region_key(name)[0] is not None
        else f"{'lh' if side == 'left' else 'rh'}_{name}"
    )


def _on_regions(
    matched: Sequence[tuple[Table, dict[str, int]]],
    whole: Parcels | Sites | None,
    hemisphere: str | None,
) -> Sites:
    """The regions that the tables have, left first; those of a fit as they are."""
    if isinstance(whole, Sites):
        if len(whole.frames) == 2 and (np.diff(whole.hemisphere) < 0).any():
            raise ArgumentError("parcels", whole, "with left regions first, as in tables")
        return whole
    names = list(dict.fromkeys(name for _, own in matched for name in own))
    every = {name: i for i, name in enumerate(whole.names)} if whole is not None else {}
    names.sort(key=lambda name: every.get(name, 0))
    sites = parcel_sites(None, names) if whole is None else sites_of_regions(whole, names)
    if len(sites.frames) == 2:
        chosen = [
            half
            for half, side in enumerate(SIDES)
            if side in hemispheres(hemisphere or "both", "hemisphere")
        ]
        names = [
            name
            for half in chosen
            for name, own in zip(names, sites.hemisphere, strict=True)
            if own == half
        ]
        sites = parcel_sites(None, names) if whole is None else sites_of_regions(whole, names)
    hemi = None if sites.regions is None else sites.regions.hemi
    if hemisphere is not None and hemi not in (None, hemisphere):
        raise CohortError("hemisphere", f"the tables have regions of the {hemi} hemisphere only")
    return sites


def _arranged(
    matched: Sequence[tuple[Table, dict[str, int]]], sites: Sites, problems: Problems
) -> dict[Path, Maps]:
    """The values of each table by hemisphere, in the order of the sites."""
    assert sites.regions is not None
    hemi = sites.regions.hemi or "left"
    sides = hemispheres(hemi)
    names = {
        side: [
            name
            for name, half in zip(sites.regions.names, sites.hemisphere, strict=True)
            if half == number
        ]
        for number, side in enumerate(sides)
    }
    made = {}
    for table, own in matched:
        parts: dict[str | None, NDArray[Any]] = {}
        values = table.maps.parts[None]
        for side, wanted in names.items():
            lacking = [name for name in wanted if name not in own]
            if len(lacking) == len(wanted):
                continue
            if lacking:
                problems.add(
                    table.path,
                    f"lacks {counted(len(lacking), 'region')} that others have: {some(lacking)}",
                )
                continue
            parts[side] = values[:, [own[name] for name in wanted]]
        if parts:
            made[table.path] = replace(table.maps, parts=parts, regions=(), atlas={}, mask=None)
        elif not any(str(table.path) == where for where in problems.listed):
            problems.add(table.path, f"has no regions of the {hemi} hemisphere")
    return made


def _group(
    found: Found, maps: dict[Path, Maps], skip: bool, problems: Problems, journal: Journal
) -> None:
    """Hemispheres by content; tables of a left and a right hemisphere with rows of the same people
    are one group.
    """
    sources = []
    of_people = {path for path, own in maps.items() if own.reader == "table" and own.names}
    for source in found.sources:
        side = next(iter(maps[source.path].parts)) if len(maps[source.path].parts) == 1 else None
        subject = str(source.path) if source.path in of_people else source.subject
        sources.append(replace(source, side=side, subject=subject))
    people = [source for source in sources if source.path in of_people]
    seen: dict[tuple[str, str | None], Path] = {}
    for source in people:
        keys = [
            (name, side) for name in maps[source.path].names for side in maps[source.path].parts
        ]
        twin = next((seen[key] for key in keys if key in seen), None)
        if twin is not None:
            text = f"has the same people and hemisphere as {literal(twin.name)}: give one table of each hemisphere"
            problems.add(source.path, f"{text}, or choose one of several measures with {{measure}}")
        seen |= dict.fromkeys(keys, source.path)
    problems.check()
    named = {side: [source for source in people if source.side == side] for side in SIDES}
    for left in named["left"]:
        ids = maps[left.path].names
        shared = lambda right, ids=ids: len(set(ids) & set(maps[right.path].names))
        right = max(named["right"], key=shared, default=None)
        if right is None or not shared(right):
            continue
        named["right"].remove(right)
        sources[sources.index(right)] = replace(right, subject=left.subject)
        both = set(ids) & set(maps[right.path].names)
        for one, other in ((left, right), (right, left)):
            lacking = [name for name in maps[one.path].names if name not in both]
            if lacking and skip:
                journal.leave_out(
                    lacking, f"who are in {one.path.name} and not in {other.path.name}"
                )
            elif lacking:
                text = f"lists {some(lacking)}, who are not in {literal(other.path.name)}"
                problems.add(one.path, f"{text}; {{missing='skip'}} leaves them out")
        order = [name for name in ids if name in both]
        for path in (left.path, right.path):
            row = {name: i for i, name in enumerate(maps[path].names)}
            parts = {
                side: part[[row[name] for name in order]] for side, part in maps[path].parts.items()
            }
            maps[path] = replace(maps[path], parts=parts, names=tuple(order))
    found.sources = sources


def _measure_of(tables: Iterable[Table]) -> str | None:
    """What the names of all columns end with."""
    last = {name.lower().rpartition("_")[2] for table in tables for name in table.names}
    if len(last) != 1:
        return None
    word = last.pop()
    return _MEASURES.get(word) or measure_of(word)


def _note(tables: Sequence[Table], sites: Sites, parcels: Any, journal: Journal) -> None:
    """What became of the columns."""
    regions = sites.regions
    assert regions is not None
    for why in dict.fromkeys(why for table in tables for why in table.beside.values()):
        out = list(
            dict.fromkeys(
                name for table in tables for name, own in table.beside.items() if own == why
            )
        )
        journal.note(f"left out columns that are not regions: {some(out, 8)} ({why})")
    if regions.placed:
        first = next((table for table in tables if table.names), None)
        how = "" if first is None else f", by names such as {escaped(first.names[0])}"
        journal.note(f"{counted(sites.n, 'region')} of {regions}{how}")
    else:
        journal.note(
            f"{counted(sites.n, 'region')}, positions unknown: fitted without hierarchy, drawn as bars; "
            "their atlas would place them (--parcels, parcels=)"
        )


def frame_of_people(
    frame: Any, names: tuple[str, ...] | None
) -> tuple[Any, tuple[str, ...] | None]:
    """A DataFrame without its column of ids, if it has one, and the names of its rows: these, or
    its index.
    """
    ids = next((one for one in frame.columns if str(one).lower() in (*ID_COLUMNS, "subjid")), None)
    frame = frame if ids is None else frame.set_index(ids)
    n_rows, n_columns = frame.shape
    plain = lambda labels: bool(np.array_equal(np.asarray(labels), np.arange(len(labels))))
    if not is_mesh_size(n_columns) and is_mesh_size(n_rows) and plain(frame.index):
        raise CohortError(
            "paths",
            f"The DataFrame has {n_rows} rows, the size of a mesh; transpose it, one row per person",
        )
    if not is_mesh_size(n_columns) and n_columns and plain(frame.columns):
        text = f"The DataFrame has {n_columns} columns without names, which is not the size of a known mesh"
        raise CohortError("paths", f"{text}; name them after regions")
    if names is None and not plain(frame.index):
        names = tuple(map(str, frame.index))
    return frame, names


def frame_on_regions(
    frame: Any, parcels: Any, mesh: Any, journal: Journal
) -> tuple[NDArray[Any], Sites, str]:
    """A DataFrame with one column per region: values, sites and hemisphere."""
    columns = {
        str(name): [
            "n/a" if value != value or value is None else str(value) for value in frame[name]
        ]
        for name in frame
    }
    problems = Problems()
    try:
        table = _from_columns({"": list(map(str, frame.index)), **columns}, Path("DataFrame"), None)
    except Unreadable as problem:
        raise CohortError("paths", f"The DataFrame {problem}") from None
    whole = whole_atlas(parcels, mesh)
    matched = _match([table], whole, None, problems, journal)
    problems.check()
    sites = _on_regions(matched, whole, None)
    _note([table], sites, parcels, journal)
    maps = _arranged(matched, sites, problems)
    problems.check()
    assert sites.regions is not None
    parts = maps[Path("DataFrame")].parts
    return np.hstack(list(parts.values())), sites, sites.regions.hemi or "left"
