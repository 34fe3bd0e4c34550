"""Writing cohort stores: in blocks of subjects, and whole or not at all.

`store.layout` says how a store lies on disk, and what makes a commit. Writing holds the maps of
`CHUNK_SUBJECTS` subjects in memory, and those of the last, incomplete chunk when subjects are
appended.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icofactor import __version__
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.problems import some
from icofactor.cohort.store.columns import encode_column, join_columns
from icofactor.cohort.store.layout import (
    MARK,
    Commit,
    contents,
    is_uncommitted,
    next_content,
    read_commit,
    write_commit,
    write_mark,
    writing,
)
from icofactor.cohort.store.read import (
    MAPS,
    MASK,
    ORDER,
    SITES,
    STATISTICS,
    StoredCohort,
    open_store,
)
from icofactor.cohort.store.statistics import (
    duplicate_problem,
    map_hashes,
    map_statistics,
    scale_problem,
)
from icofactor.errors import ArgumentError, CohortError, ExistsError, shown
from icofactor.io.guard import exists
from icofactor.io.records import flatten
from icofactor.io.tables import plain
from icofactor.io.url import local
from icofactor.sphere.meshes import same_sites
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    import zarr

AnyCohort = Cohort | StoredCohort
# Sites × subjects of one file: 2 MiB, or 1 with two bytes per value. Few sites, because a fit has
# all subjects of a chunk's sites in memory; few subjects, because these are in memory when they are
# written.
CHUNK_SITES = 1024
CHUNK_SUBJECTS = 512
# Rows of the array of statistics in one file.
CHUNK_STATISTICS = 4096
DTYPES = ("float32", "float16")
# Warn when rounding changes values by more than this share of the standard deviation between
# subjects.
COARSE = 0.05
# So many subjects of a batch tell how coarse it is.
SUBJECTS_ROUNDED = 64


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
    if str(dtype) not in DTYPES:
        raise ArgumentError("dtype", f"must be 'float32' or 'float16'; found {shown(dtype)}")
    chunks = (chunk_sites, chunk_subjects)
    if min(chunks) < 1:
        argument = "chunk_sites" if chunk_sites < 1 else "chunk_subjects"
        raise ArgumentError(argument, f"must be at least 1; found {min(chunks)}")
    folder = local(path, "path").absolute()
    _check_target(folder, overwrite)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with writing(folder) as previous:
            # Another writer may have finished meanwhile.
            _check_target(folder, overwrite)
            if is_uncommitted(folder):
                write_mark(folder)
            commit = _write_content(folder, cohorts, chunks, np.dtype(str(dtype)), "create")
            generation = 1 if previous is None else previous.generation + 1
            write_commit(folder, replace(commit, generation=generation))
    except BaseException:
        if is_new and is_uncommitted(folder):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return open_store(folder)


def append_store(
    path: str | os.PathLike[str], cohorts: AnyCohort | Iterable[AnyCohort]
) -> StoredCohort:
    """Add the subjects of one or several cohorts to a store: all of them, or none.

    Sites, mask, hemisphere, modality, units and the columns of the participants must equal those of
    the store. The subjects must be new, also by their maps, and these must be of the same scale: a
    batch in µm does not go into a store in mm.

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
    import zarr

    folder = local(path, "path").absolute()
    batches: Any = [cohorts] if hasattr(cohorts, "subjects") else cohorts
    with writing(folder):
        previous = read_commit(folder)
        n_subjects = len(previous.subjects)
        content = folder / previous.content
        group = zarr.open_group(content, mode="r+", use_consolidated=False)
        maps, statistics = group[MAPS], group[STATISTICS]
        # A killed append leaves columns, which this removes.
        _resize_subjects(maps, statistics, n_subjects)
        stored = statistics[...]
        try:
            like = open_store(folder)
            columns = _Columns(maps, np.argsort(like.X.values.rows))
            batch = _write_subjects(folder, columns, batches, like, previous, "append")
            _compare(folder, stored, batch)
        except BaseException:
            _resize_subjects(maps, statistics, n_subjects)
            raise
        # Only now a file is replaced that has committed subjects, and they stay in it.
        batch.columns.finish()
        statistics.resize((n_subjects + len(batch.statistics), stored.shape[1]))
        statistics[n_subjects:] = batch.statistics
        write_commit(folder, replace(batch.commit, generation=previous.generation + 1))
    return open_store(folder)


