"""The files about new subjects, which appear together or not at all.

NAME.tsv     participant_id, component01, ..., the columns of `QUALITY`, and what is known of the
participants
NAME.json    what the columns hold, the rule for unusual subjects, model and data
NAME.html    the same as a small page: one file without scripts, drawn as SVG
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
from icofactor.errors import ArgumentError, counted, named
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.io.guard import hash_file
from icofactor.io.json import read_json
from icofactor.io.publish import Names, Publication
from icofactor.io.tables import GIVEN, described, numbered, sidecar, write_json, write_tsv
from icofactor.results.description import LOADINGS
from icofactor.results.meaning import fitted_units, measure_title
from icofactor.results.report.page import asset, policy
from icofactor.results.transform import QUALITY, NewLoadings

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 330, 60, 44
_MOST_ROWS, _MOST_DOTS, _CELL = 200, 2000, 5
"""Rows of the page's table; dots of a chart, and the side of the cells that show the density of
more, in pixels.
"""
_MOST_NAMES, _LETTER, _LINE = 6, 7, 13
"""Names in a chart; about the width of a letter and the height of a line, in pixels."""
_BLUE, _ORANGE, _GREY = "#0b6ea8", "#d55e00", "#8a939e"
_DENSE = "; darker: more subjects, all of whom are in the table"


def table_at(out: str | Path, overwrite: bool, inputs: Iterable[str | Path] = ()) -> Path:
    """Where the table goes: the .tsv file named, or one in the folder named. Refuses a place that
    cannot take it.
    """
    place = Path(out)
    if place.suffix == ".tsv":
        table = place
    elif place.suffix or place.is_file():
        raise ArgumentError("out", f"{place} is not a folder, nor a file that ends with .tsv")
    else:
        table = place / LOADINGS
    if table.parent.is_dir():
        _TableFiles(table, overwrite, inputs)
    elif place.suffix == ".tsv" or not place.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"the folder of {place} does not exist: create {place.absolute().parent} first"
        )
    return table


def write_loadings(
    found: NewLoadings,
    table: Path,
    cohort: Any,
    model_path: Path,
    *,
    model: CorticalFactorization | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """The table, beside it a JSON file that says where it comes from, and a page where the model is
    given.
    """
    names = numbered("component", found.loadings.shape[1])
    columns: dict[str, Any] = dict(People.of(found.subjects, cohort.participants).columns)
    rows = set(columns)
    columns |= dict(zip(names, found.loadings.T, strict=True))
    columns |= found.quality
    rest = {name: values for name, values in cohort.participants.items() if name not in rows}
    joined = {
        name if name not in columns else f"participants_{name}": values
        for name, values in rest.items()
    }
    told = {
        **dict.fromkeys(joined, GIVEN),
        **QUALITY,
        **{name: f"Loading on {name}" for name in names},
    }
    about = {
        **described({**columns, **joined}, told),
        "Description": "Loadings of subjects on the basis maps of a fit, in the scale of the fit's own loadings",
        "icofactor": __version__,
        "model": {"path": str(model_path), "sha256": hash_file(model_path)},
        "data": dict(cohort.provenance),
        "rule": found.rule,
        "summary": _numbers(found),
        "notes": list(found.notes),
        "taken_out": [] if model is None else list(taken_out_of(model)),
    }
    files = [table, sidecar(table), *([_page(table)] if model is not None else [])]
    with _TableFiles(table, overwrite).filled() as new:
        write_tsv(new / table.name, {**columns, **joined})
        if model is not None:
            text = render_transform(found, model, cohort, table.name)
            (new / _page(table).name).write_text(text, encoding="utf-8", newline="\n")
        about["files"] = {file.name: hash_file(file) for file in new.iterdir()}
        write_json(new / sidecar(table).name, about)
    return files


def _numbers(found: NewLoadings) -> dict[str, Any]:
    """What the page and the terminal say of all subjects together."""
    name, of_whom = "explained_variance", {"": found.quality, "_of_fitted_subjects": found.fitted}
    known = {who: of[name][np.isfinite(of[name])] for who, of in of_whom.items() if name in of}
    medians = {
        f"{name}_median{who}": float(np.median(v)) if len(v) else None for who, v in known.items()
    }
    return {
        "subjects": len(found.subjects),
        "unusual": sum(map(bool, found.quality.get("unusual", ()))),
        **medians,
    }


class _TableFiles(Publication):
    """A table, its record and its page in any folder: the record says which files are results."""

    def __init__(self, table: Path, overwrite: bool, inputs: Iterable[str | Path] = ()) -> None:
        self._names = [table.name, _page(table).name, sidecar(table).name]
        # An earlier page leaves even where no new one is written.
        leaving = lambda listed: listed
        super().__init__(table.parent, overwrite, names=self._names, leaving=leaving, inputs=inputs)

    def owned(self) -> Names:
        """Return the files that an earlier record names, and the record."""
        record = self._names[-1]
        try:
            hashes = read_json(self.path / record)["files"]
            return {**{name: hashes[name] for name in self._names if name in hashes}, record: ""}
        except (OSError, ValueError, LookupError, TypeError):
            return {}

    def write_list(self, folder: Path, names: Names) -> None:
        """Write nothing: the record is among the files."""

    def add(self, stage: Path, new: Names) -> None:
        """Move the files to the folder, the record last."""
        for name in self.check(new) - set(new):
            (self.path / name).unlink(missing_ok=True)
        for name in self._names:
            if name in new:
                os.replace(stage / name, self.path / name)


def _page(table: Path) -> Path:
    return table.with_suffix(".html")


# ---------------------------------------------------------------------- the page


def render_transform(found: NewLoadings, model: Any, cohort: Any, table: str) -> str:
    """The page as text; `table` is the name of the file beside it that holds its numbers."""
    what = "" if cohort.modality in ("", "unknown") else f": {measure_title(cohort.modality)}"
    title = f"{counted(len(found.subjects), 'new subject')} on {counted(len(model.components_), 'component')}{what}"
    style = asset("style.css")
    known, n = _numbers(found), len(found.subjects)
    n_unusual, share = known["unusual"], known["explained_variance_median"]
    median = "n/a" if share is None else f"{100 * share:.0f} %"
    many = f"{n_unusual if n_unusual else 'None'} of {counted(n, 'new subject')} {'is' if n_unusual <= 1 else 'are'}"
    said = f"{many} unusual. The components explain {median} of a new subject's variance (median). {found.doubt}".strip()
    cards = {
        "new subjects": str(len(found.subjects)),
        "fitted subjects": str(len(model.loadings_)),
        "explained, median": median,
        "unusual": str(n_unusual),
    }
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in found.notes)
    units = fitted_units(model, cohort.units)
    panels = [
        _panel(
            "How well the components describe each subject",
            found.rule,
            _quality_chart(found, units),
        ),
        _panel(
            "Loadings",
            "Box: middle half of the fitted subjects, line at their median; whiskers: 1st to 99th percentile. "
            "Dots: new subjects, unusual ones in orange. In standard deviations of the fitted subjects"
            f"{_DENSE if n > _MOST_DOTS else ''}.",
            _loading_chart(found, model.loadings_),
        ),
        _panel(
            "Subjects",
            "Unusual subjects first, then by decreasing residual.",
            _table(found),
            wide=True,
        ),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy("", style)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="generator" content="icofactor">',
            f"<title>{html.escape('icofactor: ' + title)}</title><style>{style}</style></head><body>",
            f"<header><h1>{html.escape(title)}</h1>",
            f'<div id="verdict" role="region" aria-label="Verdict"><p><strong>{html.escape(said)}</strong></p>',
            f'<p>Table: <a href="{quote(os.fsencode(table))}">{html.escape(named(table))}</a></p></div>',
            '<dl id="cards">'
            + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in cards.items())
            + "</dl>",
            f'<div class="notice"><ul>{notes}</ul></div>' if notes else "",
            "</header>",
            f'<main><div class="grid">{"".join(panels)}</div></main></body></html>',
            "",
        ]
    )


def _panel(title: str, about: str, body: str, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return f'<section{kind}><h2>{html.escape(title)}</h2><p class="about">{html.escape(about)}</p>{body}</section>'


class _Axes:
    """Where numbers lie on a drawing."""

    def __init__(self, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> None:
        self.x, self.y = _span(np.asarray(x)), _span(np.asarray(y))

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (_WIDTH - _LEFT - 12)
        down = (
            _HEIGHT - _BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (_HEIGHT - _BOTTOM - 12)
        )
        return round(across, 1), round(down, 1)

    def frame(self, x_name: str, y_name: str, x_ticks: bool = True) -> list[str]:
        left, bottom = _LEFT, _HEIGHT - _BOTTOM
        parts = [f'<path class="axis" d="M{left} 12V{bottom}H{_WIDTH - 12}"/>']
        for value in _ticks(self.y):
            _, down = self.at(self.x[0], value)
            parts.append(f'<path class="grid" d="M{left} {down}H{_WIDTH - 12}"/>')
            parts.append(f'<text x="{left - 6}" y="{down + 4}" text-anchor="end">{value:g}</text>')
        for value in _ticks(self.x) if x_ticks else []:
            across, _ = self.at(value, self.y[0])
            parts.append(
                f'<text x="{across}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
            )
        middle = (bottom + 12) / 2
        centre = f'class="soft" x="{(_WIDTH + left) / 2}" y="{_HEIGHT - 8}" text-anchor="middle"'
        parts.append(f"<text {centre}>{html.escape(x_name)}</text>")
        turned = f'transform="rotate(-90 14 {middle})"'
        parts.append(
            f'<text class="soft" x="14" y="{middle}" text-anchor="middle" {turned}>{html.escape(y_name)}</text>'
        )
        return parts


def _span(values: np.ndarray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.5 * max(abs(high), 1.0)
    return low - room, high + room


def _ticks(span: tuple[float, float]) -> np.ndarray:
    """Four or so round numbers."""
    raw = (span[1] - span[0]) / 4
    size = 10.0 ** np.floor(np.log10(raw))
    step = size * next(factor for factor in (1, 2, 5, 10) if factor * size >= raw * 0.75)
    return (
        np.round(np.arange(np.ceil(span[0] / step), np.floor(span[1] / step) + 1) * step, 12) + 0.0
    )  # no −0


def _svg(parts: Sequence[str], label: str) -> str:
    box = f'class="plain" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'<svg {box} role="img" aria-label="{html.escape(label)}">{"".join(parts)}</svg>'


def _both(
    found: NewLoadings, places: Sequence[tuple[float, float]], strange: np.ndarray, size: float
) -> list[str]:
    """New subjects, the unusual ones on top of the others."""
    parts: list[str] = []
    for rows, colour in (
        (np.flatnonzero(~strange).tolist(), _BLUE),
        (np.flatnonzero(strange).tolist(), _ORANGE),
    ):
        parts += _dots([places[s] for s in rows], colour, [found.subjects[s] for s in rows], size)
    return parts


def _dots(
    places: Sequence[tuple[float, float]], colour: str, titles: str | Sequence[str], size: float
) -> list[str]:
    """A dot with a title at each place; of very many the cells that hold them, darker where they
    are more.
    """
    if len(places) <= _MOST_DOTS:
        named = [titles] * len(places) if isinstance(titles, str) else titles
        return [
            f'<circle cx="{x}" cy="{y}" r="{size}" fill="{colour}" fill-opacity="0.75">'
            f"<title>{html.escape(title)}</title></circle>"
            for (x, y), title in zip(places, named, strict=True)
        ]
    cells = Counter(
        (int(x) // _CELL, int(y) // _CELL) for x, y in places if np.isfinite([x, y]).all()
    )
    most = max(cells.values())
    return [
        f'<rect x="{_CELL * x}" y="{_CELL * y}" width="{_CELL}" height="{_CELL}" fill="{colour}" '
        f'fill-opacity="{0.1 + 0.9 * np.sqrt(n / most):.3f}"><title>{n:,} here</title></rect>'
        for (x, y), n in cells.items()
    ]


def _quality_chart(found: NewLoadings, units: str) -> str:
    """Residual against distance, the fitted subjects in grey."""
    new = found.quality
    if not np.isfinite(new["distance"]).any():
        return "<p>The fit has too few subjects for distances; the table has the residuals.</p>"
    own = [found.fitted.get(name, np.zeros(0)) for name in ("distance", "residual")]
    together = len(own[0]) == len(own[1])
    every = [
        np.concatenate([new[name], values if together else []])
        for name, values in zip(("distance", "residual"), own, strict=True)
    ]
    axes = _Axes(*every)
    parts = axes.frame(
        "distance of the loadings from the fitted subjects'",
        f"residual{f' ({units})' if units else ''}",
    )
    if together:
        parts += _dots(
            [axes.at(x, y) for x, y in zip(*own, strict=True)], _GREY, "fitted subject", 2.5
        )
    strange = np.array([bool(text) for text in new["unusual"]])
    places = [axes.at(x, y) for x, y in zip(new["distance"], new["residual"], strict=True)]
    parts += _both(found, places, strange, 3.5)
    furthest = sorted(np.flatnonzero(strange), key=lambda s: -new["residual"][s])[:_MOST_NAMES]
    parts += _names([(*places[s], found.subjects[s]) for s in furthest])  # all are in the table
    key = (
        "grey: fitted subjects; blue: new ones; orange: unusual"
        if together
        else "blue: new subjects; orange: unusual"
    )
    key += _DENSE if max(len(own[0]), len(places)) > _MOST_DOTS else ""
    return _svg(parts, "Residual against distance of each subject") + f'<p class="about">{key}</p>'


def _names(places: Sequence[tuple[float, float, str]]) -> list[str]:
    """Names beside dots, without those that would cover one before."""
    parts, taken = [], list[tuple[float, float, float]]()
    for x, y, name in places:
        shown, right, line = name[:30], x - 6, y - 5
        left = right - _LETTER * len(shown)
        if any(
            left < other and begin < right and abs(line - at) < _LINE for begin, other, at in taken
        ):
            continue
        taken.append((left, right, line))
        parts.append(f'<text x="{right}" y="{line}" text-anchor="end">{html.escape(shown)}</text>')
    return parts


def _loading_chart(found: NewLoadings, fitted: np.ndarray) -> str:
    middle, scale = fitted.mean(axis=0), fitted.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    own, new = (fitted - middle) / scale, (found.loadings - middle) / scale
    k = fitted.shape[1]
    ends = np.percentile(own, (1, 25, 50, 75, 99), axis=0)
    strange = np.array([bool(text) for text in found.quality["unusual"]])
    axes = _Axes([0.4, k + 0.6], np.concatenate([new.ravel(), ends.ravel()]))
    parts = axes.frame("component", "loading", x_ticks=False)
    for j in range(k):
        low, first, half, third, high = ends[:, j]
        left, top = axes.at(j + 0.75, third)
        right, bottom = axes.at(j + 1.25, first)
        centre = round((left + right) / 2, 1)
        lines = f"M{centre} {axes.at(1, high)[1]}V{top}M{centre} {bottom}V{axes.at(1, low)[1]}"
        lines += f"M{left} {axes.at(1, half)[1]}H{right}"
        box = f'<rect x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top:.1f}" fill="#e7ebef"/>'
        parts.append(f'{box}<path class="axis" d="{lines}"/>')
        if k <= 25 or j % 5 == 4:
            parts.append(
                f'<text x="{centre}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{j + 1}</text>'
            )
        places = [
            axes.at(j + 1 + 0.3 * ((s * 0.618) % 1 - 0.5), value)
            for s, value in enumerate(new[:, j])
        ]
        parts += _both(found, places, strange, 2.2)
    return _svg(parts, "Loadings of the new subjects against those of the fitted ones")


def _table(found: NewLoadings) -> str:
    quality = found.quality
    first = sorted(
        range(len(found.subjects)),
        key=lambda s: (not quality["unusual"][s], -quality["residual"][s]),
    )
    shown = lambda value: (
        str(value or "")
        if isinstance(value, str)
        else "n/a"
        if not np.isfinite(value)
        else f"{value:.3g}"
    )
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in ("subject", *quality))
    rows = [
        f"<tr><td>{html.escape(found.subjects[s])}</td>"
        + "".join(f"<td>{html.escape(shown(values[s]))}</td>" for values in quality.values())
        + "</tr>"
        for s in first[:_MOST_ROWS]
    ]
    more = (
        f"<p>{len(first) - _MOST_ROWS} more are in the table next to this page.</p>"
        if len(first) > _MOST_ROWS
        else ""
    )
    table = (
        f'<table class="tight"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Subjects">{table}</div>{more}'
    )
