"""Errors by their fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from icofactor.errors import ArgumentError, FileError


@contextmanager
def refused(about: str, message: str | None = None) -> Iterator[None]:
    """Expect an ArgumentError about that argument, or a FileError about a path that ends so.

    `message` is a pattern for what must be named in the message, such as a subject.
    """
    with pytest.raises((ArgumentError, FileError), match=message) as caught:
        yield
    error = caught.value
    if isinstance(error, ArgumentError):
        assert error.argument == about
    else:
        assert error.path.endswith(about)
