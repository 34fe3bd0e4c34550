"""A cohort: the maps of several subjects on one mesh, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.names import check_words, smoothing_of
from icofactor.errors import ArgumentError, Phrase, literal
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
            if array.ndim != 2:
                raise ArgumentError(name, Phrase(f"shape {array.shape}"), "of two dimensions")
            object.__setattr__(self, name, array)
        if len(self.components) != self.loadings.shape[1]:
            found = Phrase(f"{len(self.components)} and {self.loadings.shape[1]}")
            raise ArgumentError("loadings", found, "of as many components as {components}")


_SETTINGS = (
    *(
        "step",
        "fwhm_mm",
        "n_deviations",
        "over",
        "kernel",
        "method",
        "from",
        "to",
        "mesh",
        "rings",
        "tie_correction",
    ),
    *(
        "low_hz",
        "high_hz",
        "order",
        "detrend",
        "normalize",
        "max_missing",
        "n_columns",
        "max_fd_mm",
        "filled",
    ),
)
"""What tells two steps of preprocessing apart; paths, times and versions do not."""


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
        """That of a cohort; None for data that do not say."""
        if not hasattr(cohort, "modality") or not hasattr(cohort, "provenance"):
            return None
        known = {key: cohort.provenance.get(key) for key in ("inputs", "preprocessing")}
        listed = {
            key: found if isinstance(found, list | tuple) else () for key, found in known.items()
        }
        records = lambda key: [one for one in listed[key] if isinstance(one, Mapping)]
        told = {
            smoothing_of(Path(str(one["path"])).name)
            for one in records("inputs")
            if one.get("path")
        }
        simple = lambda step, name: isinstance(step.get(name), str | int | float)
        steps = tuple(
            {name: step[name] for name in _SETTINGS if simple(step, name)}
            for step in records("preprocessing")
        )
        return cls(
            str(cohort.modality), str(cohort.units), told.pop() if len(told) == 1 else None, steps
        )


def subject_rows(subjects: Sequence[str], which: Any) -> list[int]:
    """Row numbers of the subjects that a mask, row numbers, a slice, or names choose; at least one."""
    n, names = len(subjects), {name: row for row, name in enumerate(subjects)}
    if isinstance(which, slice):
        chosen = np.arange(n)[which]
    else:
        chosen = np.atleast_1d(np.asarray(which))
        if chosen.dtype == bool and chosen.shape != (n,):
            raise ArgumentError(
                "which", Phrase(f"shape {chosen.shape}"), f"a mask of one value per subject, ({n},)"
            )
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        elif (
            chosen.dtype.kind in "UOT"
            and len(chosen)
            and all(isinstance(name, str) for name in chosen.tolist())
        ):
            unknown = [name for name in chosen.tolist() if name not in names]
            if unknown:
                raise ArgumentError("which", unknown[0], "names of subjects of the cohort")
            chosen = np.array([names[name] for name in chosen.tolist()])
    if chosen.shape == (0,):
        raise ArgumentError("which", None, "at least one subject; it chooses none")
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise ArgumentError(
            "which",
            Phrase(type(which).__name__),
            "a mask, row numbers, a slice, or names of subjects",
        )
    if chosen.min() < -n or chosen.max() >= n:
        raise ArgumentError(
            "which",
            int(chosen.max() if chosen.max() >= n else chosen.min()),
            f"rows of {n} subjects",
        )
    return [int(row) for row in chosen % n]


class CohortBase:
    """What every cohort says of itself, held or stored."""

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
        if X.ndim != 2:
            raise ArgumentError(
                "X", Phrase(f"shape {X.shape}"), "of two dimensions, subjects × sites"
            )
        object.__setattr__(self, "X", np.ascontiguousarray(X, dtype=np.float32))
        object.__setattr__(self, "subjects", tuple(str(name) for name in self.subjects))
        self._check_sites()
        self._check_mask()
        self._check_subjects()
        if not checked:
            self._check_finite()

    def _check_sites(self) -> None:
        found, wanted = (
            len(np.unique(self.sites.hemisphere)),
            len(hemispheres(self.hemisphere, "hemisphere")),
        )
        if found != wanted:
            what = f"{{hemisphere={self.hemisphere!r}}} needs sites of {wanted} hemisphere(s); {self.sites!r} has {found}"
            raise ArgumentError("hemisphere", None, what)
        if self.X.shape[1] != self.sites.n:
            found_columns = Phrase(f"{self.X.shape[1]} columns")
            raise ArgumentError(
                "X",
                found_columns,
                f"of one column per site: {self.sites!r} has {self.sites.n} sites",
            )
        if self.truth is not None:
            shape = (self.truth.loadings.shape[0], self.truth.components.shape[1])
            if shape != self.X.shape:
                raise ArgumentError("truth", shape, f"of the shape of {{X}}, {self.X.shape}")

    def _check_mask(self) -> None:
        if self.mask is None:
            return
        mask = np.array(self.mask)
        if mask.dtype != bool:
            raise ArgumentError(
                "mask", Phrase(str(mask.dtype)), "boolean, True where a site is used"
            )
        if mask.shape != (self.sites.n,):
            raise ArgumentError(
                "mask", Phrase(f"shape {mask.shape}"), f"of one entry per site, ({self.sites.n},)"
            )
        if not mask.any():
            raise ArgumentError("mask", None, "true at one site or more")
        object.__setattr__(self, "mask", mask)

    def _check_subjects(self) -> None:
        n_subjects = len(self.X)
        if n_subjects == 0:
            raise ArgumentError("X", None, "of at least one row; it has none")
        if len(self.subjects) != n_subjects:
            raise ArgumentError(
                "subjects",
                Phrase(f"{len(self.subjects)}"),
                f"as many names as X has rows, {n_subjects}",
            )
        if len(set(self.subjects)) != n_subjects:
            twice = next(name for name in self.subjects if self.subjects.count(name) > 1)
            what = f"unique; {literal(repr(twice))} occurs {self.subjects.count(twice)} times"
            raise ArgumentError("subjects", None, what)
        check_words(self.subjects, self.participants, modality=self.modality, units=self.units)
        for column, values in self.participants.items():
            if len(values) != n_subjects:
                found = Phrase(f"{len(values)} values in {column!r}")
                raise ArgumentError(
                    "participants", found, f"columns of one value per row of X, {n_subjects}"
                )

    def _check_finite(self) -> None:
        for first in range(0, len(self.X), _ROWS_PER_CHECK):
            bad = ~np.isfinite(self.X[first : first + _ROWS_PER_CHECK])
            if self.mask is not None:
                bad &= self.mask
            if bad.any():
                row, column = np.argwhere(bad)[0]
                subject, value = (
                    literal(repr(self.subjects[first + row])),
                    self.X[first + row, column],
                )
                raise ArgumentError(
                    "X",
                    None,
                    f"finite at every site in use; subject {subject} has {value} at site {column}. "
                    "Leave such sites out with {mask}",
                )

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
        >>> cohort = ico.Cohort.from_array(X, "fsaverage3", "left", participants={"age": [30, 40, 50, 60]})
        >>> cohort[cohort.participants["age"] > 35].subjects
        ('sub-0002', 'sub-0003', 'sub-0004')
        """
        X = np.asarray(X)
        if X.ndim != 2:
            raise ArgumentError(
                "X", Phrase(f"shape {X.shape}"), "of two dimensions, subjects × sites"
            )
        sites, side = sites_for(X.shape[1], mesh, hemi)
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
        return (
            f"Cohort({len(self)} subjects × {self.sites.n} {self.sites.on}{mask}; "
            f"{kind}{self.modality}{units}, {self.hemisphere} hemisphere{'s' * (self.hemisphere == 'both')})"
        )
