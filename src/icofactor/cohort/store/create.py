"""The cohort store: one zarr 3 directory, written in blocks of subjects and read in blocks of
sites.

`store.layout` says how it lies on disk, and what makes a commit. Writing holds the maps of
`CHUNK_SUBJECTS`
subjects in memory, and one chunk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import Cohort
from icofactor.cohort.problems import some
from icofactor.cohort.store.arrays import write_array, write_chunk, write_metadata
from icofactor.cohort.store.encoding import RoundingCheck, Unstorable, check_dtype, to_float16
from icofactor.cohort.store.layout import (
    COMMIT,
    FORMAT,
    VERSION,
    Commit,
    clean,
    is_store,
    locked,
    next_generation,
    read_commit,
    write_commit,
    write_group,
)
from icofactor.cohort.store.metadata import Column, encode_column, join_columns
from icofactor.cohort.store.read import REGIONS, SITE_ARRAYS, StoredCohort, open_store
from icofactor.errors import ArgumentError, CohortError, ExistsError, Phrase, literal
from icofactor.io.records import flatten
from icofactor.io.tables import plain
from icofactor.io.url import local
from icofactor.sphere.meshes import same_sites
from icofactor.sphere.sites import Sites

AnyCohort = Cohort | StoredCohort
CHUNK_SITES, CHUNK_SUBJECTS = 1024, 512
"""2 MiB per file, or 1 with two bytes per value. Few sites, since a fit has all subjects of a
chunk's sites in memory; few subjects, since these are in memory when they are written.
"""


def save_store(
    cohort: AnyCohort,
    path: str | os.PathLike[str],
    overwrite: bool = False,
    *,
    dtype: str = "float32",
) -> StoredCohort:
    """Write one cohort as a store; see `create_store`.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> ico.cohort.save_store(cohort, path).X.shape
    (20, 642)
    """
    return create_store(path, [cohort], overwrite=overwrite, dtype=dtype)


def create_store(
    path: str | os.PathLike[str],
    cohorts: Iterable[AnyCohort],
    *,
    overwrite: bool = False,
    chunk_sites: int = CHUNK_SITES,
    chunk_subjects: int = CHUNK_SUBJECTS,
    dtype: str = "float32",
) -> StoredCohort:
    """Write the subjects of several cohorts on the same sites as a store.

    Parameters
    ----------
    path : str or path
        Folder to create, or an earlier store.
    cohorts : iterable of Cohort
        Cohorts, taken one at a time: an iterator over small cohorts only needs the memory of one of
        them.
    overwrite : bool, default=False
        Whether to replace an earlier store; it can be read until the new one is complete.
    chunk_sites, chunk_subjects : int, default=1024 and 512
        Sites × subjects of one file.
    dtype : {"float32", "float16"}, default="float32"
        How values are stored. float16 takes half the space; it keeps three digits of values up to
        65504.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> pieces = (cohort[i : i + 5] for i in range(0, 20, 5))
    >>> ico.cohort.create_store(path, pieces).X.shape
    (20, 642)
    """
    stored_dtype = check_dtype(dtype)
    if chunk_sites < 1 or chunk_subjects < 1:
        found = Phrase(f"{chunk_sites} and {chunk_subjects}")
        raise ArgumentError("chunk_sites", found, "at least 1, and {chunk_subjects} too")
    folder = local(path, "path").absolute()
    _check_place(folder, overwrite)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _writing(folder):
            _check_place(folder, overwrite)  # again: another writer may have finished meanwhile
            write_group(folder, {"format": FORMAT, "version": VERSION})
            commit = _created(folder, cohorts, (chunk_sites, chunk_subjects), stored_dtype)
            write_commit(folder, commit, [commit.mesh, *commit.arrays])
    except BaseException:
        if made and not (folder / COMMIT).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return open_store(folder)


def append_store(
    path: str | os.PathLike[str], cohorts: AnyCohort | Iterable[AnyCohort]
) -> StoredCohort:
    """Add the subjects of one or several cohorts to a store: all of them, or none.

    Sites, mask, hemisphere, modality, units and the columns of the participants must equal those of
    the store, and the subjects must be new.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> store = ico.cohort.save_store(cohort[:15], path)
    >>> ico.cohort.append_store(path, cohort[15:]).X.shape
    (20, 642)
    """
    folder = local(path, "path").absolute()
    read_commit(folder)  # before anything is locked or cleaned: there must be a store
    given: Any = [cohorts] if hasattr(cohorts, "subjects") else cohorts
    with _writing(folder):
        previous = read_commit(folder)
        stored, generation = open_store(folder), next_generation(folder, previous.generation)
        name = f"part-{len(previous.parts) + 1:06d}-{generation:08x}"
        part = _write_part(
            folder, name, given, stored, stored.subjects, previous.chunks, stored.stored_dtype
        )
        columns = previous.participants.items()
        commit = replace(
            previous,
            generation=generation,
            parts=(*previous.parts, (part.name, len(part.subjects))),
            subjects=(*previous.subjects, *part.subjects),
            participants={
                name: join_columns(name, dict(column), part.participants[name])
                for name, column in columns
            },
            steps=(*previous.steps, _step("append", part)),
        )
        write_commit(folder, commit, [name for name in commit.arrays if name.startswith(part.name)])
    return open_store(folder)


def compact_store(path: str | os.PathLike[str]) -> StoredCohort:
    """Join the parts of a store with many appends into one, which is faster to read.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> store = ico.cohort.save_store(cohort[:15], path)
    >>> store = ico.cohort.append_store(path, cohort[15:])
    >>> ico.cohort.compact_store(path).X.shape
    (20, 642)
    """
    folder = local(path, "path").absolute()
    read_commit(folder)
    with _writing(folder):
        previous = read_commit(folder)
        stored = open_store(folder)
        if len(previous.parts) > 1:
            generation = next_generation(folder, previous.generation)
            name = f"part-000001-{generation:08x}"
            part = _write_part(
                folder, name, [stored], stored, (), previous.chunks, stored.stored_dtype
            )
            commit = replace(
                previous,
                generation=generation,
                parts=((part.name, len(part.subjects)),),
                steps=(*previous.steps, {**_step("compact", part), "inputs": []}),
            )
            write_commit(folder, commit, commit.arrays)
    return open_store(folder)


def _created(
    folder: Path, cohorts: Iterable[AnyCohort], chunks: tuple[int, int], dtype: np.dtype[Any]
) -> Commit:
    rest = iter(cohorts)
    first = next(rest, None)
    if first is None:
        raise CohortError(folder, "there are no subjects to write to it")
    sites, generation = first.sites, next_generation(folder, _generation(folder))
    mesh = f"mesh-{generation:08x}"
    about = {"on": sites.on, "level": sites.level, "name": sites.name, "n_mesh": sites.n_mesh}
    about |= _write_mesh(folder / mesh, first, _quadtree_order(sites))
    part = _write_part(
        folder, f"part-000001-{generation:08x}", chain([first], rest), first, (), chunks, dtype
    )
    return Commit(
        generation=generation,
        mesh=mesh,
        sites=about,
        chunks=chunks,
        parts=((part.name, len(part.subjects)),),
        hemisphere=first.hemisphere,
        modality=first.modality,
        units=first.units,
        subjects=tuple(part.subjects),
        participants=part.participants,
        steps=(_step("create", part),),
    )


def _step(what: str, part: _Part) -> dict[str, Any]:
    try:
        own = version("icofactor")
    except PackageNotFoundError:
        own = "unknown"
    return {
        "step": what,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "icofactor": own,
        "n_subjects": len(part.subjects),
        "inputs": part.inputs,
    }


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """The only writer of a store; before and after, whatever its commit does not name is removed."""
    try:
        with locked(folder):
            _tidy(folder)
            try:
                yield
            finally:
                _tidy(folder)
    except OSError as problem:
        if problem.errno is None or problem.filename is not None:
            raise
        raise OSError(
            problem.errno, problem.strerror, str(folder)
        ) from problem  # the system does not say where


def _tidy(folder: Path) -> None:
    try:
        clean(folder, read_commit(folder) if (folder / COMMIT).exists() else None)
    except CohortError:
        return  # a commit that this version cannot read may name anything here


def _generation(folder: Path) -> int:
    """Commits so far, of the cohort to be replaced."""
    try:
        return read_commit(folder).generation
    except CohortError:
        return 0


def _check_place(folder: Path, overwrite: bool) -> None:
    """Refuse a place where a store cannot or may not be written; look only."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; a cohort store is a folder")
    if not is_store(folder):
        # the lock is there before anything else is
        if any(folder.iterdir()):
            raise ExistsError(folder, "exists and is not a cohort store: name a new folder")
    elif (folder / COMMIT).exists() and not overwrite:
        raise ExistsError(folder)


