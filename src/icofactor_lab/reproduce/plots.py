"""The paper's figures redrawn, in colours that all eyes tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from icofactor.factorization.methods import PAPER_METHODS
from icofactor.results.report.drawing import new_figure
from icofactor.streaming.checkpoint import Arrays
from icofactor_lab.reproduce.datasets import Dataset
from icofactor_lab.reproduce.surface_plots import basis_of_all, map_plate

__all__ = ["ablation", "basis_of_all", "convergence", "final_errors", "l1_norms", "map_plate", "overlaps", "times"]

SCHEMES = ("DL", "PNNMF", "SPNNMF", "PPNMF")
_COLOURS = dict(zip(SCHEMES, ("#333333", "#0072b2", "#009e73", "#d55e00"), strict=True))
_MARKERS = {"": "o", "E-": "s", "LE-": "^"}
_LINES = {"": ("#555555", (0, (4, 2))), "E-": ("#e69f00", "-"), "LE-": ("#0072b2", "-")}
_PAPER_SPEED_UP = (2.4e3, 6.25e5)
_DPI = 150
_LEAST = 1e-9
"""Where a difference of zero is drawn on a logarithmic scale."""


def parts_of(method: str) -> tuple[str, str]:
    """Extrapolation and scheme of a name."""
    prefix, _, scheme = method.rpartition("-")
    return (f"{prefix}-" if prefix else ""), scheme


def _axes(
    rows: int,
    columns: int,
    size: tuple[float, float],
    margins: tuple[float, float, float, float],
    spaces: tuple[float, float] = (0.12, 0.1),
    **shared: Any,
) -> tuple[Any, Any]:
    """A figure of `size` inches with panels inside `margins` (left, right, bottom, top, in inches) and `spaces` between
    them (parts of a panel's width and height). Matplotlib's own layouts take longer than all the drawing."""
    width, height = size
    left, right, bottom, top = margins
    figure = new_figure(width, height, _DPI)
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height, *spaces)
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8)
    return figure, axes


def times(found: dict[str, Arrays], n_sites: int) -> Any:
    """Times of a million coarse updates and of one fine update, and their ratio, a row per method."""
    figure, ((coarse, fine, ratio),) = _axes(1, 3, (11.5, 4.4), (0.95, 0.1, 0.95, 0.3), (0.06, 0), sharey=True)
    rows = np.arange(len(found))
    kinds = [
        (coarse, "kernel", -0.17, "#0072b2", "compiled kernels, many starts"),
        (coarse, "formula", 0.17, "#999999", "plain NumPy, one start"),
        (fine, "never", -0.24, "#0072b2", "M never formed"),
        (fine, "ordered", 0.0, "#009e73", "M formed, products ordered"),
        (fine, "as_read", 0.24, "#d55e00", "as the formula reads"),
    ]
    for axes, key, shift, colour, label in kinds:
        _bars(
            axes,
            rows + shift,
            [np.asarray(found[m][key]) for m in found],
            colour,
            label,
            0.3 if axes is coarse else 0.22,
        )
    middle = lambda m, key: float(np.median(found[m][key]))
    for key, shift, colour, label in [(k, s, c, t) for _, k, s, c, t in kinds[2:]]:
        values = [1e6 * middle(m, key) / middle(m, "formula") for m in found]
        _bars(ratio, rows + shift, [np.array([v]) for v in values], colour, label, 0.22)
    ratio.axvspan(*_PAPER_SPEED_UP, color="#f0e442", alpha=0.35, linewidth=0, zorder=0, label="the paper's range")
    titles = (
        "10⁶ updates, twenty columns",
        f"one update, {n_sites:,} vertices",
        "speed-up: fine over coarse update",
    )
    for axes, title, unit in zip((coarse, fine, ratio), titles, ("seconds", "seconds", "times"), strict=True):
        if axes is coarse:
            _plain_log(axes)
        else:
            axes.set_xscale("log")
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_xlabel(unit, fontsize=8)
        axes.legend(fontsize=6.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    coarse.set_yticks(rows, list(found))
    coarse.invert_yaxis()
    return figure


def _bars(axes: Any, rows: np.ndarray, values: Sequence[np.ndarray], colour: str, label: str, height: float) -> None:
    """Medians with whiskers from the least to the most."""
    for i, (row, all_) in enumerate(zip(rows, values, strict=True)):
        if not np.isfinite(all_).any():
            continue
        middle = float(np.median(all_))
        axes.barh(row, middle, height, color=colour, label=label if i == 0 else None)
        axes.plot([all_.min(), all_.max()], [row, row], color="#111111", linewidth=0.8)


def convergence(results: dict[str, Arrays]) -> Any:
    """One panel per scheme: the error above, what is left of it below."""
    figure, axes = _axes(2, 4, (11.5, 5.2), (0.7, 0.1, 0.5, 0.3), (0.3, 0.08), sharex=True)
    for column, scheme in enumerate(SCHEMES):
        names = [m for m in PAPER_METHODS if parts_of(m)[1] == scheme]
        ends = [np.nanmin(results[m]["final"]) for m in names if np.isfinite(results[m]["final"]).any()]
        ends += [np.nanmin(results[m]["paths"]) for m in names]
        lowest = min(ends) if ends else 0.0
        top, bottom = axes[:, column]
        for m in names:
            colour, style = _LINES[parts_of(m)[0]]
            paths = results[m]["paths"][:, 1:]
            updates = np.arange(1, paths.shape[1] + 1)
            for ax, values in ((top, paths), (bottom, np.maximum(paths - lowest, _LEAST))):
                ax.fill_between(updates, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0)
                ax.plot(updates, np.median(values, axis=0), color=colour, linestyle=style, linewidth=1.5, label=m)
        ten = [np.nanmax(results[m]["paths"][:, min(10, results[m]["paths"].shape[1] - 1)]) for m in names]
        high = float(np.nanmax(ten)) if np.isfinite(ten).any() else 1.0
        margin = 0.06 * max(high - lowest, 1e-6)
        top.set_ylim(lowest - margin, high + 3 * margin)
        top.set_title(scheme, fontsize=10)
        top.legend(fontsize=7.5, frameon=False, loc="lower left")
        bottom.set_yscale("log")
        bottom.set_xscale("log")
        bottom.set_xlabel("updates", fontsize=8)
    axes[0, 0].set_ylabel("E/‖X‖²", fontsize=8)
    axes[1, 0].set_ylabel("E/‖X‖² above the lowest", fontsize=8)
    return figure


def final_errors(results: dict[str, Arrays]) -> Any:
    """Where all starts end: spread of the errors, and zeros of B."""
    figure, ((left, right),) = _axes(1, 2, (11.5, 3.6), (0.95, 0.15, 0.55, 0.1), (0.05, 0), sharey=True)
    rng = np.random.default_rng(0)
    lowest = {
        s: min((np.nanmin(results[m]["final"]) for m in PAPER_METHODS
                if parts_of(m)[1] == s and np.isfinite(results[m]["final"]).any()), default=np.nan)
        for s in SCHEMES
    }  # fmt: skip
    for row, m in enumerate(PAPER_METHODS):
        colour, final = _COLOURS[parts_of(m)[1]], results[m]["final"]
        above = np.maximum(final[np.isfinite(final)] / lowest[parts_of(m)[1]] - 1, _LEAST)
        left.scatter(above, row + rng.uniform(-0.3, 0.3, len(above)), s=3, color=colour, alpha=0.25, linewidth=0)
        if len(above):
            left.plot([np.median(above)] * 2, [row - 0.38, row + 0.38], color="#111111", linewidth=1.6)
        gone = len(final) - len(above)
        if gone:
            left.annotate(f"{gone} of {len(final)} diverged", (0.99, row), xycoords=("axes fraction", "data"),
                          fontsize=7, ha="right", va="center")  # fmt: skip
        share = 100 * float(np.mean(results[m]["zeros"]))
        right.barh(row, share, 0.7, color=colour)
        right.text(share, row, f"  {share:.3g} %", fontsize=7, va="center")
    left.set_xscale("log")
    left.set_xlim(left=0.7 * _LEAST)
    left.set_yticks(range(len(PAPER_METHODS)), PAPER_METHODS)
    left.invert_yaxis()
    left.set_xlabel("final error above the lowest of the scheme, relative (line: median)", fontsize=8)
    right.set_xlabel("zeros in B, % (mean over starts)", fontsize=8)
    right.margins(x=0.15)
    return figure


def l1_norms(values: np.ndarray, datasets: Sequence[Dataset]) -> Any:
    """‖B‖₁ and ‖C‖₁ against the dataset's number, a line per method."""
    figure, ((left, right),) = _axes(1, 2, (11.5, 4.2), (0.5, 1.3, 0.55, 0.3))
    numbers = [d.number for d in datasets]
    shift = np.linspace(-0.25, 0.25, len(PAPER_METHODS))
    for ax, measure, title in ((left, 0, "‖B‖₁"), (right, 1, "‖C‖₁")):
        for i, m in enumerate(PAPER_METHODS):
            prefix, scheme = parts_of(m)
            hollow = "white" if prefix == "E-" else _COLOURS[scheme]
            ax.plot(np.array(numbers) + shift[i], np.maximum(values[:, i, measure], 1e-12), _MARKERS[prefix],
                    label=m, ms=5, color=_COLOURS[scheme], markerfacecolor=hollow, alpha=0.85)  # fmt: skip
        for edge in numbers[:-1]:
            ax.axvline(edge + 0.5, color="#e3e6ea", linewidth=0.8, zorder=0)
        ax.set_yscale("log")
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel("dataset", fontsize=8)
        ax.set_xticks(numbers)
    right.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def overlaps(values: dict[str, np.ndarray]) -> Any:
    """Mean cosine of basis maps, a panel per setting."""
    figure, (panels,) = _axes(1, len(values), (11.5, 3.4), (0.95, 0.15, 0.55, 0.3), (0.06, 0), sharey=True)
    for ax, (setting, measured) in zip(panels, values.items(), strict=True):
        for row, m in enumerate(PAPER_METHODS):
            cosines = measured[:, row, 6]
            cosines = cosines[np.isfinite(cosines)]
            colour = _COLOURS[parts_of(m)[1]]
            if len(cosines):
                ax.barh(row, np.median(cosines), 0.6, color=colour, alpha=0.35)
                ax.plot(cosines, np.full(len(cosines), row), "o", ms=3, color=colour)
        ax.set_title(setting, fontsize=9, loc="left")
        ax.set_xlim(0, 1)
        ax.set_xlabel("overlap (mean cosine)", fontsize=8)
    panels[0].set_yticks(range(len(PAPER_METHODS)), PAPER_METHODS)
    panels[0].invert_yaxis()
    return figure


def _plain_log(ax: Any) -> None:
    """A logarithmic axis over a decade or two, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")


def ablation(found: np.ndarray, names: Sequence[str]) -> Any:
    """Errors of all methods under each choice."""
    figure, (panels,) = _axes(1, 2, (11.5, 0.42 * len(names) + 1.3), (2.5, 1.3, 0.55, 0.3), (0.06, 0), sharey=True)
    shift = np.linspace(-0.36, 0.36, len(PAPER_METHODS))
    for ax, measure, title in zip(panels, (0, 1), ("not lifted", "lifted"), strict=True):
        for i, m in enumerate(PAPER_METHODS):
            prefix, scheme = parts_of(m)
            hollow = "white" if prefix == "E-" else _COLOURS[scheme]
            ax.plot(found[:, i, measure], np.arange(len(names)) + shift[i], _MARKERS[prefix], ms=4.5, label=m,
                    color=_COLOURS[scheme], markerfacecolor=hollow)  # fmt: skip
        for edge in range(len(names) - 1):
            ax.axhline(edge + 0.5, color="#e3e6ea", linewidth=0.8, zorder=0)
        _plain_log(ax)
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_xlabel("error / between-subject variance", fontsize=8)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    panels[1].legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
