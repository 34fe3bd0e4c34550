"""`icofactor select`: how many components, and how far to trust those of a model."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cli.cluster import add_scheduler, workers
from icofactor.cli.measures import add_measures
from icofactor.cli.options import (
    add_atlas,
    add_confounds,
    add_inputs,
    add_people,
    add_weights,
    check_confounds,
    confounds_asked,
    confounds_of,
    plan_inputs,
    read_by,
    words,
)
from icofactor.errors import ArgumentError, named

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from icofactor.io.publish import Publication

SUMMARY = "choose the number of components, or measure how far to trust those of a model"
DESCRIPTION = (
    "Compare numbers of components: agreement of split halves against rotated maps, errors on held-out subjects and "
    "blocks, stability over starts. Writes a recommendation and its reasons to selection.tsv, selection.json and "
    "selection.png. If OUT is the folder of a fit, the report of the fit shows them.\n\n"
    "With --model, measure how far to trust the components of that model instead (also compare numbers if --ranks is "
    "given). --bootstrap writes standard errors of maps and loadings, and the stability of each component. --atlas "
    "writes the overlap with an atlas and names components after regions where they are enriched beyond chance. Then "
    "run `icofactor report FITTED --overwrite` to show the results."
)
EXAMPLES = """icofactor select SUBJECTS_DIR -o selection --ranks 2-20
icofactor select cohort.zarr -o fitted --stratify sex,site
icofactor select cohort.zarr -o fitted --model fitted --bootstrap 200 --atlas lh.aparc.annot rh.aparc.annot
icofactor select -o fitted --model fitted --atlas lh.aparc.annot rh.aparc.annot"""
_MOST = 10_000  # far beyond what any cohort allows
_COPIES, _MUCH = 10, 2**31
"""Sums over faces in memory besides those of rotated cohorts; bytes that are worth a note."""


def add(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser, optional=True)
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, required=True, help="folder for the results"
    )
    group = parser.add_argument_group("how many components")
    group.add_argument(
        "--ranks",
        type=ranks_of,
        metavar="N-M,...",
        help="numbers to try (default: 2-20, or up to half the number of subjects)",
    )
    group.add_argument(
        "--splits", type=int, default=20, metavar="N", help="number of random halves (default: 20)"
    )
    group.add_argument(
        "--n-starts",
        "--starts",
        dest="starts",
        type=int,
        default=10,
        metavar="N",
        help="number of random starts per fit (default: 10)",
    )
    group.add_argument(
        "--nulls",
        type=int,
        default=10,
        metavar="N",
        help="number of cohorts with rotated maps, at least 5 (default: 10)",
    )
    group.add_argument(
        "--stratify",
        type=words,
        default=(),
        metavar="COLUMN,...",
        help="columns to balance between the halves",
    )
    add_confounds(group)
    group.add_argument(
        "--method",
        metavar="NAME",
        help="method that you will fit with (default: the model's, else the default of fit)",
    )
    group.add_argument(
        "--center",
        metavar="NAME",
        help="centering of the maps in each fit: auto, none, mean, zscore (default: the model's, else auto)",
    )
    add_people(group)
    add_measures(group)
    add_weights(group)
    group.add_argument(
        "--level", type=int, default=2, metavar="N", help="20·4^N faces per hemisphere (default: 2)"
    )
    add_scheduler(parser)
    trust = parser.add_argument_group("how far to trust a model")
    trust.add_argument(
        "--model", metavar="FITTED", type=Path, help="folder of a fit, or its model.zip"
    )
    trust.add_argument(
        "--bootstrap", type=int, default=0, metavar="N", help="number of resamples, e.g. 200"
    )
    add_atlas(trust, "atlas to name components after; needs no INPUT")
    trust.add_argument(
        "--spins",
        type=int,
        default=1000,
        metavar="N",
        help="number of rotations to test the atlas (default: 1000)",
    )
    parser.add_argument(
        "--random-seed",
        type=int,
        default=0,
        metavar="N",
        help="the same seed gives the same result (default: 0)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the results of an earlier run"
    )


def ranks_of(text: str) -> list[int]:
    """2-20, or 2,4,8-10 → the numbers."""
    found: list[int] = []
    try:
        for part in words(text):
            first, _, last = part.partition("-")
            found += range(int(first), min(int(last or first), int(first) + _MOST) + 1)
    except ValueError:
        found = []
    if not found:
        raise argparse.ArgumentTypeError(
            f"numbers of components such as 2-20 or 2,4,8-10; found {text!r}"
        )
    return found


def run(options: argparse.Namespace) -> None:
    from icofactor.io.publish import reading

    begin = time.perf_counter()
    if options.model is None and (options.bootstrap or options.atlas):
        raise ArgumentError("model", "is missing: --bootstrap and --atlas are about a model")
    if options.model is not None and not (options.bootstrap or options.atlas or options.ranks):
        raise ArgumentError("model", "does nothing alone: add --bootstrap, --atlas or --ranks")
    search = options.model is None or options.ranks is not None
    # no other fit takes the model's place in OUT until OUT was looked at
    with reading(options.out) if _own(options) else nullcontext():
        model = None if options.model is None else _load(options.model)
        if search and model is not None:
            _take_over(options, model)
        # whatever can be refused is refused before the maps are read, which may take long
        places = _places(options, model, search)
    ranks = _checked_ranks(options, model) if search else []
    regions = None if model is None or not options.atlas else _atlas(options, model)
    if options.inputs and not search and not options.bootstrap:
        warnings.warn(
            f"{named(options.inputs[0])} is not read: --atlas is about the model alone",
            stacklevel=2,
        )
    with workers(options) as executor:
        cohort = _read(options, model, ranks) if search or options.bootstrap else None
        if search:
            _search(cohort, options, model, places["ranks"], executor)
        if regions is not None:
            _write_overlap(model, regions, options, places["atlas"])
        if options.bootstrap:
            _bootstrap(model, cohort, options, places["bootstrap"], executor)
    print(f"{time.perf_counter() - begin:.0f} s in total. Results are in {options.out}")
    if (options.out / "model.zip").is_file():
        print(f"To show it in the report, run: icofactor report {options.out} --overwrite")


def _own(options: argparse.Namespace) -> bool:
    """Whether results go into the folder of the model."""
    given = None if options.model is None else options.model.resolve()
    return (
        given is not None
        and options.out.is_dir()
        and options.out.resolve() in (given, given.parent)
    )


def _load(path: Path) -> Any:
    from icofactor.estimator.saving import load_model

    return load_model(path)


def _take_over(options: argparse.Namespace, model: Any) -> None:
    """Harmonization and covariates of the model, where no option says otherwise."""
    if options.covariates or options.harmonize is not None:
        return
    harmonization, covariates = model.harmonization_, model.covariates_
    if covariates is not None:
        options.covariates = tuple(term.asked for term in covariates.terms)
    if harmonization is not None:
        options.harmonize = harmonization.combat
    done = [step.done for step in (harmonization, covariates) if step is not None]
    if done:
        print(f"As in the model, each half and fold is {' and '.join(done)} by its own subjects.")


def _places(options: argparse.Namespace, model: Any, search: bool) -> dict[str, Publication]:
    """What is written → the folder, checked."""
    from icofactor.assessment.bootstrap import bootstrap_place, check_resamples
    from icofactor.assessment.selection.choice import FILES
    from icofactor.io.publish import Publication
    from icofactor.results.folder import overlap_place

    found, inputs = {}, read_by(options)
    if search:
        found["ranks"] = Publication(options.out, options.overwrite, names=FILES, inputs=inputs)
    # what is about a model does not go into a folder where it was replaced meanwhile
    about: dict[str, Any] = {"inputs": inputs, "steady": ["model.zip"] if _own(options) else []}
    if options.bootstrap:
        check_resamples(options.bootstrap)
        found["bootstrap"] = bootstrap_place(options.out, model, options.overwrite, **about)
    if options.atlas:
        found["atlas"] = overlap_place(options.out, options.model, options.overwrite, **about)
    return found


def _method(options: argparse.Namespace, model: Any) -> tuple[str, str]:
    """Method and centering as asked for, else the model's; the model's centering goes with its own
    method only.
    """
    from icofactor.assessment.selection.choose import choose_n_components

    given = (
        signature(choose_n_components).parameters["method"].default
        if model is None
        else model.method
    )
    method = options.method or given
    own = model.center_ if model is not None and method == model.method else "auto"
    return method, options.center or own


def _checked_ranks(options: argparse.Namespace, model: Any) -> list[int]:
    from icofactor.assessment.selection.choose import check_settings
    from icofactor.factorization.methods import method_named
    from icofactor.preprocessing.centering import center_of

    method, center = _method(options, model)
    center_of(center, method_named(method).scheme.centers, method)
    return check_settings(
        options.ranks,
        options.splits,
        options.starts,
        options.nulls,
        options.random_seed,
        options.level,
    )


def _atlas(options: argparse.Namespace, model: Any) -> Any:
    from icofactor.assessment.atlas import check_spins, read_atlas

    check_spins(options.spins)
    return read_atlas(options.atlas, model.sites_.one_copy(), model.hemi_)


def _read(options: argparse.Namespace, model: Any, ranks: list[int]) -> Any:
    import numpy as np

    from icofactor.assessment.selection.agreement import strata_of
    from icofactor.assessment.selection.choose import check_subjects
    from icofactor.cohort.people import choose_scans
    from icofactor.results.transform import check_table

    known: dict[str, Any] = {}
    if model is not None:  # as the model was fitted, unless options say otherwise
        known = {"mesh": model.sites_, "hemisphere": model.hemi_, "mask": model.mask_}
    needed = [*confounds_asked(options), *(confounds_of(model) if options.bootstrap else [])]
    own = None if model is None else model.measures_
    given = {name: value for name, value in known.items() if value is not None}
    plan = plan_inputs(options, needed, own, **given)
    people = _people(options)
    if people["fit_on"] is None and not ranks and len(plan.subjects) == len(model.loadings_):
        people["fit_on"] = "all"  # as the model was fitted
    scans = choose_scans(plan, **people, seed=options.random_seed)
    table = {name: np.asarray(values)[scans.rows] for name, values in plan.participants.items()}
    subjects = [plan.subjects[row] for row in scans.rows]
    if ranks:
        check_subjects(ranks, len(subjects), scans.groups, fewer=options.ranks is None)
        strata_of(table, options.stratify, len(subjects))
        check_confounds(options, plan, scans.rows)
    if options.bootstrap:
        check_table(model, table, subjects)
    if ranks and not options.quiet and plan.sites is not None:
        size = len(subjects), min(plan.sites.n, plan.sites.n_roots * 4**options.level)
        _warn_of_size(*size, 0 if _condensed(options, model, *size) else options.nulls)
    return scans.of(plan.read())


def _condensed(options: argparse.Namespace, model: Any, n_subjects: int, n_columns: int) -> bool:
    """Whether rotated cohorts are made one after the other: `Coarse.condensed` then has all that
    fits need of them. Their smallest parts, three eighths of the people, must have more people than
    faces.
    """
    from icofactor.factorization.methods import method_named
    from icofactor.preprocessing.centering import center_of

    method, center = _method(options, model)
    scheme, many = method_named(method).scheme, 3 * n_subjects > 8 * n_columns
    apart = center_of(center, scheme.centers, method) == "mean" and not confounds_asked(options)
    return many and scheme.projective and apart


def _warn_of_size(n_subjects: int, n_columns: int, n_nulls: int) -> None:
    """Say that a search will need much memory: sums over faces of everybody, once more for each
    rotated cohort that is kept, and what is at work.
    """
    from icofactor.cli.estimate import in_bytes

    needed = 8 * n_subjects * n_columns * (n_nulls + _COPIES)
    if needed > _MUCH:
        print(
            f"note: with {n_subjects} subjects this takes at least {in_bytes(needed)} of memory, and much longer "
            "than a fit; fewer subjects (--exclude), --nulls and --splits take less",
            file=sys.stderr,
        )


def _people(options: argparse.Namespace) -> dict[str, Any]:
    return {"fit_on": options.fit_on, "groups": options.groups, "order": options.order}


def _search(
    cohort: Any,
    options: argparse.Namespace,
    model: Any,
    place: Publication,
    executor: Executor | None,
) -> None:
    from icofactor.assessment.selection.choose import choose_n_components
    from icofactor.preprocessing.combat import as_combat

    method, center = _method(options, model)
    choice = choose_n_components(
        cohort,
        options.ranks,
        n_splits=options.splits,
        n_starts=options.starts,
        n_nulls=options.nulls,
        stratify=options.stratify,
        covariates=options.covariates,
        harmonize=as_combat(options.harmonize, options.keep, options.reference_site),
        **_people(options),
        method=method,
        center=center,
        level=options.level,
        weights=options.weights if options.weights is not None or model is None else model.weights_,
        random_state=options.random_seed,
        executor=executor,
        verbose=not options.quiet,
    )
    choice.save(place)
    print(choice)


def _write_overlap(
    model: Any, regions: Any, options: argparse.Namespace, place: Publication
) -> None:
    from icofactor.assessment.atlas import name_with_shares, overlap
    from icofactor.progress import Stages
    from icofactor.results.folder import write_names

    with Stages(not options.quiet).stage("atlas") as show:
        found = overlap(model, regions, options.spins, options.random_seed, report=show)
    write_names(found, place, model)
    for j, name in enumerate(found.names, 1):
        print(f"Component {j}: {name_with_shares(found.table, j, name)}")
    if any(name.endswith("?") for name in found.names):
        print(
            "'?' means: no region is enriched beyond chance (q ≤ 0.05); the name is the region with the largest share."
        )


def _bootstrap(
    model: Any,
    cohort: Any,
    options: argparse.Namespace,
    place: Publication,
    executor: Executor | None,
) -> None:
    from icofactor.assessment.bootstrap import bootstrap
    from icofactor.cohort.people import people_of

    spread = bootstrap(
        model,
        cohort,
        options.bootstrap,
        options.random_seed,
        **_people(options),
        executor=executor,
        verbose=not options.quiet,
    )
    spread.save(place, model, people_of(cohort) or cohort.subjects)
    print("Stability of the components: " + ", ".join(f"{value:.2f}" for value in spread.stability))