# ---------------------------------------------------------------------- sites and maps


def _quadtree_order(sites: Sites) -> NDArray[np.int64]:
    """The sites by the face that holds them, so that a face of any level is one run of rows."""
    return np.argsort(sites.deepest, kind="stable")


def _write_mesh(place: Path, cohort: AnyCohort, order: NDArray[np.int64]) -> dict[str, Any]:
    """The sites, their order and the mask; what arrays do not hold of parcels is returned."""
    place.mkdir()
    write_group(place, {})
    arrays = {each: getattr(cohort.sites, each) for each in SITE_ARRAYS}
    regions, of_regions = flatten(cohort.sites.regions)
    arrays |= {f"{REGIONS}{each}": values for each, values in of_regions.items()}
    for each, values in {**arrays, "order": order, "mask": cohort.mask}.items():
        if values is not None:
            write_array(place / each, np.asarray(values))
    return {} if regions is None else {"regions": regions}


@dataclass
class _Part:
    """Subjects written together.

    Attributes
    ----------
    name : of the folder of their maps.
    subjects, participants : of those written so far.
    inputs : provenance of the cohorts they came from, each once.
    """

    name: str
    subjects: list[str] = field(default_factory=list)
    participants: dict[str, Column] = field(default_factory=dict)
    inputs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, cohort: AnyCohort) -> None:
        """Take down who and what a cohort is."""
        columns = {
            str(name): encode_column(str(name), values)
            for name, values in cohort.participants.items()
        }
        if self.subjects:
            columns = {
                name: join_columns(name, self.participants[name], column)
                for name, column in columns.items()
            }
        self.participants = columns
        self.subjects += cohort.subjects
        source = plain(cohort.provenance)
        if source not in self.inputs:
            self.inputs.append(source)


