"""Clocks and tables."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = Mapping[str, Any]


def elapsed(work: Callable[[], object]) -> float:
    """Return the time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Return the median time of several calls, after one that is not counted; one call alone is not repeated."""
    if repeats > 1:
        work()
    return statistics.median(elapsed(work) for _ in range(repeats))


def product_seconds(size: int = 1500) -> float:
    """Return the time of a product of square matrices of float64, the unit in which machines are compared."""
    matrix = np.random.default_rng(0).random((size, size))
    return seconds(lambda: matrix @ matrix, repeats=3)


def run_python(*arguments: str) -> str:
    """Run Python in a process of its own; return what it prints."""
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True
    ).stdout


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write a table as TSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Rows may lack columns that others have.
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = ["\t".join(columns)]
    lines += ["\t".join(cell(row.get(column, "")) for column in columns) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def cell(value: Any) -> str:
    """Return a value as text, with four digits."""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def show(row: Row) -> Row:
    """Print a row, and return it."""
    print("  " + "  ".join(f"{name}: {cell(value)}" for name, value in row.items()), flush=True)
    return row


def timing_row(label: str, value: float, limit: float | str = "") -> Row:
    """Return a time, its ratio to a matrix product now, and the limit that it must keep."""
    return show(
        {
            "what": label,
            "value": value,
            "unit": "s",
            "products": value / product_seconds(),
            "limit": limit,
        }
    )
