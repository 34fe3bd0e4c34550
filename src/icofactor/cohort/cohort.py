"""A cohort: the maps of several subjects on one mesh, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.names import check_words
from icofactor.sphere.sites import Sites

Hemisphere = Literal["left", "right", "both"]
# Rows looked at together when X is checked, so that a memory-mapped X is never held twice.
_ROWS_PER_CHECK = 64


@dataclass(frozen=True, eq=False)
class Truth:
    """What simulated data were made of: X ≈ loadings @ components.

    Attributes
    ----------
    components : (k, n_sites), in the units of the data.
    loadings : (n_subjects, k), with mean about 1.
    """

    components: NDArray[np.float32]
    loadings: NDArray[np.float32]

    def __post_init__(self) -> None:
        for name in ("components", "loadings"):
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float32)
            if array.ndim != 2:
                raise ValueError(f"{name} must have two dimensions; got shape {array.shape}")
            object.__setattr__(self, name, array)
        if len(self.components) != self.loadings.shape[1]:
            raise ValueError(
                f"components and loadings must hold the same number of components; "
                f"got {len(self.components)} and {self.loadings.shape[1]}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Cohort:
    """Maps of several subjects on the sites of one mesh.

    Attributes
    ----------
    X : (n_subjects, n_sites) float32, C order; all sites of the mesh, masked ones included.
    subjects : names of the subjects, no two alike.
    sites : where the columns of X lie.
    mask : (n_sites,) bool, True where a site is used; None when all are.
    hemisphere : "left", "right" or "both" (left columns first).
    modality : what was measured, e.g. "thickness".
    units : its units, e.g. "mm"; "" when unknown.
    participants : column name → one value per subject, e.g. {"age": [...]}.
    truth : what simulated data were made of, else None.
    provenance : where the data came from, as JSON would hold it; ``"simulated": True`` for simulated data.

    Examples
    --------
    >>> import icofactor as ico
    >>> import numpy as np
    >>> sites = ico.Sites.named("fsaverage3")
    >>> X = np.random.default_rng(0).gamma(2, size=(4, sites.n)).astype(np.float32)
    >>> cohort = ico.Cohort(X, ("a", "b", "c", "d"), sites, modality="thickness", units="mm")
    >>> cohort.X.shape
    (4, 642)
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

    def __post_init__(self) -> None:
        X = np.asarray(self.X)
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, subjects × sites; got shape {X.shape}")
        object.__setattr__(self, "X", np.ascontiguousarray(X, dtype=np.float32))
        object.__setattr__(self, "subjects", tuple(str(name) for name in self.subjects))
        self._check_sites()
        self._check_mask()
        self._check_subjects()
        self._check_finite()

    def _check_sites(self) -> None:
        if self.hemisphere not in get_args(Hemisphere):
            raise ValueError(f'hemisphere must be "left", "right" or "both"; got {self.hemisphere!r}')
        found = len(np.unique(self.sites.hemisphere))
        wanted = 2 if self.hemisphere == "both" else 1
        if found != wanted:
            raise ValueError(
                f"hemisphere={self.hemisphere!r} needs sites of {wanted} hemisphere(s); {self.sites!r} has {found}"
            )
        if self.X.shape[1] != self.sites.n:
            raise ValueError(f"{self.sites!r} has {self.sites.n} sites; X has {self.X.shape[1]} columns")
        if self.truth is not None:
            shape = (self.truth.loadings.shape[0], self.truth.components.shape[1])
            if shape != self.X.shape:
                raise ValueError(f"X has shape {self.X.shape}; loadings @ components of truth have {shape}")

    def _check_mask(self) -> None:
        if self.mask is None:
            return
        mask = np.array(self.mask)
        if mask.dtype != bool:
            raise ValueError(f"mask must be boolean, True where a site is used; got {mask.dtype}")
        if mask.shape != (self.sites.n,):
            raise ValueError(f"mask must have shape ({self.sites.n},), one entry per site; got {mask.shape}")
        if not mask.any():
            raise ValueError("mask must be True somewhere; it leaves no site")
        object.__setattr__(self, "mask", mask)

    def _check_subjects(self) -> None:
        n_subjects = len(self.X)
        if n_subjects == 0:
            raise ValueError("X must have at least one row; it has none")
        if len(self.subjects) != n_subjects:
            raise ValueError(f"X has {n_subjects} rows; subjects has {len(self.subjects)} names")
        if len(set(self.subjects)) != n_subjects:
            twice = next(name for name in self.subjects if self.subjects.count(name) > 1)
            raise ValueError(f"subjects must differ; {twice!r} occurs {self.subjects.count(twice)} times")
        check_words(self.subjects, self.participants)
        for column, values in self.participants.items():
            if len(values) != n_subjects:
                raise ValueError(f"X has {n_subjects} rows; participants[{column!r}] has {len(values)} values")

    def _check_finite(self) -> None:
        for first in range(0, len(self.X), _ROWS_PER_CHECK):
            bad = ~np.isfinite(self.X[first : first + _ROWS_PER_CHECK])
            if self.mask is not None:
                bad &= self.mask
            if bad.any():
                row, column = np.argwhere(bad)[0]
                raise ValueError(
                    f"X must be finite at every site in use; subject {self.subjects[first + row]!r} has "
                    f"{self.X[first + row, column]} at site {column}. Leave such sites out with mask"
                )

    @property
    def simulated(self) -> bool:
        """Whether the data were made by a computer, not measured."""
        return bool(self.provenance.get("simulated", False))

    def __len__(self) -> int:
        return len(self.subjects)

    def __repr__(self) -> str:
        kind = "simulated " if self.simulated else ""
        units = f" in {self.units}" if self.units else ""
        mask = "" if self.mask is None else f", {int(self.mask.sum())} in use"
        return (
            f"Cohort({len(self)} subjects × {self.sites.n} {self.sites.on}{mask}; "
            f"{kind}{self.modality}{units}, {self.hemisphere} hemisphere{'s' * (self.hemisphere == 'both')})"
        )