def remove_subjects(path: str | os.PathLike[str], subjects: Iterable[str]) -> StoredCohort:
    """Remove subjects from a store, for example after they withdrew their consent.

    The store is written again without them, and the earlier files are deleted. Records of inputs
    that name them are removed, too.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> store = ico.cohort.save_store(cohort, path)
    >>> ico.cohort.remove_subjects(path, cohort.subjects[:2]).X.shape
    (18, 642)
    """
    folder = local(path, "path").absolute()
    removed = {subjects} if isinstance(subjects, str) else set(subjects)
    if not removed:
        raise ArgumentError("subjects", "must name at least one subject to remove")
    with writing(folder):
        stored = open_store(folder)
        unknown = sorted(removed - set(stored.subjects))
        remaining = [row for row, name in enumerate(stored.subjects) if name not in removed]
        if unknown:
            raise CohortError(folder, f"does not have these subjects: {some(unknown)}")
        if not remaining:
            raise CohortError(folder, "would have no subjects left: delete the folder instead")
        maps = stored.X.values
        cohort = stored.select(remaining)
        commit = _write_content(folder, [cohort], maps.chunks, maps.dtype, "remove")
        # The step would repeat the provenance of all earlier ones.
        step = {**commit.steps[-1], "inputs": [], "n_removed": len(removed)}
        steps = _without_records(plain(maps.commit.steps), removed)
        generation = stored.generation + 1
        write_commit(folder, replace(commit, generation=generation, steps=(*steps, step)))
    return open_store(folder)


def add_columns(
    path: str | os.PathLike[str], participants: Any, *, overwrite: bool = False
) -> StoredCohort:
    """Add columns to the participants' table of a store.

    Parameters
    ----------
    path : str or path
        Folder of the store.
    participants : path, mapping or DataFrame
        A table with a column participant_id, as for `load_cohort`. It must have all subjects of the
        store.
    overwrite : bool, default=False
        Whether to replace columns that the store has.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(3, 2, mesh="fsaverage3")
    >>> path = tempfile.mkdtemp() + "/cohort.store"
    >>> store = ico.cohort.save_store(cohort, path)
    >>> table = {"participant_id": cohort.subjects, "score": [1, 2, 3]}
    >>> ico.cohort.add_columns(path, table).participants["score"].tolist()
    [1, 2, 3]
    """
    from icofactor.cohort.subjects import Selection

    folder = local(path, "path").absolute()
    table = Selection.of(participants, ()).participants
    if table is None or not table.columns:
        raise ArgumentError("participants", "must be a table with columns to add")
    with writing(folder):
        previous = read_commit(folder)
        names = previous.subjects
        absent = [name for name in names if table.row(name, None) is None]
        if absent:
            raise CohortError("participants", f"lacks subjects of the store: {some(absent)}")
        present = [name for name in table.columns if name in previous.participants]
        if present and not overwrite:
            raise ArgumentError(
                "participants",
                f"the store already has the columns {some(present)}: pass --overwrite "
                "(overwrite=True) to replace them",
            )
        columns = {name: encode_column(name, values) for name, values in table.about(names).items()}
        commit = replace(
            previous,
            generation=previous.generation + 1,
            participants={**previous.participants, **columns},
            steps=(*previous.steps, _step("add columns", columns=list(columns))),
        )
        write_commit(folder, commit)
    return open_store(folder)


