"""Keeping account of what was done to a cohort."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from icofactor import __version__
from icofactor.cohort.cohort import Cohort


def after(cohort: Cohort, step: str, *, X: Any, changes: dict[str, Any] | None = None, **settings: Any) -> Cohort:
    """The cohort after a step of preprocessing, with its name and settings added to provenance["preprocessing"].

    Parameters
    ----------
    X : the new values.
    changes : other attributes that the step changed, e.g. sites and mask after resampling.
    settings : what the step was told, as JSON would hold it.
    """
    steps = [*cohort.provenance.get("preprocessing", []), {"step": step, "icofactor": __version__, **settings}]
    changed = {"truth": None} if changes and "sites" in changes else {}
    return replace(
        cohort, X=X, provenance={**cohort.provenance, "preprocessing": steps}, **{**changed, **(changes or {})}
    )
