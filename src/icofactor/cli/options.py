"""The words of all commands that read a cohort, and reading it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_FILES = (
    *("participants", "exclude", "missing", "mesh", "hemisphere", "mask"),
    *("measure", "smoothing", "target", "entities"),
)


def add_inputs(parser: argparse.ArgumentParser, *, sites: bool = True) -> None:
    """INPUT... and what says how to read it; `sites`: also mesh, hemisphere and mask, where no fit tells them."""
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="files of maps (MGH, FreeSurfer morph, GIFTI, CIFTI, npy, npz), globs, folders of them, a FreeSurfer "
        "SUBJECTS_DIR, an HCP tree, fMRIPrep derivatives, or one cohort store",
    )
    group = parser.add_argument_group("reading the input")
    group.add_argument(
        "--participants",
        metavar="TSV",
        type=Path,
        help="table with a column participant_id: selects and orders the subjects; a column exclude leaves some out",
    )
    group.add_argument("--exclude", metavar="ID,...", type=words, default=(), help="subjects to leave out")
    group.add_argument("--measure", metavar="NAME", help="which measure of a tree, e.g. thickness, myelin, reho")
    group.add_argument("--smoothing", metavar="MM", type=float, help="FWHM of the files to take, as their names say")
    group.add_argument("--target", metavar="NAME", help="mesh the files were brought to, e.g. fsaverage5, 32k")
    group.add_argument(
        "--entities",
        metavar="NAME=VALUE,...",
        type=entities,
        help="which of several files with BIDS names, e.g. ses=1,task=rest,run=1",
    )
    group.add_argument(
        "--missing",
        choices=["raise", "skip"],
        help="subjects without all their files are an error (raise, the default) or left out (skip)",
    )
    if not sites:
        return
    group.add_argument(
        "--mesh",
        metavar="MESH",
        type=one_or_two,
        help="fsaverage3 to fsaverage7, a sphere's file, or LEFT,RIGHT sphere files (default: as the files tell)",
    )
    group.add_argument("--hemisphere", choices=["left", "right", "both"], help="which to read (default: what is there)")
    group.add_argument(
        "--mask",
        metavar="FILE",
        type=one_or_two,
        help="annot, label, atlasroi or map that is 0 off the cortex; LEFT,RIGHT for two hemispheres",
    )


def read_inputs(options: argparse.Namespace, **given: Any) -> Any:
    """The cohort that the words stand for; `given` stands for words that the command does not have."""
    from icofactor.cohort.read import load_cohort
    from icofactor.cohort.store.layout import is_store

    paths = _paths(options)
    if is_store(paths):
        _refuse_with_store(options)
        return _selected(load_cohort(paths), options)
    return load_cohort(paths, **{**_asked(options), **given}, verbose=not options.quiet)


def check_participants(
    options: argparse.Namespace, check: Callable[[Mapping[str, Any], Sequence[str]], Any], **given: Any
) -> None:
    """Run a check of the participants' table and the subjects' names before the maps are read, which may take long.

    What is wrong with the files is left to the reading: it names all of them.
    """
    from icofactor.errors import CohortError

    try:
        seen = preview_inputs(options, **given)
    except CohortError:
        return
    check(seen.participants, seen.subjects)


def preview_inputs(options: argparse.Namespace, **given: Any) -> Any:
    """What `read_inputs` would read."""
    from icofactor.cohort.plan import preview_cohort, preview_store
    from icofactor.cohort.read import load_cohort
    from icofactor.cohort.store.layout import is_store

    paths = _paths(options)
    if is_store(paths):
        _refuse_with_store(options)
        stored = load_cohort(paths)
        return preview_store(stored, *_rows(stored, options))
    return preview_cohort(paths, **{**_asked(options), **given})


def would_read(seen: Any) -> list[str]:
    """What `preview_inputs` saw, in words."""
    from icofactor.cli.estimate import in_bytes

    sides = "both hemispheres" if seen.hemisphere == "both" else f"{seen.hemisphere} hemisphere"
    return [
        f"Would read {seen.n_files} files ({in_bytes(seen.n_bytes)}) of {len(seen.subjects)} subjects:",
        f"  {seen.n_sites} sites of {seen.mesh}, {sides}",
        f"  mask: {seen.mask}",
        *(f"  {note}" for note in seen.notes),
    ]


def in_one_pass(seen: Any) -> str:
    """Memory and time of reading these maps and going over them once, in words."""
    from icofactor.cli.estimate import estimate_pass, in_bytes, in_seconds, seconds_to_check

    needed = estimate_pass(len(seen.subjects), seen.n_sites, in_memory=not seen.stored)
    seconds = needed.seconds + seen.seconds + seconds_to_check(len(seen.subjects) * seen.n_sites)
    return (
        f"This takes about {in_bytes(needed.memory)} of memory and {in_seconds(seconds)} (the first file's time × "
        "files, and a formula measured on two cores, see icofactor.cli.estimate)."
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """--dry-run."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would be read, and what memory and time it takes; write nothing",
    )


