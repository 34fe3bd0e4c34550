"""`Choice`: the curves, the recommendation and its reasons; as files and as one figure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.io.publish import Publication
from icofactor.io.tables import write_table

FILES = ("selection.tsv", "selection.json", "selection.png")
_HALVES = {
    "inner_product": "Mean inner product of matched maps of split halves",
    "inner_product_median": "Median of the same",
    "correlation": "Mean correlation of matched maps of split halves",
    "ari": "Adjusted Rand index of the parcellations of split halves",
    "stability_coefficient": "Stability coefficient of split halves",
}
_THIRD = {
    "loadings": "Correlation of the loadings that two fits give people whom neither has seen",
    "loadings_adjusted": "The same, adjusted for these people's global mean",
}
COLUMNS = {
    "rank": "Number of components",
    "error": "Error on the data fitted, on the faces; errors are shares of the between-subject variance",
    "gain": "Decrease of the error per component since the previous rank",
    "heldout": "Error on subjects left out",
    "heldout_se": "Standard error of the same",
    "bicv": "Error on blocks left out",
    "bicv_se": "Standard error of the same",
    **_HALVES,
    "agreement": "Agreement of split halves: mean of correlation and ari",
    "agreement_se": "Standard error of the same",
    "null_agreement": "Agreement of halves of rotated maps",
    "null_sd": "Standard deviation of the same",
    "null_max": "Its maximum",
    "excess": "agreement minus null_agreement",
    "score": "Share of left-out variance explained × excess / (1 − null_agreement), by which ranks are compared",
    **_THIRD,
    **{f"null_{name}": f"{text}; of rotated maps" for name, text in (_HALVES | _THIRD).items()},
    "half_error": "Error of halves",
    "null_error": "Error of halves of rotated maps",
    "cophenetic": "Cophenetic correlation over starts",
    "dispersion": "Dispersion over starts",
}
"""Column of the table → what it holds."""


@dataclass(frozen=True, eq=False)
class Choice:
    """How many components, and why: the result of `choose_n_components`. ``print`` shows the
    reasons.

    Attributes
    ----------
    table : dict
        Column → one value per rank; `COLUMNS` explains the columns.
    recommended : int or None
        Recommended number of components; None if there is no structure.
    reasons : list of str
        Sentences.
    settings : dict
        Settings of the search.
    others : tuple of int
        Other good numbers: local optima of the score.

    Examples
    --------
    >>> import icofactor as ico
    >>> choice = ico.choose_n_components(ico.simulate_cohort(), range(2, 13))  # doctest: +SKIP
    >>> choice.save("selection")  # doctest: +SKIP
    >>> choice = Choice({"rank": np.array([2, 3])}, 3, ("Halves of the subjects agree most on 3 components.",))
    >>> print(choice)
    Recommended: 3 components.
    - Halves of the subjects agree most on 3 components.
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

    def save(self, folder: str | Path | Publication, overwrite: bool = False) -> list[Path]:
        """Write selection.tsv, selection.json and selection.png to a folder, which is created if
        necessary.
        """
        place = (
            folder
            if isinstance(folder, Publication)
            else Publication(folder, overwrite, names=FILES)
        )
        record = {
            "table": dict(self.table),
            "recommended": self.recommended,
            "others": list(self.others),
            "reasons": list(self.reasons),
            "settings": dict(self.settings),
        }
        with place.filled() as new:
            write_table(
                new / FILES[0],
                self.table,
                {**dict.fromkeys(self.table, "A measure"), **COLUMNS},
                record,
            )
            self.plot().savefig(new / FILES[2])
        return [place.path / name for name in FILES]

    def plot(self) -> Any:
        """Plot the curves.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return draw(self)


_DATA, _NULL, _OTHER, _PICK = "#0b6e8f", "0.5", "#c4561a", "0.88"
_MOST_TICKS = 12
_LINE: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.4}
_THIN: dict[str, Any] = {"marker": ".", "markersize": 3, "linewidth": 1}
Curves = dict[str, np.ndarray]


def draw(choice: Choice) -> Any:
    """Four panels: agreement of halves against rotated maps, held-out errors, training error,
    starts.

    Columns that the table of the choice lacks are left out; a table with none of these columns is
    drawn as it stands.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = {name: np.asarray(column, dtype=np.float64) for name, column in choice.table.items()}
    ranks, *others = columns
    known = np.isfinite(columns[ranks])
    t = {"rank": columns[ranks][known]} | {name: columns[name][known] for name in others}
    figure = Figure(figsize=(9.6, 7.8), dpi=120, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 10))
    head, body = parts
    _verdict(head, choice)
    axes = body.subplots(2, 2).ravel()
    for one, panel in zip(axes, (_agreement, _heldout, _gain, _starts), strict=True):
        panel(one, t)
    if not any(one.lines for one in axes):
        for one, name in zip(axes, others, strict=False):
            _curve(one, t, name, None, _DATA)
            _titled(one, verbatim(name), "")
    for one in axes:
        _finish(
            one, t["rank"], "components" if ranks == "rank" else verbatim(ranks), choice.recommended
        )
    return figure