def _write_part(
    folder: Path,
    name: str,
    cohorts: Iterable[AnyCohort],
    like: AnyCohort,
    known: Iterable[str],
    chunks: tuple[int, int],
    dtype: np.dtype[Any],
) -> _Part:
    """Maps, subject by subject, into a new array of sites (in quadtree order) × subjects.

    Parameters
    ----------
    like : what all cohorts must be like.
    known : subjects that the store has already.
    chunks : sites × subjects of one file.
    dtype : of the stored values.
    """
    part, seen = _Part(name), set(known)
    maps = _Maps(folder / name, _quadtree_order(like.sites), chunks, dtype, like.mask)
    for cohort in cohorts:
        problems = _differences(like, cohort)
        twice = sorted(seen.intersection(cohort.subjects))
        if twice:
            problems.append(f"it already has these subjects: {some(twice)}")
        if problems:
            raise CohortError(
                folder, f"{literal(repr(cohort))} cannot be added: " + "; ".join(problems)
            )
        seen.update(cohort.subjects)
        part.add(cohort)
        try:
            maps.add(cohort.X)
        except Unstorable as problem:
            raise CohortError(
                folder, f"{literal(repr(cohort))} cannot be stored: {problem}"
            ) from None
    if not part.subjects:
        raise CohortError(folder, "there are no subjects to write to it")
    try:
        maps.finish()
    except Unstorable as problem:
        raise CohortError(folder, f"maps cannot be stored: {problem}") from None
    return part


