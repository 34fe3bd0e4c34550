"""`icofactor prepare`: maps of four kinds from an HCP tree, ReHo and ALFF from fMRIPrep, or any
cohort, to a store.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from icofactor.cli.options import (
    add_dry_run,
    add_inputs,
    memory_of_pass,
    one_or_two,
    plan_inputs,
    read_by,
    words,
    would_read,
)
from icofactor.errors import ArgumentError, CohortError, plural

if TYPE_CHECKING:
    from icofactor.preprocessing._prepare_hcp import HcpPlan, Target

SUMMARY = "write a cohort store: thickness, myelin, ReHo or ALFF from an HCP tree, or any maps"
DESCRIPTION = """Write a cohort store for `icofactor fit`.

icofactor prepare KIND HCP_DIR -o STORE, where KIND is thickness, myelin, reho or alff, reads an HCP tree
(MSMAll-registered dscalar and dtseries files on fs_LR 32k), computes the maps there and resamples them to fsaverage5.
ReHo joins the runs of a subject; ALFF writes one store per run, STORE_RUN. Outliers of thickness and myelin are
limited. Spheres and cortex region come from a folder of HCPpipelines or TemplateFlow (--spheres); nothing is
downloaded. Finished subjects are kept next to STORE, and an interrupted run resumes from them.

icofactor prepare reho|alff FMRIPREP_DIR -o STORE reads the time series that fMRIPrep wrote on fsaverage or fs_LR. Maps
stay on that mesh, and no spheres are needed. --confounds are regressed out, together with the mean and a linear trend
(n/a counts as 0). Each volume above --max-fd gets a regressor of its own, and ReHo leaves these volumes out after the
band-pass. Nothing else is done: no smoothing, and no cleaning without --confounds. ReHo joins the runs of a subject;
ALFF needs one run (--entities run=1). --n-procs and --work-dir work as for an HCP tree; an interrupted run resumes.

icofactor prepare INPUT... -o STORE reads any maps and applies --limit-outliers, --smooth and --resample-to. An earlier
store is an input too: --dtype float16 writes it in half the space. --append adds new subjects to a store.

