"""`icofactor select`: how many components, and how far to trust those of a model."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from icofactor.commands.inputs import add_inputs, one_or_two, read_inputs, words

SUMMARY = "find out how many components to ask for, and how far to trust a model's"
DESCRIPTION = (
    "Try a range of numbers of components: agreement of split halves against rotated maps, errors on held-out subjects "
    "and blocks, stability over starts. Writes selection.tsv, selection.json and selection.png with a recommendation "
    "and its reasons; written into the folder of a fit, its report shows them. With --model, trust in that model's "
    "components instead (or as well, when --ranks is given): --bootstrap writes standard errors of maps and loadings "
    "and the stability of each component, --atlas the overlap with an atlas."
)
EXAMPLES = """icofactor select SUBJECTS_DIR -o selection --ranks 2-20
icofactor select cohort.zarr -o fitted --stratify sex,site --work-dir work
icofactor select cohort.zarr -o fitted --model fitted --bootstrap 200 --atlas lh.aparc.annot,rh.aparc.annot"""

_DEFAULT_RANKS = "2-20"


def add(parser: argparse.ArgumentParser) -> None:
    add_inputs(parser)
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="folder for the results")
    group = parser.add_argument_group("how many components")
    group.add_argument("--ranks", type=ranks_of, metavar="2-20", help=f"numbers to try (default: {_DEFAULT_RANKS})")
    group.add_argument("--splits", type=int, default=20, metavar="N", help="random halves (default: 20)")
    group.add_argument("--starts", type=int, default=10, metavar="N", help="random starts per fit (default: 10)")
    group.add_argument("--nulls", type=int, default=10, metavar="N", help="cohorts of rotated maps (default: 10)")
    group.add_argument(
        "--stratify", type=words, default=(), metavar="sex,site", help="columns that the halves share evenly"
    )
    group.add_argument("--method", default="CD-PNNMF", help="the method you will fit with (default: CD-PNNMF)")
    trust = parser.add_argument_group("trust in a model")
    trust.add_argument("--model", metavar="FITTED", type=Path, help="folder of a fit, or its model.zip")
    trust.add_argument("--bootstrap", type=int, default=0, metavar="N", help="resamples of the subjects, e.g. 200")
    trust.add_argument(
        "--atlas", type=one_or_two, metavar="FILE", help=".annot or .label.gii (LEFT,RIGHT), .dlabel.nii"
    )
    trust.add_argument("--spins", type=int, default=1000, metavar="N", help="rotations of the null (default: 1000)")
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="keep finished pieces here, and go on from them")
    parser.add_argument("--random-seed", type=int, default=0, metavar="N", help="same seed, same answer (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run")


def ranks_of(text: str) -> list[int]:
    """2-20, or 2,4,8-10 → the numbers."""
    found: list[int] = []
    try:
        for part in words(text):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError:
        found = []
    if not found:
        raise argparse.ArgumentTypeError(f"numbers of components such as 2-20 or 2,4,8-10; found {text!r}")
    return found


def run(options: argparse.Namespace) -> None:
    begin = time.perf_counter()
    if options.model is None and (options.bootstrap or options.atlas):
        raise ValueError("--bootstrap and --atlas are about a model: give it with --model")
    if options.model is not None and not (options.bootstrap or options.atlas or options.ranks):
        raise ValueError("--model alone asks for nothing: add --bootstrap N, --atlas FILE or --ranks")
    model = None if options.model is None else _load(options.model)
    cohort = read_inputs(options)
    if model is None or options.ranks:
        _search(cohort, options)
    if model is not None:
        _trust(model, cohort, options)
    print(f"{time.perf_counter() - begin:.0f} s in all. Look at {options.out}")


def _load(path: Path) -> Any:
    from icofactor.model_file import load_model

    return load_model(path / "model.zip" if path.is_dir() else path)


def _search(cohort: Any, options: argparse.Namespace) -> None:
    from icofactor.selection import choose_n_components
    from icofactor.selection.choice import check_files

    check_files(options.out, options.overwrite)
    choice = choose_n_components(
        cohort,
        options.ranks or ranks_of(_DEFAULT_RANKS),
        n_splits=options.splits,
        n_starts=options.starts,
        n_nulls=options.nulls,
        stratify=options.stratify,
        method=options.method,
        random_state=options.random_seed,
        work_dir=None if options.work_dir is None else options.work_dir / "ranks",
        verbose=not options.quiet,
    )
    choice.save(options.out, overwrite=options.overwrite)
    print(choice)


def _trust(model: Any, cohort: Any, options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    if options.atlas:
        from icofactor.atlas import overlap, write_overlap

        found = overlap(model, options.atlas, options.spins, options.random_seed)
        write_overlap(found, options.out / "atlas_overlap.tsv", overwrite=options.overwrite)
        print("\n".join(f"Component {j}: {name}" for j, name in enumerate(found.names, 1)))
    if options.bootstrap:
        from icofactor.bootstrap import bootstrap

        spread = bootstrap(
            model,
            cohort,
            options.bootstrap,
            options.random_seed,
            work_dir=None if options.work_dir is None else options.work_dir / "bootstrap",
            verbose=not options.quiet,
        )
        spread.save(options.out, model, cohort.subjects, overwrite=options.overwrite)
        print("Stability of the components: " + ", ".join(f"{value:.2f}" for value in spread.stability))
