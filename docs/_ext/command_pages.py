"""The pages of the command line, written from the parsers themselves before the site is read."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from icofactor.cli import bids
from icofactor.cli.main import _parser

WIDTH = 72
FOLDER = Path("reference") / "commands"


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Name of the page → its parser, in the order of `icofactor --help`."""
    _, commands = _parser()
    return {
        **{f"icofactor-{name}": parser for name, parser in commands.items()},
        "icofactor-bids": bids.parser(),
    }


def page(parser: argparse.ArgumentParser) -> str:
    """One command as reStructuredText: description, usage, options by group, examples."""
    lines = [parser.prog, "=" * len(parser.prog), "", _escaped(parser.description or ""), ""]
    lines += ["Usage", "-----", "", ".. code-block:: none", "    :class: usage", ""]
    lines += [*(f"    {line}".rstrip() for line in _usage(parser).splitlines()), ""]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if not actions:
            continue
        title = (group.title or "options").capitalize()
        lines += [title, "-" * len(title), ""]
        for action in actions:
            lines += [_term(action), f"    {_escaped(_help(action))}", ""]
    if parser.epilog:
        heading, _, rest = parser.epilog.partition("\n")
        title = heading.rstrip(":").capitalize()
        shown = [line.removeprefix("  ") for line in rest.splitlines()]
        lines += [
            title,
            "-" * len(title),
            "",
            ".. code-block:: bash",
            "",
            *(f"    {line}" for line in shown),
            "",
        ]
    return "\n".join(lines)


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    return formatter.format_help().strip()


def _term(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"``{action.metavar or action.dest}``"
    value = "" if action.nargs == 0 else f" {_metavar(action)}"
    return ", ".join(f"``{flag}{value}``" for flag in action.option_strings)


def _metavar(action: argparse.Action) -> str:
    if action.choices:
        return "{" + ",".join(map(str, action.choices)) + "}"
    name = action.metavar or action.dest.upper()
    return " ".join(name) if isinstance(name, tuple) else str(name)


def _help(action: argparse.Action) -> str:
    values = {**vars(action), "prog": ""}
    return " ".join(((action.help or "") % values).split())


def _escaped(text: str) -> str:
    """Text in which no mark of reStructuredText acts; `code` stays code."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(
        f"``{part}``" if i % 2 else re.sub(r"([*|_\\`])", r"\\\1", part)
        for i, part in enumerate(parts)
    )


def write(app: Any) -> None:
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, parser in parsers().items():
        text, place = page(parser), folder / f"{name}.rst"
        if not place.is_file() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
