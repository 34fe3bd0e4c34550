"""The files about new subjects, which appear together or not at all.

NAME.tsv     participant_id, component01, ..., the columns of `QUALITY`, and the participants table
NAME.json    meaning of the columns, the rule for unusual subjects, model and data
NAME.html    a small page: one file without scripts, drawn as SVG
"""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from icofactor import __version__
from icofactor.assessment.associations import taken_out_of
from icofactor.cohort.people import People
from icofactor.errors import ArgumentError, named, plural
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.io.guard import hash_file
from icofactor.io.json import read_json
from icofactor.io.publish import Names, Publication
from icofactor.io.tables import GIVEN, described, numbered, sidecar, write_json, write_tsv
from icofactor.results.description import LOADINGS
from icofactor.results.meaning import fitted_units, measure_title
from icofactor.results.report.page import asset, policy
from icofactor.results.transform import QUALITY, NewLoadings

# Size and margins of a chart, in pixels.
_WIDTH = 560
_HEIGHT = 330
_LEFT = 60
_BOTTOM = 44
_MARGIN = 12
# Rows of the page's table; all subjects are in the .tsv file.
_MAX_ROWS = 200
# With more dots than this, a chart shows their density in square cells of this many pixels.
_MAX_DOTS = 2000
_CELL = 5
# Components that all have their number below the chart; of more, every fifth.
_MAX_NUMBERS = 25
# Colours that colour-blind readers can tell apart.
_BLUE = "#0b6ea8"
_ORANGE = "#d55e00"
_GREY = "#8a939e"
_DENSE = "; darker: more subjects, all of whom are in the table"
# Pixels from the left and from the top.
Point = tuple[float, float]


def table_at(out: str | Path, overwrite: bool, inputs: Iterable[str | Path] = ()) -> Path:
    """Return the path of the table: the .tsv file `out`, or a file in the folder `out`.

    Paths that cannot take a table are refused.
    """
    out = Path(out)
    if out.suffix == ".tsv":
        table = out
    elif out.suffix or out.is_file():
        raise ArgumentError("out", f"{out} is not a folder, nor a file that ends with .tsv")
    else:
        table = out / LOADINGS
    if table.parent.is_dir():
        _TableFiles(table, overwrite, inputs)
    elif out.suffix == ".tsv" or not out.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"the folder of {out} does not exist: create {out.absolute().parent} first"
        )
    return table


