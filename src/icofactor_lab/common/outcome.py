"""What an experiment finds, how experiments are chosen and run, and how what they found is written."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, Phrase
from icofactor.io.tables import plain, write_tsv

Row = dict[str, Any]
HIDDEN = ("path", "family")
"""Columns that only the figures need."""


@dataclass(frozen=True)
class Sizes:
    """How much is computed. Each command adds fields, whose defaults are the full size; `name` is "full" or "quick"."""

    name: str = "full"
    subjects: int = 100
    n_components: int = 10

    @property
    def is_quick(self) -> bool:
        return self.name == "quick"


@dataclass(frozen=True)
class Table:
    """Rows that share their columns; None was not measured. `name` is that of its file, where it gets one."""

    title: str
    rows: list[Row]
    note: str = ""
    name: str = ""

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Column → values: all columns that any row has, in the order they come."""
        names = [c for c in dict.fromkeys(key for row in self.rows for key in row) if c not in HIDDEN]
        return {name: [row.get(name, "") for row in self.rows] for name in names}


@dataclass(frozen=True)
class Target:
    """One number that a benchmark must show. `measured` is None where it was not run, and `note` says why."""

    what: str
    goal: str
    measured: float | None
    met: bool | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Plate:
    """A figure.

    Attributes
    ----------
    name : of its files, without ending.
    draw : makes the matplotlib figure.
    ours : what it shows.
    paper : what the paper's figure shows, in our words; "" where it has none.
    """

    name: str
    draw: Callable[[], Any]
    ours: str = ""
    paper: str = ""


@dataclass(eq=False)
class Outcome:
    """Everything one experiment found.

    Attributes
    ----------
    name, title
    notes : paragraphs about how it was measured.
    tables, targets, plates
    warnings : what the library warned of on the way.
    facts : by which the paper's claims are judged.
    """

    name: str
    title: str
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    plates: list[Plate] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinities: what was never reached is null."""
        return {
            "name": self.name,
            "title": self.title,
            "tables": [{"title": t.title, "rows": plain(t.rows), "note": t.note} for t in self.tables],
            "targets": [plain(asdict(target)) for target in self.targets],
            "notes": self.notes,
            "plots": [f"{plate.name}.png" for plate in self.plates],
        }


def at_least(what: str, measured: float, goal: float, note: str = "") -> Target:
    return Target(what, f"≥ {goal:g}", _number(measured), bool(measured >= goal), note)


def at_most(what: str, measured: float, goal: float, note: str = "") -> Target:
    return Target(what, f"≤ {goal:g}", _number(measured), bool(measured <= goal), note)


def not_run(what: str, goal: str, why: str) -> Target:
    return Target(what, goal, None, None, f"not run: {why}")


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


# ------------------------------------------------------------------ running


def chosen(registry: Mapping[str, str], only: Sequence[str]) -> list[str]:
    """The experiments to run, in the registry's order."""
    unknown = [name for name in only if name not in registry]
    if unknown or not only:
        raise ArgumentError("only", Phrase(", ".join(unknown) or "nothing"), f"some of {', '.join(registry)}")
    return [name for name in registry if name in only]


def run_experiment(module: str, context: Any) -> Outcome:
    """Import a module of a registry and run it; what is not asked for is not imported."""
    found: Outcome = importlib.import_module(module).run(context)
    return found


# ------------------------------------------------------------------ writing


def write_tables(tables: Sequence[Table], folder: Path) -> None:
    """One TSV per table that has rows."""
    for table in tables:
        if table.rows:
            write_tsv(folder / f"{table.name}.tsv", table.columns)


def markdown(table: Table) -> str:
    """A table to read."""
    columns = table.columns
    if not columns:
        return "(none)"
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return "–"
    if not isinstance(value, float):
        return str(value).replace("|", "\\|")
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
