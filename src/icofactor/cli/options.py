"""The options of all commands that read a cohort, and planning it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.errors import ArgumentError, plural
from icofactor.io.url import is_url

if TYPE_CHECKING:
    from icofactor.cohort.measures import Measures
    from icofactor.cohort.plan import Plan

_FILES = (
    *("participants", "exclude", "missing", "mesh", "hemisphere", "mask", "parcels"),
    *("measure", "smoothing", "target", "entities", "stream", "sessions", "map_name", "subjects"),
)


SEVERAL = "; or one of these for each of several measures of the same people (INPUT or NAME=INPUT; --share)"


def add_inputs(
    parser: argparse.ArgumentParser,
    *,
    sites: bool = True,
    optional: bool = False,
    several: str = SEVERAL,
) -> None:
    """INPUT... and what says how to read it; `sites`: also mesh, hemisphere and mask, where no fit
    says them.
    """
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="*" if optional else "+",
        help="map files (MGH, FreeSurfer morph, GIFTI, CIFTI, NIfTI from mri_surf2surf, npy, npz, mat, csv, CIVET "
        "text), globs, folders with map files, a SUBJECTS_DIR of FreeSurfer or FastSurfer, an HCP tree, BIDS "
        "derivatives (fMRIPrep, XCP-D), CAT12 or CIVET folders, tables with one column per region, one cohort store (a "
        f"folder or a URL: s3://, gs://, https://){several}",
    )
    group = parser.add_argument_group("reading the input")
    group.add_argument(
        "--participants",
        metavar="TSV",
        type=Path,
        help="table with a column participant_id. It selects and orders the subjects. A column named exclude leaves "
        "subjects out. With a column session_id, a person may have several rows",
    )
    group.add_argument(
        "--exclude", metavar="ID,...", type=words, default=(), help="subjects to leave out"
    )
    group.add_argument(
        "--subjects",
        metavar="ID,...|FILE|PATTERN",
        type=subjects,
        help="subject names, if file names do not contain them: names in the order of the maps, a FILE with one name "
        "per line, or a PATTERN of the file names, e.g. 'lh.thickness.{subject}.mgh'",
    )
    group.add_argument(
        "--map-name",
        metavar="NAME",
        type=map_name,
        help="which map to read from files with several maps: its name, or its number from 0",
    )
    group.add_argument(
        "--measure",
        metavar="NAME",
        help="which measure to read from a tree, e.g. thickness, myelin, reho"
        + ("; several with --share: thickness,area" if several == SEVERAL else ""),
    )
    group.add_argument(
        "--smoothing", metavar="MM", type=float, help="read the files with this FWHM in their names"
    )
    group.add_argument(
        "--target",
        metavar="NAME",
        help="read the files resampled to this mesh, e.g. fsaverage5, 32k",
    )
    group.add_argument(
        "--entities",
        metavar="NAME=VALUE,...",
        type=entities,
        help="read the files with these BIDS entities, e.g. ses=1,task=rest,run=1",
    )
    group.add_argument(
        "--stream",
        choices=["cross", "base", "long"],
        help="which folders of FreeSurfer's longitudinal stream to read: cross-sectional, base or longitudinal",
    )
    group.add_argument(
        "--sessions",
        metavar="all|ID,...",
        type=sessions,
        help="which sessions to read if people have several scans: all, or the sessions listed",
    )
    group.add_argument(
        "--missing",
        choices=["raise", "skip"],
        help="if a subject lacks files: stop with an error (raise, the default) or leave the subject out (skip)",
    )
    if not sites:
        return
    group.add_argument(
        "--mesh",
        metavar="MESH",
        type=one_or_two,
        help="fsaverage3 to fsaverage7, fsLR32k, a sphere file, or LEFT,RIGHT files (default: detected from the input)",
    )
    group.add_argument(
        "--parcels",
        nargs="+",
        action=_Files,
        metavar="FILE",
        help="atlas of input tables with one column per region (aparcstats2table, XCP-D, ENIGMA): one .annot or "
        ".label.gii per hemisphere, or one .dlabel.nii (pscalar files contain their atlas)",
    )
    group.add_argument(
        "--hemisphere",
        choices=["left", "right", "both"],
        help="hemispheres to read (default: all in the input)",
    )
    group.add_argument(
        "--mask",
        metavar="FILE",
        type=one_or_two,
        help="cortex mask: annot, label, atlasroi, or a map that is 0 outside the cortex; LEFT,RIGHT for two "
        "hemispheres",
    )


def add_people(group: Any) -> None:
    """--fit-on, --order, --groups: people with several scans, families."""
    group.add_argument(
        "--fit-on",
        choices=["baseline", "one-per-person", "all"],
        help="which scans to fit if people have several: the first (baseline), one at random (one-per-person), or all. "
        "Loadings of the other scans are computed from that fit",
    )
    group.add_argument(
        "--order",
        metavar="COLUMN",
        help="column that orders a person's scans, e.g. age (default: the session name)",
    )
    group.add_argument(
        "--groups",
        metavar="COLUMN",
        help="column of groups, e.g. family, that stay together in splits, folds, resamples and permutations "
        "(default: the person)",
    )


def plan_inputs(
    options: argparse.Namespace,
    needed: Sequence[str] = (),
    measures: Measures | None = None,
    **given: Any,
) -> Plan:
    """Plan the cohort that the options describe. What is wrong with its files ends here.

    Parameters
    ----------
    measures : how a fit joined its own, which new subjects are joined by.
    needed : columns of the participants' table; --missing-covariates skip leaves out subjects who
        lack a value.
    given : what a fit says of its maps, for options that this command does not define; files only,
        a cohort store
        has its own.
    """
    from icofactor.cli.measures import are_measures, plan_measures
    from icofactor.cohort.load import plan_cohort
    from icofactor.cohort.store.layout import is_zarr

    if not options.inputs:
        raise ArgumentError("inputs", "is missing: give the maps of the subjects")
    alone = len(options.inputs) == 1
    if measures is not None or are_measures(options):
        return plan_measures(options, needed, measures, given)
    # --smoothing 0 is asked for; --exclude without names is not
    asked = {
        name: value for name in _FILES if (value := getattr(options, name, None)) not in (None, ())
    }
    if getattr(options, "fit_on", None) is not None:
        asked.setdefault("sessions", "all")
    known = {} if alone and is_zarr(options.inputs[0]) else given
    shown = not (options.quiet or getattr(options, "dry_run", False))
    place, asked = options.inputs[0] if alone else options.inputs, {**known, **asked}
    if getattr(options, "missing_covariates", None) == "skip":
        asked["needed"] = needed
    plan = plan_cohort(place, **asked, verbose=shown)
    if getattr(options, "dry_run", False):
        plan.check()
    elif plan.problems:
        plan.read()  # which names everything that is wrong
    return plan


def confounds_asked(options: argparse.Namespace) -> list[str]:
    """Columns that options name for harmonization and covariates."""
    from icofactor.preprocessing.combat import columns_needed

    return columns_needed(options.harmonize, options.keep, options.covariates)


def confounds_of(model: Any) -> list[str]:
    """Columns that a fit needs of new subjects."""
    steps = [step for step in (model.harmonization_, model.covariates_) if step is not None]
    return [name for step in steps for name in (*step.names, *(term.name for term in step.terms))]


def add_missing_covariates(group: Any) -> None:
    group.add_argument(
        "--missing-covariates",
        choices=["raise", "skip"],
        help="if a subject lacks a covariate: stop with an error (raise, the default) or leave the subject out (skip)",
    )


def read_by(options: argparse.Namespace) -> list[str | Path]:
    """Files and folders that a command reads, by its options: never a place for results."""
    from icofactor.cli.measures import named_input

    named = [
        getattr(options, name, None)
        for name in ("participants", "mask", "mesh", "atlas", "surfaces", "parcels")
    ]
    files = [
        one for value in named for one in (value if isinstance(value, tuple | list) else [value])
    ]
    inputs = (named_input(one)[1] for one in options.inputs)
    return [
        *(path for path in inputs if not is_url(path)),
        *(file for file in files if file is not None),
    ]


def would_read(plan: Plan) -> list[str]:
    """What would be read, as text."""
    from icofactor.cli.estimate import in_bytes
    from icofactor.cohort.people import People

    sides = "both hemispheres" if plan.hemisphere == "both" else f"{plan.hemisphere} hemisphere"
    regions = getattr(plan.sites, "regions", None)
    where = f"sites of {plan.mesh}, {sides}" if regions is None else f"regions of {regions}"
    where += f", {sides}" if regions is not None and regions.hemi else ""
    return [
        f"Would read {plural(plan.n_files, 'file')} ({in_bytes(plan.n_bytes)}) of "
        f"{plural(People.of(plan.subjects, plan.participants).n_scans, 'subject')}:",
        f"  {plan.n_sites // (plan.sites.n_copies if plan.sites else 1)} {where}",
        f"  mask: {plan.mask}",
        *(f"  {note}" for note in plan.journal.steps),
    ]


def memory_of_pass(plan: Plan, more: int) -> str:
    """Say how much memory reading these maps and going over them once needs, with `more` bytes held
    besides.
    """
    from icofactor.cli.estimate import in_bytes, pass_memory

    memory = pass_memory(len(plan.subjects), plan.n_sites, in_memory=not plan.stored) + more
    return f"This takes about {in_bytes(memory)} of memory."


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """--dry-run."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what would be read and how much memory it needs; write nothing",
    )