def write_loadings(
    new: NewLoadings,
    table: Path,
    cohort: Any,
    model_path: Path,
    *,
    model: CorticalFactorization | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write the table, its JSON file, and a page if the model is given."""
    columns, meanings = _columns_of(new, cohort)
    record = {
        **described(columns, meanings),
        "Description": (
            "Loadings of subjects on the basis maps of a fit, in the scale of the fit's own "
            "loadings"
        ),
        "icofactor": __version__,
        "model": {"path": str(model_path), "sha256": hash_file(model_path)},
        "data": dict(cohort.provenance),
        "rule": new.rule,
        "summary": _summary(new),
        "notes": list(new.notes),
        "taken_out": [] if model is None else list(taken_out_of(model)),
    }
    files = _TableFiles(table, overwrite)
    with files.filled() as stage:
        write_tsv(stage / table.name, columns)
        if model is not None:
            page = render_transform(new, model, cohort, table.name)
            (stage / _page(table).name).write_text(page, encoding="utf-8", newline="\n")
        # With these names, a next run may replace the files.
        record["files"] = {file.name: hash_file(file) for file in stage.iterdir()}
        write_json(stage / sidecar(table).name, record)
    return [file for file in (table, sidecar(table), _page(table)) if file in files.files]


def _columns_of(new: NewLoadings, cohort: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the columns of the table and their meanings."""
    people = People.of(new.subjects, cohort.participants).columns
    names = numbered("component", new.loadings.shape[1])
    loadings = dict(zip(names, new.loadings.T, strict=True))
    columns: dict[str, Any] = {**people, **loadings, **new.quality}
    participants = {}
    for name, values in cohort.participants.items():
        if name not in people:
            participants[f"participants_{name}" if name in columns else name] = values
    meanings = {
        **dict.fromkeys(participants, GIVEN),
        **QUALITY,
        **{name: f"Loading on {name}" for name in names},
    }
    return {**columns, **participants}, meanings


def _summary(new: NewLoadings) -> dict[str, Any]:
    """Return numbers about all subjects together."""
    name = "explained_variance"
    summary: dict[str, Any] = {
        "subjects": len(new.subjects),
        "unusual": sum(map(bool, new.quality.get("unusual", ()))),
    }
    for ending, columns in (("", new.quality), ("_of_fitted_subjects", new.fitted)):
        if name in columns:
            shares = columns[name][np.isfinite(columns[name])]
            median = float(np.median(shares)) if len(shares) else None
            summary[f"{name}_median{ending}"] = median
    return summary


class _TableFiles(Publication):
    """A table, its page and its record in any folder; the record lists what may be replaced."""

    def __init__(self, table: Path, overwrite: bool, inputs: Iterable[str | Path] = ()) -> None:
        # The record comes last.
        self._names = [table.name, _page(table).name, sidecar(table).name]
        super().__init__(
            table.parent,
            overwrite,
            names=self._names,
            # An earlier page leaves even if no new one is written.
            leaving=lambda listed: listed,
            inputs=inputs,
        )

    def owned(self) -> Names:
        """Return the files that an earlier record lists, and the record."""
        record = self._names[-1]
        try:
            hashes = read_json(self.path / record)["files"]
            files = {name: hashes[name] for name in self._names if name in hashes}
        except (OSError, ValueError, LookupError, TypeError):
            # There is no record, or it is not ours.
            return {}
        return {**files, record: ""}

    def write_list(self, folder: Path, names: Names) -> None:
        """Write no manifest: the record is among the files."""

    def add(self, stage: Path, new: Names) -> None:
        """Move the files to the folder."""
        for name in set(self.check(new)) - set(new):
            (self.path / name).unlink(missing_ok=True)
        for name in self._names:
            if name in new:
                os.replace(stage / name, self.path / name)


def _page(table: Path) -> Path:
    return table.with_suffix(".html")


# ---------------------------------------------------------------------- the page


def render_transform(new: NewLoadings, model: Any, cohort: Any, table: str) -> str:
    """Return the page as text; `table` is the name of the file beside it with its numbers."""
    summary = _summary(new)
    style = asset("style.css")
    n_subjects = len(new.subjects)
    n_unusual = summary["unusual"]
    measure = ""
    if cohort.modality not in ("", "unknown"):
        measure = f": {measure_title(cohort.modality)}"
    components = plural(len(model.components_), "component")
    title = html.escape(f"{plural(n_subjects, 'new subject')} on {components}{measure}")
    share = summary["explained_variance_median"]
    median = "n/a" if share is None else f"{100 * share:.0f} %"
    verb = "is" if n_unusual <= 1 else "are"
    verdict = (
        f"{n_unusual or 'None'} of {plural(n_subjects, 'new subject')} {verb} unusual. The "
        f"components explain {median} of a new subject's variance (median). {new.doubt}"
    ).strip()
    cards = {
        "new subjects": n_subjects,
        "fitted subjects": len(model.loadings_),
        "explained, median": median,
        "unusual": n_unusual,
    }
    card_list = "".join(
        f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in cards.items()
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in new.notes)
    link = f'<a href="{quote(os.fsencode(table))}">{html.escape(named(table))}</a>'
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy("", style)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="icofactor">',
            f"<title>icofactor: {title}</title><style>{style}</style></head><body>",
            f"<header><h1>{title}</h1>",
            '<div id="verdict" role="region" aria-label="Verdict">',
            f"<p><strong>{html.escape(verdict)}</strong></p>",
            f"<p>Table: {link}</p></div>",
            f'<dl id="cards">{card_list}</dl>',
            f'<div class="notice"><ul>{notes}</ul></div>' if notes else "",
            "</header>",
            f'<main><div class="grid">{_panels(new, model, cohort.units)}</div></main>',
            "</body></html>",
            "",
        ]
    )


def _panels(new: NewLoadings, model: Any, units: str) -> str:
    density = _DENSE if len(new.subjects) > _MAX_DOTS else ""
    return "".join(
        [
            _panel(
                "How well the components describe each subject",
                new.rule,
                _quality_chart(new, fitted_units(model, units)),
            ),
            _panel(
                "Loadings",
                "Box: middle half of the fitted subjects, line at their median; whiskers: 1st to "
                "99th percentile. Dots: new subjects, unusual ones in orange. In standard "
                f"deviations of the fitted subjects{density}.",
                _loading_chart(new, model.loadings_),
            ),
            _panel(
                "Subjects",
                "Unusual subjects first, then by decreasing residual.",
                _table(new),
                ' class="wide"',
            ),
        ]
    )


def _panel(title: str, caption: str, body: str, attribute: str = "") -> str:
    heading = f'<h2>{html.escape(title)}</h2><p class="about">{html.escape(caption)}</p>'
    return f"<section{attribute}>{heading}{body}</section>"


# ---------------------------------------------------------------------- charts


