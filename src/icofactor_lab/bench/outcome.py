"""What an experiment hands to the writer: tables, targets with what was measured, and notes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows that share their columns; a value of None was not measured."""

    title: str
    rows: list[Row]
    note: str = ""


@dataclass(frozen=True)
class Target:
    """One figure that the benchmark must show. `measured` is None where it was not run, and `note` says why."""

    what: str
    goal: str
    measured: float | None
    met: bool | None
    note: str = ""


@dataclass
class Outcome:
    """Everything one experiment found."""

    name: str
    title: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinities: what was never reached is null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def at_least(what: str, measured: float, goal: float, unit: str = "", note: str = "") -> Target:
    return Target(what, f"≥ {goal:g}{unit}", _number(measured), bool(measured >= goal), note)


def at_most(what: str, measured: float, goal: float, unit: str = "", note: str = "") -> Target:
    return Target(what, f"≤ {goal:g}{unit}", _number(measured), bool(measured <= goal), note)


def not_run(what: str, goal: str, why: str) -> Target:
    return Target(what, goal, None, None, f"not run: {why}")


def _number(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {str(key): _plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    if isinstance(x, np.generic):
        x = x.item()
    return None if isinstance(x, float) and not np.isfinite(x) else x
