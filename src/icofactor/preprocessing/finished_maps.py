"""Finished maps of subjects, kept in a folder until the stores are written, so that an interrupted
run resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icofactor.io.archive import Arrays, read_arrays, write_arrays
from icofactor.io.atomic import atomic_path, remove_abandoned
from icofactor.io.guard import exists
from icofactor.io.url import local


class FinishedMaps:
    """A folder with one file per finished map.

    A file counts only for the settings and the input files that its map was made with; otherwise
    the map is made again.

    Parameters
    ----------
    folder : path
        Created if missing.
    settings : mapping
        Everything that changes a map besides its input files, as JSON holds it.
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        self.folder = local(folder, "work_dir")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings = json.loads(json.dumps(settings))

    def load(self, key: str, inputs: Sequence[str]) -> Arrays | None:
        """Return the arrays saved under `key`, or None if there are none for these input files."""
        file = self._file(key)
        if not exists(file):
            return None
        try:
            header, arrays = read_arrays(file)
        except PermissionError:
            raise
        except Exception:  # zipfile, zlib and NumPy raise many kinds of errors for damaged files
            return None
        return arrays if header == self._header(inputs) else None

    def save(self, key: str, inputs: Sequence[str], arrays: Arrays) -> None:
        """Write arrays under `key`; the file appears whole or not at all."""
        with atomic_path(self._file(key), overwrite=True) as temporary:
            write_arrays(temporary, self._header(inputs), arrays)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove the maps saved under these keys, and the folder unless other files are in it."""
        files = [self._file(key) for key in keys]
        remove_abandoned(self.folder, [file.name for file in files])
        for file in files:
            file.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _header(self, inputs: Sequence[str]) -> dict[str, Any]:
        return {"settings": self._settings, "inputs": list(inputs)}
