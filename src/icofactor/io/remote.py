"""Files of a store behind a URL, read through fsspec within limits of time and size.

Credentials come from the environment's own chain (variables, profiles, instance roles). What
libraries say of a failed request may hold signatures: it is never shown.
"""

from __future__ import annotations

import asyncio
import random
import re
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

from icofactor.errors import RemoteError
from icofactor.io.json import MAX_TEXT

# How often a file is requested before the store is given up.
ATTEMPTS = 4
# Seconds before the second attempt; they double.
FIRST_PAUSE = 0.5
# Seconds without a byte after which an attempt has failed.
SILENCE = 30.0
# Seconds for a whole attempt, and one more for so many bytes. Slower than this is an error at once:
# a server that sends a byte now and then would otherwise hold a fit for hours.
PATIENCE = 60.0
SLOWEST = 2**18
# Bytes that are taken from a server at a time.
PIECE = 2**20
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "https": "aiohttp", "http": "aiohttp"}
INSTALL = "pip install 'icofactor[remote]'"
# Answers after which it is worth to ask again, besides those from 500 on.
TEMPORARY = (408, 425, 429)
MISSING = (404, 410)
REDIRECTED = range(300, 400)
DENIED = (401, 403)
# In the names of errors with which libraries say that there are no valid credentials.
NO_CREDENTIALS = re.compile("Credential|TokenRetrieval|ProfileNotFound|RefreshError|SSO")


class RedirectedError(Exception):
    """A web server sends a request on to another address."""


class RemoteFolder:
    """The files behind a URL, read by name.

    Attributes
    ----------
    address : URL of the folder
    """

    def __init__(self, address: str) -> None:
        scheme = urlsplit(address).scheme
        try:
            self.files = open_filesystem(scheme)
        except ImportError as problem:
            package = problem.name or PACKAGES[scheme]
            reason = f"needs {package}, which is not installed: {INSTALL}"
            raise RemoteError(address, reason) from None
        self.address = address
        self._path = self.files._strip_protocol(address)
        self._running: set[Future[bytes]] = set()
        self._error: Exception | None = None

    async def read(self, name: str, size: int) -> bytes:
        """Return a file that must have this size."""
        future = self.start(name, size)
        self._running.add(future)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if self._error is None:
                raise
            raise self._error from None
        except Exception as problem:
            self._error = problem
            # zarr does not wait for the other files that it requested.
            for other in list(self._running):
                other.cancel()
            raise
        finally:
            self._running.discard(future)

    def start(self, name: str, size: int | None = None) -> Future[bytes]:
        """Start to read a file, on the thread of fsspec."""
        return asyncio.run_coroutine_threadsafe(self._read(name, size), self.files.loop)

    async def _read(self, name: str, size: int | None) -> bytes:
        """Return a file; retry what may pass."""
        url = f"{self.address}/{name}"
        most = MAX_TEXT if size is None else size
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                # Readers that failed together do not ask again together.
                await asyncio.sleep(FIRST_PAUSE * 2**attempt * random.uniform(0.4, 0.6))
            try:
                content = await asyncio.wait_for(
                    self._request(name, most), PATIENCE + (size or 0) / SLOWEST
                )
            except Exception as problem:
                error = _lasting_error(url, problem)
                if isinstance(error, FileNotFoundError) and size is not None:
                    reason = "is missing: the cohort store is damaged, or was replaced while it was"
                    error = RemoteError(url, f"{reason} read")
                if error is not None:
                    raise error from None
                reason = _short_name(problem)
                continue
            if len(content) > most:
                raise RemoteError(url, f"has more than {most} bytes: the store is damaged")
            if size in (None, len(content)):
                return content
            reason = f"{len(content)} of {size} bytes came"
        raise RemoteError(
            url,
            f"could not be read in {ATTEMPTS} attempts ({reason}): check the network and the "
            "server, then run the same again",
        )

    async def _request(self, name: str, most: int) -> bytes:
        """Request a file once; return at most one byte more than `most`."""
        path = f"{self._path}/{name}"
        if not hasattr(self.files, "encode_url") or not hasattr(self.files, "set_session"):
            return bytes(await self.files._cat_file(path, start=0, end=most + 1))
        # A web server may ignore the range of a request, so what it sends is taken in pieces.
        session = await self.files.set_session()
        content = bytearray()
        url = self.files.encode_url(path)
        # It could lead to a server that the user did not name.
        async with session.get(url, allow_redirects=False) as response:
            if response.status in REDIRECTED:
                raise RedirectedError
            response.raise_for_status()
            async for piece in response.content.iter_chunked(PIECE):
                content += piece
                if len(content) > most:
                    break
        return bytes(content)


def open_filesystem(scheme: str) -> Any:
    """Return fsspec's file system; its own retries are off, so that one place counts attempts."""
    import fsspec

    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme in ("http", "https"):
        options["client_kwargs"] = _web_options(scheme)
    elif scheme == "s3":
        options["config_kwargs"] = {
            "retries": {"max_attempts": 0},
            "connect_timeout": 20,
            "read_timeout": SILENCE,
        }
    filesystem_type = fsspec.get_filesystem_class(scheme)
    if scheme == "gs":
        # What fsspec would choose first asks by gRPC which kind of bucket it is.
        from gcsfs.core import GCSFileSystem

        filesystem_type = GCSFileSystem
    filesystem = filesystem_type(**options)
    filesystem.retries = 1
    return filesystem


def _web_options(scheme: str) -> dict[str, Any]:
    """Return the options of a web client."""
    import aiohttp

    return {
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=SILENCE),
        # Servers that compress what they send would hide its size.
        "headers": {"Accept-Encoding": "identity"},
        "auto_decompress": False,
        # The environment has proxies, but also passwords (~/.netrc), which plain http would show.
        "trust_env": scheme == "https",
    }


def _lasting_error(url: str, problem: Exception) -> Exception | None:
    """Return the error to raise where another attempt would not help, else None."""
    name = type(problem).__name__
    status = _status(problem)
    if isinstance(problem, FileNotFoundError) or status in MISSING:
        return FileNotFoundError(url)
    reason = None
    if isinstance(problem, RedirectedError):
        reason = "is redirected to another address: give that one"
    elif NO_CREDENTIALS.search(name):
        reason = (
            f"no valid credentials were found in the environment ({name}): set AWS_PROFILE or "
            "AWS_ACCESS_KEY_ID, log in, or set FSSPEC_S3_ANON=true if it is public"
        )
    elif isinstance(problem, PermissionError) or status in DENIED or "Forbidden" in str(problem):
        reason = (
            "access is denied, or there is no such file: check the address, and which credentials "
            "the environment has"
        )
    elif status is not None and 300 <= status < 500 and status not in TEMPORARY:
        reason = f"the server refuses it (HTTP status {status})"
    elif type(problem) is TimeoutError:
        reason = "the server sends it too slowly: try again later, or copy the store"
    elif isinstance(problem, TypeError | AttributeError | ImportError):
        reason = f"cannot be read by the installed packages ({name}): {INSTALL} -U"
    return None if reason is None else RemoteError(url, reason)


def _status(problem: Exception) -> int | None:
    """Return the HTTP status that an error is about."""
    status = getattr(problem, "status", None) or vars(problem).get("code")
    return status if isinstance(status, int) and status >= 300 else None


def _short_name(problem: Exception) -> str:
    """Return what happened, without the message, which may hold signatures."""
    status = _status(problem)
    return type(problem).__name__ if status is None else f"HTTP status {status}"
