"""One file per command: its words (`add`) and what they call (`run`). No mathematics, nothing heavy at import."""

from __future__ import annotations

from types import ModuleType

from icofactor.commands import bench, demo, fit, prepare, report, reproduce, select, transform

COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "prepare": prepare,
    "fit": fit,
    "transform": transform,
    "select": select,
    "report": report,
    "reproduce": reproduce,
    "bench": bench,
}
"""Command → module with SUMMARY, DESCRIPTION, EXAMPLES, add(parser) and run(options)."""
