"""GIFTI maps (shape, func): one DataArray per map, or one of two dimensions (vertices × maps)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from icofactor.cohort.formats.common import Maps
from icofactor.reading.gifti import LABELS, POINTS, TRIANGLES, parse_gifti
from icofactor.reading.limits import Unreadable


def read_gifti(path: Path) -> Maps:
    """Maps of a GIFTI shape or func file."""
    file = parse_gifti(path)
    intents = {array.intent for array in file.arrays}
    if intents & {POINTS, TRIANGLES}:
        raise Unreadable("is a surface (points and triangles), not a map")
    if LABELS in intents:
        raise Unreadable("holds labels, not a map")
    sizes = {len(array.data) for array in file.arrays}
    if len(sizes) > 1:
        raise Unreadable(f"has maps of different lengths: {sorted(sizes)}")
    rows = [array.data.reshape(len(array.data), -1).T for array in file.arrays]
    names = [array.meta.get("Name", "") for array in file.arrays]
    told = all(len(row) == 1 for row in rows) and all(names)
    return Maps({file.side: rows[0] if len(rows) == 1 else np.concatenate(rows)}, "GIFTI", tuple(names) if told else ())
