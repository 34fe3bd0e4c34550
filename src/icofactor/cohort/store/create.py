"""The cohort store: one zarr 3 directory, written in blocks of subjects and read in blocks of sites.

`store.layout` says how it lies on disk, and what makes a commit. Writing holds the maps of `CHUNK_SUBJECTS`
subjects in memory, and one chunk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

from icofactor.cohort.store.layout import (
    COMMIT,
    FORMAT,
    VERSION,
    Commit,
    clean,
    is_store,
    locked,
    read_commit,
    write_commit,
    write_group,
)
from icofactor.cohort.store.read import StoredCohort, StoredMaps, open_store
from icofactor.cohort.store.write import AnyCohort, Part, quadtree_order, write_mesh, write_part
from icofactor.errors import ArgumentError, CohortError, ExistsError, Phrase
from icofactor.io.tables import join_columns

__all__ = [
    "StoredCohort",
    "StoredMaps",
    "append_store",
    "compact_store",
    "create_store",
    "is_store",
    "open_store",
    "save_store",
]
# 4 MiB per file: as fast as any size measured (docs/cohorts.md); 327,680 sites × 5000 subjects make 1600 files.
CHUNK_SITES = 4096
CHUNK_SUBJECTS = 256


def save_store(cohort: AnyCohort, path: str | os.PathLike[str], overwrite: bool = False) -> StoredCohort:
    """Write a cohort as a store; `create_store` for one cohort."""
    return create_store(path, [cohort], overwrite=overwrite)


def create_store(
    path: str | os.PathLike[str],
    cohorts: Iterable[AnyCohort],
    *,
    overwrite: bool = False,
    chunk_sites: int = CHUNK_SITES,
    chunk_subjects: int = CHUNK_SUBJECTS,
) -> StoredCohort:
    """Write a store of the subjects of several cohorts on the same sites, one cohort after the other.

    Parameters
    ----------
    path : a folder to be made, or an earlier store.
    cohorts : taken one at a time, so that an iterator of a few subjects each needs only their memory.
    overwrite : whether an earlier store may be replaced; it can be read until the new one is complete.
    chunk_sites, chunk_subjects : sites × subjects of one file.
    """
    if chunk_sites < 1 or chunk_subjects < 1:
        found = Phrase(f"{chunk_sites} and {chunk_subjects}")
        raise ArgumentError("chunk_sites", found, "at least 1, and {chunk_subjects} too")
    folder = Path(path).absolute()
    _check_place(folder, overwrite)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _writing(folder):
            _check_place(folder, overwrite)  # again: another writer may have finished meanwhile
            write_group(folder, {"format": FORMAT, "version": VERSION})
            commit = _created(folder, cohorts, (chunk_sites, chunk_subjects))
            write_commit(folder, commit, [commit.mesh, commit.parts[0][0]])
    except BaseException:
        if made and not (folder / COMMIT).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return open_store(folder)


def append_store(path: str | os.PathLike[str], cohorts: AnyCohort | Iterable[AnyCohort]) -> StoredCohort:
    """Add the subjects of one or several cohorts to a store; all of them, or none.

    Sites, mask, hemisphere, modality, units and columns of the participants must be those of the store, and the
    subjects new to it.
    """
    folder = Path(path).absolute()
    read_commit(folder)  # before anything is locked or cleaned: there must be a store
    given: Any = [cohorts] if hasattr(cohorts, "subjects") else cohorts
    with _writing(folder):
        previous = read_commit(folder)
        stored, number = open_store(folder), len(previous.parts) + 1
        part = write_part(folder, number, given, stored, stored.subjects, previous.chunks)
        columns = previous.participants.items()
        commit = replace(
            previous,
            generation=previous.generation + 1,
            parts=(*previous.parts, (part.name, len(part.subjects))),
            subjects=(*previous.subjects, *part.subjects),
            participants={name: join_columns(name, column, part.participants[name]) for name, column in columns},
            steps=(*previous.steps, _step("append", part)),
        )
        write_commit(folder, commit, [part.name])
    return open_store(folder)


def compact_store(path: str | os.PathLike[str]) -> StoredCohort:
    """Write the parts of a store that was appended to often as one, which is read faster."""
    folder = Path(path).absolute()
    read_commit(folder)
    with _writing(folder):
        previous = read_commit(folder)
        stored = open_store(folder)
        if len(previous.parts) > 1:
            part = write_part(folder, 1, [stored], stored, (), previous.chunks)
            commit = replace(
                previous,
                generation=previous.generation + 1,
                parts=((part.name, len(part.subjects)),),
                steps=(*previous.steps, {**_step("compact", part), "inputs": []}),
            )
            write_commit(folder, commit, [part.name])
    return open_store(folder)


def _created(folder: Path, cohorts: Iterable[AnyCohort], chunks: tuple[int, int]) -> Commit:
    rest = iter(cohorts)
    first = next(rest, None)
    if first is None:
        raise CohortError(folder, "there is no subject to write to it")
    sites = first.sites
    mesh = write_mesh(folder, first, quadtree_order(sites))
    part = write_part(folder, 1, chain([first], rest), first, (), chunks)
    return Commit(
        generation=_generation(folder) + 1,
        mesh=mesh,
        sites={"on": sites.on, "level": sites.level, "name": sites.name, "n_mesh": sites.n_mesh},
        chunks=chunks,
        parts=((part.name, len(part.subjects)),),
        hemisphere=first.hemisphere,
        modality=first.modality,
        units=first.units,
        subjects=tuple(part.subjects),
        participants=part.participants,
        steps=(_step("create", part),),
    )


def _step(what: str, part: Part) -> dict[str, Any]:
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
        raise OSError(problem.errno, problem.strerror, str(folder)) from problem  # the system does not say where


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
