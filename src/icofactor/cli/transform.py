"""`icofactor transform`: loadings of new subjects on the maps of a fit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from icofactor.cli.options import (
    add_dry_run,
    add_inputs,
    check_participants,
    in_one_pass,
    preview_inputs,
    read_inputs,
    would_read,
)

SUMMARY = "loadings of new subjects on the basis maps of a fit"
DESCRIPTION = (
    "Read the maps of new subjects and write their loadings on the basis maps of a fit. What the fit did to its own "
    "subjects is done to them: its mesh, hemispheres and mask, its covariates, its scale."
)
EXAMPLES = """icofactor transform out $NEW_SUBJECTS_DIR --measure thickness --target fsaverage5 -o new_loadings.tsv
icofactor transform out/model.zip new_store -o new_loadings.tsv"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="model.zip, or the folder that `icofactor fit` wrote")
    add_inputs(parser, sites=False)
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, required=True, help="file.tsv, or a folder for the table"
    )
    add_dry_run(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run")


def run(options: argparse.Namespace) -> None:
    from icofactor.preprocessing.covariate_coding import columns_of
    from icofactor.results.transform import loadings_of, model_at, read_model, table_at, write_loadings

    table = table_at(options.out, options.overwrite)
    model = read_model(options.model)
    given = {"mesh": model.sites_, "hemisphere": model.hemi_, "mask": model.mask_}
    if model.covariates_ is not None:
        terms = model.covariates_.terms
        check_participants(options, lambda table, subjects: columns_of(terms, table, subjects), **given)
    if options.dry_run:
        print(_plan(options, model, given, table))
        return
    cohort = read_inputs(options, **given)
    found = loadings_of(model, cohort)
    files = write_loadings(found, table, cohort, model_at(options.model), overwrite=options.overwrite)
    if not options.quiet:
        print(repr(cohort))
        for note in found.notes:
            print(note)
        print("Written: " + ", ".join(map(str, files)))


def _plan(options: argparse.Namespace, model: Any, given: dict[str, Any], table: Path) -> str:
    """What would be read, and what it takes."""
    seen = preview_inputs(options, **given)
    if (seen.n_sites, seen.hemisphere) != (model.n_features_in_, model.hemi_ or seen.hemisphere):
        raise ValueError(
            f"the model has {model.n_features_in_} sites ({model.hemi_}); {options.inputs[0]} has {seen.n_sites} "
            f"({seen.hemisphere})"
        )
    write = f"and write their loadings on {len(model.components_)} components to {table}."
    return "\n".join([*would_read(seen), write, in_one_pass(seen), "Nothing was written."])