icofactor prepare STORE --add-columns FILE or --remove SUBJECT,... changes a store in place."""
EXAMPLES = """icofactor prepare thickness HCP -o thickness.store --spheres HCPpipelines --n-procs 4
icofactor prepare reho HCP -o reho.store --spheres HCPpipelines --hemisphere left
icofactor prepare alff HCP -o alff.store --spheres HCPpipelines --runs rfMRI_REST1_LR,rfMRI_REST1_RL
icofactor prepare reho fmriprep -o reho.store --target fsaverage5 --entities task=rest --confounds 24p --max-fd 0.5
icofactor prepare fs/*/surf/lh.thickness.fsaverage6.mgh -o store --limit-outliers --resample-to fsaverage5 \\
    --spheres HCPpipelines
icofactor prepare thickness.store -o small.store --dtype float16
icofactor prepare 'wave2/*.thickness.fsaverage5.mgh' -o thickness.store --append
icofactor prepare thickness.store --add-columns participants.tsv
icofactor prepare thickness.store --remove sub-001,sub-002"""
KINDS = ("thickness", "myelin", "reho", "alff")
_FOR_FILES = (
    *("mesh", "measure", "smoothing", "entities", "missing", "mask", "map_name", "subjects"),
    *("smooth", "surfaces", "dtype", "append"),
)
_MAPS, _SERIES = ("thickness", "myelin"), ("reho", "alff")
# what has an effect on some kinds only; without a kind nothing of this has, nor of _FOR_ALL_KINDS
_FOR_KINDS = {
    **dict.fromkeys(("limit_outliers", "n_deviations", "map"), _MAPS),
    **dict.fromkeys(
        ("runs", "series", "tr", "band", "low", "high", "confounds", "max_fd"), _SERIES
    ),
    **dict.fromkeys(("filter", "order", "rings", "no_tie_correction"), ("reho",)),
    **dict.fromkeys(("detrend", "normalize"), ("alff",)),
}
_NOT_FOR_BOLD = (
    *(
        "mesh",
        "measure",
        "smoothing",
        "missing",
        "mask",
        "map_name",
        "subjects",
        "smooth",
        "surfaces",
        "resample_to",
    ),
    *("spheres", "method", "runs", "series", "dtype", "append"),
)
_FOR_ALL_KINDS = ("max_missing", "n_procs", "work_dir")
_NO_KIND = f"needs a kind of map before the input: {', '.join(KINDS)}"
_STEPS = (
    "tr",
    "band",
    "low",
    "high",
    "filter",
    "order",
    "rings",
    "detrend",
    "normalize",
    "max_missing",
)


def add(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser, several="")
    parser.add_argument("-o", "--out", metavar="STORE", type=Path, help="cohort store to write")
    add_dry_run(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace stores of an earlier run")
    parser.add_argument(
        "--append",
        action="store_true",
        default=None,
        help="add the subjects to the store STORE, all of them or none",
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "float16"],
        help="type of the stored values; float16 takes half the space and keeps three digits (default: float32)",
    )
    change = parser.add_argument_group("change the store INPUT").add_mutually_exclusive_group()
    change.add_argument(
        "--add-columns",
        metavar="FILE",
        type=Path,
        help="add the columns of this table to the participants of the store, by participant_id",
    )
    change.add_argument(
        "--remove",
        metavar="SUBJECT,...",
        type=words,
        help="remove subjects from the store; their maps are deleted from disk",
    )
    steps = parser.add_argument_group("steps")
    steps.add_argument(
        "--limit-outliers",
        action=argparse.BooleanOptionalAction,
        help="limit the outliers of each subject (default: only thickness and myelin from an HCP tree)",
    )
    steps.add_argument(
        "--n-deviations",
        type=float,
        metavar="N",
        help="limit for outliers, in median absolute deviations (default: 4.4478)",
    )
    steps.add_argument(
        "--smooth", type=float, metavar="MM", help="smooth along the surface with this FWHM"
    )
    steps.add_argument(
        "--surfaces",
        type=one_or_two,
        metavar="FILE",
        help="midthickness surface for smoothing; LEFT,RIGHT for two hemispheres (default: fsaverage5's)",
    )
    steps.add_argument(
        "--resample-to",
        metavar="MESH",
        help="resample to fsaverage4, fsaverage5 or fsaverage6 (default for an HCP tree: fsaverage5). From fsaverage "
        "to fsaverage5 or 6, this keeps the shared vertices and needs no spheres",
    )
    steps.add_argument(
        "--spheres",
        type=Path,
        metavar="DIR",
        help="folder with registered spheres: HCPpipelines or TemplateFlow",
    )
    steps.add_argument(
        "--method", choices=["adaptive", "barycentric"], help="how to resample (default: adaptive)"
    )
    _add_hcp(parser)


def _add_hcp(parser: argparse.ArgumentParser) -> None:
    tree = parser.add_argument_group("HCP tree")
    tree.add_argument(
        "--map",
        metavar="NAME",
        help="dscalar to read, e.g. corrThickness_MSMAll (default: by KIND)",
    )
    tree.add_argument(
        "--runs",
        type=words,
        metavar="RUN,...",
        help="runs to read (default: all rfMRI_REST* that any subject has)",
    )
    tree.add_argument(
        "--series",
        metavar="NAME",
        help="part of dtseries file names after the run (default: _Atlas_MSMAll_hp2000_clean)",
    )
    tree.add_argument(
        "--max-missing",
        type=float,
        metavar="SHARE",
        help="largest share of cortex without data, per hemisphere, to fill from neighbours (default: 0.01)",
    )
    tree.add_argument(
        "--n-procs", type=int, metavar="N", help="number of subjects in parallel (default: 1)"
    )
    tree.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="folder for finished maps (default: STORE.work)",
    )
    time = parser.add_argument_group("ReHo and ALFF")
    time.add_argument(
        "--tr",
        type=float,
        metavar="S",
        help="seconds between volumes (default: from file or sidecar)",
    )
    time.add_argument(
        "--confounds",
        type=words,
        metavar="NAME,...",
        help="fMRIPrep: confounds to regress out: columns of its table, or 6p, 9p, 24p, 36p (default: none)",
    )
    time.add_argument(
        "--max-fd",
        type=float,
        metavar="MM",
        help="fMRIPrep: censor volumes with more framewise displacement",
    )
    time.add_argument(
        "--band",
        choices=["paper", "usual"],
        help="band by name: paper, 0.05-0.1 Hz, or usual, 0.01-0.08 Hz (default: paper)",
    )
    time.add_argument(
        "--low", type=float, metavar="HZ", help="lower end of the band (default: that of --band)"
    )
    time.add_argument(
        "--high", type=float, metavar="HZ", help="upper end of the band (default: that of --band)"
    )
    time.add_argument(
        "--filter", choices=["butterworth", "fft"], help="ReHo's band-pass (default: butterworth)"
    )
    time.add_argument(
        "--order", type=int, metavar="N", help="order of the Butterworth filter (default: 2)"
    )
    time.add_argument("--rings", type=int, metavar="N", help="ReHo's radius in edges (default: 3)")
    time.add_argument(
        "--no-tie-correction", action="store_true", default=None, help="compute ReHo as XCP-D does"
    )
    time.add_argument(
        "--detrend", action="store_true", default=None, help="ALFF: also remove a linear trend"
    )
    time.add_argument(
        "--normalize",
        choices=["none", "mean"],
        help="ALFF: divide by the mean over the cortex, or not",
    )


def run(options: argparse.Namespace) -> None:
    if options.add_columns is not None or options.remove is not None:
        _change_store(options)
        return
    if options.out is None:
        raise ArgumentError("out", "is missing: name the store to write")
    if not options.inputs:
        raise ArgumentError("inputs", "is missing: give the maps of the subjects")
    first = options.inputs[0]
    if first in KINDS and not (len(options.inputs) == 1 and Path(first).exists()):
        if len(options.inputs) != 2:
            n_folders = len(options.inputs) - 1
            raise ArgumentError("inputs", f"{first} needs exactly one folder; found {n_folders}")
        if _is_bold(first, options.inputs[1]):
            _refuse(
                options,
                _NOT_FOR_BOLD,
                "does not apply to fMRIPrep time series: they stay on their mesh",
            )
            _refuse_kinds(options, first)
            _run_bold(options, first, Path(options.inputs[1]))
            return
        _refuse(
            options,
            ("confounds", "max_fd"),
            "applies to fMRIPrep time series only; those of the HCP are already cleaned",
        )
        _refuse(
            options,
            _FOR_FILES,
            f"does not apply to icofactor prepare {first}, which reads an HCP tree",
        )
        _refuse_kinds(options, first)
        _run_hcp(options, first, Path(options.inputs[1]))
    else:
        of_files = ("limit_outliers", "n_deviations")
        _refuse(
            options,
            (*(name for name in _FOR_KINDS if name not in of_files), *_FOR_ALL_KINDS),
            _NO_KIND,
        )
        _run_files(options)


def _change_store(options: argparse.Namespace) -> None:
    """Add columns to a store, or remove subjects from it."""
    from icofactor.cohort.store.create import add_columns, remove_subjects

    if options.out is not None:
        raise ArgumentError("out", "applies to a store to write; INPUT is changed in place")
    if len(options.inputs) != 1:
        raise ArgumentError("inputs", f"must be one store to change; found {len(options.inputs)}")
    if options.dry_run:
        raise ArgumentError("dry_run", "does not apply to --add-columns and --remove")
    (store,) = options.inputs
    if options.remove is None:
        changed = add_columns(store, options.add_columns, overwrite=options.overwrite)
    else:
        changed = remove_subjects(store, options.remove)
    print(f"{store}: {changed!r}")


def _refuse_kinds(options: argparse.Namespace, kind: str) -> None:
    for name, kinds in _FOR_KINDS.items():
        if kind not in kinds:
            _refuse(options, (name,), f"applies to {' and '.join(kinds)}, not to {kind}")


def _is_bold(kind: str, folder: str) -> bool:
    """Whether to look for fMRIPrep's series: a folder of sub-* folders that is not an HCP tree."""
    from icofactor.cohort.find.layouts import HCP
    from icofactor.preprocessing.bold import is_bold_tree

    return kind in _SERIES and is_bold_tree(folder) and not HCP.subject_folders(Path(folder))


def _run_bold(options: argparse.Namespace, kind: str, folder: Path) -> None:
    from icofactor.io.publish import check_apart
    from icofactor.preprocessing.bold import Cleaning, prepare_bold
    from icofactor.preprocessing.subject_maps import Steps

    check_apart(options.out, read_by(options)[1:])
    asked = {name: value for name in _STEPS if (value := getattr(options, name)) is not None}
    made = prepare_bold(
        folder,
        options.out,
        Steps(kind, limit=None, tie_correction=not options.no_tie_correction, **asked),
        Cleaning(tuple(options.confounds or ()), options.max_fd),
        hemisphere=options.hemisphere,
        target=options.target,
        entities=options.entities,
        participants=options.participants,
        exclude=options.exclude,
        n_procs=1 if options.n_procs is None else options.n_procs,
        work_dir=options.work_dir,
        overwrite=options.overwrite,
        progress=not options.quiet,
        dry_run=options.dry_run,
    )
    print(made if options.dry_run else f"{options.out}: {made!r}")


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    """Refuse options that would do nothing."""
    for name in names:
        if getattr(options, name) is not None:
            raise ArgumentError(name, why)


def _run_hcp(options: argparse.Namespace, kind: str, folder: Path) -> None:
    from icofactor.preprocessing._prepare_hcp import Target, failed, plan_hcp, prepare_hcp
    from icofactor.preprocessing.hcp import SERIES, find_inputs
    from icofactor.preprocessing.outliers import LIMIT
    from icofactor.preprocessing.subject_maps import Steps

    series = SERIES if options.series is None else options.series
    if options.spheres is None:
        find_inputs(
            folder, kind, map_name=options.map, runs=options.runs, series=series
        )  # or is it another tree?
        message = "is missing: give the folder with the spheres of fs_LR and fsaverage, e.g. "
        folder_of_hcp = "HCPpipelines/global/templates/standard_mesh_atlases"
        raise ArgumentError("spheres", message + folder_of_hcp)
    if options.limit_outliers is False:
        _refuse(
            options,
            ("n_deviations",),
            "has no effect with --no-limit-outliers; give only one of them",
        )
    if options.filter == "fft":
        _refuse(options, ("order",), "applies to the Butterworth filter, not to --filter fft")
    if options.resample_to is not None:
        _refuse(
            options,
            ("target",),
            "and --resample-to both name the mesh to resample to; give only one",
        )
    limited = kind in _MAPS and options.limit_outliers is not False
    steps = Steps(
        kind,
        limit=(LIMIT if options.n_deviations is None else options.n_deviations)
        if limited
        else None,
        tie_correction=not options.no_tie_correction,
        **{name: value for name in _STEPS if (value := getattr(options, name)) is not None},
    )
    mesh = options.resample_to or options.target or "fsaverage5"
    target = Target(
        options.spheres, options.hemisphere or "both", mesh, options.method or "adaptive"
    )
    inputs = find_inputs(folder, kind, map_name=options.map, runs=options.runs, series=series)
    chosen = {"participants": options.participants, "exclude": options.exclude}
    n_procs = 1 if options.n_procs is None else options.n_procs
    if options.dry_run:
        plan = plan_hcp(inputs, options.out, steps, target, **chosen, overwrite=options.overwrite)
        print(_would_do(plan, steps.kind, target, n_procs))
        return
    made = prepare_hcp(
        inputs,
        options.out,
        steps,
        target,
        **chosen,
        n_procs=n_procs,
        work_dir=options.work_dir,
        overwrite=options.overwrite,
        progress=not options.quiet,
    )
    print(made.summary())
    if made.failures:
        raise failed(made.failures, "the stores lack the maps that could not be computed")


def _would_do(plan: HcpPlan, kind: str, target: Target, n_procs: int) -> str:
    """What would be read of an HCP tree, and what it takes."""
    from icofactor.cli.estimate import hcp_memory, in_bytes
    from icofactor.preprocessing._prepare_hcp import failure_lines

    memory = hcp_memory(kind, plan.sizes, n_procs)
    n_files, n_bytes = sum(map(len, plan.sizes)), sum(map(sum, plan.sizes))
    hemispheres = (
        "both hemispheres" if target.hemisphere == "both" else f"{target.hemisphere} hemisphere"
    )
    return "\n".join(
        [
            f"Would read {plural(n_files, 'file')} ({in_bytes(n_bytes)}) of {plural(plan.n_subjects, 'subject')}",
            *(f"  will fail: {line.strip()}" for line in failure_lines(plan.failures)[1:]),
            f"and write {kind} on {target.mesh}, {hemispheres}, to {', '.join(map(str, plan.stores.values()))}.",
            f"This takes about {in_bytes(memory)} of memory with {n_procs} at a time.",
            "Nothing was written.",
        ]
    )


def _run_files(options: argparse.Namespace) -> None:
    from icofactor.checks import Number, check_value
    from icofactor.cli.estimate import memory_to_write
    from icofactor.cohort.problems import some
    from icofactor.cohort.store.read import open_store
    from icofactor.io.publish import check_apart
    from icofactor.preprocessing._prepare_hcp import check_new_store
    from icofactor.preprocessing.outliers import LIMIT
    from icofactor.preprocessing.prepare_maps import Changes, prepare_cohort

    if not options.limit_outliers:
        _refuse(options, ("n_deviations",), "needs --limit-outliers")
    if options.smooth is None:
        _refuse(options, ("surfaces",), "needs --smooth")
    else:
        check_value("smooth", options.smooth, Number(positive=True))
    if options.resample_to is None:
        _refuse(options, ("spheres", "method"), "needs --resample-to")
    surfaces = (options.surfaces,) if isinstance(options.surfaces, str) else options.surfaces
    changes = Changes(
        limit=(LIMIT if options.n_deviations is None else options.n_deviations)
        if options.limit_outliers
        else None,
        fwhm=options.smooth,
        surfaces=surfaces,
        resample_to=options.resample_to,
        spheres=options.spheres,
        method=options.method or "adaptive",
    )
    grown = None
    if options.append:
        _refuse(
            options,
            ("dtype",),
            "cannot be combined with --append: a store has one type of values",
        )
        if options.overwrite:
            raise ArgumentError("overwrite", "replaces the store and --append adds to it; give one")
        grown = open_store(options.out)
    else:
        check_new_store(options.out, options.overwrite)
    check_apart(options.out, read_by(options))
    plan = plan_inputs(options)
    if grown is not None and (twice := sorted(set(grown.subjects).intersection(plan.subjects))):
        raise CohortError(options.out, f"already has these subjects: {some(twice)}")
    if options.dry_run:
        to = (
            "write them to"
            if grown is None
            else f"add them to the {plural(len(grown.subjects), 'subject')} of"
        )
        print("\n".join([*would_read(plan), f"and {to} {options.out}."]))
        more = memory_to_write(len(plan.subjects), plan.n_sites) if plan.stored else 0
        print(f"{memory_of_pass(plan, more)}\nNothing was written.")
        return
    cohort = plan.read()
    how = {
        "overwrite": options.overwrite,
        "append": bool(options.append),
        "dtype": options.dtype or "float32",
    }
    made = prepare_cohort(cohort, options.out, changes, **how, progress=not options.quiet)
    print(f"{options.out}: {made!r}")
