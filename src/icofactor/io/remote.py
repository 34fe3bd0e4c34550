"""Files behind a URL, read through fsspec: bounded, retried, and ahead of their use.

fsspec is imported when the first file is read. Credentials come from the environment's own chain
(variables, profiles, instance roles). What libraries say of a failed request may hold signatures:
it is never shown.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from icofactor.errors import RemoteError
from icofactor.io.guard import Unreadable

ATTEMPTS = 5
"""How often a file is asked for before its store is given up."""
AHEAD_BYTES = 2**26
"""Bytes that may wait for their use."""
_AT_ONCE, _PIECE, _RECENT, _STALE = 8, 2**20, 64, 256
_FIRST_PAUSE, _PATIENCE, _SLOWEST = 0.5, 30.0, 2**18
"""Seconds before the second attempt, which double; seconds for one attempt, and one more for so
many bytes.
"""
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "https": "aiohttp", "http": "aiohttp"}
_LATER = (408, 425, 429)
_NO_CREDENTIALS = ("NoCredentials", "PartialCredentials", "CredentialRetrieval", "TokenRetrieval", "ProfileNotFound",
                   "DefaultCredentials", "RefreshError", "SSOToken", "UnauthorizedSSO")  # fmt: skip
_EXTRA = "pip install 'icofactor[remote]'"


@lru_cache(maxsize=8)
def _filesystem(scheme: str, process: int) -> Any:
    """fsspec's, of this process; its own retries are off: one place counts attempts."""
    import fsspec

    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in ("http", "https"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=_PATIENCE)
        options["client_kwargs"] = {"timeout": timeout, "auto_decompress": False, "trust_env": True}
    elif scheme == "s3":
        options["config_kwargs"] = {
            "retries": {"max_attempts": 0},
            "connect_timeout": 20,
            "read_timeout": _PATIENCE,
        }
    if (
        scheme == "gs"
    ):  # plain HTTP: what fsspec would choose asks by gRPC first of which kind a bucket is
        from gcsfs.core import GCSFileSystem as kind
    else:
        kind = fsspec.get_filesystem_class(scheme)
    found = kind(**options)
    found.retries = 1
    return found


class _Coming(NamedTuple):
    """A file that was asked for: its content, its bytes at most, and how many had been taken then."""

    content: Future[bytes]
    held: int
    since: int


