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
from icofactor.cohort.write import check_folder, fit_files
from icofactor.estimator import CorticalFactorization
from icofactor.matching import match_components
from icofactor.progress import Stages
from icofactor.report import plot_components

_MESH, _MODEL, _FIGURE = "fsaverage5", "model.zip", "components.png"
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

    All files appear together at the end, or none; with `overwrite` they take the place of an earlier run's files.

    Returns
    -------
    A summary in words.
    """
    # before the work, so that nobody waits for results that cannot be kept
    names = fit_files(hemisphere, _MESH, mask=False, participants=True, extras=[_MODEL, _FIGURE])
    check_folder(out, names, overwrite)
    stages = Stages(verbose)
    with stages.stage("simulation"):
        cohort = simulate_cohort(n_subjects, n_components, modality, hemisphere, random_state, mesh=_MESH)
    model = CorticalFactorization(n_components, random_state=random_state, verbose=verbose)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        model.fit(cohort)

    def draw(path: Path) -> None:
        with stages.stage("figure"):
            plot_components(model, units=cohort.units).savefig(path)

    files = write_fit(
        out,
        components=model.components_,
        loadings=model.loadings_,
        subjects=cohort.subjects,
        hemi=cohort.hemisphere,
        mesh_name=_MESH,
        mask=model.mask_,
        participants=cohort.participants,
        provenance=_provenance(cohort, model, [str(w.message) for w in raised]),
        extras={_MODEL: model.save, _FIGURE: draw},
        overwrite=overwrite,
    )
    return _summary(cohort, model, files)


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


def _summary(cohort: Cohort, model: CorticalFactorization, files: list[Path]) -> str:
    assert cohort.truth is not None
    match = match_components(model, cohort.truth.components)
    found, true = model.loadings_[:, match.a], cohort.truth.loadings[:, match.b]
    together = [np.corrcoef(found[:, j], true[:, j])[0, 1] for j in range(found.shape[1])]
    noise = cohort.provenance["noise"]
    listed = "\n".join(f"  {file.name}" for file in files)
    return (
        f"{cohort!r}\n"
        f"{len(model.components_)} components explain {100 * model.explained_:.0f} % of the between-subject variance "
        f"({100 * noise:.0f} % of that variance is simulated noise).\n"
        f"They match the simulated truth: correlation {match.mean:.2f} of maps, {np.mean(together):.2f} of loadings.\n"
        f"Written to {files[0].parent}:\n{listed}"
    )
