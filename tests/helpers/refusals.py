"""Errors by their fields."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from icofactor.errors import ArgumentError, FileError


@contextmanager
def refused(about: str, message: str | None = None) -> Iterator[None]:
    """An ArgumentError about the argument of that name, or a FileError about a path that ends so, and what it says."""
    with pytest.raises((ArgumentError, FileError), match=message) as caught:
        yield
    error = caught.value
    if isinstance(error, ArgumentError):
        assert error.argument == about
    else:
        assert error.path.endswith(about)
