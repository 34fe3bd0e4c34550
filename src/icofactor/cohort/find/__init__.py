"""Find the files of a cohort: `files.find_files` lists them in a table, by the layouts of folders.

The table is a pandas DataFrame with one row per file, and these columns:

subject : name of the subject or scan
session : session, or None
hemisphere : "left", "right", or None for files that hold both or do not say
measure : measure in the name of the file, or None
mesh : name of the mesh in the name of the file, "CIVET", or None
path : the file, or the text of what is missing
size : bytes of the file; -1 if it should be there and is not
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("subject", "session", "hemisphere", "measure", "mesh", "path", "size")
# Size of a file that should be there and is not.
MISSING = -1


def folders_in(root: Path) -> list[Path]:
    """Return the folders in a folder by name, without hidden ones."""
    return sorted(
        entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )


def names_in(folder: Path) -> list[str]:
    """Return the sorted names of the entries of a folder; none if it does not exist."""
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def is_listed(entry: Path) -> bool:
    """Whether an entry is a file, or a broken link, which git-annex leaves for data to download."""
    return entry.is_file() or (entry.is_symlink() and not entry.exists())


def keep(
    files: pd.DataFrame,
    flags: Iterable[bool],
) -> pd.DataFrame:
    """Return the rows of a table for which flags are True; pandas takes [] for no columns."""
    return files[np.fromiter(flags, dtype=bool, count=len(files))]


def size_of(path: Path) -> int:
    """Return the bytes of a file, 0 if they cannot be known: reading it says why."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
