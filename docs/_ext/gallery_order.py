"""The order of the tutorials: as a newcomer needs them."""

from __future__ import annotations

TUTORIALS = (
    "freesurfer_thickness",
    "reading_the_report",
    "how_many_components",
    "a_sentence_for_the_paper",
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