def _paths(options: argparse.Namespace) -> Any:
    return options.inputs[0] if len(options.inputs) == 1 else options.inputs


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    # --smoothing 0 is asked for; --exclude without names is not
    return {name: value for name in _FILES if (value := getattr(options, name, None)) not in (None, ())}


def _refuse_with_store(options: argparse.Namespace) -> None:
    for name in ("mesh", "measure", "smoothing", "target", "entities", "mask", "hemisphere"):
        if getattr(options, name, None) is not None:
            raise ValueError(
                f"{options.inputs[0]} is a cohort store, which has its mesh, measure and mask; "
                f"{options.flags[name]} is for files"
            )


def _selected(stored: Any, options: argparse.Namespace) -> Any:
    """A stored cohort with the table given, without those left out; it stays on disk."""
    from dataclasses import replace

    if options.participants is None and not options.exclude:
        return stored
    rows, columns = _rows(stored, options)
    if rows == list(range(len(stored.subjects))):
        return replace(stored, participants=columns)
    return stored.select(rows, columns)


def _rows(stored: Any, options: argparse.Namespace) -> tuple[list[int], dict[str, Any]]:
    """Which subjects of a stored cohort are asked for, in order, and what is known of them."""
    import numpy as np

    from icofactor.cohort.subjects import bare, read_participants
    from icofactor.errors import CohortError

    table = read_participants(options.participants)
    out = {bare(name) for name in options.exclude}
    match = {name: name for name in stored.subjects} if table is None else table.match(stored.subjects)
    lacking = [] if table is None else [name for name in table.ids if name not in match and bare(name) not in out]
    listed = {bare(name) for name in (*stored.subjects, *(() if table is None else table.ids))}
    strangers = [name for name in options.exclude if bare(name) not in listed]
    if options.missing == "skip":
        lacking = []
    for what, names, way in (
        ("exclude names", strangers, ""),
        ("participants lists", lacking, "; missing='skip' leaves them out"),
    ):
        if names:
            raise CohortError(f"{options.inputs[0]}: {what} subjects that it does not hold: {', '.join(names)}{way}")
    chosen = [(name, there) for name, there in match.items() if bare(there) not in out]
    if not chosen:
        raise CohortError(f"{options.inputs[0]}: no subject is left")
    rows = [stored.subjects.index(there) for _, there in chosen]
    columns = {str(name): np.asarray(values)[rows] for name, values in stored.participants.items()}
    if table is not None:
        places = [table.ids.index(name) for name, _ in chosen]
        columns |= {name: values[places] for name, values in table.columns.items()}
    return rows, columns


def entities(text: str) -> dict[str, str]:
    """ses=1,task=rest (or ses-1,task-rest) → {"ses": "1", "task": "rest"}."""
    pairs = [re.split("[=-]", part, maxsplit=1) for part in words(text)]
    if not pairs or any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise argparse.ArgumentTypeError(f"NAME=VALUE,..., e.g. ses=1,task=rest; found {text!r}")
    return {pair[0]: pair[1] for pair in pairs}


def words(text: str) -> tuple[str, ...]:
    """a,b,c → its parts."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def one_or_two(text: str) -> str | tuple[str, str]:
    """A name, or two of them: LEFT,RIGHT."""
    parts = words(text)
    if len(parts) == 2:
        return parts[0], parts[1]
    if len(parts) != 1:
        raise argparse.ArgumentTypeError(f"one name, or LEFT,RIGHT; found {text!r}")
    return parts[0]
