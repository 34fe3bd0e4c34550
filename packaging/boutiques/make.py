"""Write the Boutiques descriptors from the parsers: `python packaging/boutiques/make.py`."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from icofactor import __version__
from icofactor.cli import bids
from icofactor.cli.main import _parser

FOLDER = Path(__file__).parent
_FILES = {"TSV", "FILE", "DIR", "FITTED", "INPUT", "BIDS_DERIVATIVES"}
_SKIPPED = {"help", "version", "verbose"}


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Name of the descriptor → its parser."""
    return {"icofactor-fit": _parser()[1]["fit"], "icofactor-bids": bids.parser()}


def descriptor(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """One command, as Boutiques 0.5 describes tools."""
    actions = [action for action in parser._actions if action.dest not in _SKIPPED]
    keys = {action.dest: f"[{action.dest.upper()}]" for action in actions}
    required = [action.dest for action in actions if not action.option_strings]
    options = [action.dest for action in actions if action.option_strings]
    out = next(action for action in actions if action.dest in ("out", "output_dir"))
    return {
        "name": parser.prog,
        "description": parser.description,
        "tool-version": __version__,
        "schema-version": "0.5",
        "command-line": " ".join([parser.prog, *(keys[name] for name in [*required, *options])]),
        "inputs": [_input(action, keys[action.dest]) for action in actions],
        "output-files": [
            {
                "id": "results",
                "name": "Results",
                "description": "Maps, loadings, tables, model and report",
                "path-template": keys[out.dest],
            }
        ],
        "tags": {"domain": ["neuroinformatics"]},
    }


def _input(action: argparse.Action, key: str) -> dict[str, Any]:
    flags = [flag for flag in action.option_strings if flag.startswith("--")]
    optional = bool(action.option_strings) and not action.required
    text = " ".join(((action.help or "") % {**vars(action), "prog": ""}).split())
    found: dict[str, Any] = {
        "id": action.dest,
        "name": re.sub(r"[_-]", " ", action.dest),
        "description": text,
        "optional": optional,
        "value-key": key,
    }
    if action.nargs == 0:
        return {**found, "type": "Flag", "command-line-flag": flags[0]}
    if flags:
        found["command-line-flag"] = flags[0]
    if action.nargs in ("+", "*"):
        found["list"] = True
    if action.choices:
        return {**found, "type": "String", "value-choices": list(action.choices)}
    if action.type in (int, float):
        return {**found, "type": "Number", "integer": action.type is int}
    return {**found, "type": "File" if action.metavar in _FILES else "String"}


def text(parser: argparse.ArgumentParser) -> str:
    return json.dumps(descriptor(parser), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, parser in parsers().items():
        (FOLDER / f"{name}.json").write_text(text(parser), encoding="utf-8")
