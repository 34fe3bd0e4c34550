"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np


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
    except OSError as problem:
        raise _about(problem, target, temporary) from problem
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def made_folder(path: str | Path) -> Iterator[Path]:
    """A folder, made when missing; after an error the folders that were made go again, unless something is in them."""
    folder = Path(path)
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException:
        for place in missing:
            with suppress(OSError):
                place.rmdir()
        raise


@contextmanager
def alone_in(folder: Path, with_others: bool = False) -> Iterator[None]:
    """Wait until no other process is inside this block for the same folder; the lock ends with its process.

    Parameters
    ----------
    with_others : several may be inside that all say so.
    """
    # a folder is locked as it is, so that no file is left behind
    try:
        import fcntl
    except ImportError:  # not on Windows: there two writers at once are the user's care
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks know no locks
            fcntl.flock(number, fcntl.LOCK_SH if with_others else fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def remove_leftovers(folder: Path) -> None:
    """Remove the hidden folders that killed processes left in a folder; living ones are `alone_in` theirs."""
    for place in folder.glob(".tmp-*/"):
        if not place.is_symlink() and nobody_in(place):
            shutil.rmtree(place, ignore_errors=True)


def nobody_in(folder: Path) -> bool:
    """Whether no process is `alone_in` a folder now; False where that cannot be told."""
    try:
        import fcntl
    except ImportError:
        return False
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(number)
    return False


def _about(problem: OSError, target: Path, temporary: Path) -> OSError:
    """The same problem with the name that the user knows."""
    if problem.errno is not None and problem.filename in (None, str(temporary), temporary):
        return OSError(problem.errno, problem.strerror, str(target))
    if problem.errno is None and type(problem) is OSError:  # NumPy's own, such as "400 requested and 8 written"
        return OSError(errno.EIO, f"could not be written whole ({problem}): is the disk full?", str(target))
    return problem


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], compress: bool = False) -> None:
    """An npz file of plain arrays, on the disk when this returns.

    NumPy's own savez leaves its archive open after an error, which then complains whenever it is collected.
    """
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with open(path, "wb") as stream:
        with zipfile.ZipFile(stream, "w", method, allowZip64=True) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a place where no file can or may be written."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; a file is to be written there")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists; pass overwrite=True to replace it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder of {target} does not exist: make {target.parent} first")
