"""Everything a report shows of a fit, computed; nothing is drawn here."""

from __future__ import annotations

from icofactor.results.diagnostics.diagnose import diagnose
from icofactor.results.diagnostics.record import (
    Association,
    Convergence,
    Diagnostics,
    Grouping,
    Unusual,
    load_diagnostics,
    save_diagnostics,
)

__all__ = [
    "Association",
    "Convergence",
    "Diagnostics",
    "Grouping",
    "Unusual",
    "diagnose",
    "load_diagnostics",
    "save_diagnostics",
]