def verbatim(text: str) -> str:
    """A text of the data as it stands: matplotlib would read a pair of dollar signs as mathematics."""
    return str(text).replace("$", r"\$")


def _verdict(head: Any, choice: Choice) -> None:
    title = (
        "No structure"
        if choice.recommended is None
        else f"{choice.recommended} components recommended"
    )
    head.text(0.01, 0.90, title, fontsize=12, fontweight="bold", va="top")
    reason = "\n".join(textwrap.wrap(verbatim("".join(choice.reasons[:1])), 140))
    head.text(0.01, 0.52, reason, fontsize=8.5, va="top", color="0.25", linespacing=1.3)


def _finish(axes: Any, ranks: np.ndarray, name: str, recommended: float | None) -> None:
    axes.set_xlabel(name, fontsize=8.5)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if not len(ranks):
        return
    axes.set_xlim(ranks.min() - 0.5, ranks.max() + 0.5)
    ticks = [int(rank) for rank in ranks[:: -(-len(ranks) // _MOST_TICKS)]]
    axes.set_xticks(sorted({*ticks, *([] if recommended is None else [recommended])}))
    if recommended is None:
        return
    axes.axvline(recommended, color=_PICK, linewidth=9, zorder=0)
    for label, rank in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True):
        if rank == recommended:
            label.set_fontweight("bold")


def _titled(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.set_ylabel(unit, fontsize=8.5)
    if axes.get_legend_handles_labels()[0]:
        below = {
            "loc": "upper left",
            "bbox_to_anchor": (-0.02, -0.17),
            "borderaxespad": 0.0,
        }  # never on the curves
        axes.legend(fontsize=7.5, frameon=False, ncols=2, **below)


def _curve(axes: Any, t: Curves, name: str, label: str | None, colour: str, **style: Any) -> None:
    """A column against the number of components, with its standard errors where there are any."""
    if name not in t:
        return
    style = style or _LINE
    if f"{name}_se" in t:
        axes.errorbar(t["rank"], t[name], t[f"{name}_se"], color=colour, **style)
    axes.plot(t["rank"], t[name], color=colour, label=label, **style)


def _agreement(axes: Any, t: Curves) -> None:
    _curve(axes, t, "agreement", "halves: mean of the next two", _DATA)
    _curve(axes, t, "correlation", "correlation of maps", _DATA, linestyle=":", **_THIN)
    _curve(axes, t, "ari", "adjusted Rand index", _DATA, linestyle="--", **_THIN)
    if "null_agreement" in t and "null_sd" in t:
        low, high = t["null_agreement"] - 2 * t["null_sd"], t["null_agreement"] + 2 * t["null_sd"]
        axes.fill_between(t["rank"], low, high, color=_NULL, alpha=0.25, linewidth=0)
    _curve(axes, t, "null_agreement", "halves of rotated maps, ± 2 sd", _NULL)
    _curve(
        axes,
        t,
        "loadings_adjusted",
        "third people's loadings, without global mean",
        _OTHER,
        linestyle=":",
        **_THIN,
    )
    _curve(axes, t, "score", "score, largest where recommended", _OTHER)
    _titled(axes, "Do halves of the subjects agree?", "agreement; score")


def _heldout(axes: Any, t: Curves) -> None:
    _curve(axes, t, "bicv", "blocks left out, ± se", _DATA)
    _curve(axes, t, "heldout", "subjects left out, ± se", _OTHER)
    _curve(axes, t, "error", "data fitted", _NULL)
    _titled(axes, "What is left unexplained?", "share of between-subject variance")


def _gain(axes: Any, t: Curves) -> None:
    step = np.diff(t["rank"])
    for name, colour, label in (
        ("half_error", _DATA, "halves"),
        ("null_error", _NULL, "halves of rotated maps"),
    ):
        if len(step) and step.all() and name in t:
            axes.plot(t["rank"][1:], -np.diff(t[name]) / step, color=colour, label=label, **_LINE)
    if not len(step):
        _nothing(axes, "only one number was tried")
    _titled(
        axes,
        "What does one more component gain in the data fitted?",
        "share of between-subject variance",
    )


def _starts(axes: Any, t: Curves) -> None:
    if "cophenetic" in t and not np.isfinite(t["cophenetic"]).any():
        _nothing(axes, "only one start was made")
    else:
        _curve(axes, t, "cophenetic", "cophenetic correlation", _DATA)
        _curve(axes, t, "dispersion", "dispersion", _OTHER)
    _titled(axes, "Do random starts agree?", "1: all lead to one parcellation")


def _nothing(axes: Any, why: str) -> None:
    axes.text(
        0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", fontsize=8.5, color="0.4"
    )
    axes.set_yticks([])
