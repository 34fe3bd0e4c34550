"""Which of a test's parameters run in `make check`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Parameters, all marked slow but the `quick` ones; a tuple is a row of several arguments."""
    found = [
        value
        if value in quick
        else pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow
        )
        for value in values
    ]
    assert any(value in quick for value in found), "none of the parameters is quick"
    return found
