"""`icofactor prepare`: maps of four kinds from an HCP tree, ReHo and ALFF from fMRIPrep, or any cohort, to a store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from icofactor.cli.options import (
    add_dry_run,
    add_inputs,
    in_one_pass,
    one_or_two,
    plan_inputs,
    read_by,
    words,
    would_read,
)
from icofactor.errors import ArgumentError, counted

if TYPE_CHECKING:
    from icofactor.preprocessing._prepare_hcp import HcpPlan, Target

SUMMARY = "make cohort stores: thickness, myelin, ReHo and ALFF from an HCP tree, or from any maps"
DESCRIPTION = """Make a cohort store, ready for `icofactor fit`.

icofactor prepare KIND HCP_DIR -o STORE, where KIND is thickness, myelin, reho or alff, reads an HCP tree
(MSMAll-registered dscalar and dtseries files on fs_LR 32k), computes the maps there and brings them to fsaverage5.
ReHo puts a subject's runs together; ALFF makes one store per run, STORE_RUN. Thickness and myelin have their outliers
limited. Spheres and cortex region come from a folder of HCPpipelines or TemplateFlow (--spheres); nothing is
downloaded. Finished subjects are kept beside STORE: a run that was interrupted goes on where it was.

icofactor prepare reho|alff FMRIPREP_DIR -o STORE takes the series that fMRIPrep put on fsaverage or fs_LR and stays on
that mesh; no spheres are needed. --confounds are regressed out together with mean and straight line (n/a is 0);
volumes above --max-fd are zeroed by a regressor each, and ReHo leaves them out after its band-pass. Nothing else is
done: no smoothing, and without --confounds no cleaning. ReHo joins a subject's runs; ALFF takes one (--entities run=1).
--n-procs and --work-dir work as for an HCP tree, and an interrupted run goes on.

