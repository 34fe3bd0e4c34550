"""All golden cases: a name, and a function that returns figures; some take a folder to write to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from golden import assessment, details, folders, methods, models, preparation
from golden.figures import Figure

CASES: dict[str, Callable[..., dict[str, Figure]]] = {
    **methods.CASES,
    **models.CASES,
    **preparation.CASES,
    **folders.CASES,
    **assessment.CASES,
    **details.CASES,
}


def figures_of(name: str, folder: Path) -> dict[str, Figure]:
    """Run a case; `folder` is empty and its own."""
    case = CASES[name]
    if "folder" in inspect.signature(case).parameters:
        return case(folder=folder)
    return case()
