"""One mechanism for every long run: finished pieces are kept in a folder, and taken from there the next time.

A run is known by its configuration and by a digest of its data; a folder of another run is refused with what
differs. A piece is a handful of arrays of numbers under a key; it appears whole or not at all, so a killed
process loses only the piece it was making. Reading a piece runs no code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import CheckpointError
from icofactor.io.atomic import alone_in, atomic_path, nobody_in, write_arrays
from icofactor.io.guard import Unreadable, brief, naming
from icofactor.io.json import read_json
from icofactor.io.npz import read_arrays

_RUN = "run.json"
FORMAT = "icofactor work folder"
VERSION = 1
Arrays = dict[str, np.ndarray]


class Checkpoint:
    """Finished pieces of one run.

    Parameters
    ----------
    folder : path or None
        Where the pieces are kept; made when missing. None keeps nothing: every piece is computed.
    run : mapping
        What makes this run this run, as JSON would hold it: command, settings, seed, `digest` of the data. Everything
        that changes a piece must be in it.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, run: Mapping[str, Any]) -> None:
        self.folder = None if folder is None else Path(folder)
        self.run = json.loads(json.dumps(dict(run), sort_keys=True))
        self.reused = 0
        if self.folder is not None:
            self._open(self.folder)

    @classmethod
    def attached(cls, folder: str | os.PathLike[str]) -> Checkpoint:
        """The pieces of a run that another process has opened: nothing is checked or cleaned."""
        found = cls(None, {})
        found.folder = Path(folder)
        return found

    def _open(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        leftovers = list(folder.glob(".tmp-*"))
        if leftovers and nobody_in(folder):  # of killed processes; another one may be at work in the same folder
            for leftover in leftovers:
                with suppress(OSError):
                    leftover.unlink(missing_ok=True)
        file = folder / _RUN
        if not file.exists():
            if any(folder.iterdir()):
                raise CheckpointError(f"{folder} is not empty and not a work folder of icofactor: name a new one")
            with atomic_path(file) as temporary:
                temporary.write_text(json.dumps({"format": FORMAT, "version": VERSION, "run": self.run}, indent=1))
            return
        differences = _differences(_read_run(file), self.run)
        if differences:
            raise CheckpointError(
                f"{folder} holds the work of another run: {'; '.join(differences)}. "
                "Go on with the same settings and data, or name a new work folder"
            )

    def piece(self, key: str, compute: Callable[[], Arrays]) -> Arrays:
        """The arrays kept under `key`, or those that `compute` gives, which are kept before they are returned."""
        kept = self.get(key)
        if kept is not None:
            self.reused += 1
            return kept
        made = {name: np.asarray(array) for name, array in compute().items()}
        self.put(key, made)
        return made

    def get(self, key: str) -> Arrays | None:
        """The arrays kept under `key`; None when there are none. A damaged piece is an error with its file's name."""
        if self.folder is None:
            return None
        file = self._file(key)
        if not file.exists():
            return None
        try:
            return read_arrays(file)
        except (Exception, MemoryError) as problem:  # whatever damage makes zipfile, zlib or NumPy raise
            raise CheckpointError(
                f"{file} is damaged ({brief(problem)}): delete it, and it is computed again"
            ) from problem

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays under `key`, in place of what was there."""
        if self.folder is None:
            return
        for name, array in arrays.items():
            if np.asarray(array).dtype.kind not in "biufU":
                raise TypeError(f"piece {key!r}: {name} is not an array of numbers or text")
        with alone_in(self.folder, with_others=True), atomic_path(self._file(key), overwrite=True) as temporary:
            write_arrays(temporary, arrays)

    def _file(self, key: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", key):
            raise ValueError(f"key must be letters, digits, '-', '_', '=' and '.'; found {key!r}")
        assert self.folder is not None
        return self.folder / f"{key}.npz"


def digest(*arrays: Any) -> str:
    """A digest of arrays: shape, type and every byte, in C order."""
    total = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        total.update(f"{values.shape}{values.dtype.str}".encode())
        step = max(1, 2**24 // max(1, values[:1].nbytes)) if values.ndim else 1
        for first in range(0, len(values) if values.ndim else 0, step):
            total.update(np.ascontiguousarray(values[first : first + step]).tobytes())
        if not values.ndim:
            total.update(values.tobytes())
    return total.hexdigest()


def _read_run(file: Path) -> dict[str, Any]:
    with naming(file, "record of a work folder", CheckpointError, "Name a new work folder"):
        found = read_json(file)
        if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("run"), dict):
            raise Unreadable("is not the record of a work folder of icofactor")
        if found.get("version") != VERSION:
            raise Unreadable(f"is of version {_short(found.get('version'))}; this icofactor reads version {VERSION}")
        return dict(found["run"])


def _differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two runs, in words."""
    found = []
    for name in sorted({*there, *here}):
        old, new = there.get(name, "nothing"), here.get(name, "nothing")
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, f"{prefix}{name}.")
        elif old != new:
            found.append(f"{prefix}{name} was {_short(old)}, is {_short(new)}")
    return found


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 40 else f"{text[:37]}..."