icofactor prepare INPUT... -o STORE takes any maps that are read, with --limit-outliers, --smooth and --resample-to."""
EXAMPLES = """icofactor prepare thickness HCP -o thickness.store --spheres HCPpipelines --n-procs 4
icofactor prepare reho HCP -o reho.store --spheres HCPpipelines --hemisphere left
icofactor prepare alff HCP -o alff.store --spheres HCPpipelines --runs rfMRI_REST1_LR,rfMRI_REST1_RL
icofactor prepare reho fmriprep -o reho.store --target fsaverage5 --entities task=rest --confounds 24p --max-fd 0.5
icofactor prepare fs/*/surf/lh.thickness.fsaverage6.mgh -o store --limit-outliers --resample-to fsaverage5 \\
    --spheres HCPpipelines"""
KINDS = ("thickness", "myelin", "reho", "alff")
_FOR_FILES = (
    *("mesh", "measure", "smoothing", "entities", "missing", "mask", "map_name", "subjects"),
    *("smooth", "surfaces"),
)
_MAPS, _SERIES = ("thickness", "myelin"), ("reho", "alff")
# what has an effect on some kinds only; without a kind nothing of this has, nor of _FOR_ALL_KINDS
_FOR_KINDS = {
    **dict.fromkeys(("limit_outliers", "n_deviations", "map"), _MAPS),
    **dict.fromkeys(("runs", "series", "tr", "low", "high", "confounds", "max_fd"), _SERIES),
    **dict.fromkeys(("filter", "order", "rings", "no_tie_correction"), ("reho",)),
    **dict.fromkeys(("detrend", "normalize"), ("alff",)),
}
_NOT_FOR_BOLD = (
    *("mesh", "measure", "smoothing", "missing", "mask", "map_name", "subjects", "smooth", "surfaces", "resample_to"),
    *("spheres", "method", "runs", "series"),
)
_FOR_ALL_KINDS = ("max_missing", "n_procs", "work_dir")
_NO_KIND = f"needs a kind before the input: {', '.join(KINDS)}"
_STEPS = ("tr", "low", "high", "filter", "order", "rings", "detrend", "normalize", "max_missing")


def add(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser)
    parser.add_argument("-o", "--out", metavar="STORE", type=Path, required=True, help="the cohort store to write")
    add_dry_run(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace stores of an earlier run")
    steps = parser.add_argument_group("steps")
    steps.add_argument(
        "--limit-outliers",
        action=argparse.BooleanOptionalAction,
        help="limit each subject's outliers (default: for thickness and myelin of an HCP tree)",
    )
    steps.add_argument(
        "--n-deviations", type=float, metavar="N", help="limit in median absolute deviations (default: 4.4478)"
    )
    steps.add_argument("--smooth", type=float, metavar="MM", help="smooth along the surface; FWHM in mm")
    steps.add_argument(
        "--surfaces",
        type=one_or_two,
        metavar="FILE",
        help="midthickness to smooth along; LEFT,RIGHT for two hemispheres (default: that of fsaverage5)",
    )
    steps.add_argument(
        "--resample-to",
        metavar="MESH",
        help="fsaverage4, 5, 6 (default for an HCP tree: fsaverage5); from fsaverage to fsaverage5 or 6 no "
        "spheres are needed: their vertices are kept",
    )
    steps.add_argument(
        "--spheres", type=Path, metavar="DIR", help="folder with registered spheres: HCPpipelines or TemplateFlow"
    )
    steps.add_argument("--method", choices=["adaptive", "barycentric"], help="how to resample (default: adaptive)")
    _add_hcp(parser)


def _add_hcp(parser: argparse.ArgumentParser) -> None:
    tree = parser.add_argument_group("HCP tree")
    tree.add_argument("--map", metavar="NAME", help="which dscalar, e.g. corrThickness_MSMAll (default: KIND's)")
    tree.add_argument(
        "--runs", type=words, metavar="RUN,RUN,...", help="which runs (default: all rfMRI_REST* that any subject has)"
    )
    tree.add_argument(
        "--series",
        metavar="NAME",
        help="what follows the run in the names of dtseries files (default: _Atlas_MSMAll_hp2000_clean)",
    )
    tree.add_argument(
        "--max-missing",
        type=float,
        metavar="SHARE",
        help="cortex without data that may be filled from neighbours, in each hemisphere (default: 0.01)",
    )
    tree.add_argument("--n-procs", type=int, metavar="N", help="subjects at the same time (default: 1)")
    tree.add_argument("--work-dir", type=Path, metavar="DIR", help="where finished maps are kept (default: STORE.work)")
    time = parser.add_argument_group("ReHo and ALFF")
    time.add_argument("--tr", type=float, metavar="S", help="seconds between volumes (default: as file or sidecar say)")
    time.add_argument(
        "--confounds",
        type=words,
        metavar="NAME,...",
        help="fMRIPrep: columns of its confounds to regress out, or a set: 6p, 9p, 24p, 36p (default: none)",
    )
    time.add_argument(
        "--max-fd", type=float, metavar="MM", help="fMRIPrep: leave out volumes with more framewise displacement"
    )
    time.add_argument("--low", type=float, metavar="HZ", help="lower end of the band (default: 0.05)")
    time.add_argument("--high", type=float, metavar="HZ", help="upper end of the band (default: 0.1)")
    time.add_argument("--filter", choices=["butterworth", "fft"], help="ReHo's band-pass (default: butterworth)")
    time.add_argument("--order", type=int, metavar="N", help="order of the Butterworth filter (default: 2)")
    time.add_argument("--rings", type=int, metavar="N", help="ReHo's radius in edges (default: 3)")
    time.add_argument("--no-tie-correction", action="store_true", default=None, help="ReHo as XCP-D has it")
    time.add_argument("--detrend", action="store_true", default=None, help="ALFF: take out a straight line, too")
    time.add_argument("--normalize", choices=["none", "mean"], help="ALFF: divide by the cortex' mean (mean), or not")


def run(options: argparse.Namespace) -> None:
    first = options.inputs[0]
    if first in KINDS and not (len(options.inputs) == 1 and Path(first).exists()):
        if len(options.inputs) != 2:
            found = len(options.inputs) - 1
            raise ArgumentError("inputs", None, f"Icofactor prepare {first} takes one folder; found {found}")
        if _is_bold(first, options.inputs[1]):
            _refuse(options, _NOT_FOR_BOLD, "is not for fMRIPrep's series, which stay on the mesh they are on")
            _refuse_kinds(options, first)
            _run_bold(options, first, Path(options.inputs[1]))
            return
        _refuse(options, ("confounds", "max_fd"), "is for fMRIPrep's series; the HCP's are cleaned already")
        _refuse(options, _FOR_FILES, f"is not for icofactor prepare {first}: it takes an HCP tree as it is")
        _refuse_kinds(options, first)
        _run_hcp(options, first, Path(options.inputs[1]))
    else:
        of_files = ("limit_outliers", "n_deviations")
        _refuse(options, (*(name for name in _FOR_KINDS if name not in of_files), *_FOR_ALL_KINDS), _NO_KIND)
        _run_files(options)


def _refuse_kinds(options: argparse.Namespace, kind: str) -> None:
    for name, kinds in _FOR_KINDS.items():
        if kind not in kinds:
            _refuse(options, (name,), f"is for {' and '.join(kinds)}, not {kind}")


def _is_bold(kind: str, folder: str) -> bool:
    """Whether to look for fMRIPrep's series: a folder of sub-* folders that is not an HCP tree."""
    from icofactor.cohort.find.hcp import hcp_subjects
    from icofactor.preprocessing.bold import is_bold_tree

    return kind in _SERIES and is_bold_tree(folder) and not hcp_subjects(Path(folder))


def _run_bold(options: argparse.Namespace, kind: str, folder: Path) -> None:
    from icofactor.io.publish import check_apart
    from icofactor.preprocessing.bold import Cleaning, prepare_bold
    from icofactor.preprocessing.hcp_subject import Steps

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
    """Options that would do nothing are refused, not passed over."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            shown = f"{name}={value}" if name == "limit_outliers" else name
            raise ArgumentError(name, None, f"{{{shown}}} {why}")


def _run_hcp(options: argparse.Namespace, kind: str, folder: Path) -> None:
    from icofactor.preprocessing._prepare_hcp import Target, failed, plan_hcp, prepare_hcp
    from icofactor.preprocessing.hcp import SERIES, find_inputs
    from icofactor.preprocessing.hcp_subject import Steps
    from icofactor.preprocessing.outliers import LIMIT

    if options.spheres is None:
        raise ArgumentError(
            "spheres",
            None,
            "{spheres} is missing: the folder with fs_LR's and fsaverage's spheres, e.g. "
            "HCPpipelines/global/templates/standard_mesh_atlases",
        )
    if options.limit_outliers is False:
        _refuse(options, ("n_deviations",), "bounds outliers, which {limit_outliers=False} leaves as they are")
    if options.filter == "fft":
        _refuse(options, ("order",), "is of the Butterworth filter, not of {filter='fft'}")
    if options.resample_to is not None:
        _refuse(options, ("target",), "and {resample_to} both name the mesh to bring the maps to; give one")
    limited = kind in _MAPS and options.limit_outliers is not False
    steps = Steps(
        kind,
        limit=(LIMIT if options.n_deviations is None else options.n_deviations) if limited else None,
        tie_correction=not options.no_tie_correction,
        **{name: value for name in _STEPS if (value := getattr(options, name)) is not None},
    )
    mesh = options.resample_to or options.target or "fsaverage5"
    target = Target(options.spheres, options.hemisphere or "both", mesh, options.method or "adaptive")
    series = SERIES if options.series is None else options.series
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
        raise failed(made.failures, "the stores lack maps that could not be made")


def _would_do(plan: HcpPlan, kind: str, target: Target, n_procs: int) -> str:
    """What would be read of an HCP tree, and what it takes."""
    from icofactor.cli.estimate import estimate_prepare, in_bytes, in_seconds
    from icofactor.preprocessing._prepare_hcp import failure_lines

    sides = 2 if target.hemisphere == "both" else 1
    needed = estimate_prepare(kind, plan.sizes, sides, n_procs)
    n_files, n_bytes = sum(map(len, plan.sizes)), sum(map(sum, plan.sizes))
    hemispheres = "both hemispheres" if sides == 2 else f"{target.hemisphere} hemisphere"
    return "\n".join(
        [
            f"Would read {counted(n_files, 'file')} ({in_bytes(n_bytes)}) of {counted(plan.n_subjects, 'subject')}",
            *(f"  will fail: {line.strip()}" for line in failure_lines(plan.failures)[1:]),
            f"and write {kind} on {target.mesh}, {hemispheres}, to {', '.join(map(str, plan.stores.values()))}.",
            f"This takes about {in_bytes(needed.memory)} of memory and {in_seconds(needed.seconds)} with {n_procs} "
            "at a time (an estimate for two cores).",
            "Nothing was written.",
        ]
    )


def _run_files(options: argparse.Namespace) -> None:
    from icofactor.io.publish import check_apart
    from icofactor.preprocessing._prepare_hcp import check_new_store
    from icofactor.preprocessing.outliers import LIMIT
    from icofactor.preprocessing.prepare_maps import Changes, prepare_cohort

    if not options.limit_outliers:
        _refuse(options, ("n_deviations",), "needs {limit_outliers=True}")
    if options.smooth is None:
        _refuse(options, ("surfaces",), "needs {smooth}")
    if options.resample_to is None:
        _refuse(options, ("spheres", "method"), "needs {resample_to}")
    surfaces = (options.surfaces,) if isinstance(options.surfaces, str) else options.surfaces
    changes = Changes(
        limit=(LIMIT if options.n_deviations is None else options.n_deviations) if options.limit_outliers else None,
        fwhm=options.smooth,
        surfaces=surfaces,
        resample_to=options.resample_to,
        spheres=options.spheres,
        method=options.method or "adaptive",
    )
    check_new_store(options.out, options.overwrite)
    check_apart(options.out, read_by(options))
    plan = plan_inputs(options)
    if options.dry_run:
        print("\n".join([*would_read(plan), f"and write them to {options.out}."]))
        print(f"{in_one_pass(plan)}\nNothing was written.")
        return
    cohort = plan.read()
    made = prepare_cohort(cohort, options.out, changes, overwrite=options.overwrite, progress=not options.quiet)
    print(f"{options.out}: {made!r}")
