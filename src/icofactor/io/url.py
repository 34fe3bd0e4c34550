"""Addresses of cohort stores (s3://, gs://, https://); `io.remote` reads what they name, once
something is read.

Nothing is written to a URL. One that holds credentials is refused, and messages never show them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from icofactor.errors import ArgumentError, Phrase, named

if TYPE_CHECKING:
    from icofactor.io.remote import Reader

SCHEMES = ("s3", "gs", "https", "http")
MOST_FILE = 2**28
"""Bytes of one chunk that are read from a URL, at most."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]")


def is_url(path: object) -> bool:
    """Whether a path is a URL; pathlib makes one slash of its two."""
    return isinstance(path, str | os.PathLike) and _URL.match(str(path)) is not None


def local(path: str | os.PathLike[str], argument: str = "out") -> Path:
    """A path on this machine; URLs are refused: stores are read from there, nothing else, and
    nothing is written.
    """
    if is_url(path):
        expected = (
            "a file or folder on this machine: only cohort stores are read from a URL, and nothing is written there. "
            "Copy it, for example with `aws s3 sync` or `rclone copy`"
        )
        raise ArgumentError(argument, Phrase(bare(str(path))), expected)
    return Path(path)


def bare(url: str) -> str:
    """A URL without what may be secret: user, password, query and fragment. Other paths as they
    are.
    """
    found = _URL.match(url)
    if found is None:
        return url
    rest = re.split("[?#]", url[found.end() :], maxsplit=1)[0].lstrip("/\\")
    return f"{found[1]}://{rest.rpartition('@')[2]}"


class RemotePath:
    """A file or folder behind a URL; `/` gives what lies in it. All of one store share what was
    read ahead.
    """

    def __init__(self, url: str, reader: Reader | None = None) -> None:
        from icofactor.io.remote import Reader

        self.url = url if reader is not None else _checked(url)
        self._reader = Reader(self.url.partition(":")[0]) if reader is None else reader

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url}/{name}", self._reader)

    def __str__(self) -> str:
        return self.url

    __fspath__ = __str__

    def __repr__(self) -> str:
        return f"RemotePath({self.url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and other.url == self.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemotePath, (self.url,)

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def exists(self, most: int) -> bool:
        """Whether there is such a file of at most so many bytes; reading it next does not ask
        again.
        """
        return self._reader.is_there(self.url, most)

    def read(self, most: int) -> bytes:
        """The file, refused where it is larger."""
        return self._reader.take(self.url, most)

    def ahead(self, names: Sequence[str], most: int) -> None:
        """Begin to read files in this folder that will be needed."""
        self._reader.ahead([f"{self.url}/{name}" for name in names], most)

    def read_all(self, names: Sequence[str], after: Sequence[str], size: int) -> Iterator[bytes]:
        """Files in this folder of `size` bytes each, several at once; `after`: those that may be
        wanted next.
        """
        urls, later = ([f"{self.url}/{name}" for name in some] for some in (names, after))
        return self._reader.take_all(urls, later, size)


def _checked(url: str) -> str:
    """A URL that can be read and holds no secret, without its last slash."""
    shown, parts = Phrase(bare(url)), urlsplit(url.replace("\\", "/"))
    if parts.scheme not in SCHEMES:
        raise ArgumentError(
            "paths", shown, "Stores are read from s3://, gs:// and https:// (or folders here)"
        )
    if set("@?#") & set(url):
        expected = (
            "an address without user, password or signature: credentials come from the environment "
            "(AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, ~/.netrc ...)"
        )
        raise ArgumentError("paths", shown, f"A URL must be {expected}")
    names = parts.path.strip("/").split("/")
    if not parts.netloc or any(name in ("", ".", "..") for name in names) or named(url) != url:
        raise ArgumentError(
            "paths",
            shown,
            "A URL must name the folder of a store, as in s3://bucket/thickness.store",
        )
    return f"{parts.scheme}://{parts.netloc}/{'/'.join(names)}"
