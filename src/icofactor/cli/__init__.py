"""The command line: one module per command."""

from __future__ import annotations

from icofactor.cli.main import main

__all__ = ["main"]
