"""The programs `icofactor` and `icofactor-bids`; also `python -m icofactor`."""

from __future__ import annotations

import sys

# The usual exit status of a command that Ctrl-C ended.
INTERRUPTED = 130


def main() -> int:
    """`icofactor`."""
    _prepare()
    try:
        from icofactor.cli.main import main as run

        return run()
    except KeyboardInterrupt:  # while commands are loaded: a running command has its own message
        return INTERRUPTED


def bids() -> int:
    """`icofactor-bids`."""
    _prepare()
    try:
        from icofactor.cli.bids import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED


def _prepare() -> None:
    # avoid UnicodeEncodeError on legacy Windows consoles
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    raise SystemExit(main())
