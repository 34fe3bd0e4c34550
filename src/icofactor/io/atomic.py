"""Files that are written whole or not at all, and locks between processes."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from icofactor.errors import ExistsError

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""A pipe that lies where a file or folder should be is not waited for."""
_FOLDER = os.O_RDONLY | _AT_ONCE | getattr(os, "O_DIRECTORY", 0)


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


def write_durably(path: Path, text: str) -> None:
    """A small file in place of what was there; a power cut leaves the one or the other, whole."""
    with atomic_path(path, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        sync(temporary)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file, or the entries of a folder, on the disk."""
    if path.is_dir() and os.name == "nt":  # folders cannot be opened there
        return
    number = os.open(path, os.O_RDONLY | _AT_ONCE if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


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
def alone_in(folder: Path, with_others: bool = False, wait: bool = True) -> Iterator[bool]:
    """Wait until no other process is inside this block for the same folder; the lock ends with its process.

    Yields whether there is a lock: some systems have none.

    Parameters
    ----------
    with_others : bool, default False
        Share the block with those that share it too.
    wait : bool, default True
        Without it, BlockingIOError is raised where another process is inside.
    """
    # the folder itself is locked, so that no file is left behind
    try:
        import fcntl
    except ImportError:  # Windows has none: there the user keeps two writers apart
        yield False
        return
    number = os.open(folder, _FOLDER)
    held = True
    try:
        try:
            fcntl.flock(number, (fcntl.LOCK_SH if with_others else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:  # some network disks have no locks
            held = False
        yield held
    finally:
        os.close(number)


def nobody_in(folder: Path) -> bool:
    """Whether no process is `alone_in` a folder now; False where that cannot be known."""
    try:
        import fcntl
    except ImportError:
        return False
    with suppress(OSError):
        number = os.open(folder, _FOLDER)
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


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a place where no file can or may be written."""
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; a file is to be written there")
    if target.exists() and not overwrite:
        raise ExistsError(target)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder of {target} does not exist: make {target.parent} first")
