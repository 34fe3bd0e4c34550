"""Maps from which something was taken out: adjusted whenever they are sliced or passed over, never
copied.

A step (`Covariates`, or the `Harmonization` that ComBat fits) makes `AdjustedMaps` of maps, or an
`AdjustedCohort` of a cohort. Steps follow each other: harmonization first, then covariates. A model
keeps those of its data and does the same to new subjects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from icofactor.cohort.measures import measures_of, people_of_rows
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.streaming.joined import Unstacked, adjusted_source
from icofactor.streaming.passes import Stream
from icofactor.streaming.source import Adjustment, MapSource, Subset, source_of

_OF_THE_COHORT = (
    *(
        "subjects",
        "sites",
        "mask",
        "hemisphere",
        "modality",
        "units",
        "participants",
        "truth",
        "provenance",
    ),
    *("simulated", "path", "measures"),
)


class Step(Protocol):
    """Something that was found in fitted subjects and is taken out of maps."""

    kept_as: ClassVar[str]
    """The model's attribute for it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the participants' table whose effects it takes out."""
        ...

    @property
    def done(self) -> str:
        """What it did to maps, e.g. "adjusted for age"."""
        ...

    def same_as(self, other: Any) -> bool:
        """Whether another step does the same, as that of a model does after saving and loading it."""
        ...

    def apply(self, X: Any, participants: Any = None) -> Any:
        """The adjusted maps of subjects, new or not."""
        ...


class AdjustedMaps:
    """Subjects × sites as a step leaves them, computed when sliced or passed over.

    Attributes
    ----------
    base, adjustment : what the maps were before the last step, and what it does.
    steps : what was done, in order.
    below : (n_sites,) number of values that the last step set to 0, of the sites sliced so far.
    notes : what is worth knowing about how it was done.
    n_stacked : number of measures that lie below each other, whose sites the step sees beside each
        other.
    """

    ndim = 2
    dtype = np.dtype(np.float64)

    def __init__(
        self,
        X: Any,
        adjustment: Adjustment,
        step: Step,
        notes: tuple[str, ...] = (),
        n_stacked: int = 1,
    ) -> None:
        self.base, self.adjustment, self.n_stacked = X, adjustment, n_stacked
        self.steps: tuple[Step, ...] = (*steps_of(X), step)
        self.shape = tuple(X.shape)
        self.below = np.zeros(X.shape[1] * n_stacked, dtype=np.int64)
        self.notes: tuple[str, ...] = (*getattr(X, "notes", ()), *notes)

    @property
    def n_below(self) -> int:
        """Number of values that all steps set to 0, of the sites sliced so far."""
        return int(self.below.sum()) + getattr(self.base, "n_below", 0)

    def map_source(self) -> MapSource:
        """The maps as they are passed over."""
        return adjusted_source(source_of(self.base), self.adjustment, self.n_stacked, self.below)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> np.ndarray:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if self.n_stacked > 1:
            sites = np.arange(self.shape[1])[columns]
            found = Stream(self.map_source()).read(np.atleast_1d(sites)).T[rows]
            return found if sites.ndim else found[..., 0]
        if not isinstance(rows, slice | int | np.integer) and not isinstance(
            columns, slice | int | np.integer
        ):
            raise IndexError(
                "adjusted maps can be indexed by an array of numbers along one axis at a time"
            )
        adjustment = self.adjustment.at(rows, columns)
        x = adjustment.linear(self.base[rows, columns])
        if isinstance(rows, slice) and rows == slice(None):
            # a new subject's; the fitted ones' are zero but for rounding
            self.below[columns] = adjustment.n_below(x)
        return adjustment.floored(x)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:, :], dtype=dtype)


@dataclass(frozen=True, eq=False)
class AdjustedCohort:
    """A cohort whose maps are adjusted; all else is the cohort's own."""

    cohort: Any
    X: AdjustedMaps

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.X.steps

    def __getattr__(self, name: str) -> Any:
        # named one by one, so that no other way to the maps leads past the steps
        if name not in _OF_THE_COHORT:
            raise AttributeError(f"an adjusted cohort has no {name!r}")
        return getattr(self.cohort, name)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"{self.cohort!r}{',' * (len(self.steps) > 1)} {self.steps[-1].done}"


def adjusted(X: Any, maps: AdjustedMaps) -> Any:
    """Adjusted maps as what they were given as: a cohort of a cohort."""
    return AdjustedCohort(X, maps) if is_cohort(X) else maps


def steps_of(X: Any) -> tuple[Step, ...]:
    """What was done to these data, in order."""
    return X.steps if isinstance(X, AdjustedMaps | AdjustedCohort) else ()


def step_of(X: Any, kind: type[Any]) -> Any:
    """The step of that class that was done to these data, if any."""
    return next((step for step in steps_of(X) if isinstance(step, kind)), None)


