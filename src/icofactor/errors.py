"""The errors icofactor raises. All are ValueErrors, so scikit-learn's habits keep working.

An error has its parts as fields: the argument or the path, and one sentence that says what was
found and what to do. The command line shows the option in place of the argument. Where another
argument is the remedy, the sentence names the option and the argument:
"pass --overwrite (overwrite=True)".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

# Characters that act on a terminal or a page instead of being shown: controls, line separators,
# directions of writing, invisible marks and tags, and halves of characters, which stand for bytes
# of a file name that are not UTF-8.
UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e007f]"
)
# Longest name of a file, and longest value, that a message shows as a whole.
LONGEST_NAME = 300
LONGEST_VALUE = 200


def escaped(text: object, keep: str = "") -> str:
    r"""Return text from outside with what cannot be shown as escapes (\x1b, \u202e).

    A byte that is not UTF-8 becomes \xe9. Characters in `keep` stay.
    """

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        if match[0] in keep:
            return match[0]
        # Python decodes bytes of file names that are not UTF-8 to this range.
        if 0xDC80 <= code <= 0xDCFF:
            code -= 0xDC00
        if code < 256:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"

    return UNSAFE.sub(escape, str(text))


def named(path: object) -> str:
    """Return the name of a file for a message: escaped, and shortened where it is very long."""
    text = escaped(path)
    return text if len(text) <= LONGEST_NAME else f"{text[:120]}...{text[-160:]}"


def shown(value: Any) -> str:
    """Return a value as Python writes it, short enough for a message."""
    text = escaped(repr(value))
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def plural(n: int, noun: str) -> str:
    """Return a number of things as text: 1 subject, 2 subjects."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


class ArgumentError(ValueError):
    """An argument has a wrong value.

    Parameters
    ----------
    argument : str
        Name of the argument, as in Python.
    message : str
        What was found and what to do, as in "must be a whole number ≥ 1; found 0".
    """

    def __init__(self, argument: str, message: str) -> None:
        self.argument = argument
        self.message = escaped(message)
        super().__init__(argument, message)

    def __str__(self) -> str:
        return f"{self.argument}: {self.message}"


class ExistsError(FileExistsError):
    """A file or folder exists already, and replacing it was not requested.

    Parameters
    ----------
    path : str or path
        The file or folder.
    problem : str
        What this means and what to do, as in "PATH PROBLEM".
    """

    def __init__(
        self,
        path: str | PathLike[str],
        problem: str = "exists; pass --overwrite (overwrite=True) to replace it",
    ) -> None:
        self.path = str(path)
        self.problem = problem
        super().__init__(f"{named(path)} {escaped(problem)}")


class DivergenceError(ValueError):
    """The updates diverged; the message says what to change."""


class FileError(ValueError):
    """A file is damaged, or is not what it should be.

    Parameters
    ----------
    path : str or path
        File, folder, subject or argument with the problem.
    problem : str
        What is wrong and what to do.
    """

    def __init__(self, path: str | PathLike[str], problem: str) -> None:
        self.path = str(path)
        self.problem = problem
        super().__init__(self.path, problem)

    def __str__(self) -> str:
        return f"{named(self.path)}: {escaped(self.problem)}"


class ModelFileError(FileError):
    """A file is not a model of icofactor, or is damaged."""


class ClusterError(ValueError):
    """Workers on other processes or machines failed.

    Parameters
    ----------
    step : str
        What was being computed, as in "a pass over the maps".
    problem : str
        What happened and what to do.
    """

    def __init__(self, step: str, problem: str) -> None:
        self.step = step
        self.problem = problem
        super().__init__(step, problem)

    def __str__(self) -> str:
        return f"{self.step}: {escaped(self.problem)}"


class Problem(str):
    """What is wrong with one of several files, and the cause they share.

    Files with the same cause are shown as one line.
    """

    __slots__ = ("cause",)
    cause: str

    def __new__(cls, text: str, cause: str) -> Problem:
        problem = super().__new__(cls, text)
        problem.cause = cause
        return problem


# What a problem of a cohort may be about, besides files and subjects.
COHORT_ARGUMENTS = (
    "paths",
    "participants",
    "exclude",
    "mask",
    "mesh",
    "subjects",
    "smoothing",
    "target",
    "entities",
    "sessions",
    "hemisphere",
    "spheres",
)
# Causes that a message lists.
MOST_CAUSES = 50


class CohortError(FileError):
    """Files do not make a cohort. The message lists the causes, and `problems` every bad file.

    Attributes
    ----------
    problems : tuple of (str, str)
        File, subject or argument, and what is wrong with it; `path` and `problem` are the first.
    """

    def __init__(self, path: str | PathLike[str], problem: str) -> None:
        super().__init__(self.place(path), problem)
        self.problems: Sequence[tuple[str, str]] = ((self.path, problem),)

    @classmethod
    def place(cls, path: str | PathLike[str]) -> str:
        """Return a path as text that cannot be taken for an argument: ./subjects."""
        is_ambiguous = isinstance(path, PathLike) and str(path) in COHORT_ARGUMENTS
        return f"./{path}" if is_ambiguous else str(path)

    @classmethod
    def of(cls, problems: Sequence[tuple[str, str]]) -> CohortError:
        """Return one error about several files, at least one."""
        error = cls(*problems[0])
        error.problems = tuple(problems)
        return error

    def lines(self, name_argument: Callable[[str], str] = str) -> list[str]:
        """Return one line per cause, with two examples where it has more.

        Several problems are counted in a first line. `name_argument` says how the reader writes an
        argument.
        """
        by_cause: dict[str, list[tuple[str, str]]] = {}
        for place, text in self.problems:
            name = name_argument(place) if place in COHORT_ARGUMENTS else named(place)
            by_cause.setdefault(getattr(text, "cause", text), []).append((name, text))
        lines = []
        for cause, problems in by_cause.items():
            if len(problems) <= 2:
                lines += [f"{name}: {escaped(text)}" for name, text in problems]
            else:
                names = f"{problems[0][0]}, {problems[1][0]} and {len(problems) - 2} more"
                lines.append(f"{names}: {escaped(cause)}")
        if len(self.problems) == 1:
            return lines
        first = f"{len(self.problems)} problems:"
        n_hidden = len(lines) - MOST_CAUSES
        rest = [f"... and {n_hidden} more causes"] if n_hidden > 0 else []
        return [first, *lines[:MOST_CAUSES], *rest]

    def __str__(self) -> str:
        return "\n  ".join(self.lines())


class RemoteError(CohortError):
    """A store behind a URL cannot be read; `path` is the URL of the file."""
