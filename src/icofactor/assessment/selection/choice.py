"""`Choice`: the curves, the recommendation and its reasons; as files and as one figure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.io.publish import Publication
from icofactor.io.tables import write_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

FILES = ("selection.tsv", "selection.json", "selection.png")

# Columns that rotated maps have, too.
_COMPARED = {
    "inner_product": "Mean inner product of matched maps of split halves",
    "inner_product_median": "Median inner product of matched maps of split halves",
    "correlation": "Mean correlation of matched maps of split halves",
    "ari": "Adjusted Rand index of the parcellations of split halves",
    "stability_coefficient": "Stability coefficient of split halves",
    "loadings": "Correlation of the loadings that two fits give people whom neither has seen",
    "loadings_adjusted": "Correlation of these loadings, adjusted for these people's global mean",
}

# Column of the table → its description.
COLUMNS = {
    "rank": "Number of components",
    "error": "Error on the data fitted, on the faces; errors are shares of the between-subject "
    "variance",
    "gain": "Decrease of the error per component since the previous rank",
    "heldout": "Error on subjects left out",
    "heldout_se": "Standard error of heldout",
    "bicv": "Error on blocks left out",
    "bicv_se": "Standard error of bicv",
    **_COMPARED,
    "agreement": "Agreement of split halves: mean of correlation and ari",
    "agreement_se": "Standard error of agreement",
    "null_agreement": "Agreement of halves of rotated maps",
    "null_sd": "Standard deviation of null_agreement",
    "null_max": "Maximum of null_agreement",
    "excess": "agreement minus null_agreement",
    "score": "Share of left-out variance explained × excess / (1 − null_agreement), by which ranks "
    "are compared",
    **{f"null_{name}": f"{text}; of rotated maps" for name, text in _COMPARED.items()},
    "half_error": "Error of halves",
    "null_error": "Error of halves of rotated maps",
    "cophenetic": "Cophenetic correlation over starts",
    "dispersion": "Dispersion over starts",
}


@dataclass(frozen=True, eq=False)
class Choice:
    """How many components, and why: the result of `choose_n_components`.

    ``print`` shows the reasons.

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
    >>> reasons = ("Halves of the subjects agree most on 3 components.",)
    >>> choice = Choice({"rank": np.array([2, 3])}, 3, reasons)
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
        head = "No number of components is recommended."
        if self.recommended is not None:
            head = f"Recommended: {self.recommended} components."
        return "\n".join([head, *(f"- {reason}" for reason in self.reasons)])

    def save(
        self,
        folder: str | Path | Publication,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write selection.tsv, selection.json and selection.png to a folder.

        The folder is created if necessary.
        """
        if not isinstance(folder, Publication):
            folder = Publication(folder, overwrite, names=FILES)
        record = {
            "table": dict(self.table),
            "recommended": self.recommended,
            "others": list(self.others),
            "reasons": list(self.reasons),
            "settings": dict(self.settings),
        }
        about = {name: COLUMNS.get(name, "A measure") for name in self.table}
        with folder.filled() as new:
            write_table(new / FILES[0], self.table, about, record)
            self.plot().savefig(new / FILES[2])
        return [folder.path / name for name in FILES]

    def plot(self) -> Figure:
        """Plot the curves.

        Returns
        -------
        matplotlib.figure.Figure
        """
        return draw(self)


_DATA = "#0b6e8f"
_NULL = "0.5"
_OTHER = "#c4561a"
_PICK = "0.88"

# More numbers than these would touch each other below an axis.
_MAX_TICKS = 12

_LINE = {"marker": "o", "markersize": 3, "linewidth": 1.4}
_DOTTED = {"marker": ".", "markersize": 3, "linewidth": 1, "linestyle": ":"}
_DASHED = {**_DOTTED, "linestyle": "--"}


@dataclass(frozen=True)
class _Curve:
    """A column against the number of components, with its standard errors if it has any."""

    column: str
    label: str | None
    colour: str
    style: Mapping[str, Any] = field(default_factory=lambda: _LINE)

    def draw(
        self,
        axes: Axes,
        table: Mapping[str, np.ndarray],
    ) -> None:
        """Draw the curve, unless the table lacks its column."""
        if self.column not in table:
            return
        ranks = table["rank"]
        values = table[self.column]
        if f"{self.column}_se" in table:
            errors = table[f"{self.column}_se"]
            axes.errorbar(ranks, values, errors, color=self.colour, **self.style)
        axes.plot(ranks, values, color=self.colour, label=self.label, **self.style)


@dataclass(frozen=True)
class _Panel:
    """A panel of the figure."""

    title: str
    unit: str
    curves: tuple[_Curve, ...]


_VARIANCE = "share of between-subject variance"
_PANELS: tuple[_Panel, ...] = (
    _Panel(
        "Do halves of the subjects agree?",
        "agreement; score",
        (
            _Curve("agreement", "halves: mean of the next two", _DATA),
            _Curve("correlation", "correlation of maps", _DATA, _DOTTED),
            _Curve("ari", "adjusted Rand index", _DATA, _DASHED),
            _Curve("null_agreement", "halves of rotated maps, ± 2 sd", _NULL),
            _Curve(
                "loadings_adjusted",
                "third people's loadings, without global mean",
                _OTHER,
                _DOTTED,
            ),
            _Curve("score", "score, largest where recommended", _OTHER),
        ),
    ),
    _Panel(
        "What is left unexplained?",
        _VARIANCE,
        (
            _Curve("bicv", "blocks left out, ± se", _DATA),
            _Curve("heldout", "subjects left out, ± se", _OTHER),
            _Curve("error", "data fitted", _NULL),
        ),
    ),
    _Panel(
        "What does one more component gain in the data fitted?",
        _VARIANCE,
        (
            _Curve("half_gain", "halves", _DATA),
            _Curve("null_gain", "halves of rotated maps", _NULL),
        ),
    ),
    _Panel(
        "Do random starts agree?",
        "1: all lead to one parcellation",
        (
            _Curve("cophenetic", "cophenetic correlation", _DATA),
            _Curve("dispersion", "dispersion", _OTHER),
        ),
    ),
)


def draw(choice: Choice) -> Figure:
    """Draw agreement of halves and rotated maps, held-out errors, training error, and starts.

    Columns that the table of the choice lacks are left out; a table with none of these columns is
    drawn as it stands.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = {name: np.asarray(column, dtype=np.float64) for name, column in choice.table.items()}
    name_of_ranks, *names = columns
    is_rank = np.isfinite(columns[name_of_ranks])
    table = {name: columns[name][is_rank] for name in names}
    table["rank"] = columns[name_of_ranks][is_rank]
    _add_gains(table)
    figure = Figure(figsize=(9.6, 7.8), dpi=120, facecolor="white", layout="constrained")
    # A canvas without a window: commands run where there is no screen.
    FigureCanvasAgg(figure)
    subfigures: Any = figure.subfigures(2, 1, height_ratios=(1, 10))
    head, body = subfigures
    _draw_verdict(head, choice)
    # Tables of older files, or of users, may have other columns.
    panels = _PANELS
    if not any(curve.column in table for panel in panels for curve in panel.curves):
        panels = tuple(_Panel(name, "", (_Curve(name, None, _DATA),)) for name in names)
    xlabel = "components" if name_of_ranks == "rank" else verbatim(name_of_ranks)
    for axes, panel in zip(body.subplots(2, 2).ravel(), panels, strict=False):
        _draw_panel(axes, panel, table)
        axes.set_xlabel(xlabel, fontsize=8.5)
        _mark_ranks(axes, table["rank"], choice.recommended)
    return figure


def _add_gains(table: dict[str, np.ndarray]) -> None:
    """Add the decrease of the errors of halves per component; the first rank has none."""
    # Ranks may have gaps: the gain is per component.
    step = np.diff(table["rank"])
    for name in ("half", "null"):
        if f"{name}_error" in table and step.all():
            gain = -np.diff(table[f"{name}_error"]) / step
            table[f"{name}_gain"] = np.concatenate([[np.nan], gain])[: len(table["rank"])]


def verbatim(text: str) -> str:
    """Escape a text of the data: matplotlib would read a pair of dollar signs as mathematics."""
    return str(text).replace("$", r"\$")


def _draw_verdict(
    head: SubFigure,
    choice: Choice,
) -> None:
    title = "No structure"
    if choice.recommended is not None:
        title = f"{choice.recommended} components recommended"
    head.text(0.01, 0.90, title, fontsize=12, fontweight="bold", va="top")
    reason = "\n".join(textwrap.wrap(verbatim("".join(choice.reasons[:1])), 140))
    head.text(0.01, 0.52, reason, fontsize=8.5, va="top", color="0.25", linespacing=1.3)


def _draw_panel(
    axes: Axes,
    panel: _Panel,
    table: Mapping[str, np.ndarray],
) -> None:
    for curve in panel.curves:
        curve.draw(axes, table)
        if curve.column == "null_agreement" and "null_sd" in table and curve.column in table:
            low = table[curve.column] - 2 * table["null_sd"]
            high = table[curve.column] + 2 * table["null_sd"]
            axes.fill_between(table["rank"], low, high, color=_NULL, alpha=0.25, linewidth=0)
    drawn = [table[curve.column] for curve in panel.curves if curve.column in table]
    if drawn and not np.isfinite(drawn).any():
        # One number has no gain, and one start has nothing to agree with.
        axes.text(
            0.5,
            0.5,
            "nothing to compare",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=8.5,
            color="0.4",
        )
        axes.set_yticks([])
    axes.set_title(verbatim(panel.title), fontsize=9.5, loc="left")
    axes.set_ylabel(panel.unit, fontsize=8.5)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        # Below the panel, a legend never lies on the curves.
        axes.legend(
            fontsize=7.5,
            frameon=False,
            ncols=2,
            loc="upper left",
            bbox_to_anchor=(-0.02, -0.17),
            borderaxespad=0.0,
        )


def _mark_ranks(
    axes: Axes,
    ranks: np.ndarray,
    recommended: int | None,
) -> None:
    """Number the axis of the ranks, and mark the recommended one."""
    if not len(ranks):
        return
    axes.set_xlim(ranks.min() - 0.5, ranks.max() + 0.5)
    ticks = {int(rank) for rank in ranks[:: -(-len(ranks) // _MAX_TICKS)]}
    if recommended is None:
        axes.set_xticks(sorted(ticks))
        return
    axes.set_xticks(sorted(ticks | {recommended}))
    axes.axvline(recommended, color=_PICK, linewidth=9, zorder=0)
    for label, rank in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True):
        if rank == recommended:
            label.set_fontweight("bold")
