"""Commands as a user types them."""

from __future__ import annotations

from collections.abc import Iterable

from icofactor.cli.main import main


def run_cli(*words: str | Iterable[str]) -> int:
    """Return the exit status of `icofactor`; strings are split at spaces, words of lists may have some."""
    split = (text.split() if isinstance(text, str) else text for text in words)
    return main([word for part in split for word in part])
