"""The programs `icofactor` and `icofactor-bids`; also `python -m icofactor`."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

# The usual exit status of a command that Ctrl-C ended.
INTERRUPTED = 130
_repeats: list[threading.Timer] = []


def main() -> int:
    """`icofactor`."""
    _prepare()
    try:
        from icofactor.cli.main import main as run

        return run()
    except KeyboardInterrupt:  # while commands are loaded: a running command has its own message
        return INTERRUPTED
    finally:
        _end_repeats()


def bids() -> int:
    """`icofactor-bids`."""
    _prepare()
    try:
        from icofactor.cli.bids import main as run

        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        _end_repeats()


def _prepare() -> None:
    # avoid UnicodeEncodeError on legacy Windows consoles
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(signal, "pthread_kill"):  # not on Windows
        sys.unraisablehook = _repeat_lost_interrupt


def _repeat_lost_interrupt(lost: Any) -> None:
    """Interrupt once more, a moment later, where Python could only print a KeyboardInterrupt.

    Python cannot raise what comes in a destructor or in the callback of a weak reference. While
    figures are drawn,
    that is where one Ctrl-C in four comes.
    """
    if issubclass(lost.exc_type, KeyboardInterrupt):
        main_thread = threading.main_thread().ident
        repeat = threading.Timer(0.01, signal.pthread_kill, (main_thread, signal.SIGINT))
        _repeats.append(repeat)
        repeat.start()
    else:
        sys.__unraisablehook__(lost)


def _end_repeats() -> None:
    """Repeat no interrupt any more: one that comes while Python ends would change the exit status."""
    if _repeats:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.unraisablehook = sys.__unraisablehook__
    for repeat in _repeats:
        repeat.cancel()


if __name__ == "__main__":
    raise SystemExit(main())
