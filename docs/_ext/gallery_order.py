"""The tutorials: their order, as a newcomer needs them, and the figures that they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TUTORIALS = (
    "freesurfer_thickness",
    "hcp_myelin",
    "fmriprep_reho",
    "reading_the_report",
    "how_many_components",
    "a_sentence_for_the_paper",
    "several_measures",
    "parcels_from_a_table",
    "big_cohort_on_a_cluster",
    "coming_from_other_nmf",
)


class Order:
    """A key for sphinx-gallery."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> int:
        return TUTORIALS.index(file.removesuffix(".py"))

    def __repr__(self) -> str:
        return "<the order of the tutorials>"


def shown_figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """For sphinx-gallery: the figures in a script's variables, which pyplot does not know; each is shown once."""
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    paths = []
    for value in list(block_vars["example_globals"].values()):
        if (
            isinstance(value, Figure)
            and not hasattr(value, "number")
            and not hasattr(value, "was_shown")
        ):
            paths.append(next(block_vars["image_path_iterator"]))
            Path(paths[-1]).parent.mkdir(parents=True, exist_ok=True)
            value.savefig(paths[-1])
            value.was_shown = True  # type: ignore[attr-defined]
    return figure_rst(paths, gallery_conf["src_dir"])
