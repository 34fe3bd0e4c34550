"""Texts and JSON from files, read with limits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from icofactor.io.guard import (
    Unreadable,
    brief,
    open_file,
)

# Bytes of a text. The record of 100,000 subjects with 30 columns has about 30 MB.
MAX_TEXT = 2**26
# Values of a JSON text; Python's objects take many times the text.
MAX_VALUES = 4_000_000
# What an empty list or record takes beside a number.
_WEIGHT = 4


def read_text(
    path: Path,
    max_bytes: int = MAX_TEXT,
) -> str:
    """Read a text in UTF-8 of at most `max_bytes` bytes."""
    with open_file(path) as file:
        # Python reserves as many bytes as it is asked to read.
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, max_bytes) + 1)
    if len(content) > max_bytes:
        raise Unreadable(f"is too large: at most {max_bytes} bytes are read")
    try:
        return content.decode()
    except UnicodeDecodeError as problem:
        raise Unreadable(f"is not text in UTF-8: byte {problem.start} is damaged") from None


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return parse_json(read_text(path))


def parse_json(text: str | bytes) -> Any:
    """Return the content of a JSON text."""
    try:
        text = text if isinstance(text, str) else text.decode()
        n_values = text.count(",") + _WEIGHT * (text.count("[") + text.count("{"))
        if n_values > MAX_VALUES:
            raise Unreadable(f"is JSON of more than {MAX_VALUES} values; check its origin")
        content = json.loads(text)
        if "\\ud" in text.lower():
            # A half of a character could not be written again.
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except (RecursionError, UnicodeError, json.JSONDecodeError) as problem:
        raise Unreadable(f"is not valid JSON, or is truncated ({brief(problem)})") from None
