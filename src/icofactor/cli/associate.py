"""`icofactor associate`: what the loadings of a fit have to do with the people."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from icofactor.cli.options import words

SUMMARY = "test the loadings of a fit against age, sex, group, behaviour or a reference group"
DESCRIPTION = (
    "Test how the loadings of a fit relate to age, sex, group or behaviour. --formula tests its terms by least squares "
    "(with a random intercept per group if people have several scans). It writes p-values from permutations, corrected "
    "over components and terms (associations.tsv), and maps of the effects. --pls finds patterns of components that "
    "correlate with patterns of behaviour (pls.tsv). --reference writes W-scores: deviations from a reference group of "
    "the same age and sex (normative.tsv)."
)
EXAMPLES = """icofactor associate FITTED --formula "age + sex + group" --contrast "group: patient - control"
icofactor associate FITTED --formula "sex + site" --smooth age --participants participants.tsv -o associations
icofactor associate FITTED --formula "age + group" --groups family --missing-covariates skip -o associations
icofactor associate FITTED --pls behaviour.tsv -o behaviour
icofactor associate FITTED --reference group=control --formula "age + sex" -o norm"""


_SURE = 0.05


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "fitted",
        metavar="FITTED",
        type=Path,
        help="folder of a fit, or a table of loadings from `icofactor transform`",
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", type=Path, help="folder for the results (default: FITTED)"
    )
    parser.add_argument(
        "--formula",
        metavar="TEXT",
        help='terms to test, e.g. "age + sex + group", "age * group", "poly(age, 2) + C(visit)"; functions: '
        "C, cr, bs, poly, center, scale, log, sqrt",
    )
    parser.add_argument(
        "--smooth",
        metavar="COLUMN[=DF],...",
        type=words,
        help="columns to model by a natural cubic spline (default: 3 degrees of freedom)",
    )
    parser.add_argument(
        "--contrast",
        metavar="TEXT",
        action="append",
        help='difference to test, e.g. "group: patient - control" or "age: 70 - 20"; you may repeat it',
    )
    parser.add_argument(
        "--participants",
        metavar="TSV",
        type=Path,
        help="table with a column participant_id (default: the fit's own)",
    )
    parser.add_argument(
        "--groups",
        metavar="COLUMN",
        help="column of groups of related rows, e.g. family (default: the person)",
    )
    parser.add_argument(
        "--pls",
        metavar="TSV",
        type=Path,
        help="table of behaviour with one numeric column per measure",
    )
    parser.add_argument(
        "--reference",
        metavar="COLUMN=VALUE",
        help="reference group for W-scores, e.g. group=control",
    )
    parser.add_argument(
        "--missing-covariates",
        choices=["raise", "skip"],
        default="raise",
        help="if a value is missing: stop with an error (raise, the default) or leave the person out (skip)",
    )
    parser.add_argument(
        "--permutations",
        type=int,
        default=5000,
        metavar="N",
        help="number of permutations (default: 5000; 0 for none)",
    )
    parser.add_argument(
        "--bootstrap",
        type=int,
        default=2000,
        metavar="N",
        help="number of resamples for --pls (default: 2000)",
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
    from icofactor.results.associations import write_associations

    found = write_associations(
        options.fitted,
        options.out,
        options.formula,
        participants=options.participants,
        groups=options.groups,
        smooth=options.smooth,
        contrast=options.contrast,
        behaviour=options.pls,
        reference=options.reference,
        n_permutations=options.permutations,
        n_bootstrap=options.bootstrap,
        missing_covariates=options.missing_covariates,
        random_state=options.random_seed,
        overwrite=options.overwrite,
    )
    if options.quiet:
        return
    for line in _summary(found):
        print(line)
    print("Written: " + ", ".join(map(str, found.files)))


def _summary(found: Any) -> list[str]:
    """What is worth seeing at once."""
    import numpy as np

    lines = []
    if found.associations is not None:
        p = found.associations.p_shown
        sure = [
            line for line, value in zip(found.associations.lines, p, strict=True) if value < _SURE
        ]
        is_corrected = np.isfinite(found.associations.table["p_corrected"]).all()
        after = "after correction over components" if is_corrected else "without any correction"
        lines += [*sure, f"{len(sure)} of {len(p)} tests have p < {_SURE} {after}."]
        lines += [f"- {note}" for note in found.associations.notes]
    if found.pls is not None:
        for i, (share, p) in enumerate(zip(found.pls.explained, found.pls.p, strict=True), 1):
            lines.append(
                f"Latent variable {i}: {100 * share:.0f} % of the cross-correlation, p = {p:.2g}"
            )
        lines += [f"- {note}" for note in found.pls.notes]
    if found.normative is not None:
        lines.append(
            f"W-scores against {int(found.normative.reference.sum())} rows of the reference"
        )
        lines += [f"- {note}" for note in found.normative.notes]
    return lines
