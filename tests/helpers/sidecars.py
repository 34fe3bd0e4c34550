"""Tables and the JSON files beside them."""

from __future__ import annotations

import json
from pathlib import Path

from icofactor.io.tables import read_table


def undescribed(folder: Path) -> list[str]:
    """TABLE:COLUMN for every column of a folder's tables that no JSON file beside it describes."""
    found = []
    for table in folder.rglob("*.tsv"):
        file = table.with_suffix(".json")
        about = json.loads(file.read_text()) if file.is_file() else {}
        found += [
            f"{table.name}:{name}" for name in read_table(table)[0] if not _says(about.get(name))
        ]
    return found


def _says(entry: object) -> bool:
    return isinstance(entry, dict) and bool(entry.get("Description"))
