"""`icofactor report`: the page and the figures of a fit."""

from __future__ import annotations

import argparse
from pathlib import Path

from icofactor.cli.options import add_atlas

SUMMARY = "write the report page and the figures of a fit"
DESCRIPTION = (
    "Write the report of a fit: report.html, one file that opens in any browser without network; tables/ with its "
    "numbers; and figures/, every chart as SVG. Maps are drawn on the surfaces of fsaverage. For other meshes, "
    "such as fs_LR 32k, give --surfaces; without it, maps are drawn on the sphere."
)
EXAMPLES = """icofactor report FITTED
icofactor report FITTED -o elsewhere --atlas lh.aparc.annot rh.aparc.annot
icofactor report FITTED --surfaces fsaverage_LR32k/ --overwrite"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "fitted",
        metavar="FITTED",
        type=Path,
        help="folder that `icofactor fit` or `icofactor demo` wrote",
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, help="folder for the page (default: FITTED)"
    )
    parser.add_argument(
        "--surfaces",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="surface files of the mesh, or a folder with them",
    )
    add_atlas(parser, "atlas that names the region under the pointer")
    parser.add_argument("--no-figures", action="store_true", help="write only the page")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an earlier page and its figures"
    )


def run(options: argparse.Namespace) -> None:
    from icofactor.progress import Stages
    from icofactor.results.report.page import write_page

    with Stages(not options.quiet).stage("report") as show:
        page = write_page(
            options.fitted,
            options.out,
            surfaces=options.surfaces,
            atlas=options.atlas,
            figures=not options.no_figures,
            overwrite=options.overwrite,
            report=show,
        )
    print(f"Open {page}")
