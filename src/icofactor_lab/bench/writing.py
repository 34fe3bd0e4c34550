"""bench.json and bench.md: everything measured, and tables to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from icofactor.io.atomic import atomic_path

_HIDDEN = ("path", "family")
"""Columns that only the plots need."""


def write_json(results: dict[str, Any], folder: Path) -> None:
    with atomic_path(folder / "bench.json", overwrite=True) as path:
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_tables(results: dict[str, Any], folder: Path) -> None:
    with atomic_path(folder / "bench.md", overwrite=True) as path:
        path.write_text(readable(results), encoding="utf-8")


def readable(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    machine = results["machine"]
    parts = [
        "# icofactor bench",
        f"{machine['processor']}, {machine['processors usable']} processors usable, {machine['threads']} threads for "
        f"every library, {machine['memory']}; {machine['system']}, Python {machine['python']}, "
        f"{', '.join(machine['blas'])}; {machine['date']}.",
        ", ".join(f"{name} {version}" for name, version in machine["versions"].items()) + ".",
    ]
    if results["settings"]["quick"]:
        parts.append("**--quick: tiny sizes, to see that everything runs; the numbers mean nothing.**")
    outcomes = list(results["experiments"].values())
    parts += ["## Targets", _markdown([_target_row(o["name"], t) for o in outcomes for t in o["targets"]])]
    for outcome in outcomes:
        parts += [f"## ({outcome['name']}) {outcome['title']}", *outcome["notes"]]
        for table in outcome["tables"]:
            parts += [f"### {table['title']}", *([table["note"]] if table["note"] else []), _markdown(table["rows"])]
        parts += [f"![{outcome['title']}]({name})" for name in outcome.get("plots", [])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _target_row(experiment: str, target: dict[str, Any]) -> dict[str, Any]:
    met = target["met"]
    return {
        "": f"({experiment})",
        "what": target["what"],
        "target": target["goal"],
        "measured": target["measured"] if target["measured"] is not None else "not reached" if met is False else "–",
        "met": "–" if met is None else "yes" if met else "**no**",
        "note": target["note"],
    }


def _markdown(rows: list[dict[str, Any]]) -> str:
    """Rows as a Markdown table; the columns are all that any row has, in the order they come."""
    columns = [c for c in dict.fromkeys(key for row in rows for key in row) if c not in _HIDDEN]
    if not rows:
        return "(none)"
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(c, "")) for c in columns) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value).replace("|", "\\|")
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
