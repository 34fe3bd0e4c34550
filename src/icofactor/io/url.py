"""Addresses of cohort stores: s3://, gs://, https:// and http://.

Nothing is written to a URL. A URL that holds credentials is refused, and messages never show them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from icofactor.errors import ArgumentError, named

SCHEMES = ("s3", "gs", "https", "http")
# pathlib makes one slash of the two.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]")


def is_url(path: object) -> bool:
    """Return whether a path is a URL."""
    return isinstance(path, str | os.PathLike) and _URL.match(str(path)) is not None


def local(path: str | os.PathLike[str], argument: str = "out") -> Path:
    """Return a path on this machine; a URL is an error, because nothing is written there."""
    if is_url(path):
        raise ArgumentError(
            argument,
            f"must be a file or folder on this machine; found {bare(str(path))}. Only cohort "
            "stores are read from a URL, and nothing is written there. Copy it, for example with "
            "`aws s3 sync` or `rclone copy`",
        )
    return Path(path)


def bare(url: str) -> str:
    """Return a URL without user, password, query and fragment; another path as it is."""
    match = _URL.match(url)
    if match is None:
        return url
    address = re.split("[?#]", url[match.end() :], maxsplit=1)[0].lstrip("/\\")
    return f"{match[1]}://{address.rpartition('@')[2]}"


def store_url(url: str) -> str:
    """Return the URL of a store without its last slash; an error where it cannot be one."""
    parts = urlsplit(url.replace("\\", "/"))
    folders = parts.path.strip("/").split("/")
    is_folder = parts.netloc and not {"", ".", ".."} & set(folders)
    is_plain = named(url) == url and not set("@?#") & set(url)
    if parts.scheme not in SCHEMES or not is_folder or not is_plain:
        raise ArgumentError(
            "paths",
            "a URL must name the folder of a store on s3://, gs:// or https://, as in "
            f"s3://bucket/thickness.store, without user, password or signature; found {bare(url)}. "
            "Credentials come from the environment (AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS, "
            "~/.netrc ...)",
        )
    return f"{parts.scheme}://{parts.netloc}/{'/'.join(folders)}"
