"""`Choice`: the curves, the recommendation and its reasons; as files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.io.atomic import atomic_path, check_folder
from icofactor.io.tables import write_json, write_tsv

FILES = ("selection.tsv", "selection.json", "selection.png")


@dataclass(frozen=True, eq=False)
class Choice:
    """How many components, and why.

    Attributes
    ----------
    table : column → one value per rank. Errors are shares of the between-subject variance.
        rank; error and gain (on the data fitted, on the faces; gain per component since the rank before); heldout,
        heldout_se (subjects left out); bicv, bicv_se (blocks left out); inner_product, inner_product_median,
        correlation, ari, stability_coefficient (split halves), each also with null_ in front (halves of rotated maps);
        agreement, agreement_se (mean of correlation and ari); null_agreement, null_sd, null_max (rotated maps);
        excess (agreement − null_agreement); score (share of left-out variance explained × excess / (1 −
        null_agreement), by which ranks are compared); loadings, loadings_adjusted, null_loadings,
        null_loadings_adjusted (correlation of the loadings that two fits give people whom neither has seen; adjusted
        for these people's global mean); half_error, null_error (error of halves, and of halves of rotated maps);
        cophenetic, dispersion (over starts).
    recommended : number of components, or None when there is no structure.
    reasons : sentences.
    settings : how the curves were made.
    others : other good numbers, where the score has a local optimum.
    """

    table: Mapping[str, np.ndarray]
    recommended: int | None
    reasons: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    others: tuple[int, ...] = ()

    def __str__(self) -> str:
        head = (
            "No number of components is recommended."
            if self.recommended is None
            else (f"Recommended: {self.recommended} components.")
        )
        return "\n".join([head, *(f"- {reason}" for reason in self.reasons)])

    def save(self, folder: str | Path, overwrite: bool = False) -> list[Path]:
        """Write selection.tsv, selection.json and selection.png; the folder is made when missing."""
        place = Path(folder)
        check_folder(place, FILES, overwrite)
        place.mkdir(parents=True, exist_ok=True)
        record = {
            "table": dict(self.table),
            "recommended": self.recommended,
            "others": list(self.others),
            "reasons": list(self.reasons),
            "settings": dict(self.settings),
        }
        with ExitStack() as stack:  # all of them, or none
            table, text, curves = (stack.enter_context(atomic_path(place / name, overwrite)) for name in FILES)
            write_tsv(table, self.table)
            write_json(text, record)
            self.plot().savefig(curves)
        return [place / name for name in FILES]

    def plot(self) -> Any:
        """The curves, as a matplotlib figure."""
        from icofactor.assessment.selection.figure import draw

        return draw(self)
