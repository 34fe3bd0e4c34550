"""The demonstration: simulate, fit, write, draw."""

from __future__ import annotations

import platform
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor import __version__
from icofactor.cohort import Cohort, simulate_cohort, write_fit
from icofactor.estimator import CorticalFactorization
from icofactor.files import atomic_path, check_target
from icofactor.matching import match_components
from icofactor.progress import Stages
from icofactor.report import plot_components

_LIBRARIES = ("numpy", "scipy", "scikit-learn", "nibabel", "nilearn")


def run_demo(
    out: str | Path,
    *,
    n_subjects: int = 100,
    n_components: int = 10,
    modality: str = "thickness",
    hemisphere: Any = "both",
    random_state: int = 0,
    overwrite: bool = False,
    verbose: bool = True,
) -> str:
    """Simulate a cohort, factorize it, and write maps, loadings, provenance, model and figure into `out`.

    Returns
    -------
    A summary in words.
    """
    folder = Path(out)
    if folder.is_dir():
        for name in ("components.png", "model.zip", "provenance.json"):
            check_target(folder / name, overwrite)
    stages = Stages(verbose)
    with stages.stage("simulation"):
        cohort = simulate_cohort(n_subjects, n_components, modality, hemisphere, random_state)
    model = CorticalFactorization(n_components, random_state=random_state, verbose=verbose)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        model.fit(cohort)
    write_fit(
        folder,
        components=model.components_,
        loadings=model.loadings_,
        subjects=cohort.subjects,
        hemi=cohort.hemisphere,
        mesh_name=str(cohort.sites.name),
        mask=model.mask_,
        participants=cohort.participants,
        provenance=_provenance(cohort, model, [str(w.message) for w in raised]),
        overwrite=overwrite,
    )
    model.save(folder / "model.zip", overwrite=overwrite)
    with stages.stage("figure"), atomic_path(folder / "components.png", overwrite) as temporary:
        plot_components(model, units=cohort.units).savefig(temporary)
    return _summary(cohort, model, folder)


def _provenance(cohort: Cohort, model: CorticalFactorization, raised: list[str]) -> dict[str, Any]:
    """What was done to what, with which versions."""
    parameters = model.get_params(deep=False)
    return {
        "data": dict(cohort.provenance),
        "model": {
            name: value if isinstance(value, int | float | str | bool | None) else repr(value)
            for name, value in parameters.items()
        },
        "result": {
            "mesh": repr(model.sites_),
            "explained_between_subject_variance": model.explained_,
            "updates": model.n_iter_,
            "active_faces": model.design_.n_columns,
            "converged": model.solution_.converged,
        },
        "warnings": raised,
        "versions": {
            "icofactor": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in _LIBRARIES},
        },
    }


def _summary(cohort: Cohort, model: CorticalFactorization, folder: Path) -> str:
    assert cohort.truth is not None
    match = match_components(model, cohort.truth.components)
    found, true = model.loadings_[:, match.a], cohort.truth.loadings[:, match.b]
    together = [np.corrcoef(found[:, j], true[:, j])[0, 1] for j in range(found.shape[1])]
    listed = "\n".join(f"  {file.name}" for file in sorted(folder.iterdir()))
    return (
        f"{cohort!r}\n"
        f"{len(model.components_)} components explain {100 * model.explained_:.0f} % of the between-subject variance, "
        f"of which half is noise.\n"
        f"They match the simulated truth: correlation {match.mean:.2f} of maps, {np.mean(together):.2f} of loadings.\n"
        f"Written to {folder}:\n{listed}"
    )
