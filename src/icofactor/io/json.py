"""JSON records: written whole or not at all, read with limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from icofactor.io.guard import Unreadable, brief, check_regular, read_bytes

# A store of 100,000 subjects has a record of about 30 MB; Python's objects take some twenty times the text.
MAX_TEXT = 2**27
MAX_DEPTH = 60


def read_text(path: Path) -> str:
    """A text in UTF-8."""
    check_regular(path)
    size = path.stat().st_size
    if size > MAX_TEXT:
        raise Unreadable(f"is too large: it has {size} bytes, at most {MAX_TEXT} are read")
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
        found = json.loads(text)
        _check_depth(found)
        if "\\ud" in (text if isinstance(text, str) else text.decode()).lower():  # halves of characters
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except RecursionError:
        raise Unreadable("is JSON nested too deeply") from None
    except UnicodeError:
        raise Unreadable("is JSON with broken characters") from None
    except ValueError as problem:
        if isinstance(problem, Unreadable):
            raise
        raise Unreadable(f"does not hold JSON, or is cut short ({brief(problem)})") from None


def _check_depth(found: Any) -> None:
    """What reads the record later may call itself once per level."""
    level, depth = [found], 0
    while level:
        level = (
            [
                item
                for value in level
                for item in (value.values() if isinstance(value, dict) else value)
                if isinstance(item, dict | list)
            ]
            if depth
            else [item for item in level if isinstance(item, dict | list)]
        )
        depth += 1
        if depth > MAX_DEPTH:
            raise Unreadable("is JSON nested too deeply")
