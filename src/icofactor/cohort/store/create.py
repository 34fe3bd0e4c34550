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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor import __version__
from icofactor.cohort.cohort import Cohort, CohortBase, Measurement
from icofactor.cohort.problems import some
from icofactor.cohort.store.columns import check_column, encode_column
from icofactor.cohort.store.layout import (
    MARK,
    PREFIX,
    Commit,
    contents,
    is_unfinished,
    read_commit,
    write_commit,
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
    stored_maps,
)
from icofactor.cohort.store.statistics import (
    duplicate_problem,
    map_hash,
    map_statistics,
    scale_problem,
)
from icofactor.cohort.subjects import read_participants
from icofactor.errors import ArgumentError, CohortError, ExistsError, shown
from icofactor.io.guard import exists
from icofactor.io.records import flatten
from icofactor.io.tables import plain
from icofactor.io.url import local
from icofactor.maps.blocks import cut
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
# A store that starts with few subjects may grow, and should not come to have many small files.
LEAST_SUBJECTS = 64
# Rows of the array of statistics in one file.
CHUNK_STATISTICS = 4096
DTYPES = ("float32", "float16")
# Warn when rounding changes values by more than this share of the standard deviation between
# subjects.
COARSE = 0.05
# So many subjects of a batch tell how coarse it is.
SUBJECTS_ROUNDED = 64
NOBODY = "there are no subjects to write to it"


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
    n_together = subjects_per_file(len(cohort))
    return create_store(path, [cohort], overwrite=overwrite, dtype=dtype, chunk_subjects=n_together)


def subjects_per_file(n_subjects: int) -> int:
    """Return how many subjects a file of a store with so many should hold.

    Files are filled up with NaN, so those of a small cohort hold fewer.
    """
    return min(CHUNK_SUBJECTS, max(LEAST_SUBJECTS, n_subjects))


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
    for argument, size in (("chunk_sites", chunk_sites), ("chunk_subjects", chunk_subjects)):
        if size < 1:
            raise ArgumentError(argument, f"must be at least 1; found {size}")
    folder = local(path, "path").absolute()
    check_store_target(folder, overwrite)
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with writing(folder) as previous:
            # Another writer may have finished meanwhile.
            check_store_target(folder, overwrite)
            chunks = (chunk_sites, chunk_subjects)
            commit = _write_content(folder, cohorts, chunks, np.dtype(dtype), previous)
            write_commit(folder, commit)
    except BaseException:
        if is_new and is_unfinished(folder):
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
    with writing(folder):
        commit = read_commit(folder)
        n_subjects = len(commit["subjects"])
        group = zarr.open_group(folder / commit["content"], mode="r+", use_consolidated=False)
        maps = group[MAPS]
        statistics = group[STATISTICS]
        _truncate(maps, statistics, n_subjects)
        stored = open_store(folder)
        inputs = [record for step in commit["steps"] for record in step.get("inputs", [])]
        like = replace(stored, provenance=inputs[0] if inputs else {})
        batches = [cohorts] if isinstance(cohorts, CohortBase) else cohorts
        try:
            new = _add_subjects(folder, maps, commit, like, batches)
            old = statistics[...]
            problem = scale_problem(old, new) or duplicate_problem(old, new, commit["subjects"])
            if problem is not None:
                raise CohortError(folder, f"{len(new)} subjects cannot be added: {problem}")
            statistics.append(new)
        except BaseException:
            _truncate(maps, statistics, n_subjects)
            raise
        write_commit(folder, commit)
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
        unknown = sorted(removed.difference(stored.subjects))
        if unknown:
            raise CohortError(folder, f"does not have these subjects: {some(unknown)}")
        remaining = [row for row, name in enumerate(stored.subjects) if name not in removed]
        if not remaining:
            raise CohortError(folder, "would have no subjects left: delete the folder instead")
        maps = stored.X.values
        cohorts = [stored.select(remaining)]
        commit = _write_content(folder, cohorts, maps.chunks, maps.dtype, stored.commit)
        # The input would repeat the provenance of all earlier steps.
        step = _step("remove", n_removed=len(removed))
        names = "|".join(map(re.escape, removed))
        pattern = re.compile(f"(?<![0-9A-Za-z])({names})(?![0-9A-Za-z])")
        steps = [*_without_records(stored.commit["steps"], pattern), step]
        write_commit(folder, {**commit, "steps": steps})
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
    folder = local(path, "path").absolute()
    table = read_participants(participants)
    if table is None or not table.columns:
        raise ArgumentError("participants", "must be a table with columns to add")
    with writing(folder):
        commit = read_commit(folder)
        absent = [name for name in commit["subjects"] if table.row(name, None) is None]
        if absent:
            raise CohortError(folder, f"has subjects that the table lacks: {some(absent)}")
        present = [name for name in table.columns if name in commit["participants"]]
        if present and not overwrite:
            text = f"already has the columns {some(present)}"
            raise ExistsError(folder, f"{text}: pass --overwrite (overwrite=True) to replace them")
        for name, values in table.about(commit["subjects"]).items():
            commit["participants"][name] = encode_column(name, values)
        commit["generation"] += 1
        commit["steps"].append(_step("add columns", columns=list(table.columns)))
        write_commit(folder, commit)
    return open_store(folder)


