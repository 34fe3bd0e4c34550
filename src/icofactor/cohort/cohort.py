"""A cohort: the maps of several subjects on one mesh, and what they mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.names import check_words, smoothing_of
from icofactor.errors import ArgumentError, shown
from icofactor.sphere.meshes import sites_for
from icofactor.sphere.names import hemispheres
from icofactor.sphere.sites import Sites

Hemisphere = Literal["left", "right", "both"]
# Rows looked at together when X is checked, so that a memory-mapped X is never held twice.
_ROWS_PER_CHECK = 64


@dataclass(frozen=True, eq=False)
class Truth:
    """Components and loadings of simulated data: X ≈ loadings @ components.

    Attributes
    ----------
    components : array of shape (n_components, n_sites)
        In the units of the data.
    loadings : array of shape (n_subjects, n_components)
        With a mean of about 1.

    Examples
    --------
    >>> import icofactor as ico
    >>> ico.simulate_cohort(20, 3, mesh="fsaverage3").truth.loadings.shape
    (20, 3)
    """

    components: NDArray[np.float32]
    loadings: NDArray[np.float32]

    def __post_init__(self) -> None:
        for name in ("components", "loadings"):
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float32)
            object.__setattr__(self, name, array)
        shapes = (self.components.shape, self.loadings.shape)
        if self.components.ndim != 2 or self.loadings.shape[1:] != (len(self.components),):
            text = "must be subjects × components, and components components × sites"
            raise ArgumentError("loadings", f"{text}; found shapes {shapes[1]} and {shapes[0]}")


# What tells two steps of preprocessing apart; paths, times and versions do not.
_SETTINGS = {
    *("step", "fwhm_mm", "n_deviations", "over", "kernel", "method", "from", "to", "mesh", "rings"),
    *("tie_correction", "low_hz", "high_hz", "order", "detrend", "normalize", "max_missing"),
    *("n_columns", "max_fd_mm", "filled"),
}


@dataclass(frozen=True)
class Measurement:
    """What the maps of a fit measure; `icofactor transform` compares new maps with it.

    Attributes
    ----------
    modality, units : str
        As in `Cohort`.
    smoothing : int or None
        FWHM in mm from the file names; None if they do not contain it.
    preprocessing : tuple of dict
        Known preprocessing steps with their settings.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort).measurement_.units
    'mm'
    """

    modality: str
    units: str
    smoothing: int | None = None
    preprocessing: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, cohort: Any) -> Measurement | None:
        """Return the measurement of a cohort; None for data that do not say."""
        if not hasattr(cohort, "modality") or not hasattr(cohort, "provenance"):
            return None
        paths = [record.get("path") for record in _records(cohort, "inputs")]
        smoothings = {smoothing_of(Path(str(path)).name) for path in paths if path}
        steps = [
            {
                name: setting
                for name, setting in record.items()
                if name in _SETTINGS and isinstance(setting, str | int | float)
            }
            for record in _records(cohort, "preprocessing")
        ]
        # Files of several smoothings have none that could be compared.
        smoothing = smoothings.pop() if len(smoothings) == 1 else None
        return cls(str(cohort.modality), str(cohort.units), smoothing, tuple(steps))


def _two_dimensions(X: np.ndarray) -> str:
    return f"must have two dimensions, subjects × sites; found shape {X.shape}"


def _records(
    cohort: Any,
    key: str,
) -> list[Mapping[str, Any]]:
    """Return the entries of a list in the provenance."""
    listed = cohort.provenance.get(key)
    if not isinstance(listed, list | tuple):
        return []
    return [record for record in listed if isinstance(record, Mapping)]


def subject_rows(
    subjects: Sequence[str],
    which: Any,
) -> list[int]:
    """Return the rows that a mask, row numbers, a slice, or names choose; at least one."""
    n = len(subjects)
    if isinstance(which, slice):
        chosen = np.arange(n)[which]
    else:
        chosen = np.atleast_1d(np.asarray(which))
    if chosen.dtype == bool and chosen.shape == (n,):
        chosen = np.flatnonzero(chosen)
    elif len(chosen) and all(isinstance(name, str) for name in chosen.tolist()):
        row_of = {name: row for row, name in enumerate(subjects)}
        # Unknown names become a row that does not exist.
        chosen = np.array([row_of.get(name, n) for name in chosen.tolist()])
    problem = _problem_of_rows(chosen, n)
    if problem:
        raise ArgumentError("which", f"{problem}; found {shown(which)}")
    return [int(row) for row in chosen % n]


def _problem_of_rows(
    rows: np.ndarray,
    n: int,
) -> str:
    """Say what is wrong with row numbers, "" if nothing."""
    if rows.shape == (0,):
        return "must choose one subject or more"
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        return f"must be a mask of {n} values, row numbers, a slice, or names of subjects"
    if rows.min() < -n or rows.max() >= n:
        return f"must choose among the {n} subjects"
    return ""


class CohortBase:
    """What all cohorts have, in memory or stored."""

    subjects: tuple[str, ...]
    hemisphere: Hemisphere
    provenance: Mapping[str, Any]

    __iter__ = None  # a cohort is not a sequence of cohorts

    @property
    def hemi(self) -> str:
        """`hemisphere`, by the name that the estimator and `Sites` have for it."""
        return self.hemisphere

    @property
    def simulated(self) -> bool:
        """Whether any of the data were made by a computer, not measured."""
        return bool(self.provenance.get("simulated", False))

    def __len__(self) -> int:
        return len(self.subjects)


@dataclass(frozen=True, eq=False, repr=False)
class Cohort(CohortBase):
    """Maps of several subjects on the sites of one mesh.

    Attributes
    ----------
    X : float32 array of shape (n_subjects, n_sites)
        Maps on all sites of the mesh, including masked ones.
    subjects : tuple of str
        Unique names of the subjects.
    sites : Sites
        Positions of the columns of X.
    mask : bool array of shape (n_sites,) or None
        True for sites in use. None means all sites.
    hemisphere : {"left", "right", "both"}
        Hemisphere of the columns; with "both", left columns come first.
    modality, units : str
        What was measured and its unit, for example "thickness" and "mm"; units are "" if unknown.
    participants : dict
        Column name → one value per subject.
    truth : Truth or None
        Components and loadings of simulated data.
    provenance : dict
        Origin of the data and preprocessing steps; ``"simulated": True`` for simulated data.
    checked : bool
        Whether X is known to be finite at all sites in use.

    Examples
    --------
    >>> import icofactor as ico
    >>> import numpy as np
    >>> sites = ico.Sites.named("fsaverage3")
    >>> X = np.random.default_rng(0).gamma(2, size=(4, sites.n)).astype(np.float32)
    >>> cohort = ico.Cohort(X, ("a", "b", "c", "d"), sites, modality="thickness", units="mm")
    >>> cohort.X.shape
    (4, 642)
    >>> cohort[:2].subjects  # a slice, a mask, row numbers or names select subjects
    ('a', 'b')
    """

    X: NDArray[np.float32]
    subjects: tuple[str, ...]
    sites: Sites
    mask: NDArray[np.bool_] | None = None
    hemisphere: Hemisphere = "left"
    modality: str = "unknown"
    units: str = ""
    participants: Mapping[str, NDArray[Any] | Sequence[Any]] = field(default_factory=dict)
    truth: Truth | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    checked: InitVar[bool] = False

    def __post_init__(self, checked: bool) -> None:
        X = np.asarray(self.X)
        if X.ndim == 2:
            # Solvers want rows of float32; other shapes are reported below.
            X = np.ascontiguousarray(X, dtype=np.float32)
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "subjects", tuple(str(name) for name in self.subjects))
        if self.mask is not None:
            object.__setattr__(self, "mask", np.array(self.mask))
        # The first problem is raised: a later check may rely on an earlier one.
        for argument, problem in self._problems(checked):
            raise ArgumentError(argument, problem)

    def _problems(self, checked: bool) -> Iterator[tuple[str, str]]:
        """Yield each argument that is wrong, and why."""
        if self.X.ndim != 2:
            yield "X", _two_dimensions(self.X)
        # The hemisphere must agree with the sites, or maps would be drawn on the wrong side.
        n_sides = len(np.unique(self.sites.hemisphere))
        n_expected = len(hemispheres(self.hemisphere, "hemisphere"))
        if n_sides != n_expected:
            text = f"{self.hemisphere!r} needs sites of {n_expected} hemisphere(s)"
            yield "hemisphere", f"{text}; {self.sites!r} has {n_sides}"
        n_rows, n_columns = self.X.shape
        if n_rows == 0:
            yield "X", "must have one row or more"
        if n_columns != self.sites.n:
            yield "X", f"has {n_columns} columns; {self.sites!r} has {self.sites.n} sites"
        if self.truth is not None:
            shape = (len(self.truth.loadings), self.truth.components.shape[1])
            if shape != self.X.shape:
                yield "truth", f"has shape {shape}; X has {self.X.shape}"
        mask = self.mask
        if mask is not None and (mask.dtype != bool or mask.shape != (self.sites.n,)):
            text = f"must be boolean with one entry per site, ({self.sites.n},)"
            yield "mask", f"{text}; found {mask.dtype} of shape {mask.shape}"
        if mask is not None and not mask.any():
            yield "mask", "must be True at one site or more"
        if len(self.subjects) != n_rows:
            yield "subjects", f"has {len(self.subjects)} names for {n_rows} rows"
        (name, count), *_ = Counter(self.subjects).most_common(1)
        if count > 1:
            yield "subjects", f"must be unique; {name!r} occurs {count} times"
        check_words(self.subjects, self.participants, modality=self.modality, units=self.units)
        for column, values in self.participants.items():
            if len(values) != n_rows:
                text = f"column {column!r} has {len(values)} values for {n_rows} rows of X"
                yield "participants", text
        problem = "" if checked else self._not_finite()
        if problem:
            yield "X", problem

    def _not_finite(self) -> str:
        """Say where X is not finite at a site in use; "" if it is finite."""
        for start in range(0, len(self.X), _ROWS_PER_CHECK):
            bad = ~np.isfinite(self.X[start : start + _ROWS_PER_CHECK])
            if self.mask is not None:
                bad &= self.mask
            if bad.any():
                row, site = np.argwhere(bad)[0]
                subject = self.subjects[start + row]
                text = f"subject {subject!r} has {self.X[start + row, site]} at site {site}"
                return f"{text}; leave such sites out with mask="
        return ""

    @classmethod
    def from_array(
        cls,
        X: Any,
        mesh: Any = None,
        hemi: str | None = None,
        *,
        subjects: Sequence[str] | None = None,
        participants: Any = None,
        **details: Any,
    ) -> Cohort:
        """Make a cohort from an array.

        Parameters
        ----------
        X : array of shape (n_subjects, n_sites)
            Maps.
        mesh, hemi
            As for `CorticalFactorization`. The mesh is inferred if only one mesh has that many
            sites.
        subjects : sequence of str, optional
            Names of the subjects. Default: sub-0001, sub-0002, ...
        participants : mapping or DataFrame, optional
            Column → one value per subject.
        **details
            Other attributes of `Cohort`: mask, modality, units, ...

        Examples
        --------
        >>> import icofactor as ico
        >>> import numpy as np
        >>> X = np.random.default_rng(0).gamma(2, size=(4, 642))
        >>> table = {"age": [30, 40, 50, 60]}
        >>> cohort = ico.Cohort.from_array(X, "fsaverage3", "left", participants=table)
        >>> cohort[cohort.participants["age"] > 35].subjects
        ('sub-0002', 'sub-0003', 'sub-0004')
        """
        X = np.asarray(X)
        if X.ndim != 2:
            raise ArgumentError("X", _two_dimensions(X))
        sites, side = sites_for(X.shape[1], mesh, hemi)
        # Names as in BIDS, so that tables of results can be merged.
        names = [f"sub-{i + 1:04d}" for i in range(len(X))] if subjects is None else subjects
        columns = (
            {}
            if participants is None
            else {name: np.asarray(participants[name]) for name in participants}
        )
        return cls(
            X,
            tuple(names),
            sites,
            hemisphere=side or "left",  # type: ignore[arg-type]
            participants=columns,
            **details,
        )

    def __getitem__(self, which: Any) -> Cohort:
        """Some subjects: by a mask, row numbers, a slice, or names."""
        rows = subject_rows(self.subjects, which)
        truth = (
            None if self.truth is None else Truth(self.truth.components, self.truth.loadings[rows])
        )
        return replace(
            self,
            X=self.X[rows],
            subjects=tuple(self.subjects[row] for row in rows),
            participants={
                name: np.asarray(values)[rows] for name, values in self.participants.items()
            },
            truth=truth,
            checked=True,
        )

    def __repr__(self) -> str:
        kind = "simulated " if self.simulated else ""
        units = f" in {self.units}" if self.units else ""
        mask = "" if self.mask is None else f", {int(self.mask.sum())} in use"
        sides = "both hemispheres"
        if self.hemisphere != "both":
            sides = f"{self.hemisphere} hemisphere"
        shape = f"{len(self)} subjects × {self.sites.n} {self.sites.on}{mask}"
        return f"Cohort({shape}; {kind}{self.modality}{units}, {sides})"