class _Axes:
    """Linear axes that hold all finite values."""

    def __init__(self, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> None:
        self.x = _span(np.asarray(x))
        self.y = _span(np.asarray(y))

    def at(self, x: float, y: float) -> Point:
        """Return the pixel of a point."""
        x_share = (x - self.x[0]) / (self.x[1] - self.x[0])
        y_share = (y - self.y[0]) / (self.y[1] - self.y[0])
        right = _LEFT + x_share * (_WIDTH - _LEFT - _MARGIN)
        down = _HEIGHT - _BOTTOM - y_share * (_HEIGHT - _BOTTOM - _MARGIN)
        return round(right, 1), round(down, 1)

    def frame(self, x_name: str, y_name: str, x_ticks: bool = True) -> list[str]:
        """Return axes, grid and names as elements of SVG."""
        bottom = _HEIGHT - _BOTTOM
        end = _WIDTH - _MARGIN
        elements = [f'<path class="axis" d="M{_LEFT} {_MARGIN}V{bottom}H{end}"/>']
        for value in _ticks(self.y):
            _, down = self.at(self.x[0], value)
            elements.append(f'<path class="grid" d="M{_LEFT} {down}H{end}"/>')
            elements.append(_text(f"{value:g}", _LEFT - 6, down + 4, "end"))
        for value in _ticks(self.x) if x_ticks else []:
            right, _ = self.at(value, self.y[0])
            elements.append(_text(f"{value:g}", right, bottom + 16))
        elements.append(
            _text(x_name, (_WIDTH + _LEFT) / 2, _HEIGHT - 8, attributes=' class="soft"')
        )
        middle = (bottom + _MARGIN) / 2
        rotation = f' class="soft" transform="rotate(-90 14 {middle})"'
        elements.append(_text(y_name, 14, middle, attributes=rotation))
        return elements


def _text(text: str, x: float, y: float, anchor: str = "middle", attributes: str = "") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{attributes}>{html.escape(text)}</text>'


def _span(values: np.ndarray) -> Point:
    finite = values[np.isfinite(values)]
    low = float(finite.min()) if len(finite) else 0.0
    high = float(finite.max()) if len(finite) else 1.0
    # Equal values have no span of their own.
    margin = 0.05 * (high - low) or 0.5 * max(abs(high), 1.0)
    return low - margin, high + margin


def _ticks(span: Point) -> np.ndarray:
    """Return about four round numbers."""
    raw = (span[1] - span[0]) / 4
    size = 10.0 ** np.floor(np.log10(raw))
    step = size * next(factor for factor in (1, 2, 5, 10) if factor * size >= raw * 0.75)
    numbers = np.arange(np.ceil(span[0] / step), np.floor(span[1] / step) + 1)
    # Adding 0 makes 0 of −0.
    return np.round(numbers * step, 12) + 0.0


def _svg(elements: Sequence[str], label: str) -> str:
    box = f'class="plain" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    body = "".join(elements)
    return f'<svg {box} role="img" aria-label="{html.escape(label)}">{body}</svg>'


def _subject_dots(new: NewLoadings, points: Sequence[Point], radius: float) -> list[str]:
    """Return dots of new subjects, the unusual ones on top."""
    elements: list[str] = []
    for is_unusual, colour in ((False, _BLUE), (True, _ORANGE)):
        subjects = [
            number
            for number, reason in enumerate(new.quality["unusual"])
            if bool(reason) == is_unusual
        ]
        titles = [new.subjects[number] for number in subjects]
        elements += _dots([points[number] for number in subjects], colour, titles, radius)
    return elements


def _dots(points: Sequence[Point], colour: str, titles: Sequence[str], radius: float) -> list[str]:
    """Return a dot with a title for each point; of very many points, cells with their density."""
    if len(points) <= _MAX_DOTS:
        return [
            f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{colour}" fill-opacity="0.75">'
            f"<title>{html.escape(title)}</title></circle>"
            for (x, y), title in zip(points, titles, strict=True)
        ]
    cells = Counter(
        (int(x) // _CELL, int(y) // _CELL) for x, y in points if np.isfinite([x, y]).all()
    )
    largest = max(cells.values())
    size = f'width="{_CELL}" height="{_CELL}" fill="{colour}"'
    elements = []
    for (x, y), n in cells.items():
        opacity = 0.1 + 0.9 * np.sqrt(n / largest)
        elements.append(
            f'<rect x="{_CELL * x}" y="{_CELL * y}" {size} fill-opacity="{opacity:.3f}">'
            f"<title>{n:,} here</title></rect>"
        )
    return elements


def _quality_chart(new: NewLoadings, units: str) -> str:
    """Draw residual against distance, the fitted subjects in grey."""
    distance = new.quality["distance"]
    residual = new.quality["residual"]
    if not np.isfinite(distance).any():
        return "<p>The fit has too few subjects for distances; the table has the residuals.</p>"
    fitted_distance = new.fitted.get("distance", np.zeros(0))
    fitted_residual = new.fitted.get("residual", np.zeros(0))
    # Without diagnostics of the fit, there are distances but no residuals.
    n_fitted = len(fitted_distance) if len(fitted_distance) == len(fitted_residual) else 0
    axes = _Axes(
        np.concatenate([distance, fitted_distance[:n_fitted]]),
        np.concatenate([residual, fitted_residual[:n_fitted]]),
    )
    elements = axes.frame(
        "distance of the loadings from the fitted subjects'",
        f"residual ({units})" if units else "residual",
    )
    legend = "blue: new subjects; orange: unusual"
    if n_fitted:
        legend = "grey: fitted subjects; blue: new ones; orange: unusual"
        points = [axes.at(x, y) for x, y in zip(fitted_distance, fitted_residual, strict=True)]
        elements += _dots(points, _GREY, ["fitted subject"] * n_fitted, 2.5)
    points = [axes.at(x, y) for x, y in zip(distance, residual, strict=True)]
    elements += _subject_dots(new, points, 3.5)
    if max(len(fitted_distance), len(points)) > _MAX_DOTS:
        legend += _DENSE
    chart = _svg(elements, "Residual against distance of each subject")
    return f'{chart}<p class="about">{legend}</p>'


def _loading_chart(new: NewLoadings, fitted: np.ndarray) -> str:
    """Draw loadings of new subjects on boxes of the fitted ones."""
    mean = fitted.mean(axis=0)
    scale = fitted.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    values = (new.loadings - mean) / scale
    n_components = fitted.shape[1]
    percentiles = np.percentile((fitted - mean) / scale, (1, 25, 50, 75, 99), axis=0)
    axes = _Axes([0.4, n_components + 0.6], np.concatenate([values.ravel(), percentiles.ravel()]))
    elements = axes.frame("component", "loading", x_ticks=False)
    # The golden ratio spreads dots sideways without a pattern.
    shifts = 0.3 * ((np.arange(len(values)) * 0.618) % 1 - 0.5)
    for component in range(n_components):
        number = component + 1
        elements += _box(axes, number, percentiles[:, component])
        if n_components <= _MAX_NUMBERS or number % 5 == 0:
            x, _ = axes.at(number, 0)
            elements.append(_text(str(number), x, _HEIGHT - _BOTTOM + 16))
        points = [
            axes.at(number + shift, value)
            for shift, value in zip(shifts, values[:, component], strict=True)
        ]
        elements += _subject_dots(new, points, 2.2)
    return _svg(elements, "Loadings of the new subjects against those of the fitted ones")


def _box(axes: _Axes, x: float, percentiles: np.ndarray) -> list[str]:
    """Return a box plot as elements of SVG."""
    low, first, median, third, high = percentiles
    left, top = axes.at(x - 0.25, third)
    right, bottom = axes.at(x + 0.25, first)
    centre = round((left + right) / 2, 1)
    _, high_end = axes.at(x, high)
    _, low_end = axes.at(x, low)
    _, line = axes.at(x, median)
    size = f'width="{right - left:.1f}" height="{bottom - top:.1f}"'
    whiskers = f"M{centre} {high_end}V{top}M{centre} {bottom}V{low_end}M{left} {line}H{right}"
    return [
        f'<rect x="{left}" y="{top}" {size} fill="#e7ebef"/>',
        f'<path class="axis" d="{whiskers}"/>',
    ]


# ---------------------------------------------------------------------- table


def _table(new: NewLoadings) -> str:
    """Return the quality of each subject as a table, the unusual ones first."""
    quality = new.quality
    order = sorted(
        range(len(new.subjects)),
        key=lambda number: (not quality["unusual"][number], -quality["residual"][number]),
    )
    titles = [name.replace("_", " ") for name in ("subject", *quality)]
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = []
    for number in order[:_MAX_ROWS]:
        cells = [new.subjects[number], *(_cell(values[number]) for values in quality.values())]
        rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f'<table class="tight"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    text = f'<div class="scroll" tabindex="0" role="region" aria-label="Subjects">{table}</div>'
    n_hidden = len(order) - len(rows)
    if n_hidden:
        text += f"<p>{n_hidden} more are in the table next to this page.</p>"
    return text


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.3g}" if np.isfinite(value) else "n/a"
