"""The command line: words → calls. No mathematics here, and nothing heavy is imported until a command runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from textwrap import indent

from icofactor import __version__
from icofactor.commands import COMMANDS

# what functions call their arguments → what the command line calls them
_WORDS = {"overwrite=True": "--overwrite", "random_state": "--random-seed"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 2 after one clear line about what was wrong."""
    options = _parser().parse_args(argv)
    try:
        COMMANDS[options.command].run(options)
    except (ValueError, OSError) as problem:
        if options.verbose:
            raise
        print(f"icofactor {options.command}: {_one_line(problem, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"icofactor {options.command}: interrupted; nothing half-written was left", file=sys.stderr)
        return 130
    return 0


def _one_line(problem: Exception, options: argparse.Namespace) -> str:
    """The problem in the words of the command line."""
    text = str(problem)
    if isinstance(problem, OSError) and problem.strerror:
        text = f"{problem.strerror}: {problem.filename or getattr(options, 'out', '')}"
    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    return " ".join(text.split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="icofactor",
        description="Factorize cortical maps into a few basis maps and per-subject loadings.",
    )
    parser.add_argument("--version", action="version", version=f"icofactor {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name,
            help=command.SUMMARY,
            description=command.DESCRIPTION,
            epilog=f"examples:\n{indent(command.EXAMPLES, '  ')}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add(one)
        one.add_argument("-q", "--quiet", action="store_true", help="no progress on the screen")
        one.add_argument("-v", "--verbose", action="store_true", help="show the whole traceback of an error")
    return parser


if __name__ == "__main__":
    sys.exit(main())
