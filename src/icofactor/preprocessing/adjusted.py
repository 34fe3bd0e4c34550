"""Steps that change maps before they are factorized: covariates, harmonization.

A step estimates an `Adjustment` from the maps of fitted subjects and keeps it. It is applied
whenever the maps are read, never copied. Steps follow each other: harmonization first, then
covariates. A model keeps those of its data and does the same to new subjects. Another step is one
class with the members of `Step`; nothing else needs to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from icofactor.cohort.adjusted import is_cohort, with_maps
from icofactor.cohort.measures import (
    Arrangement,
    Measures,
    check_measures,
    measures_of,
    people_of_rows,
)
from icofactor.errors import ArgumentError
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.maps import Maps, maps_of


class Step(Protocol):
    """Something that was estimated in fitted subjects and is taken out of maps."""

    # The attribute of a model that keeps it.
    kept_as: ClassVar[str]

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the participants table whose effects it takes out."""
        ...

    @property
    def done(self) -> str:
        """What it did to maps, such as "adjusted for age"."""
        ...

    def same_as(self, other: Any) -> bool:
        """Whether another step does the same, as after saving and loading a model."""
        ...

    def apply(self, X: Any, participants: Any = None) -> Any:
        """Return the adjusted maps of subjects, new or not."""
        ...


@dataclass(frozen=True, eq=False)
class Subjects:
    """The people of some maps, for a step that needs their table.

    Attributes
    ----------
    participants, names : table and names of the people
    mask : (n_sites,) bool, True for sites in use; None: all
    arrangement : how several measures lie in the maps
    """

    participants: Mapping[str, Any]
    names: list[str]
    mask: np.ndarray | None = None
    arrangement: Arrangement = field(default_factory=Arrangement)

    def check(self, maps: Maps, what: str, n_sites: int, measures: tuple[str, ...]) -> None:
        """Refuse maps of other sites or measures than those of a step."""
        n_columns = maps.n_sites * self.arrangement.n_stacked
        if n_columns != n_sites or self.arrangement.names != measures:
            raise ArgumentError(
                "X",
                f"has {n_columns} columns of {_listed(self.arrangement.names)}; {what} fitted on "
                f"{n_sites} sites of {_listed(measures)}",
            )

    def sites_in_use(self, mask: Any = None) -> np.ndarray | None:
        """Return which sites are in use: those of a mask, or of the cohort; None: all."""
        return self.mask if mask is None else np.asarray(mask, dtype=bool)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "one measure"


def subjects_of(X: Any, participants: Mapping[str, Sequence[Any]] | None) -> Subjects:
    """Return the people of a cohort, or of an array with its table."""
    if is_cohort(X):
        table = X.participants if participants is None else participants
        table, names = people_of_rows(X, table, X.subjects)
        return Subjects(table, names, X.mask, Arrangement.of(X))
    if participants is None:
        text = "is needed with an array: column → one value per subject; or give a Cohort"
        raise ArgumentError("participants", text)
    if hasattr(X, "mesh"):
        text = f"must be a Cohort or a subjects × sites array; found a {type(X).__name__}"
        raise ArgumentError("X", text)
    n = np.shape(X)[0]
    names = [str(name) for name in participants.get("participant_id", [])]
    if len(names) != n:
        names = [f"row {row}" for row in range(n)]
    return Subjects(participants, names)


def unadjusted_maps(X: Any, allowed: tuple[str, ...] = ()) -> Maps:
    """Return the maps of a cohort, or of an array, for a step that follows.

    Maps that are adjusted already are refused, except by steps that models keep as `allowed`.
    """
    for step in steps_of(X):
        if step.kept_as not in allowed:
            raise ArgumentError("X", f"is already {steps_of(X)[-1].done}")
    values = X.X if is_cohort(X) else X
    if not hasattr(values, "shape"):
        values = np.asarray(values)
    if len(values.shape) != 2:
        text = f"must have two dimensions, subjects × sites; found shape {tuple(values.shape)}"
        raise ArgumentError("X", text)
    return maps_of(values)


def adjust(X: Any, maps: Maps, adjustment: Adjustment, floor: bool) -> Any:
    """Return a cohort, or maps, with one more adjustment; `floor`: values below 0 become 0."""
    return with_maps(X, maps.adjusted(adjustment, floor=maps.floor or floor))


def steps_of(X: Any) -> tuple[Step, ...]:
    """Return what was done to these data, in order."""
    maps = X.X if is_cohort(X) else X
    if not isinstance(maps, Maps):
        return ()
    steps = (adjustment.made_by for adjustment in maps.adjustments)
    return tuple(step for step in steps if step is not None)


def step_of(X: Any, kind: type[Any]) -> Any:
    """Return the step, if any, that models keep where they keep those of that class."""
    return next((step for step in steps_of(X) if step.kept_as == kind.kept_as), None)


def as_the_fit(X: Any, *steps: Step | None, measures: Measures | None = None) -> Any:
    """Return new data, less what `steps` took out of the fitted data.

    Data from which they were taken out already stay as they are. `measures` are those of the fit.
    """
    fitted_steps = tuple(step for step in steps if step is not None)
    data_steps = steps_of(X)
    is_same_start = len(data_steps) <= len(fitted_steps) and all(
        step.same_as(fitted) for step, fitted in zip(data_steps, fitted_steps, strict=False)
    )
    if not is_same_start:
        kind = "maps adjusted by other coefficients" if fitted_steps else "unadjusted maps"
        done = " and ".join(step.done for step in data_steps)
        raise ArgumentError("X", f"is {done}, but the model was fitted to {kind}: give X itself")
    missing_steps = fitted_steps[len(data_steps) :]
    if missing_steps and not is_cohort(X):
        names = ", ".join(name for step in missing_steps for name in step.names)
        call = "X"
        for step in missing_steps:
            call = f"model.{step.kept_as}.apply({call}, participants)"
        raise ArgumentError(
            "X",
            f"must be a Cohort whose participants have {names}, which the fit regressed out of the "
            f"maps; or give `{call}`",
        )
    if is_cohort(X):
        check_measures(measures_of(X), measures)
    for step in missing_steps:
        X = step.apply(X)
    return X


def is_same(step: Any, other: Any, names: Sequence[str]) -> bool:
    """Whether two steps are of one class and agree in these attributes."""
    return type(step) is type(other) and all(
        np.array_equal(getattr(step, name), getattr(other, name)) for name in names
    )


def share_removed(
    total: Sequence[float], remaining: Sequence[float]
) -> tuple[float, np.ndarray | None]:
    """Return the share of the sums of squares that was removed.

    Of several measures it is the mean, followed by the share of each.
    """
    before = np.asarray(total, dtype=np.float64)
    after = np.asarray(remaining, dtype=np.float64)
    shares = 1 - np.divide(after, before, out=np.ones_like(before), where=before > 0)
    return float(shares.mean()), None if len(shares) == 1 else shares


def lift_to_zero(x: np.ndarray) -> np.ndarray:
    """Return what each site (row of x) must be raised by so that no value is below 0."""
    return np.asarray(np.maximum(-x.min(axis=1), 0))
