"""How many components, and how far to trust them (docs/selection.md)."""

from __future__ import annotations

from icofactor.assessment.selection.choice import Choice
from icofactor.assessment.selection.choose import choose_n_components

__all__ = ["Choice", "choose_n_components"]
