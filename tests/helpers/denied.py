"""Files and folders that may not be read, also by root."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_VERSION_3, _OVERRIDE, _SEARCH = 0x20080522, 1, 2
"""Of Linux's capabilities: with these two permissions do not bind root."""


@contextmanager
def denied(path: Path) -> Iterator[None]:
    """Nobody may read, list or search this inside the block; threads that start inside are bound too."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with _bound_by_permissions():
            if os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
                pytest.skip("permissions do not bind here")
            yield
    finally:
        path.chmod(mode)


@contextmanager
def _bound_by_permissions() -> Iterator[None]:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        yield
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        header, data = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
        if libc.capget(header, data) != 0:
            pytest.skip("root's capabilities are not known")
    except (OSError, AttributeError):
        pytest.skip("root cannot be bound by permissions here")
    effective = data[0]
    data[0] = effective & ~(1 << _OVERRIDE | 1 << _SEARCH)
    assert libc.capset(header, data) == 0
    try:
        yield
    finally:
        data[0] = effective
        libc.capset(header, data)
