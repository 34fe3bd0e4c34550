"""The provenance of a fit: configuration, seed, inputs with their hashes, versions, warnings."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor import __version__
from icofactor.io.archive import digest
from icofactor.io.tables import plain
from icofactor.results.meaning import recurrence_line

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization

# Libraries whose versions may change results.
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "nibabel", "nilearn", "numba")


def provenance_of(
    model: CorticalFactorization, cohort: Any, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the provenance of a fit as JSON holds it.

    Parameters
    ----------
    model : fitted.
    cohort : the Cohort it was fitted to, or one on disk.
    warnings : warnings of the fit.
    """
    return {
        "data": dict(cohort.provenance),
        "inputs": input_hashes(cohort),
        "cohort": {
            "n_subjects": len(cohort.subjects),
            "hemisphere": cohort.hemisphere,
            "modality": cohort.modality,
            "units": cohort.units,
            "mesh": repr(cohort.sites),
            "n_sites_used": cohort.sites.n if model.mask_ is None else int(model.mask_.sum()),
        },
        # Default weights say nothing, and others are summarized below.
        "model": {
            name: value if isinstance(value, int | float | str | bool | None) else repr(value)
            for name, value in model.get_params(deep=False).items()
            if name != "weights" or value is not None
        },
        "seed": model.random_state
        if isinstance(model.random_state, int | None)
        else repr(model.random_state),
        "harmonization": _words(getattr(model, "harmonization_", None)),
        "covariates": _words(getattr(model, "covariates_", None)),
        "result": {
            "mesh": repr(model.sites_),
            "penalty": model.solution_.penalty,
            "engine": model.starts_.engine,
            "explained_between_subject_variance": model.explained_,
            "updates": model.n_iter_,
            "active_faces": model.design_.n_columns,
            "converged": model.solution_.converged,
            "center": model.center_,
            "n_constant_sites": model.n_constant_sites_,
            **_weights_of(model),
            "recurrence": {
                "share_of_other_good_starts_per_component": plain(model.recurrence_),
                "other_good_starts": model.starts_.n_near,
                "summary": recurrence_line(model),
            },
        },
        "warnings": list(warnings),
        "versions": versions(),
    }


def _weights_of(model: Any) -> dict[str, Any]:
    """Return the weights of sites, if they have any."""
    if model.weights_ is None:
        return {}
    used = model._used_weights
    return {
        "site_weights": {
            "by": model.weighting_,
            "least": float(used.min()),
            "largest": float(used.max()),
            "standard_deviation": float(used.std()),
            "sha256": digest(model.weights_),
        }
    }


def versions() -> dict[str, str]:
    """Return the versions of icofactor, of Python and of the libraries that change results."""
    return {
        "icofactor": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: version(name) for name in _LIBRARIES},
    }


def input_hashes(cohort: Any) -> dict[str, str]:
    """Return the SHA-256 of every input, as the cohort's provenance has it."""
    hashes = dict(_hashes(cohort.provenance))
    # Arrays come from no file, so the maps themselves are hashed.
    if not hashes and isinstance(cohort.X, np.ndarray):
        hashes["X (subjects × sites, in memory)"] = digest(cohort.X)
    return hashes


# A store's provenance has that of the files it was made of, at any depth.
def _hashes(record: Any) -> Iterator[tuple[str, str]]:
    """Yield path and hash wherever a record of provenance has both."""
    if isinstance(record, Mapping):
        if isinstance(record.get("sha256"), str) and isinstance(record.get("path"), str):
            yield record["path"], record["sha256"]
        for value in record.values():
            yield from _hashes(value)
    elif isinstance(record, list | tuple):
        for value in record:
            yield from _hashes(value)


def _words(step: Any) -> str | None:
    return None if step is None else str(step)
