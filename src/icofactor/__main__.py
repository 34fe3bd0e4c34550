"""The programs `icofactor` and `icofactor-bids`; also `python -m icofactor`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """`icofactor`."""
    _prepare()
    from icofactor.cli.main import main as run

    return run()


def bids() -> int:
    """`icofactor-bids`."""
    _prepare()
    from icofactor.cli.bids import main as run

    return run()


def _prepare() -> None:
    end_at_once()
    if hasattr(sys.stdout, "reconfigure"):  # a letter that Windows' old encodings lack ends no command
        sys.stdout.reconfigure(errors="backslashreplace")


def end_at_once() -> None:
    """Ctrl-C ends the process without a traceback, except while a command runs: it cleans up (`cli.main`)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    raise SystemExit(main())
