"""`icofactor demo`: the main job on simulated data."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

SUMMARY = "simulate a cohort, factorize it and write maps, loadings and a report"
DESCRIPTION = (
    "Simulate a cohort on fsaverage5, factorize it and write what a fit gives: basis maps (GIFTI), "
    "loadings (TSV), provenance (JSON), the model, a report page and figures for print. Needs no data and no network."
)
EXAMPLES = "icofactor demo demo-output"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for the results; made when missing")
    parser.add_argument("--n-subjects", type=int, default=100, help="subjects to simulate (default: 100)")
    parser.add_argument("--n-components", type=int, default=10, help="components to simulate and find (default: 10)")
    parser.add_argument("--modality", default="thickness", help="thickness, myelin, reho or alff (default: thickness)")
    parser.add_argument("--hemisphere", default="both", choices=["left", "right", "both"], help="default: both")
    parser.add_argument("--random-seed", type=int, default=0, metavar="N", help="same seed, same answer (default: 0)")
    parser.add_argument(
        "--no-figures", action="store_true", help="leave out figures/, the panels for print; saves seconds"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run")


def run(options: argparse.Namespace) -> None:
    from icofactor.results.demo import run_demo

    begin = time.perf_counter()
    summary = run_demo(
        options.out,
        n_subjects=options.n_subjects,
        n_components=options.n_components,
        modality=options.modality,
        hemisphere=options.hemisphere,
        random_state=options.random_seed,
        figures=not options.no_figures,
        overwrite=options.overwrite,
        verbose=not options.quiet,
    )
    print(summary)
    print(f"{time.perf_counter() - begin:.0f} s in all. Look at {options.out / 'report.html'}")
