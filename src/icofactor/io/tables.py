"""Tables as TSV and records as JSON, written whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from icofactor.io.atomic import atomic_path


def write_tsv(path: str | Path, columns: Mapping[str, ArrayLike], *, overwrite: bool = False) -> Path:
    """A table with one header line; None and NaN become "n/a", as BIDS has it.

    Parameters
    ----------
    columns : name → one value per row; all of the same length.
    """
    if not columns:
        raise ValueError("columns must hold at least one column; it is empty")
    values = {str(name): np.asarray(column) for name, column in columns.items()}
    for name, column in values.items():
        if column.ndim != 1:
            raise ValueError(f"columns[{name!r}] must have one dimension; got shape {column.shape}")
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must be equally long; got {lengths}")
    lines = ["\t".join(_cell(name) for name in values)]
    lines += ["\t".join(_cell(value) for value in row) for row in zip(*values.values(), strict=True)]
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return Path(path)


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return "n/a"
    # str of a NumPy number has just the digits that are needed to read the same number back
    text = str(value)
    if any(character in text for character in "\t\n\r"):
        raise ValueError(f"a table's cell cannot hold tabs or line breaks; got {text!r}")
    return text


def write_json(path: str | Path, obj: Any, *, overwrite: bool = False) -> Path:
    """JSON with NumPy numbers and arrays as plain ones; NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(plain(obj), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8", newline="\n")
    return Path(path)


def plain(obj: Any) -> Any:
    """The same in dicts, lists, strings, numbers, booleans and None."""
    if isinstance(obj, Mapping):
        return {str(key): plain(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple, set, frozenset)):
        return [plain(value) for value in obj]
    if isinstance(obj, (np.ndarray, np.generic)):
        return plain(obj.tolist())
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if obj is None or isinstance(obj, (str, int, bool)):
        return obj
    if isinstance(obj, Path):
        return str(obj)
    raise ValueError(f"JSON cannot hold a {type(obj).__name__}: {obj!r}")


def numbered(word: str, n: int) -> list[str]:
    """ "component01", "component02", ..."""
    width = max(2, len(str(n)))
    return [f"{word}{i + 1:0{width}d}" for i in range(n)]