def check_store_target(folder: Path, overwrite: bool) -> None:
    """Refuse a place where a store cannot or may not be written."""
    if not folder.exists() or (folder.is_dir() and is_unfinished(folder)):
        return
    if not exists(folder / MARK) or not contents(folder):
        raise ExistsError(folder, "exists and is not a cohort store: name a new folder")
    if not overwrite:
        raise ExistsError(folder)


def _step(name: str, **details: Any) -> dict[str, Any]:
    """Return the record of a change: what was done, when, and by which version."""
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return {"step": name, "time": time, "icofactor": __version__, **details}


def _without_records(value: Any, subjects: re.Pattern[str]) -> Any:
    """Return a record without the items of its lists that name one of these subjects."""
    if isinstance(value, dict):
        return {key: _without_records(item, subjects) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    items = [_without_records(item, subjects) for item in value]
    return [item for item in items if not subjects.search(json.dumps(item, ensure_ascii=False))]


# ---------------------------------------------------------------------- arrays of a store


def _truncate(maps: zarr.Array, statistics: zarr.Array, n_subjects: int) -> None:
    """Remove what an append that failed or was killed has written beyond these subjects."""
    width = maps.chunks[1]
    n_sites, n_written = maps.shape
    # zarr deletes the files of other subjects, but leaves what is in the last file.
    maps.resize((n_sites, min(n_written, -(-n_subjects // width) * width)))
    try:
        maps[:, n_subjects:] = np.nan
    finally:
        # Also on a full disk.
        maps.resize((n_sites, n_subjects))
        statistics.resize((n_subjects, statistics.shape[1]))


def _write_content(
    folder: Path,
    cohorts: Iterable[AnyCohort],
    chunks: tuple[int, int],
    dtype: np.dtype,
    previous: Commit | None,
) -> Commit:
    """Write the arrays of a whole cohort, which nobody sees before they are committed."""
    import zarr

    from icofactor.cohort.store.files import create_array

    remaining = iter(cohorts)
    first = next(remaining, None)
    if first is None:
        raise CohortError(folder, NOBODY)
    sites, arrays = flatten(first.sites)
    if first.mask is not None:
        arrays[MASK] = first.mask
    # By the face that holds them, so that a face of any level is one run of rows.
    arrays[ORDER] = np.argsort(first.sites.deepest, kind="stable")
    last_content = max([child.name for child in contents(folder)], default=f"{PREFIX}0")
    commit: Commit = {
        "generation": 0 if previous is None else previous["generation"],
        "content": f"{PREFIX}{int(last_content.removeprefix(PREFIX)) + 1:06d}",
        "sites": sites,
        "hemisphere": first.hemisphere,
        "modality": first.modality,
        "units": first.units,
        "subjects": [],
        "hashes": [],
        "participants": {},
        "steps": [],
    }
    group = zarr.create_group(folder / commit["content"])
    for name, values in arrays.items():
        create_array(group, SITES + name, values.shape, values.shape, values.dtype)[...] = values
    chunks = (min(chunks[0], first.sites.n), chunks[1])
    maps = create_array(group, MAPS, (first.sites.n, 0), chunks, dtype)
    numbers = _add_subjects(folder, maps, commit, first, chain([first], remaining))
    rows = (CHUNK_STATISTICS, numbers.shape[1])
    create_array(group, STATISTICS, numbers.shape, rows, numbers.dtype)[...] = numbers
    return commit


def _add_subjects(
    folder: Path,
    maps: zarr.Array,
    commit: Commit,
    like: AnyCohort,
    cohorts: Iterable[AnyCohort],
) -> np.ndarray:
    """Write the maps of cohorts like `like`, and add the cohorts to a commit.

    Return the statistics of the maps.
    """
    n_earlier = maps.shape[1]
    step = _step("append" if n_earlier else "create", n_subjects=0, inputs=[])
    commit["steps"].append(step)
    commit["generation"] += 1
    order = np.argsort(like.sites.deepest, kind="stable")
    in_use = np.flatnonzero(_mask_of(like))
    accepted = _accepted(folder, commit, like, cohorts)
    _write_maps(maps, _rounded(accepted, maps, in_use), order)
    subjects = commit["subjects"][n_earlier:]
    if not subjects:
        raise CohortError(folder, NOBODY)
    for name, column in commit["participants"].items():
        check_column(name, column)
    statistics = []
    for values in stored_maps(maps, np.argsort(order), n_earlier):
        commit["hashes"].append(map_hash(values))
        statistics.append(map_statistics(values[in_use]))
    is_finite = np.isfinite(statistics).all(axis=1)
    if not is_finite.all():
        names = some(np.array(subjects)[~is_finite])
        text = f"these subjects have NaN, infinity or what {maps.dtype} cannot hold: {names}"
        raise CohortError(folder, text)
    step["n_subjects"] = len(subjects)
    return np.array(statistics)


def _accepted(
    folder: Path, commit: Commit, like: AnyCohort, cohorts: Iterable[AnyCohort]
) -> Iterator[AnyCohort]:
    """Yield cohorts; add to a commit what they say besides their maps, or refuse them."""
    inputs = commit["steps"][-1]["inputs"]
    for cohort in cohorts:
        problems = _differences(like, cohort)
        present = sorted(set(commit["subjects"]).intersection(cohort.subjects))
        if present:
            problems.append(f"it already has these subjects: {some(present)}")
        if problems:
            raise CohortError(folder, f"{cohort!r} cannot be added: {'; '.join(problems)}")
        commit["subjects"] += cohort.subjects
        for name, cells in cohort.participants.items():
            column = commit["participants"].setdefault(str(name), [])
            column += encode_column(name, cells)
        source = plain(cohort.provenance)
        if source not in inputs:
            inputs.append(source)
        yield cohort


def _rounded(
    cohorts: Iterable[AnyCohort], array: zarr.Array, in_use: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the maps of cohorts in the type of an array; warn where that is coarse."""
    largest_share = 0.0
    for cohort in cohorts:
        for rows in cut(len(cohort), array.chunks[1]):
            exact = np.asarray(cohort.X[rows], dtype=np.float32)
            sample = np.ix_(np.arange(min(len(exact), SUBJECTS_ROUNDED)), in_use)
            # What overflows is found in the statistics.
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                values = exact.astype(array.dtype)
                share = _rounding_share(exact[sample], values[sample])
            largest_share = max(largest_share, share)
            yield from values
    if COARSE < largest_share < np.inf:
        warnings.warn(
            f"float16 is coarse for these maps: rounding is {100 * largest_share:.2g} % of the "
            "standard deviation between subjects; use float32",
            UserWarning,
            stacklevel=2,
        )


def _rounding_share(exact: np.ndarray, rounded: np.ndarray) -> float:
    """Return what rounding changes, as a share of the standard deviation between subjects."""
    deviation = np.linalg.norm(exact - exact.mean(axis=0, dtype=np.float64))
    # One subject, or equal ones, have no deviation.
    return float(np.linalg.norm(rounded - exact) / deviation) if deviation else 0.0


def _write_maps(array: zarr.Array, maps: Iterator[np.ndarray], order: np.ndarray) -> None:
    """Write maps, one per subject, after those that the array has; row i is the site order[i].

    A chunk that has earlier subjects is replaced by one that has them, too.
    """
    n_sites, n_subjects = array.shape
    height, width = array.chunks
    while column := list(islice(maps, width - n_subjects % width)):
        subjects = slice(n_subjects, n_subjects + len(column))
        n_subjects = subjects.stop
        array.resize((n_sites, n_subjects))
        # One file at a time: zarr copies what it writes.
        for block in cut(n_sites, height):
            array[block, subjects] = np.stack([values[order[block]] for values in column], axis=1)


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
    elif not np.array_equal(_mask_of(like), _mask_of(cohort)):
        problems.append("its mask is not that of the store")
    stored = _record_to_compare(like)
    new = _record_to_compare(cohort)
    problems += [
        f"{name} of the store: {shown(stored[name])}; here: {shown(new[name])}"
        for name in stored
        if name in new and stored[name] != new[name]
    ]
    return problems


def _record_to_compare(cohort: AnyCohort) -> dict[str, object]:
    """Return what must be equal in all cohorts of a store, as far as this one says it."""
    record = {
        "hemisphere": cohort.hemisphere,
        "columns of participants": sorted(map(str, cohort.participants)),
        **vars(Measurement.of(cohort)),
    }
    if record["smoothing"] is None:
        del record["smoothing"]
    if "preprocessing" not in cohort.provenance:
        del record["preprocessing"]
    return record


def _mask_of(cohort: AnyCohort) -> np.ndarray:
    return np.ones(cohort.sites.n, dtype=bool) if cohort.mask is None else cohort.mask


def _same_sites(a: Sites, b: Sites) -> bool:
    """Return whether two cohorts have the same sites in the same faces."""
    names = ("on", "max_level", "hemisphere", "position", "deepest")
    return same_sites(a, b) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in names
    )
