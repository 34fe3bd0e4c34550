"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A file to write in place of `path`; it takes that name only when the block ends without an error.

    Parameters
    ----------
    path : the file to make; its folder must exist.
    overwrite : whether a file of that name may be replaced.

    Yields
    ------
    A path in the same folder with the same endings, not yet existing.
    """
    target = Path(path)
    check_target(target, overwrite)
    temporary = target.with_name(f".tmp-{secrets.token_hex(4)}-{target.name}")
    try:
        yield temporary
        if not temporary.is_file():
            raise FileNotFoundError(f"nothing was written for {target}")
        # again: a long computation may have passed, and another process may have written meanwhile
        check_target(target, overwrite)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a place where no file can or may be written."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; a file is to be written there")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists; pass overwrite=True to replace it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder of {target} does not exist: make {target.parent} first")