class _Maps:
    """Gathers subjects until they fill the width of a chunk, then writes them, one chunk at a time."""

    def __init__(
        self,
        folder: Path,
        order: NDArray[np.int64],
        chunks: tuple[int, int],
        dtype: np.dtype[Any],
        mask: NDArray[np.bool_] | None,
    ) -> None:
        self._folder = folder
        self._order = order
        self._dtype = dtype
        self._mask = np.ones(len(order), dtype=bool) if mask is None else mask
        self._rounding = RoundingCheck()
        self._height, width = min(chunks[0], len(order)), chunks[1]
        self._buffer = np.empty((width, len(order)), dtype=np.float32)
        self._filled = self._written = self._width = 0

    def add(self, X: Any) -> None:
        """Maps of further subjects, subjects × sites."""
        first = 0
        while first < len(X):
            take = min(len(self._buffer) - self._filled, len(X) - first)
            self._buffer[self._filled : self._filled + take] = X[first : first + take]
            self._filled += take
            first += take
            if self._filled == len(self._buffer):
                self._flush()

    def finish(self) -> None:
        """Write what is left, and what zarr wants to know."""
        if self._filled:
            self._flush()
        shape, chunks = (len(self._order), self._written), (self._height, self._width)
        write_metadata(self._folder, shape, chunks, self._dtype)
        self._rounding.warn_if_coarse()

    def _flush(self) -> None:
        # few subjects get narrow chunks, so that a small append takes little space
        self._width = self._width or self._filled
        for number, first in enumerate(range(0, len(self._order), self._height)):
            rows = self._order[first : first + self._height]
            block = self._rounded(self._buffer[: self._filled, rows].T, self._mask[rows])
            write_chunk(
                self._folder,
                (number, self._written // self._width),
                block,
                (self._height, self._width),
            )
        self._written += self._filled
        self._filled = 0

    def _rounded(self, values: NDArray[np.float32], used: NDArray[np.bool_]) -> NDArray[Any]:
        """Return maps, sites × subjects, in the type of the store."""
        if self._dtype == np.float32:
            return values
        rounded = to_float16(values)
        self._rounding.add(values[used], rounded[used])
        return rounded


def _differences(like: AnyCohort, cohort: AnyCohort) -> list[str]:
    """What keeps a cohort from being more of the same, as text."""
    if like is cohort:
        return []
    found = []
    if not _same_sites(like.sites, cohort.sites):
        found.append(
            f"the store has {like.sites!r}, it has {cohort.sites!r} or the same sites in another order"
        )
    else:
        masks = [
            np.ones(like.sites.n, dtype=bool) if one.mask is None else one.mask
            for one in (like, cohort)
        ]
        n = int((masks[0] != masks[1]).sum())
        if n:
            found.append(f"its mask differs at {n} sites")
    for name in ("hemisphere", "modality", "units"):
        there, here = getattr(like, name), getattr(cohort, name)
        if there != here:
            found.append(f"{name} of the store is {there!r}, here {here!r}")
    columns = [set(map(str, one.participants)) for one in (like, cohort)]
    if columns[0] - columns[1]:
        found.append(f"participants lack the columns {sorted(columns[0] - columns[1])}")
    if columns[1] - columns[0]:
        found.append(f"the store's participants lack the columns {sorted(columns[1] - columns[0])}")
    return found


def _same_sites(a: Sites, b: Sites) -> bool:
    """Whether they are the same sites in the same faces, as the order on disk needs."""
    if a is b:
        return True
    same = same_sites(a, b) and a.on == b.on and a.max_level == b.max_level
    return same and all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("hemisphere", "position", "deepest")
    )
