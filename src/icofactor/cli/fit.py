"""`icofactor fit`: from a cohort's files to a folder of maps, loadings and a report."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cli.cluster import add_scheduler, workers
from icofactor.cli.measures import add_measures
from icofactor.cli.options import (
    add_confounds,
    add_dry_run,
    add_inputs,
    add_people,
    add_weights,
    check_confounds,
    confounds_asked,
    plan_inputs,
    read_by,
    would_read,
)
from icofactor.errors import ArgumentError, plural

if TYPE_CHECKING:
    from icofactor.cohort.people import Scans
    from icofactor.cohort.plan import Plan

SUMMARY = "factorize a cohort into basis maps and loadings, and write a report"
DESCRIPTION = (
    "Read the maps of a cohort, factorize them, and write one folder: basis maps (GIFTI, CIFTI), a parcellation, "
    "loadings (TSV), the model, provenance, a methods paragraph, a report page, and figures for print. "
    "The default method, 'parts', finds regions of the cortex where people deviate from the average together. Use it "
    "if you analyse loadings statistically. Use CD-PNNMF to reconstruct the maps with the smallest error."
)
EXAMPLES = """icofactor fit $SUBJECTS_DIR --measure thickness --target fsaverage5 --smoothing 10 -o out
icofactor fit store -o out --n-components 20 --covariates age,sex,site
icofactor fit store -o out --harmonize site --keep age,sex
icofactor fit $SUBJECTS_DIR --stream long --fit-on baseline --target fsaverage5 --smoothing 10 -o out
icofactor fit tables --parcels lh.aparc.annot rh.aparc.annot -o out
icofactor fit thickness.store myelin.store --share maps --scale variance -o out
icofactor fit $SUBJECTS_DIR --measure thickness,area --target fsaverage5 --share maps --scale variance -o out
icofactor fit 'maps/*.thickness.shape.gii' --participants participants.tsv -o out --dry-run"""
_FINEST = 15  # of the levels that a plan counts with; beyond any mesh
# of the model, when they are given; else its own defaults hold, or those of the paper
_PARAMETERS = (
    "method",
    "center",
    "level",
    "n_starts",
    "polish",
    "engine",
    "penalty",
    "columns",
    "weights",
)
_OF = {"none": "", "mean": " of deviations from the mean map", "zscore": " of z-scores"}
_METHODS = (
    "parts: regions of the cortex where people deviate from the average together, with signed loadings. They hardly "
    "overlap; use them for statistics on loadings. CD-PNNMF: non-negative maps that add up to each "
    "person's map. They have the smallest reconstruction error, but another seed may give other components. "
    " Also: CD-SPNNMF, and the paper's DL, E-DL, PNNMF, E-PNNMF, LE-PNNMF, SPNNMF, E-SPNNMF, LE-SPNNMF, "
    "PPNMF, E-PPNMF, LE-PPNMF"
)


def add(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser)
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        type=Path,
        required=True,
        help="folder for the results; created if missing",
    )
    group = parser.add_argument_group("the factorization")
    group.add_argument(
        "--n-components", type=int, metavar="N", help="number of basis maps (default: 10)"
    )
    group.add_argument("--method", metavar="NAME", help=f"{_METHODS} (default: parts)")
    group.add_argument(
        "--center",
        choices=["auto", "none", "mean", "zscore"],
        help="before the fit, subtract the mean of each site over subjects (mean), also divide by its standard "
        "deviation (zscore), or do nothing (none). auto, the default: mean for parts, none for other methods",
    )
    group.add_argument(
        "--level",
        type=int,
        metavar="N",
        help="start from 20·4^N faces per hemisphere (default: 2, 320 faces)",
    )
    group.add_argument(
        "--n-starts",
        "--starts",
        type=int,
        metavar="N",
        help="number of random starts (default: 50 for parts, else 10)",
    )
    group.add_argument(
        "--polish",
        type=int,
        metavar="N",
        help="additional updates of the maps at full resolution (default: 0)",
    )
    group.add_argument(
        "--penalty",
        type=penalty,
        metavar="X",
        help="weight of the penalty: a number, or paper (default: the method's)",
    )
    group.add_argument(
        "--columns",
        choices=["partition", "smooth", "exponential"],
        help="shape of the coarse maps on each face of the icosahedron: constant (partition, the default), or "
        "decreasing from its centre (smooth, exponential)",
    )
    add_weights(group)
    group.add_argument(
        "--engine", metavar="NAME", help="how to compute: auto, numpy, cpu or jax (default: auto)"
    )
    group.add_argument(
        "--paper",
        action="store_true",
        help="use the exact settings of the paper (LE-PNNMF, 20 faces, 1000 starts, no lift); slow",
    )
    add_confounds(group)
    add_people(group)
    add_measures(group)
    group.add_argument(
        "--random-seed",
        type=int,
        metavar="N",
        help="the same seed gives the same result (default: 0)",
    )
    add_scheduler(parser)
    add_dry_run(parser)
    parser.add_argument(
        "--no-figures",
        action="store_true",
        help="do not write figures/, the charts of the page as SVG files",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace an earlier fit and everything icofactor wrote about it",
    )


def penalty(text: str) -> float | str:
    """A number, or paper."""
    return text if text == "paper" else float(text)


def run(options: argparse.Namespace) -> None:
    from icofactor.cohort.people import choose_scans
    from icofactor.estimator.site_weights import check_weights
    from icofactor.factorization.methods import method_named
    from icofactor.results.fit_cohort import fit_cohort
    from icofactor.results.folder import FitFolder

    begin = time.perf_counter()
    model = _model(options)
    seed = model.random_state if isinstance(model.random_state, int) else 0
    place = FitFolder(options.out, options.overwrite, not options.no_figures, read_by(options))
    plan = plan_inputs(options, confounds_asked(options))
    check_weights(model.weights, plan.sites)
    if plan.measures is not None:  # before the maps are read
        plan.measures.center(model.centers_by, model.center, method_named(model.method))
    scans = choose_scans(plan, options.fit_on, options.groups, options.order, seed)
    combat, covariates, done = check_confounds(options, plan, scans.rows)
    if scans.sentence:
        model.check_shape((len(scans.rows), 2))
    if options.dry_run:
        print(_would_do(plan, model, options.out, done, scans))
        return
    # A scheduler that does not answer is said before the maps are read.
    with workers(options) as executor:
        cohort = plan.read()
        timing = {"reading": time.perf_counter() - begin}
        fitted = fit_cohort(
            cohort,
            model,
            place,
            harmonize=combat,
            covariates=covariates,
            fit_on=scans,
            timing=timing,
            executor=executor,
            verbose=not options.quiet,
        )
    print(f"{fitted.found()}\n{fitted.written()}")
    print(f"{time.perf_counter() - begin:.0f} s in total. Open {options.out / 'report.html'}")


def _model(options: argparse.Namespace) -> Any:
    from icofactor.estimator.estimator import CorticalFactorization

    asked = {name: getattr(options, name) for name in _PARAMETERS}
    asked |= {
        "n_components": options.n_components,
        "random_state": options.random_seed,
        "verbose": not options.quiet,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    make = CorticalFactorization.paper if options.paper else CorticalFactorization
    model = make(**given)
    model.check_parameters()  # before anything is read
    return model


def _would_do(plan: Plan, model: Any, out: Path, done: str, scans: Scans) -> str:
    """What would be read, and what it takes."""
    from icofactor.cli.estimate import fit_memory, in_bytes
    from icofactor.factorization.methods import for_negative_data, method_named

    n_fitted = len(scans.rows)
    model.check_shape((n_fitted, plan.n_sites))
    method = method_named(model.method)
    if plan.lowest < 0 and not model.takes_negative:
        message = f"{model.method} needs values ≥ 0; the first file goes down to {plan.lowest:.3g}"
        raise ArgumentError("method", f"{message}: use {for_negative_data()}, or shift the maps")
    n_starts = method.scheme.n_starts if model.n_starts is None else model.n_starts
    n_faces = plan.sites.n_roots * 4 ** min(model.level, _FINEST) if plan.sites is not None else 0
    n_columns = min(n_faces, plan.n_sites)
    memory = fit_memory(
        n_fitted, plan.n_sites, model.n_components, n_columns, in_memory=not plan.stored
    )
    lines = [
        *would_read(plan),
        *([f"  {scans.sentence}"] if scans.sentence else []),
        *([done] if done else []),
        f"and fit {plural(model.n_components, 'component')} by {model.method}{_OF[model.centers_by]} from "
        f"{plural(n_starts, 'start')} into {out}.",
        f"This takes about {in_bytes(memory)} of memory.",
        "Nothing was written.",
    ]
    return "\n".join(lines)
