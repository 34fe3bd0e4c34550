"""`icofactor-bids DERIVATIVES OUT group`: a fit by the command line that BIDS Apps share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from icofactor import __version__
from icofactor.cli.main import Help
from icofactor.cli.main import main as run

DESCRIPTION = (
    "Factorize the surface maps of all participants in BIDS derivatives (fMRIPrep, XCP-D or similar). This runs "
    "`icofactor fit` with the command line of BIDS Apps. It accepts all options of `icofactor fit`."
)
EXAMPLES = """examples:
  icofactor-bids derivatives/xcp_d out group --measure reho --target fsaverage5
  icofactor-bids derivatives/xcp_d out group --participant-label 01 02 --task-label rest --n-components 5"""


def parser() -> argparse.ArgumentParser:
    """The arguments of BIDS Apps, and the measure; those of `icofactor fit` are passed on."""
    made = argparse.ArgumentParser(
        prog="icofactor-bids",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=Help,
        allow_abbrev=False,
    )
    made.add_argument(
        "bids_dir", metavar="BIDS_DERIVATIVES", type=Path, help="folder with sub-* folders of maps"
    )
    made.add_argument(
        "output_dir", metavar="OUT", type=Path, help="folder for the results; created if missing"
    )
    made.add_argument(
        "analysis_level", choices=["group"], help="a fit always uses all participants together"
    )
    made.add_argument(
        "--participant-label",
        "--participant_label",
        metavar="LABEL",
        nargs="+",
        default=[],
        help='participants to analyse, with or without "sub-" (default: all)',
    )
    made.add_argument(
        "--session-label", "--session_label", metavar="LABEL", help="session to read, e.g. 1"
    )
    made.add_argument(
        "--task-label", "--task_label", metavar="LABEL", help="task to read, e.g. rest"
    )
    made.add_argument(
        "--entities",
        metavar="NAME=VALUE,...",
        help="other BIDS entities to read, e.g. run=1,desc=denoised",
    )
    made.add_argument(
        "--measure", metavar="NAME", help="measure to read: a stat- entity or a suffix, e.g. reho"
    )
    made.add_argument("--target", metavar="NAME", help="mesh of the maps, e.g. fsaverage5, 32k")
    made.add_argument(
        "--n-components",
        metavar="N",
        type=int,
        default=10,
        help="number of basis maps (default: 10)",
    )
    made.add_argument(
        "--skip-bids-validator",
        "--skip_bids_validator",
        action="store_true",
        help="accepted for compatibility; icofactor checks names and headers when it reads files",
    )
    made.add_argument("-v", "--version", action="version", version=f"icofactor-bids {__version__}")
    return made


def as_fit(argv: Sequence[str] | None = None) -> list[str]:
    """The same as arguments of `icofactor fit`."""
    made = parser()
    options, rest = made.parse_known_args(argv)
    root: Path = options.bids_dir
    if not root.is_dir():
        made.error(f"{root} is not a folder")
    subjects = [
        root / f"sub-{label.removeprefix('sub-')}"
        for label in dict.fromkeys(options.participant_label)
    ]
    lost = [folder.name for folder in subjects if not folder.is_dir()]
    if lost:
        made.error(f"--participant-label: {root} has no {', '.join(lost)}")
    words = ["fit", *map(str, subjects or [root]), "--out", str(options.output_dir)]
    words += ["--n-components", str(options.n_components)]
    for name in ("measure", "target"):
        words += [] if getattr(options, name) is None else [f"--{name}", getattr(options, name)]
    chosen = {"ses": options.session_label, "task": options.task_label}
    entities = [
        f"{key}={value.removeprefix(f'{key}-')}"
        for key, value in chosen.items()
        if value is not None
    ]
    entities += [] if options.entities is None else [options.entities]
    words += ["--entities", ",".join(entities)] if entities else []
    table = root / "participants.tsv"
    # of some participants the table would be incomplete on purpose, which `fit` takes for an error
    if (
        not subjects
        and table.is_file()
        and not any(word.startswith("--participants") for word in rest)
    ):
        words += ["--participants", str(table)]
    return [*words, *rest]


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; the exit status is that of `icofactor fit`."""
    return run(as_fit(sys.argv[1:] if argv is None else argv), "icofactor-bids")