class Reader:
    """Reads files of one store, several at a time on fsspec's own thread, and keeps what was read
    ahead.
    """

    def __init__(self, scheme: str) -> None:
        self._scheme, self._lock = scheme, threading.Lock()
        self._coming: OrderedDict[str, _Coming] = OrderedDict()
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._taken = 0

    @cached_property
    def _fs(self) -> Any:
        return _filesystem(self._scheme, os.getpid())

    @cached_property
    def _slots(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(_AT_ONCE)

    def take(self, url: str, most: int, size: int | None = None) -> bytes:
        """What is coming, or is asked for now."""
        with self._lock:
            coming = self._coming.pop(url, None)
            self._recent[url] = None
            self._taken += 1
        return (self._begun(url, most, size) if coming is None else coming.content).result()

    def take_all(self, urls: Sequence[str], after: Sequence[str], size: int) -> Iterator[bytes]:
        most = max(1, min(_AT_ONCE, AHEAD_BYTES // size))
        with self._lock:
            while len(self._recent) > max(_RECENT, 4 * len(urls)):
                self._recent.popitem(last=False)
        try:
            for number, url in enumerate(urls):
                self.ahead(urls[number : number + most], size, size)
                if number == len(urls) - 1:
                    self.ahead(after[: max(0, AHEAD_BYTES // size - most)], size, size, new=True)
                yield self.take(url, size, size)
        except Exception:
            with self._lock:
                while self._coming:
                    self._coming.popitem()[1].content.cancel()
            raise

    def ahead(
        self, urls: Sequence[str], most: int, size: int | None = None, new: bool = False
    ) -> None:
        """Begin to read files, as far as there is room; `new`: not those that others have just
        read.
        """
        with self._lock:
            held = sum(one.held for one in self._coming.values())
            for url in urls:
                if url in self._coming or (new and url in self._recent):
                    continue
                oldest = next(iter(self._coming), "")
                if (
                    held + most > AHEAD_BYTES
                    and oldest
                    and self._taken > self._coming[oldest].since + _STALE
                ):
                    left = self._coming.pop(oldest)  # nobody came for it
                    left.content.cancel()
                    held -= left.held
                if held + most > AHEAD_BYTES:
                    return
                self._coming[url] = _Coming(self._begun(url, most, size), most, self._taken)
                held += most

    def is_there(self, url: str, most: int) -> bool:
        found = self._begun(url, most, None)
        try:
            found.result()
        except FileNotFoundError:
            return False
        with self._lock:
            self._coming[url] = _Coming(found, len(found.result()), self._taken)
        return True

    def _begun(self, url: str, most: int, size: int | None) -> Future[bytes]:
        try:
            loop = self._fs.loop
        except ImportError as problem:
            package = _PACKAGES[self._scheme]
            missing = problem.name or package
            raise RemoteError(url, f"needs {missing}, which is not installed: {_EXTRA}") from None
        return asyncio.run_coroutine_threadsafe(self._retried(url, most, size), loop)

    async def _retried(self, url: str, most: int, size: int | None) -> bytes:
        why = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.75, 1.25))
            try:
                async with self._slots:
                    found = await asyncio.wait_for(
                        self._once(url, most), _PATIENCE + most / _SLOWEST
                    )
                if size is None or len(found) == size:
                    return found
                why = f"{len(found)} of {size} bytes came"
            except (RemoteError, FileNotFoundError):
                raise
            except Unreadable as problem:
                raise RemoteError(url, str(problem)) from None
            except Exception as problem:
                why = _temporary(url, problem)
        again = "check the network and the server, then run the same again"
        raise RemoteError(url, f"could not be read in {ATTEMPTS} attempts ({why}): {again}")

    async def _once(self, url: str, most: int) -> bytes:
        """A file, in pieces: whatever a server sends, no more than `most` bytes are kept."""
        if self._scheme == "gs":
            data = await self._fs._cat_file(url, start=0, end=most + 1)
        else:
            file: Any = await self._fs.open_async(url, "rb", size=most)
            data = bytearray()
            try:
                while len(data) <= most and (
                    piece := await file.read(min(_PIECE, most + 1 - len(data)))
                ):
                    data += piece
            finally:
                for one in (file.r, file):
                    with suppress(Exception):
                        done: Any = one.close()
                        await done if inspect.isawaitable(done) else None
                file.closed = True  # or it would try once more when it is collected
        if len(data) > most:
            raise Unreadable(
                f"is larger than the {most} bytes that are read: the store or its server is damaged"
            )
        return data


def _temporary(url: str, problem: Exception) -> str:
    """A problem that may pass, as text; others are raised. What libraries say may hold signatures:
    it is not shown.
    """
    kind, status = (
        type(problem).__name__,
        getattr(problem, "status", None) or vars(problem).get("code"),
    )
    if kind == "TooManyRedirects":
        raise RemoteError(url, "is redirected without end: check the address") from None
    if kind in ("NonHttpUrlRedirectClientError", "InvalidUrlRedirectClientError"):
        raise RemoteError(
            url, "is redirected to something other than a web address: check the address"
        ) from None
    if any(kind.startswith(start) for start in _NO_CREDENTIALS):
        what = "set AWS_PROFILE or AWS_ACCESS_KEY_ID, log in, or set FSSPEC_S3_ANON=true if it is public"
        raise RemoteError(
            url, f"no valid credentials were found in the environment ({kind}): {what}"
        ) from None
    if (
        isinstance(problem, PermissionError)
        or status in (401, 403)
        or str(problem).startswith("Forbidden")
    ):
        what = "check the address, and which credentials the environment has"
        raise RemoteError(url, f"access is denied, or there is no such file: {what}") from None
    if isinstance(status, int) and 300 <= status < 500 and status not in _LATER:
        if status in (404, 410):
            raise FileNotFoundError(url)
        raise RemoteError(url, f"the server refuses it (HTTP status {status})") from None
    if isinstance(problem, TypeError | AttributeError | ImportError):
        raise RemoteError(
            url, f"cannot be read by the installed packages ({kind}): {_EXTRA} -U"
        ) from problem
    return f"HTTP status {status}" if isinstance(status, int) and status >= 400 else kind