def add_atlas(group: Any, use: str) -> None:
    """--atlas, with its files separated by spaces or a comma."""
    kinds = (
        "one .annot or .label.gii per hemisphere (LEFT RIGHT, or LEFT,RIGHT), or one .dlabel.nii"
    )
    group.add_argument("--atlas", nargs="+", action=_Files, metavar="FILE", help=f"{use}: {kinds}")


class _Files(argparse.Action):
    """Paths separated by spaces or commas; a path that exists is taken as it is."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        files = [(value,) if Path(value).exists() else words(value) for value in values]
        setattr(namespace, self.dest, tuple(file for part in files for file in part))


def add_confounds(group: Any) -> None:
    """--harmonize, --keep, --reference-site, --covariates and --missing-covariates."""
    group.add_argument(
        "--harmonize",
        metavar="COLUMN",
        help="harmonize the maps with ComBat before the fit: column of the participants table with the scanner, e.g. "
        "site. Removes differences in location and scale",
    )
    group.add_argument(
        "--keep",
        metavar="COLUMN,...",
        type=words,
        default=(),
        help="columns whose effects ComBat keeps, e.g. age,sex",
    )
    group.add_argument(
        "--reference-site",
        metavar="NAME",
        help="scanner that ComBat adjusts the others to (default: their mean)",
    )
    group.add_argument(
        "--covariates",
        metavar="COLUMN,...",
        type=words,
        default=(),
        help="columns of the participants table to regress out of the maps before the fit, e.g. age,sex,site; write "
        "name:category if numbers are codes of categories",
    )
    add_missing_covariates(group)


def check_confounds(options: argparse.Namespace, plan: Plan, rows: Any) -> tuple[Any, Any, str]:
    """What maps are harmonized by, if anything, the coded covariates, and what is done to maps, as
    text.

    Tables that will not do are refused.

    Parameters
    ----------
    rows : numbers of the scans that are fitted.
    """
    import numpy as np

    from icofactor.cohort.measures import people_of_rows
    from icofactor.preprocessing.combat import as_combat
    from icofactor.preprocessing.covariates import check_left, code_terms, columns_of

    combat, done = as_combat(options.harmonize, options.keep, options.reference_site), []
    part = lambda some: people_of_rows(
        plan,
        {name: np.asarray(values)[some] for name, values in plan.participants.items()},
        [plan.subjects[row] for row in some],
    )
    table, subjects = part(rows)
    others = np.setdiff1d(np.arange(len(plan.subjects)), rows)
    if combat is not None:
        scans = combat.check(table, subjects)
        done.append(f"harmonize over {combat.column} ({', '.join(scans.levels)})")
    coded = code_terms(options.covariates, table, subjects) if options.covariates else None
    if coded is not None:
        check_left(coded.terms, [] if combat is None else [combat.column])
        if len(others):
            columns_of(coded.terms, *part(others))
        done.append(f"regress out {', '.join(map(str, coded.terms))}")
    return combat, coded, ", ".join(done)


def map_name(text: str) -> str | int:
    """A map's name, or its number."""
    return int(text) if text.isdecimal() else text


