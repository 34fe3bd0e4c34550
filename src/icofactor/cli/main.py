"""The command line: options → calls. No mathematics here, and nothing heavy is imported until a
command runs.
"""

from __future__ import annotations

import argparse
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
from icofactor.errors import ArgumentError, CohortError, escaped, named, shown
from icofactor.io.url import local

# Modules with SUMMARY, DESCRIPTION, EXAMPLES, add(parser) and run(options).
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
# Options of arguments that functions call otherwise.
OPTION_OF_ARGUMENT = {
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
# Arguments that are no options but places on the command line.
PLACE_OF_ARGUMENT = {"paths": "inputs", "cohort": "inputs", "X": "inputs"}
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
    """Refuse URLs in place of files and folders, and seeds below 0."""
    seed = getattr(options, "random_seed", None)
    if seed is not None and seed < 0:
        raise ArgumentError("random_state", f"must be a whole number ≥ 0; found {shown(seed)}")
    for name, value in vars(options).items():
        for path in value if isinstance(value, list | tuple) else [value]:
            # pathlib would make a folder "https:" of a URL here.
            if isinstance(path, Path):
                local(path, name)


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
    """Return a problem as one line, with options for arguments.

    A cohort's files have a line each.
    """
    if isinstance(problem, CohortError):
        first, *others = [" ".join(line.split()) for line in problem.lines(options.name_argument)]
        return "\n".join([first, *(f"  {line}" for line in others)])
    text = str(problem)
    if isinstance(problem, ArgumentError):
        text = f"{options.name_argument(problem.argument)}: {problem.message}"
    elif isinstance(problem, MemoryError):
        details = f" ({text})" if text else ""
        text = f"not enough memory{details}: fit fewer maps, or use a cohort store"
    elif isinstance(problem, OSError) and problem.strerror:
        place = named(problem.filename or getattr(options, "out", ""))
        text = f"{problem.strerror}: {place}"
        # Making a folder where a file is says no more than "File exists".
        if isinstance(problem, FileExistsError):
            text = f"{place} is a file, but a folder must be written there"
    return " ".join(text.split())


def argument_naming(parser: argparse.ArgumentParser) -> Callable[[str], str]:
    """Return a function that says how the command line writes an argument.

    n_components is --n-components, X is INPUT.
    """
    flags = {}
    places = {}
    for action in parser._actions:
        long_flags = [flag for flag in action.option_strings if flag.startswith("--")]
        if long_flags:
            flags[action.dest] = long_flags[0]
        else:
            places[action.dest] = str(action.metavar or action.dest)

    def name_argument(argument: str) -> str:
        flag = flags.get(argument) or flags.get(OPTION_OF_ARGUMENT.get(argument, ""))
        return flag or places.get(PLACE_OF_ARGUMENT.get(argument, argument), argument)

    return name_argument


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


# Readers of options that say in plain words what is wrong.
_READERS: dict[type, Callable[[str], Any]] = {int: _whole, float: _number}


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
        one.set_defaults(name_argument=argument_naming(one))
    return parser, dict(commands.choices)
