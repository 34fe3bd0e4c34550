"""`icofactor compare`: which component of one fit is which of another."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "match the components of two fits, with a table and a picture"
DESCRIPTION = (
    "Match the components of two fits by the similarity of their maps, and test each pair against rotated maps. The "
    "fits may use different fsaverage meshes, or one may use fs_LR (--spheres). Writes comparison.tsv, "
    "comparison.json, and the pairs side by side as PNG and PDF."
)
EXAMPLES = """icofactor compare out_discovery out_replication -o comparison
icofactor compare out_fsaverage5 out_fs_lr --spheres HCPpipelines -o comparison"""


def add(parser: argparse.ArgumentParser) -> None:
    for name in ("a", "b"):
        parser.add_argument(
            name, metavar=name.upper(), type=Path, help="folder of a fit, or its model.zip"
        )
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, required=True, help="folder for the results"
    )
    parser.add_argument(
        "--spheres",
        type=Path,
        metavar="DIR",
        help="folder with registered spheres: HCPpipelines or TemplateFlow",
    )
    parser.add_argument(
        "--spins", type=int, default=1000, metavar="N", help="number of rotations (default: 1000)"
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


def run(options: argparse.Namespace) -> None:
    from icofactor.progress import Stages
    from icofactor.results.comparison import write_comparison

    with Stages(not options.quiet).stage("rotations") as show:
        found, files = write_comparison(
            options.a,
            options.b,
            options.out,
            spheres=options.spheres,
            n_spins=options.spins,
            random_state=options.random_seed,
            overwrite=options.overwrite,
            report=show,
        )
    if not options.quiet:
        print(found)
        print("Written: " + ", ".join(map(str, files)))
