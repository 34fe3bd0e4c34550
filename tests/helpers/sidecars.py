"""Tables and the JSON files beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from icofactor.io.tables import read_table


def undescribed(folder: Path) -> list[str]:
    """TABLE:COLUMN for every column of a folder's tables that no JSON file beside it describes."""
    return [
        f"{table.name}:{name}"
        for table in folder.rglob("*.tsv")
        for name in read_table(table)[0]
        if not _says(_about(table).get(name))
    ]


def _about(table: Path) -> dict[str, Any]:
    """Descriptions of columns: a file per table, or one for all tables of a folder."""
    shared = table.with_name("columns.json")
    file = table.with_suffix(".json")
    if file.is_file():
        return dict(json.loads(file.read_text()))
    return dict(json.loads(shared.read_text())[table.name]) if shared.is_file() else {}


def _says(entry: object) -> bool:
    return isinstance(entry, dict) and bool(entry.get("Description"))
