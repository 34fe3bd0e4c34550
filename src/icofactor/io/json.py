"""JSON records: written whole or not at all, read with limits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from icofactor.io.guard import Unreadable, brief, check_regular, read_bytes

# A store of 100,000 subjects with 30 columns has a record of about 30 MB with three million values.
MAX_TEXT, MAX_VALUES, MAX_STRING = 2**26, 4_000_000, 2**20
MAX_DEPTH = 60
# what an empty list or record takes beside a number
_WEIGHT = 4


def read_text(path: Path, most: int = MAX_TEXT) -> str:
    """A text in UTF-8 of at most so many bytes."""
    check_regular(path)
    size = path.stat().st_size
    if size > most:
        raise Unreadable(f"is too large: it has {size} bytes, at most {most} are read")
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as problem:
        raise Unreadable(f"is not text in UTF-8: byte {problem.start} is damaged") from None


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    return parse_json(read_text(path))


def parse_json(text: str | bytes | bytearray) -> Any:
    """What a JSON text holds."""
    try:
        text = text if isinstance(text, str) else text.decode()
        if sys.getsizeof(text) > 2 * MAX_TEXT:  # some characters take four bytes, and then all do
            raise Unreadable(
                f"is too large: its text takes {sys.getsizeof(text)} bytes, at most {2 * MAX_TEXT} are read"
            )
        # before anything is built: Python's objects take many times the text
        if text.count(",") + _WEIGHT * (text.count("[") + text.count("{")) > MAX_VALUES:
            raise Unreadable(
                f"is JSON of more than {MAX_VALUES} values (a list or record is {_WEIGHT} values); check its origin"
            )
        found = json.loads(text)
        _check(found)
        if "\\ud" in text or "\\uD" in text:  # halves of characters
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except RecursionError:
        raise Unreadable("is JSON nested too deeply") from None
    except UnicodeError:
        raise Unreadable("is JSON with broken characters") from None
    except ValueError as problem:
        if isinstance(problem, Unreadable):
            raise
        raise Unreadable(f"is not valid JSON, or is truncated ({brief(problem)})") from None


def _check(found: Any) -> None:
    """Bounded in depth, as what reads the record later may call itself once per level, and in its
    texts.
    """
    level: list[Any] = [[found]]
    depth = 0
    while level:
        deeper: list[Any] = []
        for value in level:
            for item in (*value, *value.values()) if isinstance(value, dict) else value:
                if isinstance(item, str) and len(item) > MAX_STRING:
                    raise Unreadable(
                        f"is JSON with a text of {len(item)} characters; at most {MAX_STRING} are read"
                    )
                if isinstance(item, dict | list):
                    deeper.append(item)
        level, depth = deeper, depth + 1
        if depth > MAX_DEPTH + 1:
            raise Unreadable("is JSON nested too deeply")