def entities(text: str) -> dict[str, str]:
    """ses=1,task=rest (or ses-1,task-rest) → {"ses": "1", "task": "rest"}."""
    pairs = [re.split("[=-]", part, maxsplit=1) for part in words(text)]
    if not pairs or any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise argparse.ArgumentTypeError(f"NAME=VALUE,..., e.g. ses=1,task=rest; found {text!r}")
    return {pair[0]: pair[1] for pair in pairs}


def sessions(text: str) -> str | tuple[str, ...]:
    """all, or names of sessions."""
    return "all" if text == "all" else words(text)


def words(text: str) -> tuple[str, ...]:
    """a,b,c → its parts."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def subjects(text: str) -> str | tuple[str, ...]:
    """Names, or the file or pattern that says them."""
    return text if "{subject}" in text or Path(text).is_file() else words(text)


def one_or_two(text: str) -> str | tuple[str, str]:
    """A name, or two of them: LEFT,RIGHT."""
    parts = words(text)
    if len(parts) == 2:
        return parts[0], parts[1]
    if len(parts) != 1:
        raise argparse.ArgumentTypeError(f"one name, or LEFT,RIGHT; found {text!r}")
    return parts[0]


def add_weights(group: Any) -> None:
    """The option that says how much each site counts."""
    group.add_argument(
        "--site-weights",
        dest="weights",
        type=weights_of,
        metavar="area|none|FILE,...",
        help="weight of each site. area: its area on fsaverage's average midthickness surface, or on the sphere for "
        "other meshes. FILE: midthickness surfaces or areas per vertex, one file per hemisphere, or a folder of "
        "HCPpipelines or TemplateFlow. none: equal weights. Default: number of vertices for parcels, else none",
    )


def weights_of(text: str) -> str | tuple[str, ...]:
    """area, none, or files."""
    return text if text in ("area", "none") else words(text)