def _check_target(folder: Path, overwrite: bool) -> None:
    """Refuse a place where a store cannot or may not be written."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; a cohort store is a folder")
    if is_uncommitted(folder):
        return
    if not exists(folder / MARK) or not contents(folder):
        raise ExistsError(folder, "exists and is not a cohort store: name a new folder")
    if not overwrite:
        raise ExistsError(folder)


def _step(name: str, **details: Any) -> dict[str, Any]:
    """Return the record of a change: what was done, when, and by which version."""
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return {"step": name, "time": time, "icofactor": __version__, **details}


def _without_records(record: Any, names: set[str]) -> Any:
    """Return a record without the items of its lists that name one of these subjects."""
    alternatives = "|".join(map(re.escape, names))
    pattern = re.compile(f"(?<![0-9A-Za-z])({alternatives})(?![0-9A-Za-z])")

    def cleaned(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: cleaned(item) for key, item in value.items()}
        if not isinstance(value, list):
            return value
        items = [cleaned(item) for item in value]
        return [item for item in items if not pattern.search(json.dumps(item, ensure_ascii=False))]

    return cleaned(record)


# ---------------------------------------------------------------------- arrays of a store


@dataclass(frozen=True)
class _Batch:
    """Subjects whose maps were written together.

    Attributes
    ----------
    commit : the cohort with them
    statistics : of their maps
    columns : writer of their maps, which must finish
    """

    commit: Commit
    statistics: np.ndarray
    columns: _Columns


def _resize_subjects(maps: zarr.Array, statistics: zarr.Array, n_subjects: int) -> None:
    """Give the arrays this many subjects; zarr deletes the files of others."""
    maps.resize((maps.shape[0], n_subjects))
    statistics.resize((n_subjects, statistics.shape[1]))


def _write_content(
    folder: Path,
    cohorts: Iterable[AnyCohort],
    chunks: tuple[int, int],
    dtype: np.dtype,
    step: str,
) -> Commit:
    """Write the arrays of a whole cohort, which nobody sees before they are committed."""
    import zarr

    from icofactor.cohort.store.files import create_array, write_array

    remaining = iter(cohorts)
    first = next(remaining, None)
    if first is None:
        raise CohortError(folder, "there are no subjects to write to it")
    sites, arrays = flatten(first.sites)
    if first.mask is not None:
        arrays[MASK] = first.mask
    # By the face that holds them, so that a face of any level is one run of rows.
    arrays[ORDER] = np.argsort(first.sites.deepest, kind="stable")
    commit = Commit(
        generation=0,
        content=next_content(folder),
        sites=sites,
        hemisphere=first.hemisphere,
        modality=first.modality,
        units=first.units,
        subjects=(),
        hashes=(),
        participants={},
        steps=(),
    )
    group = zarr.create_group(folder / commit.content)
    for name, values in arrays.items():
        write_array(group, SITES + name, np.asarray(values))
    chunks = (min(chunks[0], first.sites.n), chunks[1])
    maps = create_array(group, MAPS, (first.sites.n, 0), chunks, dtype)
    columns = _Columns(maps, arrays[ORDER])
    batch = _write_subjects(folder, columns, chain([first], remaining), first, commit, step)
    batch.columns.finish()
    shape = batch.statistics.shape
    statistics = create_array(group, STATISTICS, shape, (CHUNK_STATISTICS, shape[1]), np.float64)
    statistics[...] = batch.statistics
    return batch.commit


def _write_subjects(
    folder: Path,
    columns: _Columns,
    cohorts: Iterable[AnyCohort],
    like: AnyCohort,
    commit: Commit,
    step: str,
) -> _Batch:
    """Write maps beyond those of the subjects in a commit, which then has all of them.

    Parameters
    ----------
    columns : writes the maps
    like : what all cohorts must be like
    step : what is done
    """
    subjects = list(commit.subjects)
    hashes = list(commit.hashes)
    participants = dict(commit.participants)
    statistics: list[np.ndarray] = []
    inputs: list[Any] = []
    rounding_share = 0.0
    in_use = np.ones(like.sites.n, dtype=bool) if like.mask is None else like.mask
    for cohort in cohorts:
        problems = _differences(like, cohort)
        twice = sorted(set(subjects).intersection(cohort.subjects))
        if twice:
            problems.append(f"it already has these subjects: {some(twice)}")
        if problems:
            raise CohortError(folder, f"{cohort!r} cannot be added: " + "; ".join(problems))
        for name, cells in cohort.participants.items():
            column = encode_column(str(name), cells)
            if subjects:
                column = join_columns(str(name), dict(participants[str(name)]), column)
            participants[str(name)] = column
        subjects += cohort.subjects
        source = plain(cohort.provenance)
        if source not in inputs:
            inputs.append(source)
        for first in range(0, len(cohort), columns.width):
            exact = np.asarray(cohort.X[first : first + columns.width], dtype=np.float32)
            values: np.ndarray = exact
            if columns.dtype == np.float16:
                values = _to_float16(folder, exact)
                sample = slice(0, SUBJECTS_ROUNDED)
                share = _rounding_share(exact[sample, in_use], values[sample, in_use])
                rounding_share = max(share, rounding_share)
            numbers = map_statistics(values, in_use)
            bad = np.flatnonzero(~np.isfinite(numbers).all(axis=1)) + first
            if len(bad):
                names = some(cohort.subjects[row] for row in bad)
                raise CohortError(folder, f"these subjects have NaN or infinite values: {names}")
            statistics.append(numbers)
            hashes += map_hashes(values)
            columns.add(values)
    n_new = len(subjects) - len(commit.subjects)
    if not n_new:
        raise CohortError(folder, "there are no subjects to write to it")
    columns.flush()
    if rounding_share > COARSE:
        warnings.warn(
            f"float16 is coarse for these maps: rounding is {100 * rounding_share:.2g} % of the "
            "standard deviation between subjects; use float32",
            UserWarning,
            stacklevel=2,
        )
    commit = replace(
        commit,
        subjects=tuple(subjects),
        hashes=tuple(hashes),
        participants=participants,
        steps=(*commit.steps, _step(step, n_subjects=n_new, inputs=inputs)),
    )
    return _Batch(commit, np.concatenate(statistics), columns)


def _compare(folder: Path, stored: np.ndarray, batch: _Batch) -> None:
    """Refuse a batch whose maps are of another scale than the store's, or are there already."""
    names = batch.commit.subjects
    new = batch.statistics
    problem = scale_problem(stored, new) or duplicate_problem(
        stored, new, names[: len(stored)], names[len(stored) :]
    )
    if problem is not None:
        raise CohortError(folder, f"{len(new)} subjects cannot be added: {problem}")


