"""The limits that no reader passes, and how its refusal gets the file's name."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import math
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import FileError, literal

MAX_VERTICES = 5_000_000
"""Per hemisphere; thirty times fsaverage."""
MAX_EXPANSION, FREE_SIZE = 200, 2**26
"""A file may grow by this factor when decompressed; below the free size (bytes) any growth is
allowed.
"""
FREE_TEXT = 2**24
"""The free size of a text, which takes several times its size, and time, when it is parsed."""
_PIECE = 2**20
_GZIP = b"\x1f\x8b"
# what libraries say → what it means; of a checksum its value helps nobody
_PLAIN = {
    "Bad CRC-32": "a checksum in it is wrong",
    "CRC check failed": "its checksum is wrong",
    "computed checksum do not match": "its checksum is wrong",
    "Unknown compression method": "its compressed data cannot be unpacked",
    "Not a gzipped file": "what follows its data is not gzip",
    "Incorrect length of data": "its compressed data have the wrong length",
    "decompress": "its compressed data cannot be unpacked",
    "integer string conversion": "it contains a number with thousands of digits",
    "Invalid argument": "it refers to a position outside the file",
}


_AGAIN = "; copy it from its source again"


class Unreadable(ValueError):
    """The content of a file is invalid. The message omits the name of the file; `naming` adds it."""


@contextmanager
def naming(
    path: Any, what: str, error: type[FileError] = FileError, advice: str = ""
) -> Iterator[None]:
    """Whatever goes wrong inside becomes one `error` with the file's name and what it should be.

    Parameters
    ----------
    what : e.g. "surface", as in "is not a readable surface".
    advice : what to do about it, added to the message.
    """
    tail = f". {advice}" if advice else ""
    try:
        yield
    except FileError:
        raise
    except FileNotFoundError:
        raise error(path, absence(path)) from None
    except PermissionError:
        raise error(denying(path), "cannot be read (permission denied)") from None
    except IsADirectoryError:
        raise error(path, "is a folder, not a file") from None
    except EOFError:
        raise error(path, f"is truncated{tail or _AGAIN}") from None
    except Unreadable as problem:
        cut = str(problem).startswith(("is truncated", "is empty", "is not a complete"))
        raise error(path, f"{problem}{tail or _AGAIN * cut}") from None
    except (zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as problem:
        raise error(
            path, f"is damaged or truncated ({literal(brief(problem))}){tail or _AGAIN}"
        ) from None
    except OSError as problem:
        if problem.errno == errno.EINVAL:  # a place before its beginning
            raise error(path, f"is damaged ({literal(brief(problem))}){tail}") from None
        raise error(path, f"cannot be read ({literal(brief(problem))})") from problem
    except Exception as problem:  # parsers and decompressors raise many kinds for damaged files
        raise error(
            path, f"is not a readable {what} ({literal(brief(problem))}){tail}"
        ) from problem


def absence(path: Path) -> str:
    """Why a file is not there."""
    if os.path.islink(path):
        if ".git/annex" in os.readlink(path).replace(os.sep, "/"):
            return f"its content was not downloaded; run: datalad get {literal(path.name)} (or git annex get)"
        return "is a link to a file that does not exist"
    return "no such file"


def brief(problem: BaseException) -> str:
    """The message of a library's error, in plain English on one line that is not too long."""
    text = " ".join(str(problem).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    for words, plain in _PLAIN.items():
        if words in text:
            return plain
    if isinstance(problem, zipfile.BadZipFile):
        return "it is not a complete zip file"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    if isinstance(problem, KeyError):
        return f"it lacks {text}"
    named = "" if isinstance(problem, ValueError | OSError) else f"{type(problem).__name__}: "
    return named + (text[:197] + "..." if len(text) > 200 else text)


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse what is not a plain file: a pipe, a device or a file of the kernel may never end."""
    _check_kind(os.stat(path), path)


def _check_kind(about: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise Unreadable("is a pipe or a device, not a file; copy its content to a file first")
    if about.st_dev in _kernel_devices():
        raise Unreadable(
            "is a system file (/proc, /sys), not a file on disk; copy its content to a file first"
        )


@cache
def _kernel_devices() -> frozenset[int]:
    """Where the kernel shows itself as files, which call themselves plain ones."""
    found = set()
    for place in ("/proc", "/sys"):
        with suppress(OSError):
            found.add(os.stat(place).st_dev)
    with suppress(OSError):
        found.discard(os.stat("/").st_dev)  # an ordinary folder of that name
    return frozenset(found)


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether anything is there; where that may not be known, PermissionError with the folder that
    denies it.
    """
    try:
        os.stat(path)
    except PermissionError as problem:
        raise PermissionError(problem.errno, problem.strerror, str(denying(path))) from None
    except (
        OSError
    ) as problem:  # a link to itself, or a name too long for any file, leads nowhere either
        if problem.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            raise
        return False
    return True


def denying(path: str | os.PathLike[str]) -> Path:
    """What keeps a path from being read: a folder on the way that may not be searched, or itself."""
    path = Path(path)
    for place in (path, *path.parents):
        with suppress(PermissionError):
            os.stat(place)
            return place
    return path


def is_kernels(path: str | os.PathLike[str]) -> bool:
    """Whether a path lies in /proc or /sys."""
    return os.stat(path).st_dev in _kernel_devices()


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """A plain file for reading. Every file that the library reads is opened here."""
    check_regular(path)
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    try:
        _check_kind(os.fstat(file.fileno()), path)  # again: it may have been replaced meanwhile
    except BaseException:
        file.close()
        raise
    return file


def _open_at_once(path: str, flags: int) -> int:
    """A pipe waits for its writer unless it is opened so."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a plain file, as it lies on disk."""
    with open_file(path) as file:
        return file.read()


def hash_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a plain file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def map_file(
    path: str | os.PathLike[str],
    dtype: Any,
    offset: int,
    shape: tuple[int, ...],
    order: Literal["C", "F"] = "C",
) -> np.memmap[Any, Any]:
    """Numbers in a plain file, read when they are looked at."""
    with open_file(os.fspath(path)) as file:
        return np.memmap(file, dtype, "r", offset, shape, order)


def check_growth(size: int, stored: int, free: int = FREE_SIZE) -> None:
    """Refuse data that would take far more room than the file they come from."""
    if size > free and size > MAX_EXPANSION * stored:
        raise Unreadable(
            f"claims {size / 2**30:.3g} GiB of data in {stored} bytes, more than compression explains; check its origin"
        )


def check_vertices(n: int) -> None:
    """Refuse a number of vertices that no cortex has."""
    if not 0 < n <= MAX_VERTICES:
        raise Unreadable(f"claims {n} vertices; between 1 and {MAX_VERTICES} are read")


def is_gzip(path: Path) -> bool:
    """Whether a file is compressed, whatever its name says."""
    with open_file(path) as file:
        return file.read(2) == _GZIP


@contextmanager
def open_plain(path: Path) -> Iterator[IO[bytes]]:
    """A file, decompressed on the way when it is compressed."""
    with open_file(path) as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        yield gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[misc]


def read_exactly(file: IO[bytes], size: int, stored: int) -> bytearray:
    """The next `size` bytes of a file that has `stored` bytes on disk; memory grows only as they
    come.
    """
    check_growth(size, stored)
    data = bytearray()
    while len(data) < size:
        piece = file.read(min(size - len(data), _PIECE))
        if not piece:
            raise Unreadable(
                f"is truncated: {size} bytes should follow the header, {len(data)} are there"
            )
        data += piece
    return data


def read_pieces(path: Path) -> Iterator[bytes]:
    """A whole text in pieces, decompressed when it is compressed."""
    stored, size = path.stat().st_size, 0
    with open_plain(path) as file:
        while piece := file.read(_PIECE):
            size += len(piece)
            check_growth(size, stored, FREE_TEXT)
            yield piece


def inflate(data: bytes, size: int) -> bytes:
    """Undo zlib; the answer must have `size` bytes."""
    check_growth(size, len(data))
    stream = zlib.decompressobj()
    found = stream.decompress(data, size + 1)
    if len(found) != size or not stream.eof:
        raise Unreadable(
            f"is damaged: {size} bytes of data were expected, {len(found)} or more are there"
        )
    return found


def numbers_in(text: str, n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Exactly `n` numbers, written in a text; taken in pieces, as many small strings fill the
    memory.
    """
    if 2 * n > len(text) + 1:
        raise Unreadable(
            f"is truncated: {n} numbers were expected in a text of {len(text)} characters"
        )
    found, filled, place = np.empty(n, dtype=dtype), 0, 0
    convert, wide = (int, np.int64) if dtype.kind in "iu" else (float, np.float64)
    while place < len(text):
        end = min(place + _PIECE, len(text))
        while end < len(text) and not text[end].isspace():  # not within a number
            end += 1
        piece = text[place:end].split()
        if filled + len(piece) > n:
            raise Unreadable(f"is damaged: {n} numbers were expected, more are there")
        try:
            found[filled : filled + len(piece)] = np.fromiter(map(convert, piece), wide, len(piece))
        except (ValueError, OverflowError):
            raise Unreadable(
                "is damaged: its data contain something that is not a number"
            ) from None
        filled, place = filled + len(piece), end
    if filled != n:
        raise Unreadable(f"is truncated: {n} numbers were expected, {filled} are there")
    return found


def volume(shape: tuple[int, ...]) -> int:
    """Number of entries, without the overflow of fixed-size integers."""
    return math.prod(int(n) for n in shape)
