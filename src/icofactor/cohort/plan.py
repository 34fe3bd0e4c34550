"""A cohort before it is read: who is in it and which files are theirs, of every kind of input.

A `Plan` is all that `icofactor ... --dry-run` shows, and the first half of `load_cohort`;
`Plan.read` is the second. A file that was looked at is kept for the reading, so that no file is
read twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.find import Found, Source, Wanted
from icofactor.cohort.find.bids import entities_of
from icofactor.cohort.find.sessions import asked_sessions
from icofactor.cohort.names import subject_of
from icofactor.cohort.people import PERSON, People, scan_of, scans_of, session_key
from icofactor.cohort.pieces import Files, Piece, Reader, report_meshes, several
from icofactor.cohort.problems import Journal, Problems
from icofactor.cohort.read import (
    Details,
    Stack,
    read_image_maps,
    read_singles,
    read_stacks,
    stack_columns,
)
from icofactor.cohort.subjects import Selection, check_names, unnamed
from icofactor.errors import ArgumentError, CohortError, Problem, literal
from icofactor.sphere.names import SIDES, mesh_name_of
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    from icofactor.cohort.cohort import Cohort
    from icofactor.cohort.measures import Measures
    from icofactor.cohort.store.read import StoredCohort

Twice = dict[str, list[tuple[Path, str]]]
"""Subject → its files beyond one for each hemisphere, and what is wrong with each."""
_NO_MASK = "none given; sites that are NaN or zero in everyone are left out"


@dataclass(frozen=True, eq=False)
class Plan:
    """A cohort before it is read.

    Attributes
    ----------
    subjects : rows of X, in order.
    participants : column of the participants' table → one value per subject.
    sites : columns of X; None where that is not known, which `check` reports.
    hemisphere : of the sites.
    mask : what is known of the mask, as text.
    problems : what is wrong so far; reading reports it together with what it finds itself.
    journal : what was chosen and left out.
    n_files, n_bytes : files that would be read, and their size.
    lowest : the smallest value in use of the first file; 0 for a store.
    stored : whether it is a cohort store, which is opened and not loaded.
    modality : of the maps, as far as names say; "" where they do not.
    measures : how several measures are joined; None for one.
    """

    subjects: tuple[str, ...]
    participants: Mapping[str, NDArray[Any]]
    sites: Sites | None
    hemisphere: str
    mask: str
    problems: Problems
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
        """Columns of X."""
        self.check()
        assert self.sites is not None
        return self.sites.n

    @property
    def mesh(self) -> str:
        """Name of the mesh."""
        self.check()
        return mesh_name_of(self.sites)

    def check(self) -> None:
        """Raise what is wrong so far, as a CohortError."""
        self.problems.check()
        if self.unknown_sites is not None:
            raise self.unknown_sites

    def read(self) -> Cohort | StoredCohort:
        """The cohort; a CohortError names every bad file."""
        return self.open()


# ---------------------------------------------------------------------- one subject per file


def plan_singles(
    people: list[tuple[str, Files]], wanted: Wanted, reader: Reader, details: Details
) -> Plan:
    """One map per file, one or two files per subject."""
    problems = details.problems
    if not people:
        if not problems:
            problems.add("paths", "no subjects remain to read")
        problems.check()
    named = {side for _, files in people for side in files if side is not None}
    sides = (
        wanted.sides if wanted.hemisphere is not None else [side for side in SIDES if side in named]
    )
    files = [(path, side) for _, there in people for side, path in there.items()]
    widths = _widths(files, sides, reader)
    first = reader.first(files)
    if first is None:
        for path, side in files:
            problems.add_error(reader.look(path, side))  # type: ignore[arg-type]
    elif first.n_maps > 1:
        problems.add_error(several(first))
    names = [name for name, _ in people]
    of_side = (
        reader.first((path, named) for path, named in files if named in (None, side))
        for side in sides
    )
    firsts = list(
        {piece.seen.path: piece for piece in (first, *of_side) if piece is not None}.values()
    )
    return _plan_read(
        names,
        {},
        widths,
        [path for path, _ in files],
        reader,
        details,
        firsts,
        lambda details, sites: read_singles(people, sides, widths, sites, reader, details),
    )


def _widths(
    files: list[tuple[Path, str | None]], sides: Sequence[str], reader: Reader
) -> dict[str, int]:
    """Hemisphere → number of sites, from the first readable file of each that can be of the mesh."""
    widths: dict[str, int] = {}
    for wanted in sides or (None,):
        if wanted not in widths:
            mine = [
                (path, side) for path, side in files if side in (None, wanted) or wanted is None
            ]
            piece = reader.first(mine, fitting=True) or reader.first(mine)
            widths.update({} if piece is None else piece.seen.sizes)
    return {side: widths[side] for side in SIDES if side in widths}


# ---------------------------------------------------------------------- several subjects per file


def are_stacks(groups: Mapping[str, Files], reader: Reader) -> bool:
    """Whether the files hold several subjects each.

    One file (or pair) with many maps does; of several, only those that name their maps, each
    differently, do: time series are not taken for subjects.
    """
    names: list[str] = []
    for files in groups.values():
        piece = reader.first((path, side) for side, path in files.items())
        if piece is None:
            continue
        if piece.n_maps == 1 and not (piece.maps.reader in ("npz", "table") and piece.maps.names):
            return False
        if len(groups) == 1:
            return True
        if not piece.maps.names:
            return False
        names += piece.maps.names
    return bool(names) and len(set(names)) == len(names)


def plan_stacks(
    groups: Mapping[str, Files], names: Sequence[str] | None, reader: Reader, details: Details
) -> Plan:
    """Files with several maps each, one per subject; who they are is read from the files."""
    problems = details.problems
    stacks: list[Stack] = []
    for files in groups.values():
        pieces: list[Piece] = []
        for side, path in files.items():
            piece = reader.look(path, side)
            if isinstance(piece, CohortError):
                problems.add_error(piece)
            else:
                pieces.append(piece)
        if len({piece.n_maps for piece in pieces}) > 1:
            one, other = pieces
            problems.add(
                other.seen.path,
                f"contains {other.n_maps} maps; {literal(one.seen.path)} contains {one.n_maps}",
            )
        elif pieces:
            stacks.append(
                Stack(
                    pieces,
                    _names_in(pieces, names if len(groups) == 1 else None, len(groups), details),
                )
            )
    report_meshes([piece.seen for stack in stacks for piece in stack.pieces], reader.mesh, problems)
    present = {side for stack in stacks for side in stack.sizes} | (
        set(SIDES) if reader.hemisphere == "both" else set()
    )
    for stack in stacks:
        for side in present - set(stack.sizes):
            problems.add(stack.path, f"lacks the {side} hemisphere")
    known = [name for stack in stacks for name in stack.names]
    for name, count in Counter(known).items():
        if count > 1:
            files_with = sorted({str(stack.path) for stack in stacks if name in stack.names})
            problems.add(
                f"subject {name}", f"occurs {count} times in {literal(', '.join(files_with))}"
            )
    problems.check()
    columns = stack_columns(stacks, known)
    if PERSON not in columns:
        details = replace(details, selection=replace(details.selection, scans=scans_of(known)))
    chosen = details.selection.select(known, problems, details.journal, columns)
    details = replace(details, selection=details.selection.renamed(chosen))
    if not chosen and not problems:
        problems.add("paths", "no subject could be read")
    problems.check()
    sizes = {side: n for stack in stacks for side, n in stack.sizes.items()}
    widths = {side: sizes[side] for side in SIDES if side in sizes}
    return _plan_read(
        [name for name, _ in chosen],
        stack_columns(stacks, [there for _, there in chosen]),
        widths,
        [path for files in groups.values() for path in files.values()],
        reader,
        details,
        stacks[0].pieces,
        lambda details, sites: read_stacks(stacks, chosen, widths, sites, details),
    )


def _names_in(
    pieces: Sequence[Piece], given: Sequence[str] | None, n_groups: int, details: Details
) -> list[str]:
    """Subjects of the maps of a file: as given, as the maps are named, as participants lists them,
    or numbers.
    """
    n, path = pieces[0].n_maps, pieces[0].seen.path
    if given is not None:
        return check_names(given, n, f"{literal(path)} contains {n} maps")
    for piece in pieces:
        names = [subject_of(Path(name)) or name for name in piece.maps.names]
        if (
            len(set(names)) < n
            and len(set(piece.maps.names)) == n
            and all(map(scan_of, piece.maps.names))
        ):
            names = list(piece.maps.names)
        if len(set(names)) == n:
            return names
    return unnamed(
        n,
        CohortError.place(path),
        details.selection.participants if n_groups == 1 else None,
        details.journal,
    )


# ---------------------------------------------------------------------- files of either kind


def _plan_read(
    names: list[str],
    columns: Mapping[str, NDArray[Any]],
    widths: dict[str, int],
    files: list[Path],
    reader: Reader,
    details: Details,
    firsts: Sequence[Piece],
    finish: Callable[[Details, Sites | None], Cohort],
) -> Plan:
    """The plan of files, once it is known who is in them."""
    sites, unknown = None, None
    if widths:
        try:
            sites = reader.mesh.sites(widths)
            details = details.with_mask(widths)
        except (
            CohortError
        ) as error:  # maps of another mesh: what else does not fit them says nothing new
            unknown = error
    return Plan(
        subjects=tuple(names),
        participants={**columns, **details.selection.columns(names)},
        sites=sites,
        hemisphere="both" if len(widths) == 2 else next(iter(widths), ""),
        mask=_mask_as_text(details.mask_array, firsts),
        problems=details.problems,
        journal=details.journal,
        open=lambda: finish(replace(details, unknown_sites=unknown), sites),
        n_files=len(files),
        n_bytes=sum(path.stat().st_size for path in files if path.is_file()),
        lowest=min((_lowest(first, details.mask_array, widths) for first in firsts), default=0.0),
        unknown_sites=unknown,
    )


def _lowest(first: Piece, mask: NDArray[np.bool_] | None, widths: Mapping[str, int]) -> float:
    """The smallest value of the first file, where it is in use."""
    ends = dict(zip(widths, np.cumsum(list(widths.values())), strict=True))
    low = 0.0
    for side, part in first.parts.items():
        if side in widths and part.shape[1] == widths[side]:
            used = slice(None) if mask is None else mask[ends[side] - widths[side] : ends[side]]
            values = part[0][used]
            low = min(low, float(np.min(values, where=np.isfinite(values), initial=0.0)))
    return low


def _mask_as_text(given: NDArray[np.bool_] | None, firsts: Sequence[Piece]) -> str:
    if not firsts:
        return _NO_MASK
    masks = [mask for first in firsts for mask in first.seen.masks.values()]
    if given is None and masks:
        given = np.concatenate(masks)
    if given is not None:
        left_out = f"{int((~given).sum())} of {len(given)} sites left out"
        return f"given, {left_out}; and those that are NaN or zero in everyone"
    parts = [part[0] for first in firsts for part in first.parts.values()]
    empty = sum(int((~np.isfinite(part) | (part == 0)).sum()) for part in parts)
    return f"{_NO_MASK} ({empty} are, in the first subject)"


def grouped(found: Found, wanted: Wanted) -> tuple[dict[str, Files], Twice]:
    """Subject → its files, and what is there twice; a missing hemisphere goes to `found.missing`."""
    groups: dict[str, Files] = {}
    clashes: list[tuple[Source, Path]] = []
    for source in found.sources:
        files = groups.setdefault(source.subject, {})
        clash = next((s for s in files if s == source.side or None in (s, source.side)), "")
        if clash == "":
            files[source.side] = source.path
        else:
            clashes.append((source, files[clash]))
    twice: Twice = {}
    apart = _apart(clashes)
    for source, other in clashes:
        twice.setdefault(source.subject, []).append((source.path, _also(source, other, apart)))
    named = {side for files in groups.values() for side in files if side is not None}
    sides = wanted.sides if wanted.hemisphere is not None else sorted(named)
    for subject, files in groups.items():
        if None not in files and subject not in found.missing:
            for side in sides:
                if side not in files:
                    only = literal(next(iter(files.values())))
                    found.missing.setdefault(subject, []).append(
                        f"the {side} hemisphere (there is only {only})"
                    )
    ordered = {
        name: dict(sorted(files.items(), key=lambda item: str(item[0])))
        for name, files in groups.items()
    }
    return ordered, twice


def _apart(clashes: Sequence[tuple[Source, Path]]) -> str:
    """By which entities of their BIDS names files of one subject differ: "ses is 1, 2"."""
    values: dict[str, set[str]] = {}
    for source, other in clashes:
        one, two = entities_of(source.path.name), entities_of(other.name)
        for key in (key for key in two if key in one and one[key] != two[key]):
            values.setdefault(key, set()).update((one[key], two[key]))
    return literal(
        "; ".join(f"{key} is {', '.join(sorted(found))}" for key, found in values.items())
    )


def _also(source: Source, other: Path, apart: str) -> str:
    side = f", {source.side} hemisphere" if source.side else ""
    remedy = "give one file for each"
    if source.path.name.startswith("sub-"):
        remedy += f", or choose with {{entities}} ({apart or 'ses, task, run, ...'})"
        remedy += "; {sessions='all'} reads all sessions" if "ses is " in apart else ""
    text = f"subject {literal(source.subject)}{side} is also in {literal(other)}; {remedy}"
    return Problem(text, f"the subject has other files; {remedy}")


# ---------------------------------------------------------------------- what is held or stored
# already


def plan_held(
    held: tuple[NDArray[Any], Sites, str], names: Sequence[str] | None, details: Details, kind: str
) -> Plan:
    """A nilearn SurfaceImage or a DataFrame: maps, sites and hemisphere; one subject per map."""
    maps, sites, hemi = held
    n, problems = maps.shape[0], details.problems
    if names is None:
        names = unnamed(n, kind, details.selection.participants, details.journal)
    names = check_names(names, n, f"the {kind} contains {n} maps")
    chosen = details.selection.select(names, problems, details.journal)
    if not chosen and not problems:
        problems.add("paths", "no subjects remain to read")
    problems.check()
    n_left = int((sites.hemisphere == 0).sum())
    widths = {"left": n_left, "right": sites.n - n_left} if hemi == "both" else {hemi: n_left}
    details = details.with_mask(widths)
    rows = [names.index(there) for _, there in chosen]
    subjects = [name for name, _ in chosen]
    return Plan(
        subjects=tuple(subjects),
        participants=details.selection.columns(subjects),
        sites=sites,
        hemisphere=hemi,
        mask=_NO_MASK if details.mask_array is None else "given",
        problems=problems,
        journal=details.journal,
        open=lambda: read_image_maps(maps, rows, subjects, widths, sites, details, kind),
    )


def plan_store(
    folder: str | PathLike[str],
    of_files: Mapping[str, Any],
    selection: Selection,
    sessions: str | Sequence[str] | None,
    problems: Problems,
    journal: Journal,
) -> Plan:
    """A cohort store: it has its mesh, measure and mask; subjects may be chosen, and the table
    given anew.
    """
    from icofactor.cohort.store.read import open_store
    from icofactor.io.url import bare

    for name, value in of_files.items():
        if value is not None:
            shown = literal(bare(str(folder)))
            why = f"{{{name}}} applies to files; {shown} is a cohort store with its own mesh, measure and mask"
            raise ArgumentError(name, None, why)
    stored = open_store(folder)
    folder = stored.path
    who = People.of(stored.subjects, stored.participants)
    selection, known = replace(selection, scans=who.known), list(stored.subjects)
    if sessions not in (None, "all"):
        keys = asked_sessions(sessions, who.known.values())
        known = [
            name for name in known if name in who.known and session_key(who.known[name][1]) in keys
        ]
    row_of = {name: row for row, name in enumerate(stored.subjects)}
    about = lambda names: {
        str(column): np.asarray(values)[[row_of[name] for name in names]]
        for column, values in stored.participants.items()
    }
    chosen = selection.select(known, problems, journal, about(known))
    selection = selection.renamed(chosen)
    if not chosen and not problems:
        problems.add(str(folder), "no subjects remain")
    problems.check()
    rows, columns = [row_of[there] for _, there in chosen], about([there for _, there in chosen])
    if selection.participants is not None:
        columns |= selection.columns([name for name, _ in chosen])

    def opened() -> Any:
        if rows == list(range(len(stored.subjects))):
            return (
                stored if selection.participants is None else replace(stored, participants=columns)
            )
        before = stored.provenance.get("left_out", {})
        left = {
            why: [*before.get(why, []), *journal.left_out.get(why, [])]
            for why in {**before, **journal.left_out}
        }
        chosen = stored.select(rows, columns)
        return replace(chosen, provenance={**chosen.provenance, "left_out": left})

    sizes = stored.X.values.sizes
    if isinstance(folder, Path):
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    out = 0 if stored.mask is None else int((~stored.mask).sum())
    return Plan(
        subjects=tuple(stored.subjects[row] for row in rows),
        participants=columns,
        sites=stored.sites,
        hemisphere=stored.hemisphere,
        mask=f"from the store, {out} of {stored.sites.n} sites left out",
        problems=problems,
        journal=journal,
        open=opened,
        n_files=len(sizes),
        n_bytes=sum(sizes),
        stored=True,
    )
