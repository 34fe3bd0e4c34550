"""`icofactor demo`: the main job on simulated data."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cli.options import words

if TYPE_CHECKING:
    from icofactor.results.fit_cohort import FitResult

SUMMARY = "simulate a cohort, factorize it and write maps, loadings and a report"
DESCRIPTION = (
    "Simulate a cohort on fsaverage5, factorize it and write the results of a fit: basis maps (GIFTI), "
    "loadings (TSV), provenance (JSON), the model, a report page and figures for print. Needs no data and no network."
)
EXAMPLES = """icofactor demo demo-output
icofactor demo demo-output --measures thickness,myelin --share loadings"""
_MESH = "fsaverage5"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "out", metavar="OUT", type=Path, help="folder for the results; created if missing"
    )
    parser.add_argument(
        "--n-subjects", type=int, default=100, metavar="N", help="number of subjects (default: 100)"
    )
    parser.add_argument(
        "--n-components",
        type=int,
        default=10,
        metavar="N",
        help="number of components (default: 10)",
    )
    parser.add_argument(
        "--method",
        metavar="NAME",
        help="parts, CD-PNNMF, or another method that icofactor fit --help lists (default: parts)",
    )
    parser.add_argument(
        "--measures",
        metavar="NAME,...",
        type=words,
        default=(),
        help="fit several measures of the same people together, e.g. thickness,myelin",
    )
    parser.add_argument(
        "--share",
        choices=["maps", "loadings"],
        default="maps",
        help="what the measures share (default: maps)",
    )
    parser.add_argument(
        "--modality",
        default="thickness",
        metavar="NAME",
        help="measure to simulate: thickness, myelin, reho or alff (default: thickness)",
    )
    parser.add_argument(
        "--hemisphere",
        default="both",
        choices=["left", "right", "both"],
        help="hemispheres to simulate (default: both)",
    )
    parser.add_argument(
        "--random-seed",
        type=int,
        default=0,
        metavar="N",
        help="the same seed gives the same result (default: 0)",
    )
    parser.add_argument(
        "--no-figures",
        action="store_true",
        help="do not write figures/, the charts of the page as SVG files",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the results of an earlier run"
    )


def run(options: argparse.Namespace) -> None:
    begin = time.perf_counter()
    summary = run_demo(
        options.out,
        n_subjects=options.n_subjects,
        n_components=options.n_components,
        method=options.method,
        modality=options.modality,
        measures=options.measures,
        share=options.share,
        hemisphere=options.hemisphere,
        random_state=options.random_seed,
        figures=not options.no_figures,
        overwrite=options.overwrite,
        verbose=not options.quiet,
    )
    print(summary)
    print(f"{time.perf_counter() - begin:.0f} s in total. Open {options.out / 'report.html'}")


def run_demo(
    out: str | Path,
    *,
    n_subjects: int = 100,
    n_components: int = 10,
    method: str | None = None,
    modality: str = "thickness",
    measures: Sequence[str] = (),
    share: str = "maps",
    hemisphere: Any = "both",
    random_state: int = 0,
    figures: bool = True,
    overwrite: bool = False,
    verbose: bool = True,
) -> str:
    """Simulate a cohort, factorize it, and write all that a fit gives into `out`.

    Returns
    -------
    A summary, as text.
    """
    from icofactor.cohort.measures import join_measures
    from icofactor.cohort.simulate import simulate_cohort
    from icofactor.errors import ArgumentError
    from icofactor.estimator.estimator import CorticalFactorization
    from icofactor.progress import Stages
    from icofactor.results.fit_cohort import fit_cohort
    from icofactor.results.folder import FitFolder

    chosen: dict[str, Any] = {} if method is None else {"method": method}
    model = CorticalFactorization(
        n_components, **chosen, random_state=random_state, verbose=verbose
    )
    model.check_parameters()  # before anything is made
    if n_subjects == 1:
        raise ArgumentError("n_subjects", "must be at least 2 for a fit; found 1")
    place = FitFolder(out, overwrite, figures)
    with Stages(verbose).stage("simulation"):
        made = {
            name: simulate_cohort(
                n_subjects, n_components, name, hemisphere, random_state, mesh=_MESH, measure=number
            )
            for number, name in enumerate(measures or (modality,))
        }
    cohort: Any = join_measures(made, share, "variance") if measures else made[modality]
    return _summary(fit_cohort(cohort, model, place, verbose=verbose), made)


def _summary(result: FitResult, made: Mapping[str, Any]) -> str:
    import numpy as np

    from icofactor.factorization.matching import match_components

    model, joined, said = result.model, result.model.measures_, []
    for name, cohort in made.items():
        maps = model.components_ if joined is None else joined.maps(model.components_)[name]
        loadings = model.loadings_
        if joined is not None and joined.share == "maps":
            loadings = joined.split(loadings)[name]
        match = match_components(maps, cohort.truth.components)
        found, true = loadings[:, match.a], cohort.truth.loadings[:, match.b]
        together = np.mean(
            [np.corrcoef(found[:, j], true[:, j])[0, 1] for j in range(found.shape[1])]
        )
        of = "" if joined is None else f" ({name})"
        said.append(f"correlation {match.mean:.2f} of maps, {together:.2f} of loadings{of}")
    return (
        f"{result.found()}\n"
        f"{100 * cohort.provenance['noise']:.0f} % of the between-subject variance is simulated noise. The components "
        f"match the simulated truth: {'; '.join(said)}.\n"
        f"{result.written()}"
    )
