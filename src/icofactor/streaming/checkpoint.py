"""One mechanism for every long run: finished pieces are kept in a folder, and taken from there the next time.

A run is known by its configuration and by a digest of its data; a folder of another run is refused with what
differs. A piece is a handful of arrays of numbers under a key; it appears whole or not at all, so a killed
process loses only the piece it was making. It names its run and its key, and a checksum covers all of it: a piece that
was damaged, renamed or copied from elsewhere is refused. Reading a piece runs no code.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, CheckpointError, ExistsError, literal
from icofactor.io.archive import digest as digest
from icofactor.io.atomic import alone_in, atomic_path
from icofactor.io.guard import Unreadable, brief, exists, naming
from icofactor.io.json import read_json
from icofactor.io.records import check_seal, read_sealed, sealed, write_sealed
from icofactor.io.url import local

_RUN = "run.json"
_LEFT = re.compile(r"\.tmp-[0-9a-f]+-(run\.json|.+\.npz)")
"""What is left of a file whose writer was killed."""
FORMAT = "icofactor work folder"
VERSION = 3
_PIECE = "icofactor piece"
_AGAIN = "delete it; icofactor then computes it again"
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
        self.folder = None if folder is None else local(folder, "work_dir")
        self.run = json.loads(json.dumps(dict(run), sort_keys=True))
        self.reused = 0
        if self.folder is not None:
            self._open(self.folder)

    @classmethod
    def attached(cls, folder: str | os.PathLike[str]) -> Checkpoint:
        """The pieces of a run that another process has opened: its settings are not compared, nothing is cleaned."""
        found = cls(None, _read_run(Path(folder) / _RUN))
        found.folder = Path(folder)
        return found

    def _open(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with alone_in(folder, wait=False) as alone:
                self._settle(folder)
                for leftover in folder.glob(".tmp-*") if alone else ():  # of killed processes
                    if _LEFT.fullmatch(leftover.name):
                        with suppress(OSError):
                            leftover.unlink(missing_ok=True)
        except BlockingIOError:  # others are opening it, or keep pieces there now
            with alone_in(folder, with_others=True):
                self._settle(folder)

    def _settle(self, folder: Path) -> None:
        """Make the folder this run's, or refuse it."""
        file = folder / _RUN
        if not exists(file):
            if any(not place.name.startswith(".tmp-") for place in folder.iterdir()):
                raise CheckpointError(folder, "is not empty and not a work folder of icofactor: name a new one")
            # where there are no locks, another process may be first
            with suppress(ExistsError), atomic_path(file) as temporary:
                header = sealed({"format": FORMAT, "version": VERSION, "run": self.run}, {})
                temporary.write_text(json.dumps(header, indent=1), encoding="utf-8", newline="\n")
        differences = _differences(_read_run(file), self.run)
        if differences:
            raise CheckpointError(
                folder,
                f"contains the work of another run: {literal('; '.join(differences))}. "
                "Continue with the same settings and data, or name a new work folder",
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
        if not exists(file):
            return None
        try:
            of, arrays = read_sealed(file)
            special = of.pop("not_finite", None)
            if of != self._of(key):
                raise Unreadable("it belongs to another run, or has another name")
            if special != _not_finite(arrays):
                raise Unreadable("it contains values that are not finite")
            return _Piece(arrays, file)
        except PermissionError:
            raise CheckpointError(file, "cannot be read (permission denied)") from None
        except (Exception, MemoryError) as problem:  # whatever damage makes zipfile, zlib or NumPy raise
            raise CheckpointError(file, f"is damaged ({literal(brief(problem))}): {_AGAIN}") from problem

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep arrays under `key`, in place of what was there."""
        if self.folder is None:
            return
        for name, array in arrays.items():
            if np.asarray(array).dtype.kind not in "biufU":
                raise TypeError(f"piece {key!r}: {name} is not an array of numbers or text")
        with alone_in(self.folder, with_others=True), atomic_path(self._file(key), overwrite=True) as temporary:
            write_sealed(temporary, {**self._of(key), "not_finite": _not_finite(arrays)}, arrays)

    def _of(self, key: str) -> dict[str, Any]:
        """What a piece says of itself."""
        run = np.frombuffer(json.dumps(self.run, sort_keys=True).encode(), np.uint8)
        return {"format": _PIECE, "version": VERSION, "key": key, "run": digest(run)}

    def _file(self, key: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.=-]*", key):
            raise ArgumentError("key", key, "letters, digits, '-', '_', '=' and '.'")
        assert self.folder is not None
        return self.folder / f"{key}.npz"


class _Piece(dict[str, np.ndarray]):
    """The arrays of a piece; asking for one that it lacks names its file."""

    def __init__(self, arrays: Arrays, file: Path) -> None:
        super().__init__(arrays)
        self._file = file

    def __missing__(self, name: str) -> np.ndarray:
        raise CheckpointError(self._file, f"is damaged (it lacks {literal(name)}): {_AGAIN}")


def _not_finite(arrays: Mapping[str, Any]) -> list[str]:
    """Names of the arrays with NaN or infinite values."""
    floats = {name: np.asarray(array) for name, array in arrays.items() if np.asarray(array).dtype.kind == "f"}
    return sorted(name for name, array in floats.items() if not np.isfinite(array).all())


def _read_run(file: Path) -> dict[str, Any]:
    with naming(file, "record of a work folder", CheckpointError, "Name a new work folder"):
        found = read_json(file)
        if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("run"), dict):
            raise Unreadable("is not the record of a work folder of icofactor")
        if found.get("version") != VERSION:
            raise Unreadable(f"is of version {_short(found.get('version'))}; this icofactor reads version {VERSION}")
        return dict(check_seal(found, {})["run"])


def _differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two runs, as text."""
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
