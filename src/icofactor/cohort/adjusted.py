"""A cohort with other maps: those that covariates or a harmonization leave."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from icofactor.maps.maps import Maps, maps_of

# Named one by one, so that no other way to the maps leads past the adjustments.
ATTRIBUTES = (
    "subjects",
    "sites",
    "mask",
    "hemisphere",
    "modality",
    "units",
    "participants",
    "truth",
    "provenance",
    "simulated",
    "path",
    "measures",
)


@dataclass(frozen=True, eq=False, repr=False)
class AdjustedCohort:
    """A cohort whose maps are adjusted when they are read; all else is that of the cohort."""

    cohort: Any
    X: Maps

    def __getattr__(self, name: str) -> Any:
        if name not in ATTRIBUTES:
            raise AttributeError(f"an adjusted cohort has no {name!r}")
        return getattr(self.cohort, name)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        steps = [adjustment.made_by for adjustment in self.X.adjustments]
        return f"{self.cohort!r} {', '.join(step.done for step in steps if step is not None)}"


def with_maps(
    X: Any,
    maps: Maps,
) -> Any:
    """Return a cohort with other maps; the maps alone if X is not a cohort."""
    if isinstance(X, AdjustedCohort):
        return AdjustedCohort(X.cohort, maps)
    return AdjustedCohort(X, maps) if is_cohort(X) else maps


def with_executor(X: Any, executor: Executor | None) -> Any:
    """Return a cohort, or maps, that every pass reads by an executor; None: as they are."""
    if executor is None:
        return X
    maps = maps_of(X.X if is_cohort(X) else X)
    return with_maps(X, replace(maps, executor=executor))


def subject_names(X: Any) -> Sequence[str] | None:
    """Return the names of the subjects of a cohort; None for an array or maps."""
    return None if isinstance(X, Maps) else getattr(X, "subjects", None)


def is_cohort(X: Any) -> bool:
    """Whether X has the names and the table of its subjects."""
    return hasattr(X, "subjects") and hasattr(X, "participants")
