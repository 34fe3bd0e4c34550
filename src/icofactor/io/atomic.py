"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from icofactor.errors import ExistsError
from icofactor.io.url import local

# Machine, process and a random number: the next run can tell whether the writer still lives.
_TEMPORARY = re.compile(r"\.tmp-([0-9a-f]{8})-(\d{1,7})-[0-9a-f]{8}(-.+)?", re.DOTALL)


@contextmanager
def atomic_path(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a file to write; it takes the name `path` when the block ends without an error.

    Parameters
    ----------
    path : the file to make; its folder must exist.
    overwrite : whether a file of that name may be replaced.

    Yields
    ------
    A path in the same folder with the same endings.
    """
    target = Path(path)
    check_target(target, overwrite)
    temporary = target.with_name(f"{temporary_name()}-{target.name}")
    try:
        yield temporary
        # The block may have taken long, and another process may have written the target.
        check_target(target, overwrite)
        os.replace(temporary, target)
    except OSError as problem:
        raise with_final_name(problem, temporary, target) from problem
    finally:
        # On a disk that may not be written to, the first error is the one to raise.
        with suppress(OSError):
            temporary.unlink()


def check_target(target: Path, overwrite: bool) -> None:
    """Refuse a path where no file can or may be written."""
    local(target)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, but a file must be written there")
    if target.exists() and not overwrite:
        raise ExistsError(target)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"the folder of {target} does not exist: create {target.parent} first"
        )


def temporary_name() -> str:
    """Return a new name for a hidden file or folder, which says who is writing it."""
    return f".tmp-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders whose processes ended on this machine."""
    for path in folder.glob(".tmp-*"):
        match = _TEMPORARY.fullmatch(path.name)
        if match is None or match[1] != _machine() or _is_running(int(match[2])):
            continue
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _machine() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _is_running(pid: int) -> bool:
    """Return whether a process may be running."""
    # On Windows, os.kill ends the process instead of asking for it.
    if os.name == "nt":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It is another user's.
        return True
    return True


def with_final_name(problem: OSError, temporary: Path, target: Path) -> OSError:
    """Return the error with the path that the user knows in place of the temporary one."""
    if problem.errno is None and type(problem) is OSError:
        # NumPy raises "400 requested and 8 written" where the disk is full.
        text = f"could not be written completely ({problem}): is the disk full?"
        return OSError(errno.EIO, text, str(target))
    # Writing to a full disk names no file.
    path = Path(problem.filename or temporary)
    if problem.errno is None or not path.is_relative_to(temporary):
        return problem
    return OSError(problem.errno, problem.strerror, str(target / path.relative_to(temporary)))


# ---------------------------------------------------------------------- for the cohort store alone


def write_durably(path: Path, text: str) -> None:
    """Write a small file in place of an earlier one; a power cut leaves one of the two, whole."""
    with atomic_path(path, overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        sync(temporary)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    # Windows cannot open folders.
    if path.is_dir() and os.name == "nt":
        return
    number = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def alone_in(folder: Path, wait: bool = True) -> Iterator[bool]:
    """Hold a lock on a folder; yield whether the system has such locks."""
    try:
        import fcntl
    except ImportError:
        # Windows has none.
        yield False
        return
    number = os.open(folder, os.O_RDONLY)
    locked = True
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError:
            # Some network disks have no locks.
            locked = False
        yield locked
    finally:
        os.close(number)
