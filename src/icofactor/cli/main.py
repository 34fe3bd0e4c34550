"""The command line: options → calls. No mathematics here, and nothing heavy is imported until a
command runs.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill, indent, wrap
from types import ModuleType
from typing import Any

from icofactor import __version__
from icofactor.__main__ import INTERRUPTED
from icofactor.cli import associate, compare, demo, fit, prepare, report, select, transform
from icofactor.errors import ArgumentError, CohortError, Naming, escaped, in_python, named
from icofactor.io.url import local

COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "prepare": prepare,
    "fit": fit,
    "transform": transform,
    "select": select,
    "associate": associate,
    "compare": compare,
    "report": report,
}
"""Command → module with SUMMARY, DESCRIPTION, EXAMPLES, add(parser) and run(options)."""
# what functions call their arguments, where the command line calls them otherwise
_ALIASES = {
    "random_state": "random_seed",
    "hemi": "hemisphere",
    "n_splits": "splits",
    "n_starts": "starts",
    "n_nulls": "nulls",
    "n_resamples": "bootstrap",
    "n_bootstrap": "bootstrap",
    "n_permutations": "permutations",
    "table": "participants",
    "behaviour": "pls",
    "n_spins": "spins",
    "seed": "random_seed",
    "fwhm": "smooth",
    "reference": "reference_site",
}

_PLACES = {"paths": "inputs", "cohort": "inputs", "X": "inputs"}
"""The same for what has no option."""
EXAMPLES = "examples:"


class Help(argparse.HelpFormatter):
    """Help whose descriptions wrap to the terminal, paragraph by paragraph; examples keep their
    lines, names their hyphens.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES):
            return text
        parts = (" ".join(part.split()) for part in text.split("\n\n"))
        return "\n\n".join(
            fill(
                part, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
            )
            for part in parts
        )

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False)


def main(argv: Sequence[str] | None = None, program: str = "") -> int:
    """Run one command; the exit status is 0, or 2 after a clear line about what was wrong (and one
    per bad file), or 130 after Ctrl-C.

    `program` is the name that messages begin with; by default "icofactor" and the command.
    """
    try:
        with redirect_stdout(_Shown(sys.stdout)), redirect_stderr(_Shown(sys.stderr)):
            try:
                return _run(argv, program)
            finally:
                sys.stdout.flush()
    except OSError as problem:  # where our output goes: a pipe whose reader closed it, a full disk
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (Python writes the rest there when it ends)
        if not isinstance(problem, BrokenPipeError):
            print(f"icofactor: cannot write its output ({problem.strerror})", file=sys.stderr)
        return 1


class _Shown:
    """The terminal: what names of files and cells of tables hold is shown there and does not act on
    it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(escaped(text, keep="\n\r\t"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _run(argv: Sequence[str] | None, program: str) -> int:
    options = _options(sys.argv[1:] if argv is None else argv, program)
    program = program or f"icofactor {options.command}"
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    try:
        _check_places(options)
        return int(COMMANDS[options.command].run(options) or 0)
    except KeyboardInterrupt as stop:
        what = str(stop) or "interrupted; no partial results were left behind"
        print(f"{program}: {what}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as problem:
        if options.verbose or not isinstance(problem, ValueError | OSError | MemoryError):
            raise
        print(f"{program}: {_as_text(problem, options)}", file=sys.stderr)
        return 2


def _check_places(options: argparse.Namespace) -> None:
    """Refuse URLs in place of files and folders; pathlib would make folders of them here. And seeds
    that only Python could write otherwise.
    """
    seed = getattr(options, "random_seed", None)
    if seed is not None and seed < 0:
        raise ArgumentError("random_state", seed, "a whole number ≥ 0")
    for name, value in vars(options).items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, Path):
                local(one, name)


def _options(argv: Sequence[str], program: str = "") -> argparse.Namespace:
    """The command and its options; without any, the help. A wrong option is answered by its
    command's usage.
    """
    parser, commands = _parser()
    if not argv:
        parser.print_help()
        parser.exit()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        command: argparse.ArgumentParser = commands[options.command]
        if program:
            command.prog, command.usage = program, f"{program} --help lists the options"
        known = [flag for action in command._actions for flag in action.option_strings]
        flags = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        near = [match for flag in flags for match in get_close_matches(flag, known, 1)]
        hint = f"; did you mean {' and '.join(dict.fromkeys(near))}?" if near else ""
        command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def _as_text(problem: Exception, options: argparse.Namespace) -> str:
    """The problem on one line, with options for arguments; one line for each of a cohort's files."""
    if isinstance(problem, CohortError):
        first, *rest = [
            " ".join(line.split()) for line in problem.lines(options.naming) if line.strip()
        ]
        return "\n".join([first, *(f"  {line}" for line in rest)])
    text = str(problem)
    if isinstance(problem, MemoryError):
        return f"not enough memory{text and f' ({text})'}: fit fewer maps, or use a cohort store"
    if hasattr(problem, "describe"):
        text = problem.describe(options.naming)
    elif isinstance(problem, OSError) and problem.strerror:
        where = named(problem.filename or getattr(options, "out", ""))
        text = f"{problem.strerror}: {where}"
        if isinstance(problem, FileExistsError):  # what making a folder says
            text = f"{where} is a file, but a folder must be written there"
    return " ".join(text.split())


def option_naming(parser: argparse.ArgumentParser) -> Naming:
    """How a parser's options write an argument and its value: (n_components, 4) → --n-components 4."""
    actions = {action.dest: action for action in parser._actions if action.option_strings}
    places = {
        action.dest: str(action.metavar or action.dest)
        for action in parser._actions
        if not action.option_strings
    }

    def naming(argument: str, value: str | None = None) -> str:
        action = actions.get(argument) or actions.get(_ALIASES.get(argument, ""))
        if action is None:
            return in_python(places.get(_PLACES.get(argument, argument), argument), value)
        flags = [flag for flag in action.option_strings if flag.startswith("--")]
        if value == "False" and len(flags) == 2:  # --no-limit-outliers
            return flags[1]
        if value in (None, "True", "False"):
            return flags[0]
        return f"{flags[0]} {_as_word(value)}"

    return naming


def _as_word(value: str) -> str:
    """A value as Python writes it, as the command line does: 'both' → both, ('a', 'b') → a,b, 'a'
    or 'b' → a or b.
    """
    if " or " in value:
        return " or ".join(map(_as_word, value.split(" or ")))
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return ",".join(map(str, found)) if isinstance(found, tuple | list) else str(found)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number; found {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number; found {text!r}") from None


_READERS: dict[type, Callable[[str], Any]] = {int: _whole, float: _number}
"""Type of an option → what reads it, and says in plain words what is wrong."""


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser, and those of the commands."""
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
            epilog=f"{EXAMPLES}\n{indent(command.EXAMPLES, '  ')}",
            formatter_class=Help,
        )
        for kind, reader in _READERS.items():
            one.register("type", kind, reader)
        command.add(one)
        one.add_argument("-q", "--quiet", action="store_true", help="do not print progress")
        one.add_argument(
            "-v", "--verbose", action="store_true", help="print the full traceback of an error"
        )
        one.set_defaults(naming=option_naming(one))
    return parser, dict(commands.choices)
