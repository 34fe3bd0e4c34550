"""The guard before every reader: plain files, plausible sizes, errors with the file's name."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import FileError

# Vertices of one hemisphere that are read at most: thirty times fsaverage.
MAX_VERTICES = 5_000_000
# Compressed data may grow by this factor; maps of floats grow by less than ten.
MAX_EXPANSION = 200
# Below this number of bytes any growth is allowed.
FREE_SIZE = 2**26
# Bytes that are read or decompressed at a time.
_PIECE = 2**20
_GZIP = b"\x1f\x8b"
# Characters of a library's message that are shown.
_LONGEST = 200


class Unreadable(ValueError):
    """The content of a file is invalid. The message omits the file's name; `naming` adds it."""


@contextmanager
def naming(
    path: str | os.PathLike[str],
    kind: str = "file",
    error: type[FileError] = FileError,
    advice: str = "",
) -> Iterator[None]:
    """Turn whatever goes wrong inside into one `error` with the file's name.

    Parameters
    ----------
    kind : what the file should be, as in "is not a readable surface".
    advice : what to do about it, added to the message.
    """
    ending = f". {advice}" if advice else ""
    try:
        yield
    except FileError:
        raise
    except FileNotFoundError:
        raise error(path, absence(Path(path))) from None
    except PermissionError:
        raise error(denying(path), "cannot be read (permission denied)") from None
    except IsADirectoryError:
        raise error(path, "is a folder, not a file") from None
    except Unreadable as problem:
        raise error(path, f"{problem}{ending}") from None
    # nibabel, NumPy, zipfile, zlib and expat raise many types of errors for damaged files.
    except Exception as problem:
        raise error(path, f"is not a readable {kind} ({brief(problem)}){ending}") from problem


def absence(path: Path) -> str:
    """Return why a file is not there."""
    if not path.is_symlink():
        return "no such file"
    if ".git/annex" in os.readlink(path).replace(os.sep, "/"):
        return f"its content was not downloaded; run: datalad get {path.name} (or git annex get)"
    return "is a link to a file that does not exist"


def brief(problem: BaseException) -> str:
    """Return the message of a library's error on one short line."""
    text = " ".join(str(problem).split())[:_LONGEST]
    if isinstance(problem, OSError) and problem.strerror:
        text = problem.strerror
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable if isinstance(problem, ValueError) else f"{type(problem).__name__} {printable}"


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether a file or folder exists.

    PermissionError names the folder that may not be searched.
    """
    try:
        os.stat(path)
    except PermissionError as problem:
        raise PermissionError(problem.errno, problem.strerror, str(denying(path))) from None
    except OSError as problem:
        # A link to itself, or a name too long for any file, leads nowhere either.
        if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            raise
        return False
    return True


def denying(path: str | os.PathLike[str]) -> Path:
    """Return what keeps a path from being read: itself, or a folder that may not be searched."""
    path = Path(path)
    for candidate in (path, *path.parents):
        try:
            os.stat(candidate)
        except PermissionError:
            continue
        return candidate
    return path


def is_kernels(path: str | os.PathLike[str]) -> bool:
    """Return whether a path lies in /proc or /sys, whose files may never end."""
    return f"{os.path.realpath(path)}/".startswith(("/proc/", "/sys/"))


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse pipes, devices and files of the kernel, which may never end."""
    _check_mode(os.stat(path).st_mode, path)


def _check_mode(
    mode: int,
    path: str | os.PathLike[str],
) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode) or is_kernels(path):
        raise Unreadable("is a pipe, a device or a system file; copy its content to a file first")


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a plain file. Every file that the library reads is opened here."""
    # Opened without O_NONBLOCK, a pipe would wait for its writer.
    opener = lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    check_regular(path)
    file = open(path, "rb", opener=opener)  # noqa: SIM115 - the caller closes it
    try:
        # The file may have been replaced since the first check.
        _check_mode(os.fstat(file.fileno()).st_mode, path)
    except BaseException:
        file.close()
        raise
    return file


def hash_file(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a plain file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_growth(
    size: int,
    file_size: int,
) -> None:
    """Refuse `size` bytes of data in `file_size` bytes if compression cannot explain it."""
    if size > FREE_SIZE and size > MAX_EXPANSION * file_size:
        raise Unreadable(
            f"claims {size / 2**30:.3g} GiB of data in {file_size} bytes; check its origin"
        )


def check_vertices(n: int) -> None:
    """Refuse a number of vertices that no cortex has."""
    if not 0 < n <= MAX_VERTICES:
        raise Unreadable(f"claims {n} vertices; between 1 and {MAX_VERTICES} are read")


def read_content(path: Path) -> bytes | None:
    """Return the content of a gzip file, or None if the file is not compressed."""
    with open_file(path) as file:
        if file.read(len(_GZIP)) != _GZIP:
            return None
        file.seek(0)
        file_size = os.fstat(file.fileno()).st_size
        content = bytearray()
        with gzip.GzipFile(fileobj=file) as stream:
            while piece := stream.read(_PIECE):
                content += piece
                check_growth(len(content), file_size)
    return bytes(content)


def check_size(
    file_size: int,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
) -> None:
    """Refuse a file that is shorter than its numbers."""
    size = volume(shape) * dtype.itemsize
    if not 0 <= offset <= file_size - size:
        raise Unreadable(
            f"is truncated: {size} bytes of data should begin at byte {offset}; it has {file_size}"
        )


def read_numbers(
    path: Path,
    content: bytes | None,
    dtype: np.dtype,
    offset: int,
    shape: tuple[int, ...],
) -> NDArray:
    """Return the numbers that follow a header, first axis fastest; mapped if not compressed.

    Parameters
    ----------
    content : what `read_content` returned.
    """
    available = path.stat().st_size if content is None else len(content)
    check_size(available, offset, shape, dtype)
    if content is not None:
        return np.frombuffer(content, dtype, volume(shape), offset).reshape(shape, order="F")
    with open_file(path) as file:
        return np.memmap(file, dtype, "r", offset, shape, "F")


def volume(
    shape: tuple[int, ...],
) -> int:
    """Return the number of entries, without the overflow of fixed-size integers."""
    return math.prod(map(int, shape))
