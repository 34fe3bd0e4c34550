"""`icofactor transform`: loadings of new subjects on the maps of a fit."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cli.cluster import add_scheduler, workers
from icofactor.cli.options import (
    add_dry_run,
    add_inputs,
    add_missing_covariates,
    confounds_of,
    memory_of_pass,
    plan_inputs,
    read_by,
    would_read,
)
from icofactor.errors import CohortError

if TYPE_CHECKING:
    from icofactor.cohort.plan import Plan

SUMMARY = "compute the loadings of new subjects on the basis maps of a fit"
DESCRIPTION = (
    "Read the maps of new subjects and write their loadings on the basis maps of a fit. The maps are treated as in the "
    "fit: same mesh, hemispheres, mask, harmonization, covariates and scale. A table and a small page show how well "
    "the components describe each subject, and which subjects are unusual."
)
EXAMPLES = """icofactor transform out $NEW_SUBJECTS_DIR --measure thickness --target fsaverage5 -o new_loadings.tsv
icofactor transform out/model.zip new_store -o new_loadings.tsv"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="model.zip, or the folder that `icofactor fit` wrote",
    )
    add_inputs(
        parser,
        sites=False,
        several="; for a fit of several measures, one of these for each measure",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        type=Path,
        required=True,
        help="table to write (file.tsv), or a folder for it",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="continue if measure, unit, smoothing or preprocessing differ from those of the fit",
    )
    add_missing_covariates(parser)
    add_scheduler(parser)
    add_dry_run(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the results of an earlier run"
    )


def run(options: argparse.Namespace) -> None:
    from icofactor.cohort.adjusted import with_executor
    from icofactor.estimator.saving import load_model, model_at
    from icofactor.results.transform import (
        check_measurement,
        check_table,
        diagnostics_beside,
        loadings_of,
    )
    from icofactor.results.transform_files import table_at, write_loadings

    table = table_at(options.out, options.overwrite, read_by(options))
    model = load_model(options.model)
    fitted = {"mesh": model.sites_, "hemisphere": model.hemi_, "mask": model.mask_, "holes": True}
    plan = plan_inputs(options, confounds_of(model), model.measures_, **fitted)
    check_table(model, plan.participants, plan.subjects)
    if options.dry_run:
        print(_would_do(plan, model, options.inputs[0], table))
        return
    path = model_at(options.model)
    with workers(options) as executor:
        cohort = with_executor(plan.read(), executor)
        notes = check_measurement(model, cohort, options.force)
        found = loadings_of(model, cohort, diagnostics_beside(path, model))
    found = replace(found, notes=(*notes, *found.notes))
    files = write_loadings(found, table, cohort, path, model=model, overwrite=options.overwrite)
    if not options.quiet:
        print(repr(cohort))
        for line in (*found.notes, *found.summary):
            print(line)
        print("Written: " + ", ".join(map(str, files)))


def _would_do(plan: Plan, model: Any, source: str, table: Path) -> str:
    """What would be read, and what it takes."""
    if (plan.n_sites, plan.hemisphere) != (model.n_features_in_, model.hemi_ or plan.hemisphere):
        text = f"has {plan.n_sites} sites ({plan.hemisphere})"
        raise CohortError(
            source, f"the model has {model.n_features_in_} sites ({model.hemi_}); this input {text}"
        )
    write = f"and write their loadings on {len(model.components_)} components to {table}."
    held = 2 * int(
        model.refined_.stats.L.nbytes
    )  # sums of the fitted subjects, and what is read beside them
    return "\n".join([*would_read(plan), write, memory_of_pass(plan, held), "Nothing was written."])