def as_the_fit(X: Any, *steps: Step | None) -> Any:
    """New data, less what was taken out of the fitted data by `steps`; data that are so already
    stay as they are.
    """
    wanted, own = tuple(step for step in steps if step is not None), steps_of(X)
    if len(own) > len(wanted) or not all(
        mine.same_as(its) for mine, its in zip(own, wanted, strict=False)
    ):
        fitted = "maps adjusted by other coefficients" if wanted else "unadjusted maps"
        done = literal(" and ".join(step.done for step in own))
        raise ArgumentError(
            "X", None, f"X is {done}, but the model was fitted to {fitted}: give X itself"
        )
    left = wanted[len(own) :]
    if left and not is_cohort(X):
        names = literal(", ".join(name for step in left for name in step.names))
        what = f"X must be a Cohort whose participants have {names}, which the fit regressed out of the maps; or give "
        call = "X"
        for step in left:
            call = f"model.{step.kept_as}.apply({call}, participants)"
        raise ArgumentError("X", None, f"{what}`{call}`")
    for step in left:
        X = step.apply(X)
    return X


def is_cohort(X: Any) -> bool:
    """Whether these are maps with the names and the table of their subjects."""
    return hasattr(X, "subjects") and hasattr(X, "participants")


@dataclass(frozen=True, eq=False)
class Given:
    """Maps and people as a step sees them: several measures always lie beside each other.

    Attributes
    ----------
    maps : as given.
    participants, subjects : table and names of the people.
    mask : (n_sites,) bool, of the cohort; None: all sites are used.
    part : (n_sites,) measure of each site; None where there is one.
    n_stacked : number of measures that lie below each other in `maps`.
    measures : their names, where there are several.
    """

    maps: Any
    participants: Mapping[str, Any]
    subjects: list[str]
    mask: np.ndarray | None = None
    part: np.ndarray | None = None
    n_stacked: int = 1
    measures: tuple[str, ...] = ()

    @property
    def n_sites(self) -> int:
        return int(self.maps.shape[1]) * self.n_stacked

    def check(self, what: str, n_sites: int, measures: tuple[str, ...]) -> None:
        """Refuse maps of other sites or measures than those of a step."""
        if self.n_sites != n_sites:
            text = f"{what} fitted on {n_sites} sites; X has {self.n_sites} columns"
            raise ArgumentError("X", None, text)
        if self.measures != measures:
            listed = lambda names: literal(", ".join(names)) or "one measure"
            raise ArgumentError(
                "X", None, f"{what} fitted on {listed(measures)}; X is {listed(self.measures)}"
            )

    def source(self, mask: np.ndarray | None) -> tuple[MapSource, np.ndarray, np.ndarray | None]:
        """The maps at the sites of a mask (None: the cohort's own), which these are, and the
        measure of each.
        """
        found, used = source_of(self.maps), self.mask
        if self.n_stacked > 1:
            found = Unstacked(found, self.n_stacked)
        if mask is not None:
            used = np.tile(np.asarray(mask, dtype=bool), self.n_stacked)
        if used is None:
            return found, np.arange(self.n_sites), self.part
        return (
            Subset(found, used),
            np.flatnonzero(used),
            None if self.part is None else self.part[used],
        )


def parts_of(
    X: Any, participants: Mapping[str, Sequence[Any]] | None, before: tuple[str, ...] = ()
) -> Given:
    """A cohort, or an array with its table, as a step sees it.

    Maps that are adjusted already are refused, except by the steps that models keep as `before`.
    """
    if not all(step.kept_as in before for step in steps_of(X)):
        raise ArgumentError("X", None, f"X is already {literal(steps_of(X)[-1].done)}")
    if is_cohort(X):
        measures, mask = measures_of(X), X.mask
        table, subjects = people_of_rows(
            X, X.participants if participants is None else participants, X.subjects
        )
        if measures is None or measures.n == 1:
            return Given(X.X, table, subjects, mask)
        if measures.share == "loadings":
            return Given(X.X, table, subjects, mask, X.sites.measure, measures=measures.names)
        m, part = measures.n, np.repeat(np.arange(measures.n), X.X.shape[1])
        return Given(
            X.X,
            table,
            subjects,
            None if mask is None else np.tile(mask, m),
            part,
            m,
            measures.names,
        )
    if participants is None:
        text = "{participants} is needed with an array: column → one value per subject; or give a Cohort"
        raise ArgumentError("participants", None, text)
    if hasattr(X, "mesh"):
        raise ArgumentError(
            "X", Phrase(f"a {type(X).__name__}"), "a Cohort or a subjects × sites array"
        )
    maps = X if hasattr(X, "shape") else np.asarray(X)
    if len(maps.shape) != 2:
        raise ArgumentError(
            "X", Phrase(f"shape {tuple(maps.shape)}"), "subjects × sites, two dimensions"
        )
    n, named = maps.shape[0], participants.get("participant_id", [])
    subjects = [str(name) for name in named] if len(named) == n else [f"row {i}" for i in range(n)]
    return Given(maps, participants, subjects)


def share_of(
    part: np.ndarray | None, total: np.ndarray, left: np.ndarray
) -> tuple[float, np.ndarray | None]:
    """Share of the sums of squares at all sites that was taken out; of several measures the mean,
    and each one's.
    """
    if part is None:
        return (float(1 - left.sum() / total.sum()) if total.sum() > 0 else 0.0), None
    whole = np.bincount(part, total)
    each = 1 - np.divide(np.bincount(part, left), whole, out=np.ones_like(whole), where=whole > 0)
    return float(each.mean()), each


def lift_to_zero(x: np.ndarray) -> np.ndarray:
    """(n_sites,) what each site (row of x, sites × fitted subjects) must be raised by so that none
    is below 0.
    """
    return np.asarray(np.maximum(-x.min(axis=1), 0))
