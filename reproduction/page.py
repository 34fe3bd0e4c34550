"""The page with everything: claims, figures and tables in one HTML file."""

from __future__ import annotations

import base64
import html
import platform

import icofactor as ico
from reproduction.settings import FULL
from reproduction.study import Study

TABLES = ("datasets", "timing", "convergence", "sparsity", "maps", "ablation", "division")
STYLE = """
body { font-family: sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; line-height: 1.4; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: 3px 8px; border-bottom: 1px solid #ddd; }
td, th { text-align: left; vertical-align: top; } img { max-width: 100%; } div { overflow-x: auto; }
"""


def write_page(study: Study) -> None:
    """Write reproduction.html from the tables and figures in the folder of the study."""
    parts = [
        "<h1>The paper's experiments, repeated</h1>",
        *(f"<p>{html.escape(note)}</p>" for note in notes(study)),
    ]
    parts.append("<h2>Claims</h2>" + table_html(study, "claims"))
    for path in sorted((study.folder / "figures").glob("*.png")):
        picture = base64.b64encode(path.read_bytes()).decode()
        parts.append(
            f'<h2>{path.stem}</h2><img alt="{path.stem}" src="data:image/png;base64,{picture}">'
        )
    # Tables are long: they open on a click.
    for name in TABLES:
        parts.append(
            f"<details><summary>Table: {name}.tsv</summary>{table_html(study, name)}</details>"
        )
    head = f'<head><meta charset="utf-8"><title>The paper, repeated</title><style>{STYLE}</style></head>'
    text = f'<!DOCTYPE html>\n<html lang="en">{head}<body>{"".join(parts)}</body></html>\n'
    (study.folder / "reproduction.html").write_text(text, encoding="utf-8")


def table_html(study: Study, name: str) -> str:
    """Return a table as HTML."""
    table = study.read_table(name)
    if table is None:
        return "<p>Not run.</p>"
    return f"<div>{table.to_html(index=False, border=0, na_rep='', float_format='%.4g')}</div>"


def notes(study: Study) -> list[str]:
    """Return what to know before reading."""
    lines = [
        "Honnorat & Davatzikos, Sparse Hierarchical Extrapolated Parametric Methods for Cortical Data Analysis. "
        "The claims are in our own words; fixed rules judge them from these data alone.",
        "The literal σ = 0.015 lets the columns reach about a tenth of the cortex. So the claims are judged under it, "
        "under columns that cover the cortex, and under icofactor's defaults.",
    ]
    if study.lead.simulated:
        lines.append(
            "The data are simulated. What depends on real brains is not tested by them: they vary between subjects far "
            "more than real thickness does."
        )
    if study.sizes != FULL:
        lines.append(
            "These are small sizes. They show that everything runs; they do not judge the paper."
        )
    lines.append(
        f"icofactor {ico.__version__}, Python {platform.python_version()}, {platform.machine()}."
    )
    return lines
