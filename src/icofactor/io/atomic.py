"""Files that are written whole or not at all, and locks between processes."""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from icofactor.errors import ExistsError
from icofactor.io.url import local

_AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""A pipe that lies where a file or folder should be is not waited for."""
_WINDOWS = os.name == "nt"
_TRIES, _PAUSE = 20, 0.05
"""How often, and after how many seconds, Windows is asked again."""
_TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{8}-(.+)", re.DOTALL)
_FOLDER = os.O_RDONLY | _AT_ONCE | getattr(os, "O_DIRECTORY", 0)


@contextmanager
def atomic_path(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A file to write in place of `path`; it takes that name only when the block ends without an
    error.

    Parameters
    ----------
    path : the file to make; its folder must exist.
    overwrite : whether a file of that name may be replaced.

    Yields
    ------
    A path in the same folder with the same endings: a new, empty file, locked as long as its writer
    lives.
    """
    target = Path(path)
    check_target(target, overwrite)
    temporary = target.with_name(f".tmp-{secrets.token_hex(4)}-{target.name}")
    try:
        with _claimed(temporary):
            try:
                yield temporary
                found = temporary.stat() if temporary.is_file() else None
                if found is None or not (found.st_size or found.st_mtime_ns):
                    raise FileNotFoundError(f"nothing was written to {target}")
                # again: a long computation may have passed, and another process may have written
                # meanwhile
                check_target(target, overwrite)
                replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as problem:
        raise _about(problem, target, temporary) from problem


@contextmanager
def _claimed(temporary: Path) -> Iterator[None]:
    """Others can know that the writer of this file lives, except on Windows, which has no such
    locks.
    """
    try:
        import fcntl  # noqa: F401
    except ImportError:
        yield
        return
    number = _claim(temporary)
    try:
        yield
    finally:
        os.close(number)


def _claim(temporary: Path) -> int:
    """Make and lock a file, whose time is 0 until something is written."""
    import fcntl

    while True:
        number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with suppress(OSError):  # some network disks have no locks
            fcntl.flock(number, fcntl.LOCK_SH)
        if os.fstat(number).st_nlink:
            os.utime(temporary, ns=(0, 0))
            return number
        os.close(number)  # another process took it for a killed one's before it was locked


def remove_abandoned(folder: Path, names: Container[str]) -> None:
    """Remove what killed processes left of these files while `atomic_path` wrote them; where that
    cannot be known,
    as on Windows, nothing.
    """
    try:
        import fcntl
    except ImportError:
        return
    for place in folder.glob(".tmp-*"):
        found = _TEMPORARY.fullmatch(place.name)
        if found is None or found[1] not in names or place.is_symlink() or not place.is_file():
            continue
        with suppress(OSError):
            number = os.open(place, os.O_RDONLY | _AT_ONCE)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                place.unlink()
            finally:
                os.close(number)


def replace(source: Path, target: Path) -> None:
    """Move a file, in place of one that is there. Windows refuses while a scanner holds it: it is
    asked again.
    """
    for attempt in range(_TRIES):
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if not _WINDOWS or attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE)


def write_durably(path: Path, text: str) -> None:
    """A small file in place of what was there; a power cut leaves the one or the other, whole."""
    with atomic_path(path, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        sync(temporary)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file, or the entries of a folder, on the disk."""
    if path.is_dir() and _WINDOWS:  # folders cannot be opened there
        return
    number = os.open(path, os.O_RDWR if _WINDOWS else os.O_RDONLY | _AT_ONCE)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def alone_in(folder: Path, with_others: bool = False, wait: bool = True) -> Iterator[bool]:
    """Wait until no other process is inside this block for the same folder; the lock ends with its
    process.

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
    except ImportError:  # Windows
        yield False
        return
    number = os.open(folder, _FOLDER)
    held = True
    try:
        try:
            fcntl.flock(
                number,
                (fcntl.LOCK_SH if with_others else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB),
            )
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
    except ImportError:  # Windows
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
    if (
        problem.errno is None and type(problem) is OSError
    ):  # NumPy's own, such as "400 requested and 8 written"
        return OSError(
            errno.EIO,
            f"could not be written completely ({problem}): is the disk full?",
            str(target),
        )
    return problem


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a place where no file can or may be written."""
    local(target)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, but a file must be written there")
    if target.exists() and not overwrite:
        raise ExistsError(target)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"the folder of {target} does not exist: create {target.parent} first"
        )
