"""Diagnostics as one npz file: arrays of numbers and one JSON text, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.io.atomic import atomic_path, write_arrays
from icofactor.io.guard import Unreadable, naming
from icofactor.io.json import parse_json
from icofactor.io.npz import read_arrays
from icofactor.results.diagnostics.checks import check_diagnostics
from icofactor.results.diagnostics.record import Association, Convergence, Diagnostics, Grouping, Unusual

FORMAT, VERSION = "icofactor diagnostics", 1
_RECORDS = {record.__name__: record for record in (Association, Convergence, Diagnostics, Grouping, Unusual)}
_WORDS = "words"


def save_diagnostics(diagnostics: Diagnostics, path: str | Path, overwrite: bool = False) -> Path:
    """Write diagnostics to one npz file, whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    words = {"format": FORMAT, "version": VERSION, "content": _flat(diagnostics, "", arrays)}
    text = json.dumps(words, ensure_ascii=False).encode()
    arrays[_WORDS] = np.frombuffer(text, dtype=np.uint8)
    with atomic_path(path, overwrite) as temporary:
        write_arrays(temporary, arrays, compress=True)
    return Path(path)


def load_diagnostics(path: str | Path) -> Diagnostics:
    """Read diagnostics written by `save_diagnostics`; nothing in the file is run."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"no diagnostics file {file}")
    with naming(file, "set of diagnostics", advice="Run icofactor fit again to have its diagnostics"):
        archive = read_arrays(file)
        words = parse_json(bytes(archive[_WORDS])) if _WORDS in archive else None
        if not isinstance(words, dict) or (words.get("format"), words.get("version")) != (FORMAT, VERSION):
            raise Unreadable(f"does not hold diagnostics of icofactor of version {VERSION}")
        found = _whole(words["content"], archive)
        if not isinstance(found, Diagnostics):
            raise Unreadable(f"holds a {type(found).__name__}, not diagnostics")
        check_diagnostics(found)
    return found


def _flat(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """The same as JSON holds it; arrays go to `arrays` and leave their name."""
    if is_dataclass(value):
        content = {f.name: _flat(getattr(value, f.name), f"{name}{f.name}/", arrays) for f in fields(value)}
        return {"record": type(value).__name__, "fields": content}
    if isinstance(value, np.ndarray):
        arrays[name.rstrip("/")] = value
        return {"array": name.rstrip("/")}
    if isinstance(value, tuple):
        return [_flat(item, f"{name}{i}/", arrays) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {"mapping": dict(value)}
    return value


def _whole(value: Any, archive: Mapping[str, np.ndarray]) -> Any:
    """What `_flat` made this of."""
    if isinstance(value, list):
        return tuple(_whole(item, archive) for item in value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return archive[value["array"]]
    if "mapping" in value:
        return value["mapping"]
    return _RECORDS[value["record"]](**{name: _whole(item, archive) for name, item in value["fields"].items()})
