"""Writing into a cohort store: the sites, and maps as they come in blocks of subjects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import Cohort
from icofactor.cohort.problems import some
from icofactor.cohort.store.layout import new_array, new_name, write_array, write_group
from icofactor.cohort.store.read import SITE_ARRAYS, StoredCohort
from icofactor.errors import CohortError, literal
from icofactor.io.tables import Column, encode_column, join_columns, plain
from icofactor.sphere.meshes import same_sites
from icofactor.sphere.sites import Sites

AnyCohort = Cohort | StoredCohort


def quadtree_order(sites: Sites) -> NDArray[np.int64]:
    """The sites by the face that holds them, so that a face of any level is one run of rows."""
    return np.argsort(sites.deepest, kind="stable")


def write_mesh(folder: Path, cohort: AnyCohort, order: NDArray[np.int64]) -> str:
    """The sites, their order and the mask; returns the name of their folder."""
    name = new_name("mesh")
    place = folder / name
    place.mkdir()
    write_group(place, {})
    arrays = {each: getattr(cohort.sites, each) for each in SITE_ARRAYS}
    for each, values in {**arrays, "order": order, "mask": cohort.mask}.items():
        if values is not None:
            write_array(place / each, np.ascontiguousarray(values))
    return name


@dataclass
class Part:
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
        columns = {str(name): encode_column(str(name), values) for name, values in cohort.participants.items()}
        if self.subjects:
            columns = {name: join_columns(name, self.participants[name], column) for name, column in columns.items()}
        self.participants = columns
        self.subjects += cohort.subjects
        source = plain(cohort.provenance)
        if source not in self.inputs:
            self.inputs.append(source)


def write_part(
    folder: Path,
    number: int,
    cohorts: Iterable[AnyCohort],
    like: AnyCohort,
    known: Iterable[str],
    chunks: tuple[int, int],
) -> Part:
    """Maps, subject by subject, into a new array of sites (in quadtree order) × subjects.

    Parameters
    ----------
    like : what all cohorts must be like.
    known : subjects that the store has already.
    chunks : sites × subjects of one file.
    """
    part, seen = Part(new_name("part", number)), set(known)
    maps = _Maps(folder / part.name, quadtree_order(like.sites), chunks)
    for cohort in cohorts:
        problems = _differences(like, cohort)
        twice = sorted(seen.intersection(cohort.subjects))
        if twice:
            problems.append(f"it has these subjects already: {some(twice)}")
        if problems:
            raise CohortError(folder, f"{literal(repr(cohort))} cannot be added: " + "; ".join(problems))
        seen.update(cohort.subjects)
        part.add(cohort)
        maps.add(cohort.X)
    if not part.subjects:
        raise CohortError(folder, "there is no subject to write to it")
    maps.finish()
    return part


class _Maps:
    """Gathers subjects until they fill the width of a chunk, then writes them, one chunk at a time."""

    def __init__(self, folder: Path, order: NDArray[np.int64], chunks: tuple[int, int]) -> None:
        self._folder, self._order = folder, order
        self._chunk_sites, width = min(chunks[0], len(order)), chunks[1]
        self._buffer = np.empty((width, len(order)), dtype=np.float32)
        self._filled = self._written = 0
        self._array: Any = None

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
        if self._filled:
            self._flush()

    def _flush(self) -> None:
        n_sites, total = len(self._order), self._written + self._filled
        if self._array is None:
            # few subjects get narrow chunks, so that a small append takes little space
            self._array = new_array(self._folder, (n_sites, total), (self._chunk_sites, self._filled), np.float32)
        else:
            self._array.resize((n_sites, total))
        for first in range(0, n_sites, self._chunk_sites):
            rows = slice(first, first + self._chunk_sites)
            block = np.ascontiguousarray(self._buffer[: self._filled, self._order[rows]].T)
            self._array[rows, self._written : total] = block
        self._filled, self._written = 0, total


def _differences(like: AnyCohort, cohort: AnyCohort) -> list[str]:
    """What keeps a cohort from being more of the same, as text."""
    if like is cohort:
        return []
    found = []
    if not _same_sites(like.sites, cohort.sites):
        found.append(f"the store has {like.sites!r}, it has {cohort.sites!r}, or the same sites in another order")
    else:
        masks = [np.ones(like.sites.n, dtype=bool) if one.mask is None else one.mask for one in (like, cohort)]
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
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("hemisphere", "position", "deepest")
    )
