"""The command line: one module per command."""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and "icofactor.cli" in sys.orig_argv:  # Ctrl-C while commands are imported: no traceback
    from icofactor.__main__ import end_at_once

    end_at_once()

from icofactor.cli.main import main

__all__ = ["main"]