class _Columns:
    """Gathers subjects until they fill a column of chunks, then writes these whole.

    The column of chunks that has earlier subjects is written by `finish`, last of all.

    Attributes
    ----------
    width : subjects of a chunk
    n_written : subjects that the array had, and those that were added
    """

    def __init__(self, array: zarr.Array, order: np.ndarray) -> None:
        n_sites, self.n_written = array.shape
        self.width = array.chunks[1]
        self.dtype = array.dtype
        self._array = array
        self._order = order
        self._buffer = np.full((self.width, n_sites), np.nan, self.dtype)
        self._held: tuple[slice, np.ndarray] | None = None
        self._n_held = self.n_written % self.width
        if self._n_held:
            start = self.n_written - self._n_held
            self._buffer[: self._n_held, order] = array[:, start : self.n_written].T

    def add(self, values: np.ndarray) -> None:
        """Add maps, subjects × sites."""
        while len(values):
            position = self.n_written % self.width
            n_taken = min(self.width - position, len(values))
            self._buffer[position : position + n_taken] = values[:n_taken]
            self.n_written += n_taken
            values = values[n_taken:]
            if self.n_written % self.width == 0:
                self._write()

    def flush(self) -> None:
        """Write the last subjects."""
        if self.n_written % self.width:
            self._write()

    def _write(self) -> None:
        """Write the subjects in the buffer as whole chunks, filled up with NaN."""
        last = -(-self.n_written // self.width) * self.width
        columns = slice(last - self.width, last)
        if self._n_held:
            self._held = (columns, self._buffer)
            self._buffer = np.empty_like(self._buffer)
            self._n_held = 0
        else:
            self._write_chunks(columns, self._buffer)
        self._buffer[...] = np.nan

    def _write_chunks(self, columns: slice, maps: np.ndarray) -> None:
        n_sites, n_subjects = self._array.shape
        height = self._array.chunks[0]
        self._array.resize((n_sites, max(n_subjects, columns.stop)))
        # One file at a time: zarr copies what it writes.
        for first in range(0, n_sites, height):
            sites = slice(first, first + height)
            self._array[sites, columns] = maps[:, self._order[sites]].T

    def finish(self) -> None:
        """Write the chunks that have earlier subjects, and give the array its number of subjects."""
        if self._held is not None:
            self._write_chunks(*self._held)
        self._array.resize((self._array.shape[0], self.n_written))


# ---------------------------------------------------------------------- float16


def _to_float16(folder: Path, values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Round values to float16; refuse those beyond its range."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float16)
    overflowed = np.isinf(rounded) & np.isfinite(values)
    if overflowed.any():
        largest = float(np.abs(values[overflowed]).max())
        raise CohortError(
            folder,
            "maps cannot be stored: float16 can represent values up to 65504; these go up to "
            f"{largest:.6g}: use float32",
        )
    return rounded


def _rounding_share(exact: NDArray[np.float32], rounded: NDArray[np.float16]) -> float:
    """Return what rounding changes, as a share of the standard deviation between subjects."""
    x = exact.astype(np.float64)
    deviation = np.sqrt(np.mean(np.square(x - x.mean(axis=0))))
    # One subject, or equal ones, have no deviation.
    return float(np.sqrt(np.mean(np.square(rounded - x))) / deviation) if deviation else 0.0


# ---------------------------------------------------------------------- comparing cohorts


def _differences(like: AnyCohort, cohort: AnyCohort) -> list[str]:
    """Return what keeps a cohort from being more of the same."""
    if like is cohort:
        return []
    problems = []
    if not _same_sites(like.sites, cohort.sites):
        problems.append(
            f"the store has {like.sites!r}, it has {cohort.sites!r} or the same sites in another "
            "order"
        )
    else:
        masks = [
            np.ones(like.sites.n, dtype=bool) if mask is None else mask
            for mask in (like.mask, cohort.mask)
        ]
        n_different = int((masks[0] != masks[1]).sum())
        if n_different:
            problems.append(f"its mask differs at {n_different} sites")
    for name in ("hemisphere", "modality", "units"):
        stored, new = getattr(like, name), getattr(cohort, name)
        if stored != new:
            problems.append(f"{name} of the store is {stored!r}, here {new!r}")
    stored_columns, columns = set(map(str, like.participants)), set(map(str, cohort.participants))
    if stored_columns - columns:
        problems.append(f"participants lack the columns {sorted(stored_columns - columns)}")
    if columns - stored_columns:
        problems.append(
            f"the store's participants lack the columns {sorted(columns - stored_columns)}"
        )
    return problems


def _same_sites(a: Sites, b: Sites) -> bool:
    """Return whether two cohorts have the same sites in the same faces."""
    if a is b:
        return True
    same = same_sites(a, b) and a.on == b.on and a.max_level == b.max_level
    names = ("hemisphere", "position", "deepest")
    return same and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)
