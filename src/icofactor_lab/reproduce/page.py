"""The page: claims, figures and tables in the report's style, one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from icofactor_lab.common.outcome import Outcome, Table
from icofactor_lab.reproduce.claims import Verdict

_LONG = 30
"""Rows from which a table of the page scrolls."""
_OWN_STYLE = """
#panels { display: block; }
#panels section { margin: 14px 0; }
figure { margin: 14px 0 20px; }
figure img { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 6px; }
.captions { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; font-size: 13.5px; }
.captions b { display: block; color: var(--soft); font-size: 12px; font-weight: 600; }
.verdict { display: inline-block; border-radius: 999px; padding: 0 9px; font-size: 12.5px; white-space: nowrap; }
.holds { background: #d9efe4; color: #0b5138; }
.part { background: #fdf0c8; color: #6b5200; }
.fails { background: #f9dcd0; color: #7a2a00; }
.claims td:first-child { width: 21%; font-weight: 550; }
.claims td:nth-child(5) { width: 27%; }
.claims tr.first td { border-top: 2px solid #c9d0d8; }
nav a { margin-right: 14px; color: var(--accent); }
details summary { cursor: pointer; margin-top: 12px; font-weight: 600; } .wide { overflow-x: auto; }
.wide th, .wide td { overflow-wrap: normal; } .wide.scroll td { white-space: nowrap; }
@media (max-width: 820px) { .captions { grid-template-columns: minmax(0, 1fr); } }
"""
_CLASS = {"holds": "holds", "holds in part": "part", "does not hold": "fails"}


def render(
    outcomes: Sequence[Outcome],
    verdicts: Sequence[Verdict],
    pictures: Mapping[str, bytes],
    data: Table,
    about: Mapping[str, Any],
) -> str:
    """The page as text.

    Parameters
    ----------
    pictures : name of a plate → PNG.
    data : the table of datasets.
    about : "title", "lead" (one line), "cards" (name → value), "notices" (what to know first), "record" (name → value).
    """
    style = files("icofactor.results.report").joinpath("assets", "style.css").read_text(encoding="utf-8") + _OWN_STYLE
    policy = (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    cards = "".join(f"<div><dt>{_e(k)}</dt><dd>{_e(v)}</dd></div>" for k, v in about["cards"].items())
    notices = "".join(f"<li>{_e(text)}</li>" for text in about["notices"])
    links = "".join(f'<a href="#{s.name}">{_e(s.title)}</a>' for s in outcomes)
    record = "".join(f"<tr><th>{_e(k)}</th><td>{_e(v)}</td></tr>" for k, v in about["record"].items())
    body = "".join(_section(outcome, pictures) for outcome in outcomes)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="icofactor">
<title>{_e(about["title"])}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#claims">Go to the claims</a>
<header><h1>{_e(about["title"])}</h1><p id="lead">{_e(about["lead"])}</p><dl id="cards">{cards}</dl>
<div class="notice" role="note"><strong>Before you read on</strong><ul>{notices}</ul></div>
<nav aria-label="Experiments"><a href="#claims">Claims</a>{links}<a href="#data">Data</a></nav></header>
<main id="panels">
{_claims(verdicts)}
{body}
<section id="data"><h2>Data</h2>{_table(data)}</section>
<section id="record"><h2>How this was made</h2><table>{record}</table></section>
</main>
</body>
</html>
"""


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _e(value: Any) -> str:
    return html.escape(str(value))


def _claims(verdicts: Sequence[Verdict]) -> str:
    """The table of claims; a claim is named once, its settings follow."""
    rows, before = [], ""
    for v in verdicts:
        first = v.claim != before
        before = v.claim
        named = f"{_e(v.claim)} <small>({_e(v.where)})</small>" if first else ""
        chip = f'<span class="verdict {_CLASS[v.verdict]}">{_e(v.verdict)}</span>'
        cells = "".join(f"<td>{cell}</td>" for cell in (named, _e(v.setting), _e(v.measured), chip, _e(v.why)))
        rows.append(f'<tr class="{"first" if first else ""}">{cells}</tr>')
    head = "".join(f"<th>{name}</th>" for name in ("The paper's claim", "Setting", "Measured here", "", "Why"))
    return (
        '<section id="claims"><h2>The paper\'s claims</h2><p class="about">In our own words; judged by fixed '
        "rules (icofactor_lab.reproduce.claims), from these data alone.</p>"
        f'<div class="wide"><table class="claims"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
        "</div></section>"
    )


def _section(outcome: Outcome, pictures: Mapping[str, bytes]) -> str:
    plates = "".join(
        f'<figure><img alt="{_e(p.ours)}" src="data:image/png;base64,{base64.b64encode(pictures[p.name]).decode()}">'
        f'<figcaption class="captions"><div><b>Here</b>{_e(p.ours)}</div>'
        f"<div><b>In the paper</b>{_e(p.paper or 'It has no such figure.')}</div></figcaption></figure>"
        for p in outcome.plates
    )
    tables = "".join(
        f"<details{'' if len(t.rows) > _LONG else ' open'}><summary>{_e(t.title)}</summary>"
        f'<p class="about">{_e(t.note)} tables/{_e(t.name)}.tsv</p>{_table(t)}</details>'
        for t in outcome.tables
    )
    notes = ""
    if outcome.warnings:
        listed = "".join(f"<li>{_e(note)}</li>" for note in outcome.warnings)
        notes = f"<details><summary>Warnings ({len(outcome.warnings)})</summary><ul>{listed}</ul></details>"
    title = f'<h2>{_e(outcome.title)}</h2><p class="about">{_e(" ".join(outcome.notes))}</p>'
    return f'<section id="{outcome.name}">{title}{plates}{tables}{notes}</section>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{_e(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_e(cell(value))}</td>" for value in row) + "</tr>"
        for row in zip(*table.columns.values(), strict=True)
    )
    return f'<div class="wide scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def cell(value: Any) -> str:
    """A value for reading: four digits, and an empty cell for what is not known."""
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return str(value)


def picture(figure: Any, dpi: int) -> bytes:
    """A figure as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=dpi)
    return stream.getvalue()
